"""What callers may say of a program besides its arguments."""

import pytest

from noonmark.core.targets.command import CommandRules

RULES = CommandRules(env=frozenset({"LEVEL"}), folders=("/srv/jobs", "/data/"), reserved=frozenset({"NOONMARK_STORE"}))


@pytest.mark.parametrize("name", ["LEVEL", "NOONMARK_MINE", "NOONMARK_"])
def test_variables_that_are_named_and_names_of_their_own_may_be_set(name):
    assert RULES.env_problem(name) is None


@pytest.mark.parametrize(
    "name", ["TAR_OPTIONS", "MAKEFILES", "OPENSSL_CONF", "HOME", "LD_PRELOAD", "level", "LEVEL2", "NOONMARK_STORE", "*"]
)
def test_no_other_may(name):
    assert RULES.env_problem(name) == (
        f'callers may not set "{name}"; to allow it, start the server with --allow-env {name}'
    )


def test_a_star_opens_all_but_what_a_program_is_reported():
    rules = CommandRules(env=frozenset({"*"}), reserved=RULES.reserved)
    assert rules.env_problem("HOME") is None
    assert rules.env_problem("NOONMARK_STORE") is None
    assert rules.env_problem("NOONMARK_ATTEMPT") == "is set by Noonmark for every run"


@pytest.mark.parametrize("cwd", ["/srv/jobs", "/srv/jobs/", "/srv/jobs/a/../b", "/srv/x/../jobs/b", "/data", "/data/x"])
def test_folders_below_those_that_are_named_are_open(cwd):
    assert RULES.cwd_problem(cwd) is None


@pytest.mark.parametrize("cwd", ["/", "/srv", "/srv/jobs2", "/srv/jobs/..", "/srv/jobs/../../etc", "//data/x"])
def test_no_others_are(cwd):
    assert "not below a folder that --allow-cwd names" in RULES.cwd_problem(cwd)


def test_it_must_be_absolute():
    assert RULES.cwd_problem("jobs") == 'must be an absolute path, not "jobs"'
    assert CommandRules().cwd_problem("/srv") is not None


def test_the_root_is_above_everything():
    assert CommandRules(folders=("/",)).cwd_problem("/etc") is None
