"""Whatever two nodes do with a SQLite store, it answers as the memory store does."""

import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from noonmark.stores.sqlite.sharing import due_in_turn

from noonmark.core import edits
from noonmark.core.admission import Busy, refused
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.run import Outcome
from noonmark.core.settlement import Delivered, settle
from noonmark.ports.records import Admitted
from noonmark.stores.memory import MemoryStore
from noonmark.stores.sqlite import SqliteStore
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, ROUTE
from tests.conformance.test_memory_model import LIMIT, UIDS, TwoNodes, done, nodes, overlaps, uids


class Both:
    """Two stores that must give the same answers."""

    def __init__(self, one, other):
        self._one, self._other = one, other

    def __getattr__(self, verb):
        async def asked(*args, **kwargs):
            if verb == "claim" and kwargs["shares"] is not None:
                return await self._share(*args, **kwargs)
            if verb in ("claim", "orphans"):
                return await self._lease(verb, *args, **kwargs | {"limit": 1_000})
            expected = await getattr(self._one, verb)(*args, **kwargs)
            assert await getattr(self._other, verb)(*args, **kwargs) == expected, verb
            return expected

        return asked

    async def _lease(self, verb, *args, **kwargs):
        """All that there is: of rows with the same times, either store may take any first."""
        expected, found = [await getattr(store, verb)(*args, **kwargs) for store in (self._one, self._other)]
        assert sorted(found, key=identity) == sorted(expected, key=identity), verb
        return expected

    async def _share(self, node, routes, *, now, until, limit, lease, shares):
        """The same owners, in the same order; then the same rows, one by one."""
        with self._other._connections.reading() as connection:
            found = due_in_turn(connection, routes, shares, now=now, until=until, limit=limit)
        rows = [self._one._ledger.rows[columns[2]] for columns in found]
        expected = await self._one.claim(node, routes, now=now, until=until, limit=limit, lease=lease, shares=shares)
        owners = [claim.schedule.owner for claim in expected]
        assert list(dict.fromkeys(row.sheet.schedule.owner for row in rows)) == list(dict.fromkeys(owners))
        for claim in expected:
            only = claim.occurrence.id
            [same] = await self._other.claim(node, routes, now=now, until=until, limit=1, lease=lease, only=only)
            assert same == claim
        return expected


def identity(claim):
    return claim.occurrence.id


class TwoNodesAndAFile(TwoNodes):
    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        memory = MemoryStore(self.clock)
        self.ledger = memory._ledger
        self.sqlite = SqliteStore(Path(self.folder.name) / "noonmark.db", self.clock)
        done(self.sqlite.open())
        self.store = Both(memory, self.sqlite)

    def teardown(self):
        done(self.sqlite.close())
        self.folder.cleanup()

    @rule(uid=uids, way=st.sampled_from(["edit", "pause", "resume", "delete"]), data=st.data())
    def change(self, uid, way, data):
        """As its base does, but an edit must be one that a document can say: a file keeps documents."""
        snapshot = self.snapshot(uid)
        if way != "edit":
            super().change(uid, way, data)
        elif snapshot.schedule.phase is not SchedulePhase.DELETED:
            changed = replace(
                snapshot.schedule.declaration,
                overlap_policy=data.draw(overlaps),
                concurrency=data.draw(st.sampled_from([None, LIMIT])),
                max_runs=data.draw(st.sampled_from([None, 3, 5])),
                timeout=data.draw(st.integers(1, 3)) * SECOND,
            )
            self.relimited.add(uid)
            self.plans.append(edits.edit(snapshot, changed, now=self.now(), lookahead=LOOKAHEAD))

    @precondition(lambda self: any(self.decisions.values()))
    @rule(node=nodes)
    def carry_out_together(self, node):
        """All that was decided, in one call."""
        decisions, self.decisions[node] = self.decisions[node], []
        answers = done(self.store.admit(decisions, now=self.now(), lease=LEASE))
        for decision, answer in zip(decisions, answers, strict=True):
            if isinstance(answer, Busy):
                self.decisions[node].append(refused(decision.claim, answer))
            elif isinstance(answer, Admitted) and answer.occurrence.phase is Phase.DISPATCHING:
                self.started[node].append((answer.occurrence, decision.claim.schedule.declaration))

    @precondition(lambda self: any(self.started.values()))
    @rule(node=nodes, outcomes=st.lists(st.sampled_from(Outcome), min_size=6, max_size=6))
    def settle_together(self, node, outcomes):
        runs, self.started[node] = self.started[node][:6], self.started[node][6:]
        settlements = [
            settle(one, declared, Delivered(outcome=outcome, started=self.now(), ended=self.now()), node=node)
            for (one, declared), outcome in zip(runs, outcomes, strict=False)
        ]
        for one, accepted in zip(settlements, done(self.store.settle(settlements)), strict=True):
            if accepted and one.retry_at is None:
                self.finals[one.occurrence.id] = self.finals.get(one.occurrence.id, 0) + 1

    @rule(keep=st.integers(0, 3), limit=st.integers(1, 3), age=st.sampled_from([0, LEASE]))
    def look_up(self, keep, limit, age):
        for uid in UIDS:
            done(self.store.find("acme", f"schedule-of-{uid}"))
            done(self.store.occurrences(uid, limit))
            done(self.store.runs(uid))
        done(self.store.overdue(now=self.now() + age, limit=limit))
        done(self.store.nodes())

    @invariant()
    def both_know_the_same(self):
        done(self.store.next_time([ROUTE]))
        done(self.store.plannable(self.now(), 10))
        for uid in UIDS:
            if done(self.store.snapshot(uid)) is not None:
                done(self.store.occurrences(uid))

    @invariant()
    def counters_count(self):
        with self.sqlite._connections.reading() as connection:
            counted = connection.execute(
                "SELECT live, history, queued, holder, (SELECT count(*) FROM occurrences AS o WHERE ended IS NULL AND"
                " o.schedule = s.schedule), (SELECT count(*) FROM occurrences AS o WHERE ended IS NOT NULL AND"
                " o.schedule = s.schedule), (SELECT count(*) FROM occurrences AS o WHERE phase = 'pending' AND"
                " waiting_for = 'queued' AND ready IS NULL AND o.schedule = s.schedule), (SELECT key FROM occurrences"
                " AS o WHERE holds_slot AND o.schedule = s.schedule) FROM schedule_states AS s"
            ).fetchall()
            places = connection.execute(
                "SELECT taken, waiting, (SELECT count(*) FROM occurrences WHERE place = k.key), (SELECT count(*) FROM"
                " occurrences WHERE wanted = k.key) FROM concurrency_keys AS k"
            ).fetchall()
        assert all(row[:4] == row[4:] for row in counted), counted
        assert all(row[:2] == row[2:] for row in places), places


TwoNodesAndAFile.TestCase.settings = settings(max_examples=80, stateful_step_count=40)
TestTwoNodesAndAFile = TwoNodesAndAFile.TestCase
