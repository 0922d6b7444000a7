"""The unit of work of the Redis store: rows and schedules, with everything that belongs to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.admission import Start
from noonmark.core.ids import stored_id
from noonmark.core.system_events import ENDS, SystemEvent
from noonmark.ports.records import NODE_LISTED
from noonmark.stores.redis import dependencies, events, halts, nodes, subscriptions
from noonmark.stores.redis.accounts import audit_log, budgets, proposals, rate_buckets
from noonmark.stores.redis.schedule_records import ScheduleRecords
from noonmark.stores.redis.workflows import bundles, sessions
from noonmark.stores.redis.workflows.workflow_records import WorkflowRecords

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from noonmark.core.admission import Admission
    from noonmark.core.budgets.budget import Reservation
    from noonmark.core.event import Event
    from noonmark.core.halt import Halt
    from noonmark.core.instants import Micros
    from noonmark.core.lifecycle import Phase
    from noonmark.core.rate_limit import RateLimit, Taken
    from noonmark.core.schedule import AuditEntry
    from noonmark.core.settlement import Settlement
    from noonmark.ports.bundles import Bundle
    from noonmark.stores.redis.schedule_records import RowKeys
    from noonmark.stores.redis.transactions.transaction import Transaction
    from noonmark.stores.rules.records import EventStream, Row, ScheduleState
    from noonmark.stores.rules.unit_of_work import (
        FireQuestion,
        Identity,
        ListenerQuestion,
        NodeProcess,
        ReadEvent,
        Subscription,
        Topic,
    )
    from noonmark.stores.sql.schedule_documents import ScheduleCache


class UnitOfWork(ScheduleRecords):
    """One transaction: what the rules ask of the store."""

    workflows: WorkflowRecords
    sessions: sessions.SessionRecords
    budgets: budgets.BudgetRecords
    proposals: proposals.ProposalRecords

    def __init__(self, transaction: Transaction, schedule_cache: ScheduleCache, row_keys: RowKeys) -> None:
        super().__init__(transaction, schedule_cache, row_keys)
        self.damaged_streams: list[str] = []
        """The tenants of event streams that are damaged."""
        self._halts: dict[str, list[Halt]] = {}
        self._notes: list[tuple[str, AuditEntry]] = []
        self.workflows = WorkflowRecords(self)
        self.sessions = sessions.SessionRecords(self)
        self.budgets = budgets.BudgetRecords(self)
        self.proposals = proposals.ProposalRecords(self)

    # Rows

    def expect_starts(self, admissions: Sequence[Admission]) -> None:
        """Read what starts need, as far as it is known where that is, in one round trip."""
        places = self.row_keys.find(one.claim.occurrence.id for one in admissions)
        tenants = {one.claim.schedule.owner.tenant for one in admissions}
        reservations = [one.reservation for one in admissions if isinstance(one, Start) and one.reservation is not None]
        more, questions = self.budgets.expected(reservations)
        self.read_places(places, more, [*halts.questions(self.transaction, tenants), *questions])

    def expect_calls(self, reservations: Sequence[Reservation]) -> None:
        """Read what calls of models need, likewise."""
        places = self.row_keys.find(stored_id(one.occurrence_id) for one in reservations if one.fence is not None)
        self.read_places(places, *self.budgets.expected(reservations))

    def expect_ends(self, settlements: Sequence[Settlement]) -> None:
        """Read what ends need, likewise: rows, open runs, and whether a schedule listens for what they emit."""
        places = self.row_keys.find(one.occurrence.id for one in settlements)
        fences = {one.occurrence.id: one.occurrence.fence for one in settlements}
        runs = [(key, fences[one]) for one, (key, _) in places.items()]
        topics = {(one.tenant, str(ENDS[one.phase])) for one in settlements if one.phase in ENDS}
        topics |= {(tenant, str(SystemEvent.SCHEDULE_COMPLETED)) for tenant, _ in topics}
        questions = [*subscriptions.questions(self.transaction, topics), *self.workflows.questions(topics)]
        self.read_places(places, [(self.runs, runs)], questions)

    def rows_awaiting_upstreams(self, state: ScheduleState, ended: Row | None = None) -> list[Row]:
        now = self.now()
        rows = [row for row in self.find_rows("awaiting", state.schedule) if row.awaits_upstreams(now)]
        return rows if ended is None else [row for row in rows if dependencies.may_end_wait(ended, row)]

    def rows_beyond(self, state: ScheduleState, after: Micros) -> list[Row]:
        rows = {
            row.key: row
            for index in ("history", "gaps")
            for row in self.find_rows(index, state.schedule, after=(after,))
        }
        return [row for row in rows.values() if dependencies.is_fire(row) and row.last_nominal > after]

    def newest_fires(self, questions: Sequence[FireQuestion]) -> dict[int, tuple[Micros, Phase]]:
        return dependencies.newest_fires(self, questions)

    def remove_row(self, row: Row) -> None:
        del self._rows[row.key], self._by_id[row.id]
        self._missing.add(row.id)
        self._changed_rows.pop(row.key, None)
        self.forget_rows([row])

    def forget_rows(self, rows: Sequence[Row]) -> None:
        """Delete rows, with their runs and whatever else belongs to them."""
        stored = [row for row in rows if row.stored is not None]
        keys_by_row = self.runs.find_each("of_occurrence", [(row.key,) for row in stored if row.fence])
        for key in self.runs.get_many(key for keys in keys_by_row for key in keys):
            self.runs.delete(*key)
        self.workflows.forget(*stored)
        for row in stored:
            self.rows.delete(row.key)

    # Schedules

    def known_ids(self, identities: Collection[Identity]) -> tuple[set[Identity], set[Identity]]:
        taken = set(self.schedules.look_up_many("by_id", identities)) if identities else set()
        return taken, dependencies.followed(self.transaction, identities)

    def last_heartbeats(self, routes: Collection[str]) -> tuple[Micros | None, Mapping[str, Micros]]:
        # A heartbeat from the future is damaged, or of a clock that was wrong: it says nothing about now.
        return nodes.last_heartbeats(self.transaction, routes, self.now() + NODE_LISTED)

    def add_audit_entry(self, tenant: str, entry: AuditEntry) -> None:
        self._notes.append((tenant, entry))

    # Halts, bundles and limits

    def halts(self, tenant: str) -> list[Halt]:
        if tenant not in self._halts:
            self._halts[tenant] = halts.read(self.transaction, self.report, tenant)
        return self._halts[tenant]

    def add_halt(self, halt: Halt) -> None:
        self._halts.pop(halt.tenant, None)
        halts.add(self.transaction, halt)

    def delete_halt(self, tenant: str, halt_id: str) -> Halt | None:
        deleted = next((halt for halt in self.halts(tenant) if halt.halt_id == halt_id), None)
        if deleted is not None:
            self._halts.pop(tenant)
            halts.delete(self.transaction, deleted)
        return deleted

    def find_bundle(self, tenant: str, bundle_id: str | None, digest: str | None) -> Bundle | None:
        return bundles.find(self.transaction, tenant, bundle_id, digest)

    def take_tokens(self, name: str, limit: RateLimit, wanted: int) -> Taken:
        return rate_buckets.take(self.transaction, name, limit, wanted)

    # Dependencies

    def downstream(self, state: ScheduleState) -> list[tuple[ScheduleState, bool]]:
        follows = dependencies.downstream(self.transaction, state.schedule)
        return [(other, follows[other.schedule]) for other in self.states_of(follows)]

    def set_upstreams(self, state: ScheduleState, tenant: str, upstreams: Sequence[str]) -> None:
        dependencies.replace(self.transaction, state.schedule, tenant, upstreams)

    def graph_version(self, tenant: str) -> int:
        return dependencies.version(self.transaction, tenant)

    def raise_graph_version(self, tenant: str) -> None:
        dependencies.raise_version(self.transaction, tenant)

    # Events

    def subscribed(self, topics: Collection[Topic]) -> set[Topic]:
        subscribed = subscriptions.subscribed(self.transaction, topics)
        return subscribed | self.workflows.waited_topics(set(topics) - subscribed)

    def subscribed_tenants(self, event_type: str) -> list[str]:
        listening = subscriptions.tenants(self.transaction, event_type)
        return sorted(listening | self.workflows.waiting_tenants(event_type))

    def add_subscriptions(self, added: Sequence[tuple[ScheduleState, str, Subscription]]) -> None:
        subscriptions.add(self.transaction, [(state.schedule, tenant, one) for state, tenant, one in added])

    def replace_subscriptions(self, state: ScheduleState, tenant: str, subscribed: Sequence[Subscription]) -> None:
        subscriptions.delete(self.transaction, state.schedule)
        subscriptions.add(self.transaction, [(state.schedule, tenant, one) for one in subscribed])

    def listener_fields(self, tenant: str, types: Collection[str]) -> dict[str, list[str]]:
        return subscriptions.fields_of(self.transaction, tenant, types)

    def listeners(self, tenant: str, questions: Sequence[ListenerQuestion], limit: int) -> list[list[int]]:
        return subscriptions.listeners(self.transaction, tenant, questions, limit)

    def known_event_ids(self, tenant: str, event_ids: Collection[str | None]) -> set[str | None]:
        return events.known_ids(self.transaction, tenant, event_ids)

    def newest_moment(self, tenant: str) -> Micros:
        return events.newest_moment(self.transaction, tenant)

    def events_after(self, tenant: str, after: Micros) -> list[Micros]:
        return events.moments_after(self.transaction, tenant, after)

    def last_event_until(self, tenant: str, until: Micros) -> Micros | None:
        return events.last_until(self.transaction, tenant, until)

    def move_events(self, tenant: str, moments: Mapping[Micros, Micros], newest: Micros, matched_until: Micros) -> None:
        events.move(self.transaction, tenant, moments, newest, matched_until)

    def add_events(self, tenant: str, added: Sequence[Event]) -> None:
        events.add(self.transaction, tenant, added)

    def pending_streams(self, limit: int) -> list[EventStream]:
        streams, self.damaged_streams = events.pending_streams(self.transaction, limit)
        return streams

    def unmatched_events(self, stream: EventStream, limit: int) -> list[ReadEvent]:
        unmatched = events.waiting(self.transaction, stream, limit)
        if not unmatched:
            self.damaged_streams.append(stream.tenant)
        return unmatched

    def load_streams(self, tenants: Sequence[str]) -> dict[str, EventStream]:
        return events.load_streams(self.transaction, tenants)

    def changed_streams(self, streams: Iterable[EventStream]) -> None:
        events.write_streams(self.transaction, streams)

    def process_of(self, node: str | None) -> NodeProcess:
        return nodes.process_of(self.transaction, node)

    def mark_process_gone(self, node: str) -> None:
        nodes.mark_gone(self.transaction, node, now=self.now())

    def mark_node_lost(self, node: str, seen: Micros) -> bool:
        return nodes.miss(self.transaction, node, seen)

    # Writing

    def write(self) -> None:
        """Put everything that has changed into the transaction."""
        self.stage()
        if self._runs:
            self._write_runs()
        self.workflows.write()
        self.budgets.write()
        if self._notes:
            audit_log.add(self.transaction, self._notes)
            self._notes.clear()
