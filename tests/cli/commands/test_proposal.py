"""`noonmark schedule proposals`, `approve` and `deny`, as a person reads them."""

from dataclasses import replace
from itertools import count

import pytest

from noonmark.clocks import SystemClock
from noonmark.core.api_key import Scope
from noonmark.core.instants import SECOND
from noonmark.operations.service import LOCAL, Service
from noonmark.operations.table import perform
from noonmark.stores.sqlite.store import SqliteStore
from tests.cli.runner import call

AGENT = replace(LOCAL, name="ada", scopes=frozenset({Scope.PROPOSE}), is_agent=True, key_id="nm_live_agent1")
NIGHTLY = {
    "schedule_id": "nightly",
    "trigger": {"type": "cron", "expression": "0 2 * * *", "timezone": "UTC"},
    "target": {"target_kind": "function", "function": "report"},
}


@pytest.fixture
def store(tmp_path):
    """The URL of a store with a proposed schedule, and a proposed change of another one."""
    numbers, stored = count(1), SqliteStore(str(tmp_path / "cli.db"), SystemClock().micros)
    stored.open()
    service = Service(store=stored, lookahead=2 * SECOND, fresh_id=lambda: f"fresh{next(numbers)}")
    perform(service, LOCAL, "schedule/create", {**NIGHTLY, "schedule_id": "job", "description": "old"})
    perform(service, AGENT, "schedule/create", NIGHTLY)
    perform(service, AGENT, "schedule/update", {"schedule_id": "job", "description": "new"})
    stored.close()
    return f"sqlite:///{tmp_path / 'cli.db'}"


def test_proposals_are_listed_shown_and_decided(store):
    listed = call("schedule", "proposals", "--store", store)
    assert listed.code == 0
    assert "an agent of ada" in listed.out
    assert listed.out.endswith("2 proposals\n")
    shown = call("schedule", "proposals", "job", "--store", store).out
    assert [line.split() for line in shown.splitlines() if line.startswith("description")] == [
        ["description", "old", "new"]
    ]
    assert "update job, based on revision 1, proposed by an agent of ada" in shown
    approved = call("schedule", "approve", "nightly", "--comment", "fine", "--store", store)
    assert (approved.code, approved.out) == (0, "Approved the proposal for nightly; it is active.\n")
    denied = call("schedule", "deny", "job", "--store", store)
    assert (denied.code, denied.out) == (0, "Denied the proposal for job; it is active.\n")
    assert call("schedule", "proposals", "--store", store).out == "0 proposals\n"
    again = call("schedule", "approve", "nightly", "--store", store)
    assert again.errors == ["schedule_id: nothing is proposed for the schedule 'nightly'"]
