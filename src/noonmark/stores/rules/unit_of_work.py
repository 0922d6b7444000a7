"""The unit of work: what the rules ask of a store.

A store finds records, locks them and writes them; the rules decide. Records are mutable. A rule changes a record and
then calls `changed`, `changed_state` or `changed_key`; every finder sees what was reported as changed before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

from noonmark.core.frozen import fast_frozen, frozen
from noonmark.core.targets import WorkflowTarget
from noonmark.core.targets.work import is_bundle_route
from noonmark.stores.rules.records import UNSTARTED, Unreadable, new_row, to_occurrence, unpack_overrides

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from noonmark.core.budgets.budget import Standing
    from noonmark.core.event import Event
    from noonmark.core.filters.index import Discriminator
    from noonmark.core.halt import Halt
    from noonmark.core.instants import Micros
    from noonmark.core.lifecycle import Phase
    from noonmark.core.occurrence import Occurrence, Overrides
    from noonmark.core.policies.expected_rate import RateAlert
    from noonmark.core.policies.runaway import Breach
    from noonmark.core.rate_limit import RateLimit, Taken
    from noonmark.core.reasons import Reason
    from noonmark.core.run import Run
    from noonmark.core.schedule import AuditEntry, Schedule
    from noonmark.core.system_events import SystemEvent
    from noonmark.ports.bundles import Bundle
    from noonmark.stores.rules.budget_records import BudgetRecords
    from noonmark.stores.rules.proposal_records import ProposalRecords
    from noonmark.stores.rules.records import ConcurrencyKey, EventStream, Row, ScheduleState
    from noonmark.stores.rules.session_records import SessionRecords
    from noonmark.stores.rules.workflow_records import WorkflowRecords

    Identity = tuple[str, str]
    """A tenant and a schedule id."""
    Topic = tuple[str, str]
    """A tenant and an event type."""
    Subscription = tuple[str, Discriminator]
    """An event type, and what its listener is indexed by."""
    ReadEvent = tuple[Event, str]
    """An event, and what is wrong with it if it cannot be read."""


@fast_frozen
@frozen(kw_only=True)
class Fact:
    """Something that happened to a schedule or to one of its rows; an event, if a schedule subscribes to it."""

    event: SystemEvent
    state: ScheduleState
    row: Row | None = None
    schedule: Schedule | None = None
    """The schedule as it is then; None for the schedule as it is stored."""
    run: Run | None = None
    """The run that has just ended."""
    waited_for: Reason | None = None
    """What an occurrence that starts late waited for."""
    note: AuditEntry | None = None
    """Who asked for it."""
    failures: int = 0
    """After how many failures in a row a schedule was paused."""
    alert: RateAlert | None = None
    """How a schedule missed its expected rate."""
    breach: Breach | None = None
    """The rule of the runaway guard that it has broken."""


class NodeProcess(NamedTuple):
    """The process of a node: the lock that its last heartbeat names, and whether it was found to be gone since."""

    lock: str = ""
    is_gone: bool = False


class FireQuestion(NamedTuple):
    """Which fire of a schedule is the newest after a time, and up to another one."""

    number: int
    schedule: int
    after: Micros
    until: Micros


class ListenerQuestion(NamedTuple):
    """Which schedules beyond one listen for an event type with this discriminator."""

    event_type: str
    own: Discriminator
    after: int


class UnitOfWork(ABC):
    """One transaction; `now` is the store's clock."""

    if TYPE_CHECKING:  # a store makes them at once, or when they are asked for

        @property
        def workflows(self) -> WorkflowRecords:
            """Workflow runs and their steps."""

        @property
        def sessions(self) -> SessionRecords:
            """Sessions of agents."""

        @property
        def budgets(self) -> BudgetRecords:
            """Budgets, and what was spent."""

        @property
        def proposals(self) -> ProposalRecords:
            """Proposed schedules."""

    def __init__(self, now: Callable[[], Micros]) -> None:
        self.now = now
        self.facts: list[Fact] = []
        """What happened in this transaction; published at its end."""
        self.crossed: list[Standing] = []
        """Budgets whose thresholds were crossed; likewise."""
        self.system_events: list[tuple[str, Event]] = []
        """Events that belong to no stored schedule, with their tenants; published after the facts."""
        self.tenants: dict[int, str] = {}
        """The tenants of schedules, as far as they are known."""
        self.wakes_nodes = False
        """Whether a row that waited got a time, or a schedule that follows others has to be planned."""

    def lease_end(self, now: Micros, lease: Micros) -> Micros:
        """When a lease ends that was asked for at `now`; the transaction may have waited since."""
        return max(now, self.now()) + lease

    def new_row(self, occurrence: Occurrence, state: ScheduleState) -> Row:
        """The record of a new occurrence; `add_row` stores it."""
        return new_row(occurrence, key=self.key_for(occurrence.id), state=state, pack=self.pack)

    def occurrence(self, row: Row, schedule: Schedule) -> Occurrence:
        """The occurrence of a row; raises `Unreadable` if its record is damaged."""
        payload = self.unpack(row.payload, "payload")
        return to_occurrence(row, schedule.uid, schedule.schedule_id, payload, self.unpack)

    def overrides(self, row: Row) -> Overrides | None:
        """The overrides of a row, without its chain; None also if they are damaged."""
        return self.read_overrides(row.own)

    def read_overrides(self, own: object) -> Overrides | None:
        """Packed overrides, without a chain; None also if they are damaged."""
        try:
            return None if own is None else unpack_overrides(own, None, self.unpack)
        except Unreadable:
            return None

    def is_workflow_run(self, row: Row) -> bool:
        """Whether a row runs a workflow, perhaps that of a bundle."""
        if not is_bundle_route(row.route):
            return row.route == WorkflowTarget.route
        own = self.overrides(row)
        return own is not None and own.bundle is not None and own.bundle.is_workflow

    def ends_itself(self, row: Row) -> bool:
        """Whether it is a workflow run that no node delivers, but that one has to: it may have something to undo."""
        return row.phase in UNSTARTED and row.has_begun and self.is_workflow_run(row)

    # Values

    @abstractmethod
    def pack(self, value: object) -> Any:
        """A JSON value as the store holds it."""

    @abstractmethod
    def unpack(self, stored: Any, column: str) -> object:
        """The JSON value of what the store holds; raises `Unreadable`."""

    # Rows

    @abstractmethod
    def load_rows(self, ids: Iterable[str]) -> None:
        """Read rows and their schedule states in bulk."""

    @abstractmethod
    def row(self, occurrence_id: str) -> Row | None:
        """The row of an id."""

    @abstractmethod
    def loaded_row(self, occurrence_id: str) -> Row | None:
        """The row of an id that was loaded before."""

    @abstractmethod
    def row_of_key(self, key: int) -> Row | None:
        """The row of a key."""

    @abstractmethod
    def live_rows(self, state: ScheduleState) -> list[Row]:
        """The rows of a schedule that have not ended, oldest first."""

    @abstractmethod
    def slot_queue(self, state: ScheduleState) -> list[Row]:
        """The rows that wait for the slot of a schedule, in the order of their turns."""

    @abstractmethod
    def first_for_slot(self, state: ScheduleState) -> Row | None:
        """The first row in line for the slot of a schedule that is not held by a pause."""

    @abstractmethod
    def late_fire_before(self, row: Row) -> Row | None:
        """The oldest live fire of the trigger before a row that is in the same gap; see `Row.is_in_gap`."""

    @abstractmethod
    def first_for_key(self, key: ConcurrencyKey) -> Row | None:
        """The first row in line for a concurrency key that is not held by a pause."""

    @abstractmethod
    def rows_awaiting_upstreams(self, state: ScheduleState, ended: Row | None = None) -> list[Row]:
        """The rows of a schedule that wait for an upstream: for any, or for one whose wait this row may end."""

    @abstractmethod
    def projections(self, states: Sequence[ScheduleState]) -> list[Row]:
        """The live rows of the trigger of schedules, by nominal time."""

    @abstractmethod
    def rows_beyond(self, state: ScheduleState, after: Micros) -> list[Row]:
        """The rows of the trigger of a schedule that reach beyond a nominal time and are not superseded."""

    @abstractmethod
    def newest_fires(self, questions: Sequence[FireQuestion]) -> dict[int, tuple[Micros, Phase]]:
        """The time and phase of the newest fire that each question is about, by its number."""

    @abstractmethod
    def reserve(self, ids: Collection[str]) -> None:
        """Number rows that are to be added."""

    @abstractmethod
    def key_for(self, occurrence_id: str) -> int:
        """The key of a row that is to be added."""

    @abstractmethod
    def add_row(self, row: Row) -> None:
        """Store a new row."""

    @abstractmethod
    def changed(self, row: Row) -> None:
        """Store a row that was changed, unless it was removed."""

    @abstractmethod
    def remove_row(self, row: Row) -> None:
        """Remove a row and its runs."""

    @abstractmethod
    def add_run(self, row: Row, run: Run) -> None:
        """Store a run of a row, in place of the same run while it was open."""

    # Schedules

    @abstractmethod
    def load_states(self, uids: Iterable[str]) -> dict[str, ScheduleState]:
        """The states of schedules, by uid."""

    @abstractmethod
    def states_of(self, keys: Iterable[int]) -> list[ScheduleState]:
        """The states of schedules, in the order of the keys; missing ones are left out."""

    @abstractmethod
    def state_of(self, row: Row) -> ScheduleState:
        """The state of the schedule of a row."""

    @abstractmethod
    def changed_state(self, state: ScheduleState) -> None:
        """Store a state that was changed."""

    @abstractmethod
    def schedules_of(self, states: Iterable[ScheduleState]) -> dict[int, Schedule | Unreadable]:
        """The schedules of states, by key; for a damaged one, what is wrong with it."""

    def schedule_of(self, state: ScheduleState) -> Schedule:
        """The schedule of a state; raises `Unreadable`."""
        schedule = self.schedules_of([state])[state.schedule]
        if isinstance(schedule, Exception):
            raise schedule
        return schedule

    @abstractmethod
    def states_named(self, identities: Collection[Identity]) -> dict[Identity, ScheduleState]:
        """The states of the schedules that have these ids and are not deleted."""

    @abstractmethod
    def known_ids(self, identities: Collection[Identity]) -> tuple[set[Identity], set[Identity]]:
        """Those ids that are taken, and those that other schedules depend on."""

    @abstractmethod
    def count_schedules(self, tenant: str, user: str | None, route: str | None) -> int:
        """How many schedules are active or paused: of a tenant, or of one of its users, and perhaps of one route."""

    @abstractmethod
    def count_children(self, tenant: str, uid: str) -> int:
        """How many schedules that are active or paused have a schedule as their parent."""

    @abstractmethod
    def find_clone(self, tenant: str, user: str, fingerprint: str, *, besides: str) -> str | None:
        """The id of the owner's oldest schedule with a fingerprint that is active or paused, besides one."""

    @abstractmethod
    def next_schedule_key(self, count: int) -> int:
        """The key of a new schedule; `count` is how many are asked for in all."""

    @abstractmethod
    def add_schedule(self, state: ScheduleState, schedule: Schedule) -> None:
        """Store a new schedule."""

    @abstractmethod
    def replace_schedule(self, state: ScheduleState, schedule: Schedule) -> None:
        """Store a schedule that was changed; the version of its state has risen."""

    @abstractmethod
    def tenants_of(self, keys: Iterable[int]) -> Mapping[int, str]:
        """The tenants of schedules."""

    @abstractmethod
    def last_heartbeats(self, routes: Collection[str]) -> tuple[Micros | None, Mapping[str, Micros]]:
        """When any node was last seen, and when each route was last served."""

    @abstractmethod
    def add_audit_entry(self, tenant: str, entry: AuditEntry) -> None:
        """Store what a caller did."""

    # Halts

    @abstractmethod
    def halts(self, tenant: str) -> list[Halt]:
        """The halts of a tenant, oldest first; none is set while a transaction that starts something lasts."""

    @abstractmethod
    def add_halt(self, halt: Halt) -> None:
        """Store a halt."""

    @abstractmethod
    def delete_halt(self, tenant: str, halt_id: str) -> Halt | None:
        """Delete a halt and return it."""

    @abstractmethod
    def begun_rows(self, tenant: str) -> list[Row]:
        """The rows of a tenant that are delivered, and its workflow runs that are suspended."""

    # Bundles

    @abstractmethod
    def find_bundle(self, tenant: str, bundle_id: str | None, digest: str | None) -> Bundle | None:
        """The newest archive of an id, or with a digest, or with both."""

    @abstractmethod
    def overrides_of_bundles(self, tenant: str) -> list[tuple[str, Any]]:
        """The ids of a tenant's rows of bundles that have not ended and have overrides, with those, packed."""

    # Limits

    @abstractmethod
    def count_waiting(self, tenant: str, user: str | None) -> int:
        """How many occurrences wait (see `Row.waits`): of the schedules of a tenant, or of one of its users."""

    @abstractmethod
    def take_tokens(self, name: str, limit: RateLimit, wanted: int) -> Taken:
        """Take as many of the wanted tokens as a bucket has."""

    # Concurrency keys

    @abstractmethod
    def concurrency_key(self, tenant: str, name: str) -> ConcurrencyKey:
        """A concurrency key of a tenant; a new one, if there is none."""

    @abstractmethod
    def concurrency_key_of(self, key: int) -> ConcurrencyKey | None:
        """The concurrency key of a number; None if a damaged row names it."""

    @abstractmethod
    def changed_key(self, key: ConcurrencyKey) -> None:
        """Store a concurrency key that was changed."""

    # Dependencies

    @abstractmethod
    def downstream(self, state: ScheduleState) -> list[tuple[ScheduleState, bool]]:
        """The schedules that depend on a schedule, and whether each has no trigger.

        A deleted schedule has none if a newer schedule has its id.
        """

    @abstractmethod
    def set_upstreams(self, state: ScheduleState, tenant: str, upstreams: Sequence[str]) -> None:
        """Store the ids of the schedules that a schedule depends on."""

    @abstractmethod
    def graph_version(self, tenant: str) -> int:
        """How often the dependencies of a tenant have changed."""

    @abstractmethod
    def raise_graph_version(self, tenant: str) -> None:
        """The dependencies of a tenant have changed."""

    # Events

    def may_have_subscribers(self, state: ScheduleState, event: SystemEvent) -> bool:  # noqa: ARG002 - as stores have it
        """Whether anything may subscribe to a system event of a schedule at the end of the transaction."""
        return True

    @abstractmethod
    def subscribed(self, topics: Collection[Topic]) -> set[Topic]:
        """The topics that a schedule of the tenant subscribes to, or a step of a workflow run waits for."""

    @abstractmethod
    def subscribed_tenants(self, event_type: str) -> list[str]:
        """The tenants in which a schedule subscribes to an event type, or a step waits for one."""

    @abstractmethod
    def add_subscriptions(self, added: Sequence[tuple[ScheduleState, str, Subscription]]) -> None:
        """Store the subscriptions of new schedules, each with the tenant."""

    @abstractmethod
    def replace_subscriptions(self, state: ScheduleState, tenant: str, subscriptions: Sequence[Subscription]) -> None:
        """Store the subscriptions of a schedule that was changed."""

    @abstractmethod
    def listener_fields(self, tenant: str, types: Collection[str]) -> dict[str, list[str]]:
        """The fields of the discriminators of all listeners, for each event type."""

    @abstractmethod
    def listeners(self, tenant: str, questions: Sequence[ListenerQuestion], limit: int) -> list[list[int]]:
        """The keys of the first schedules that each question is about, in order."""

    @abstractmethod
    def known_event_ids(self, tenant: str, event_ids: Collection[str | None]) -> set[str | None]:
        """Those event ids that are stored."""

    @abstractmethod
    def newest_moment(self, tenant: str) -> Micros:
        """The moment of the newest event of a tenant, also if that was pruned; just before now, if there is none."""

    @abstractmethod
    def events_after(self, tenant: str, after: Micros) -> list[Micros]:
        """The moments of the events after another moment, in order."""

    @abstractmethod
    def last_event_until(self, tenant: str, until: Micros) -> Micros | None:
        """The moment of the last event up to another moment."""

    @abstractmethod
    def move_events(self, tenant: str, moments: Mapping[Micros, Micros], newest: Micros, matched_until: Micros) -> None:
        """Give events other moments, in the same order."""

    @abstractmethod
    def add_events(self, tenant: str, events: Sequence[Event]) -> None:
        """Store events with rising moments."""

    @abstractmethod
    def pending_streams(self, limit: int) -> list[EventStream]:
        """The streams with unmatched events, those that lag most first; `waiting` is not read."""

    @abstractmethod
    def unmatched_events(self, stream: EventStream, limit: int) -> list[ReadEvent]:
        """The first unmatched events of a stream."""

    @abstractmethod
    def load_streams(self, tenants: Sequence[str]) -> dict[str, EventStream]:
        """The streams of tenants, with as many `waiting` moments as the tenant is mentioned."""

    @abstractmethod
    def changed_streams(self, streams: Iterable[EventStream]) -> None:
        """Store how far streams are matched."""

    # Nodes

    @abstractmethod
    def process_of(self, node: str | None) -> NodeProcess:
        """The process of a node, as its last heartbeat says; an empty one if the node is unknown."""

    @abstractmethod
    def mark_process_gone(self, node: str) -> None:
        """Store that the process of a node is gone since now, unless that is stored; if it leads, no node leads."""

    @abstractmethod
    def rows_leased_by(self, node: str) -> list[Row]:
        """The rows that a node has leased, in any order; those that another transaction is changing may be missing."""

    @abstractmethod
    def mark_node_lost(self, node: str, seen: Micros) -> bool:
        """Store that a node was reported as lost; False if it was before, or was seen or has left since."""
