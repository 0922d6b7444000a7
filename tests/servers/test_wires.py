"""The wire, with a real process at its far end: what is lost, in which direction, and that it can be restored."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from noonmark.clocks import SystemClock
from noonmark.core.instants import SECOND
from tests.servers.proxy import TO_CLIENT, TO_SERVER
from tests.servers.wires import wired

ROOT = Path(__file__).parents[2]
CLOCK = SystemClock()
BEFORE, AFTER = range(10), range(20, 40)


class Writer:
    """Tells the process what to write."""

    def __init__(self, wire):
        self._wire = wire
        self._process = subprocess.Popen(
            [*wire.command, sys.executable, "-m", "tests.servers.writer", wire.url("postgres")],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def write(self, number):
        """What the process says of it."""
        self._process.stdin.write(f"{number}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def is_told(self, *numbers):
        """Whether the process is told of one of these; it may find its old connection broken first."""
        return any(self.write(number) == "told" for number in numbers)

    def kept(self):
        return {int(number) for number in self._wire.server.sql("SELECT id FROM marks").split()}

    def keeps(self, number):
        """Whether it is written at last; a busy server may not be done with it."""
        deadline = CLOCK.monotonic() + 60 * SECOND
        while number not in self.kept() and CLOCK.monotonic() < deadline:
            pass
        return number in self.kept()

    def close(self):
        self._process.kill()
        self._process.communicate()


@pytest.fixture(params=["best", "proxy"])
def wire(request):
    """The best that this user may have, and one that everybody may have."""
    with wired(namespaced=request.param == "best") as made:
        made.server.sql("CREATE TABLE marks (id int PRIMARY KEY)")
        yield made


@pytest.fixture
def writer(wire):
    made = Writer(wire)
    yield made
    made.close()


def test_a_wire_that_is_pulled_lets_nothing_through_until_it_is_plugged(wire, writer):
    assert writer.is_told(*BEFORE)
    wire.pull()
    assert writer.write(10).startswith("not told")
    assert writer.write(11).startswith("not told"), "neither can it connect again"
    assert 10 not in writer.kept()
    wire.plug()
    assert writer.is_told(*AFTER)
    assert 11 not in writer.kept()


def test_what_the_server_says_can_be_lost_alone(wire, writer):
    assert writer.is_told(*BEFORE)
    wire.lose(TO_CLIENT)
    assert writer.write(10).startswith("not told")
    assert writer.keeps(10), "it has been done all the same"
    assert writer.write(11).startswith("not told")
    wire.plug()
    assert writer.is_told(*AFTER)


def test_what_the_client_says_can_be_lost_alone(wire, writer):
    assert writer.is_told(*BEFORE)
    wire.lose(TO_SERVER)
    assert writer.write(10).startswith("not told")
    assert 10 not in writer.kept()
    wire.plug()
    assert writer.is_told(*AFTER)


def test_a_namespace_leaves_nothing_behind():
    with wired() as wire:
        assert wire.server.sql("SELECT 1", "postgres") == "1"
        if wire.kind == "namespace":
            assert wire.command[-1] in listed("netns")
    if wire.kind == "namespace":
        assert wire.command[-1] not in listed("netns")
        assert f"{wire._namespace.near_card}@" not in listed("link")


def listed(what):
    return subprocess.run(["ip", what, "show"], check=True, capture_output=True, text=True).stdout
