"""Every documented command of the job runtime's command line that needs no bundle, carried out."""

import re
from collections.abc import Mapping

import pytest

from tests.cli.documented import COMMANDS
from tests.cli.runner import Cli, contains

PLACE = re.compile(r"\{(id|paused|trigger|event)\}")


class Stage:
    """What a command finds when it is given, made as far as the command speaks of it."""

    def __init__(self, cli):
        self.cli = cli
        self._made = {}

    def put(self, value):
        """A value with the ids of what is there in their places."""
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


def carry_out(cli, one):
    stage = Stage(cli)
    command = [stage.put(word) for word in one.command]
    has, lacks = [set(map(stage.put, ids)) for ids in (one.has, one.lacks)]
    answer = cli.json(*command)
    assert contains(answer, stage.put(one.gives)), answer
    listed = (
        {entry.get("schedule_id") or entry.get("event_id") for entry in next(iter(answer.values()))} if has else set()
    )
    assert (has - listed, lacks & listed) == (set(), set()), answer
    return command


@pytest.fixture(scope="module")
def on_store(tmp_path_factory):
    return Cli("--store", f"sqlite:///{tmp_path_factory.mktemp('store') / 'documented.db'}")


@pytest.mark.parametrize("one", COMMANDS, ids=lambda one: one.does)
def test_a_documented_command_on_a_store(on_store, one):
    command = carry_out(on_store, one)
    shown = on_store(*command)
    assert shown.replace("\n", "").isprintable()
    assert not shown.startswith("{")
