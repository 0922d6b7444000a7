"""Runs every documented command of the job runtime's command line that needs no bundle."""

import re
from collections.abc import Mapping

import pytest

from tests.cli.documented import COMMANDS
from tests.cli.runner import Cli, contains

PLACE = re.compile(r"\{(id|paused|trigger|event)\}")


class Fixtures:
    """Creates what a command refers to."""

    def __init__(self, cli):
        self.cli = cli
        self._made = {}

    def put(self, value):
        """Replace placeholders with the ids of existing things."""
        if isinstance(value, Mapping):
            return {name: self.put(one) for name, one in value.items()}
        return PLACE.sub(lambda match: self._id(match[1]), value) if isinstance(value, str) else value

    def _id(self, what):
        if what not in self._made:
            self._made[what] = getattr(self, f"_make_{what}")()
        return self._made[what]

    def _make_id(self):
        return self.cli.create("--cron", "0 0 1 1 *")

    def _make_paused(self):
        made = self.cli.create("--cron", "0 0 1 1 *")
        return self.cli.json("schedule", "pause", made)["schedule_id"]

    def _make_trigger(self):
        return self.cli.json("trigger", "create", "--function", "nobody", "--event", "never")["schedule_id"]

    def _make_event(self):
        return self.cli.json("event", "emit", "something")["event_id"]


def check_documented(cli, one):
    fixtures = Fixtures(cli)
    command = [fixtures.put(word) for word in one.command]
    has, lacks = [set(map(fixtures.put, ids)) for ids in (one.has, one.lacks)]
    answer = cli.json(*command)
    assert contains(answer, fixtures.put(one.gives)), answer
    listed = (
        {entry.get("schedule_id") or entry.get("event_id") for entry in next(iter(answer.values()))} if has else set()
    )
    assert (has - listed, lacks & listed) == (set(), set()), answer
    return command


@pytest.fixture(scope="module")
def store_cli(tmp_path_factory):
    return Cli("--store", f"sqlite:///{tmp_path_factory.mktemp('store') / 'documented.db'}")


@pytest.mark.parametrize("one", COMMANDS, ids=lambda one: one.does)
def test_documented_command_on_a_store(store_cli, one):
    command = check_documented(store_cli, one)
    shown = store_cli(*command)
    assert shown.replace("\n", "").isprintable()
    assert not shown.startswith("{")
