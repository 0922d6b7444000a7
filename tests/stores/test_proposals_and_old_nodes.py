"""Nodes of an older version beside proposals: they see nothing of them when they plan and start."""

from dataclasses import replace

import pytest

from noonmark.core.instants import SECOND
from noonmark.core.planner import first_plan
from noonmark.core.proposals import Proposal, ProposedAction
from noonmark.core.schedule import AuditEntry
from noonmark.core.triggers import EventTrigger
from noonmark.stores.postgres import PostgresStore
from noonmark.stores.sql.schema import tables
from noonmark.stores.sqlite import SqliteStore
from noonmark.testing import factories
from noonmark.testing.conformance import HandClock
from noonmark.testing.conformance.bench import LOOKAHEAD
from noonmark.testing.factories import NOW

FOR_PEOPLE = {"proposals", "notes"}
"""What a proposal writes: its own record, and the receipt in the audit log."""
YEAR = 365 * 86_400 * SECOND


@pytest.fixture(params=["sqlite", "postgres"])
def store(request, tmp_path):
    if request.param == "sqlite":
        made = SqliteStore(str(tmp_path / "noonmark.db"), HandClock())
    else:
        made = PostgresStore(request.getfixturevalue("database").url, HandClock())
    made.open()
    yield made
    made.close()


def contents(store):
    """All rows of all tables."""
    names = [table.name for table in tables.metadata.sorted_tables]

    def read(uow):
        return {name: sorted(map(repr, uow.session.query(f"SELECT * FROM {name}"))) for name in names}  # noqa: S608

    return store._autocommit(read)


def proposals(schedule):
    """One of each action: a schedule by the clock and one by events, and changes of a schedule."""
    base = Proposal(
        proposal_id="",
        action=ProposedAction.CREATE,
        uid="",
        schedule_id="",
        owner=schedule.owner,
        document=factories.declaration().to_document(),
        source="mcp",
        by="ada",
        proposed=NOW,
        expires=NOW + 2 * YEAR,
    )
    heard = factories.declaration(trigger=EventTrigger("seen")).to_document()
    yield replace(base, proposal_id="p1", uid="by-clock", schedule_id="by-clock")
    yield replace(base, proposal_id="p2", uid="by-event", schedule_id="by-event", document=heard)
    change = replace(base, uid=schedule.uid, schedule_id=schedule.schedule_id, base_revision=1)
    yield replace(change, proposal_id="p3", action=ProposedAction.UPDATE, document={"max_runs": 1})
    yield replace(change, proposal_id="p4", action=ProposedAction.DELETE, document={})


def test_a_proposal_leaves_every_table_as_it_was_that_an_older_node_plans_and_claims_from(store):
    schedule = factories.schedule("job")
    assert store.create([first_plan(schedule, lookahead=LOOKAHEAD)]) == [True]
    before = contents(store)
    note = AuditEntry(at=NOW, caller="ada", operation="schedule/create")
    for proposal in proposals(schedule):
        assert store.put_proposal(proposal, most=9, note=note)
        after = contents(store)
        assert {name for name, rows in after.items() if rows != before[name]} <= FOR_PEOPLE
        if proposal.action is ProposedAction.UPDATE:  # there is one for each schedule
            assert store.deny_change("acme", schedule.schedule_id, proposal.proposal_id, note=note)
    assert {one.schedule.uid for one in store.plannable(NOW + YEAR, 9)} == {"job"}
    assert store.find("acme", "by-clock", deleted=True) is None
