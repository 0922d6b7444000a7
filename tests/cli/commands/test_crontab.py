"""`noonmark import crontab`: a file, or schedules."""

import pytest

from tests.cli.runner import Cli, call

CRONTAB = """\
# Every night
30 2 * * 1-5  /usr/local/bin/backup "${HOME}" '{{.Names}}'
@hourly sync
"""


@pytest.fixture
def store(tmp_path):
    return f"sqlite:///{tmp_path}/cron.db"


def test_the_file_and_the_import_make_the_same_schedules_and_again_nothing(store):
    shown = call("import", "crontab", "-", stdin=CRONTAB.encode())
    assert (shown.code, shown.err) == (0, "")
    assert call("apply", "-f", "-", "--store", store, stdin=shown.out.encode()).code == 0
    commands = [one["target"]["argv"][2] for one in Cli("--store", store).json("schedule", "list")["schedules"]]
    assert sorted(commands) == ["/usr/local/bin/backup \"${HOME}\" '{{.Names}}'", "sync"]
    again = call("import", "crontab", "-", "--apply", "--store", store, stdin=CRONTAB.encode())
    assert again.out == "No changes: 2 unchanged.\n"
    changed = CRONTAB.replace("30 2", "30 3").replace("@hourly sync\n", "")
    result = call("import", "crontab", "-", "--apply", "--prune", "--json", "--store", store, stdin=changed.encode())
    assert result.json["counts"] == {"create": 0, "change": 1, "delete": 1, "unchanged": 0}


def test_a_bad_line_refuses_all_unless_it_is_skipped(store, tmp_path):
    path = tmp_path / "crontab"
    path.write_text(CRONTAB + "MAILTO=me\n@reboot x\n* * * *\n")
    refused = call("import", "crontab", path, "--apply", "--store", store)
    assert refused.code == 2
    assert [line.partition(": ")[0] for line in refused.errors] == [f"{path}:5", f"{path}:6", f"{path}"]
    assert not (tmp_path / "cron.db").exists()
    answer = call("import", "crontab", path, "--apply", "--skip-bad", "--store", store)
    assert answer.code == 0
    assert "Plan: 2 to create" in answer.out
    assert [line.split(": ")[1:3] for line in answer.err.splitlines()] == [
        ["note", f"{path}:4"],
        ["skipped", f"{path}:5"],
        ["skipped", f"{path}:6"],
    ]


def test_a_dry_run_shows_what_would_change_and_changes_nothing(store, tmp_path):
    path = tmp_path / "crontab"
    path.write_text(CRONTAB)
    assert call("import", "crontab", path, "--apply", "--store", store).code == 0
    path.write_text("")
    planned = call("import", "crontab", path, "--prune", "--dry-run", "--store", store)
    assert (planned.code, planned.err) == (0, "")
    assert "Plan: 0 to create, 0 to change, 2 to delete" in planned.out
    assert len(call("schedule", "list", "--store", store, "--json").json["schedules"]) == 2


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(("nowhere",), 3), (("-", "--prune"), 2), (("-", "--managed-by", ""), 2), (("--bad", "x"), 2)],
)
def test_wrong_arguments(arguments, code):
    assert call("import", "crontab", *arguments, stdin=b"").code == code


def test_a_crontab_is_text_of_at_most_a_mebibyte():
    assert call("import", "crontab", "-", stdin=b"\xff").errors == ["standard input: is not UTF-8 text: byte 1 is 0xff"]
    assert call("import", "crontab", "-", stdin=b"#" * 1_048_577).errors == ["standard input: is larger than 1 MiB"]
