"""Pages that are followed at a shell, from top to bottom, with a real server: what they show is what comes."""

import shutil

import pytest

from tests.docs.session import BLOCK, Session, steps
from tests.docs.test_documents import PAGES, ROOT
from tests.servers import redis, temporal

FOLLOWED = [page for page in PAGES if any(kind == "shellsession" for kind, _, _ in BLOCK.findall(page.read_text()))]
MOVING = ROOT / "docs" / "guides" / "moving.md"
TEMPORAL = ROOT / "docs" / "guides" / "temporal.md"
REDIS = ROOT / "docs" / "guides" / "redis.md"
WITH_SERVERS = (MOVING, TEMPORAL, REDIS)
DATABASE = "postgresql://jobs@db.example/jobs"
REDIS_URL = "redis://redis.example:6379/0"


@pytest.mark.skipif(shutil.which("curl") is None, reason="the pages use curl")
@pytest.mark.parametrize(
    "page", [one for one in FOLLOWED if one not in WITH_SERVERS], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_the_page_does_what_it_says(page, tmp_path):
    with Session(tmp_path) as session:
        assert session.follow(page) > 1


def test_the_guide_about_moving_does_what_it_says(database, tmp_path):
    page = tmp_path / "moving.md"
    page.write_text(MOVING.read_text("utf-8").replace(DATABASE, database.url), "utf-8")
    with Session(tmp_path) as session:
        assert session.follow(page) > 1


def test_the_guide_about_temporal_does_what_it_says(tmp_path):
    page = tmp_path / "temporal.md"
    with temporal.running() as server, Session(tmp_path) as session:
        page.write_text(TEMPORAL.read_text("utf-8").replace("localhost:7233", server.address), "utf-8")
        assert session.follow(page) > 1


def test_the_guide_about_redis_does_what_it_says(tmp_path):
    text, page = REDIS.read_text("utf-8"), tmp_path / "redis.md"
    settings, *_ = [shown for kind, _, shown in BLOCK.findall(text) if kind == "text"]
    with redis.running(**dict(line.split() for line in settings.splitlines()), save="") as server:
        page.write_text(text.replace(REDIS_URL, server.url()), "utf-8")
        with Session(tmp_path) as session:
            assert session.follow(page) > 1
        [program] = [shown for kind, _, shown in BLOCK.findall(page.read_text("utf-8")) if kind == "py"]
        scope = {}
        exec(program, scope)  # noqa: S102 - our own page
        scope["scheduler"].close()


def test_the_first_page_the_tutorial_and_the_guide_are_followed():
    assert {page.relative_to(ROOT).as_posix() for page in FOLLOWED} >= {
        "README.md",
        "docs/tutorial/service.md",
        "docs/guides/cli.md",
    }


def test_the_guide_shows_every_group_of_commands_that_changes_something():
    text = (ROOT / "docs" / "guides" / "cli.md").read_text("utf-8")
    commands = [one for kind, _, block in BLOCK.findall(text) if kind == "shellsession" for one, _ in steps(block)]
    assert {command.split()[1] for command in commands} >= {"serve", "schedule", "trigger", "event", "call"}


def test_what_is_not_shown_is_found_out(tmp_path):
    with Session(tmp_path) as session:
        session.step("echo one two", "one ...")
        session.step("false; echo 'noonmark: no'; false", "noonmark: no")
        with pytest.raises(AssertionError, match="one"):
            session.step("echo one", "two")
        with pytest.raises(AssertionError):
            session.step("false", "")


def test_a_block_has_commands_of_several_lines_and_what_they_show():
    assert steps("$ a \\\n> b\nc\nd\n$ e\n") == [("a \\\nb", "c\nd"), ("e", "")]
