"""Row checks: what each column of each table may hold, and what is wrong with a row that holds something else.

A file can be damaged, and SQL by hand can write anything. SQLite stores any type of value in any column, and a database
does not know that a number makes no sense. So each row is checked when it is read, and a damaged one does not fail the
others. The usual row is checked by its types, in a microsecond or two.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from noonmark.core.agents.session import Role, SessionState
from noonmark.core.budgets.budget import BudgetScope, Period, WhenExhausted
from noonmark.core.ids import MAX_OWNER, OriginKind
from noonmark.core.instants import SECOND
from noonmark.core.json_values import shown
from noonmark.core.lifecycle import STORED_PHASES, Phase, SchedulePhase
from noonmark.core.policies.delivery import MIN_PATIENCE
from noonmark.core.proposals import ProposedAction
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.workflows.run import Compensation, StepPhase
from noonmark.ports.workflows import ApprovalState, UsedKind
from noonmark.stores.sql.records import KEY_COLUMNS, ROW_COLUMNS, STATE_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from noonmark.core.instants import Micros
    from noonmark.stores.rules.records import ConcurrencyKey, Row, ScheduleState
    from noonmark.stores.sql.session import Session


logger = logging.getLogger("noonmark.store")

MOST_KNOWN = 10_000
"""The most rows that are remembered; further ones are not logged."""


class DamageLog:
    """The damaged rows that this process has read. Thread-safe; repaired rows stay in it until the process ends."""

    def __init__(self) -> None:
        """Start empty."""
        self._logged: set[tuple[str, str]] = set()
        self._lock = Lock()

    def note(self, table: str, key: object, problem: str) -> None:
        """Record a damaged row; each is logged once."""
        row = (table, str(key))
        with self._lock:
            if row in self._logged or len(self._logged) >= MOST_KNOWN:
                return
            self._logged.add(row)
        logger.error(
            "a row of %s is damaged, and set aside by itself (%s): %s; noonmark doctor says what to do", *row, problem
        )

    def report(self, table: str, key: object, problems: Mapping[str, str]) -> None:
        """Record a damaged row with what is wrong with its cells."""
        self.note(table, key, describe_problems(problems))

    def counts(self) -> Mapping[str, int]:
        """How many rows of each table were found damaged."""
        with self._lock:
            return Counter(table for table, _ in self._logged)


FURTHEST = 2**60
"""No instant and no key is beyond this, so that there is room to count on from each of them."""
NARROW = 2**31 - 2**10
"""As far as a count goes where the database keeps it in 32 bits."""
_MOST_KNOWN = 1_024


class Kind(NamedTuple):
    """What a cell may hold."""

    holds: type
    is_optional: bool = False
    low: int = 0
    high: int = FURTHEST
    choices: frozenset[str] | None = None
    prefixes: frozenset[str] | None = None
    """What text has to begin with, before the first colon."""
    shape: type | None = None
    """Of text that is JSON: what the value has to be; object is anything."""
    is_narrow: bool = False

    def problem(self, value: object) -> str | None:
        """What is wrong with a value, if anything is."""
        if value is None:
            return None if self.is_optional else "is missing"
        if self.holds is float:
            return None if isinstance(value, int | float) else f"is {_brief(value)}, not a number"
        if type(value) is not self.holds:
            return f"is {_brief(value)}, not {'an integer' if self.holds is int else 'text'}"
        if self.choices is not None:
            return None if value in self.choices else f"is {_brief(value)}, which is not a known value"
        if self.prefixes is not None:
            has_prefix = str(value).partition(":")[0] in self.prefixes
            return None if has_prefix else f"is {_brief(value)}, which has an unknown prefix"
        if isinstance(value, int):
            return None if self.low <= value <= self.high else f"is {value}, which is out of range"
        return None

    def misread(self, value: object) -> str | None:
        """What is wrong with JSON in a sound cell of text, if anything is."""
        if self.shape is None or not isinstance(value, str):
            return None
        try:
            read = json.loads(value)
        except (ValueError, RecursionError):
            return "is not JSON"
        return None if isinstance(read, self.shape) else f"is JSON, but not {_SHAPES[self.shape]}"


_SHAPES: Mapping[type, str] = {dict: "an object", list: "an array"}
_TEXT, _KEY, _COUNT = Kind(str), Kind(int, low=1), Kind(int, is_narrow=True)
_FLAG, _INSTANT, _NUMBER = Kind(int, high=1), Kind(int, low=-FURTHEST), Kind(int)
_OBJECT, _ARRAY, _JSON = Kind(str, shape=dict), Kind(str, shape=list), Kind(str, shape=object)
_REASON = Kind(str, choices=frozenset(Reason))
_KINDS = {
    "text": _TEXT,
    "key": _KEY,
    "count": _COUNT,
    "flag": _FLAG,
    "instant": _INSTANT,
    "number": _NUMBER,
    "owner": Kind(int, high=MAX_OWNER),
    "object": _OBJECT,
    "array": _ARRAY,
    "json": _JSON,
    "real": Kind(float),
    "phase": Kind(str, choices=frozenset(Phase)),
    "standing": Kind(str, choices=frozenset(STORED_PHASES)),
    "reason": _REASON,
    "outcome": Kind(str, choices=frozenset(Outcome)),
    "step_phase": Kind(str, choices=frozenset(StepPhase)),
    "element": Kind(int, low=-1, is_narrow=True),
    "compensation": Kind(str, choices=frozenset(Compensation)),
    "approval": Kind(str, choices=frozenset(ApprovalState)),
    "session_state": Kind(str, choices=frozenset(SessionState) - {SessionState.ACTIVE}),
    "role": Kind(str, choices=frozenset(Role)),
    "total": Kind(int, high=2**63 - 1),
    "budget_scope": Kind(str, choices=frozenset(BudgetScope)),
    "period": Kind(str, choices=frozenset(Period)),
    "when_exhausted": Kind(str, choices=frozenset(WhenExhausted)),
    "proposed_action": Kind(str, choices=frozenset(ProposedAction)),
    "used_kind": Kind(str, choices=frozenset(UsedKind)),
    "origin": Kind(str, prefixes=frozenset(OriginKind)),
}
_WRITTEN = {
    "schedules": """
        key:key tenant:text username:text schedule_id:text declared_id:text? name:text? description:text labels:object?
        trigger_type:text trigger_document:object? terms_document:object source:text route:text created:instant
        anchored:instant? deleted:instant? is_listed:flag pause:object? lineage:object? parent:text? fingerprint:text?
    """,
    "schedule_states": """
        schedule:key uid:text phase:standing revision:count version:count updated:instant watermark:instant
        plan_at:instant? exhausted:flag sent_back:flag fault:text? patience:instant newest:instant? fences:count
        holder:key? live:count history:count queued:count total:count successful:count failed:count missed:count
        skipped:count admitted:count failures_in_row:count last_started:instant? last_phase:phase? news:count
        followed:flag ended_at:instant? completed_at:instant? owner:owner leads:object? rate_window:object?
        runaway:object?
    """,
    "occurrences": """
        key:key id:text schedule:key revision:count origin:origin phase:phase route:text nominal:instant due:instant
        first_due:instant attempt:count fence:count reason:reason? detail:text missed_count:count missed_first:instant?
        missed_last:instant? caught_up:instant? losses:count waiting_for:reason? holds_slot:flag payload:json?
        own:object? ready:instant? held:flag node:text? lease_end:instant? started:instant? stop:reason?
        deadline:instant? place:key? wanted:key? wanted_limit:count? awaits_after:instant? ended:instant? owner:owner
        behind:object? other_keys:array? late:instant?
    """,
    "runs": """
        occurrence:key fence:count schedule:key attempt:count node:text started:instant ended:instant? outcome:outcome?
        result:json? error:text? tokens:number? cost_usd:real? cost:number? usage:object?
    """,
    "concurrency_keys": "key:key tenant:text name:text taken:count waiting:count",
    "dependencies": "schedule:key position:count tenant:text upstream_id:text",
    "dependency_graphs": "tenant:text version:count",
    "event_listeners": """
        tenant:text event_type:text schedule:key fields:text wanted:text narrow_fields:text narrow_wanted:text
    """,
    "event_streams": "tenant:text newest:instant matched_until:instant cursor:number matched:count",
    "events": """
        key:key tenant:text event_id:text event_type:text source:text payload:json emitted:instant behind:object?
    """,
    "notes": """
        key:key tenant:text noted:instant caller:text operation:text schedule_id:text? uid:text? revision_before:count?
        revision_after:count? reason:text? request_id:text? key_id:text? session_id:text? tool_call_id:text?
        parent_schedule_id:text? source:text? changes:array?
    """,
    "idempotency_keys": "key:key tenant:text name:text fingerprint:text created:instant",
    "secrets": """
        key:key tenant:text name:text hosts:array sealed:text created:instant updated:instant programs:array
    """,
    "bundles": """
        key:key tenant:text content_id:text bundle_id:text? digest:text? manifest:object? size:number files:count
        username:text source:text created:instant pushed:instant? workflow_version:count?
    """,
    # Without the data: to read all of them takes long.
    "bundle_chunks": "bundle:key number:count",
    "api_keys": """
        key:key key_id:text digest:text tenant:text username:text scopes:array name:text? is_agent:flag created:instant
        expires:instant? revoked:instant? used:instant?
    """,
    "workflows": """
        key:key tenant:text workflow_id:text version:count document:object digest:text source:text username:text
        created:instant deleted:instant?
    """,
    "workflow_runs": """
        occurrence:key id:text tenant:text workflow_id:text version:count inputs:object started:instant attempt:count
        closing:object?
    """,
    "workflow_steps": """
        occurrence:key step_id:text element:element phase:step_phase attempt:count started:instant? ended:instant?
        result:json? error:text? is_external:flag ready:instant? sequence:count elements:count? child:text?
        compensation:compensation?
    """,
    "step_waits": """
        occurrence:key step_id:text event_type:text occurrence_id:text tenant:text filters:object since:instant
        fields:text wanted:text
    """,
    "approvals": """
        key:key approval_id:text tenant:text occurrence:key occurrence_id:text step_id:text message:text
        requested:instant expires:instant state:approval decider:text? comment:text? decided:instant?
    """,
    "sessions": """
        key:key tenant:text session_id:text username:text spec:object tool_access_policy:object? state:session_state
        schedule_id:text? mob_id:text? member_id:text? role:text? turn:text? messages:count bytes:number usage:object
        created:instant updated:instant is_task:flag scopes:array?
    """,
    "session_messages": """
        session:key number:count role:role parts:array data:json? occurrence_id:text? usage:object? bytes:number
        created:instant
    """,
    "mobs": "key:key tenant:text mob_id:text username:text document:object created:instant updated:instant",
    "target_uses": "schedule:key kind:used_kind name:text tenant:text",
    "budgets": """
        tenant:text scope:budget_scope scope_id:text period:period max_cost:number? max_tokens:number? is_hard:flag
        warning_threshold:real? require_approval:flag when_exhausted:when_exhausted updated:instant
    """,
    "budget_counters": """
        tenant:text scope:budget_scope scope_id:text period:period period_start:instant settled_tokens:total
        settled_cost:total reserved_tokens:total reserved_cost:total is_warned:flag
    """,
    "model_calls": """
        tenant:text call_id:text username:text schedule_id:text? session_id:text? occurrence_id:text? called:instant
        is_settled:flag is_made:flag tokens:number cost:number? model:text? provider:text? input_tokens:number
        output_tokens:number cache_read_tokens:number cache_write_tokens:number model_calls:count tool_calls:count
        whole_id:text?
    """,
    "halts": "tenant:text halt_id:text halted:instant caller:text reason:text? labels:object? lineage:text?",
    "page_sessions": "digest:text key_id:text created:instant used:instant",
    "breakers": "tenant:text username:text failures:count since:instant",
    "proposals": """
        tenant:text schedule_id:text proposal_id:text action:proposed_action uid:text name:text? username:text
        document:object base_revision:count? source:text proposer:text key_id:text? is_agent:flag reason:text?
        proposed:instant expires:instant lineage:object?
    """,
    "rate_buckets": "name:text full_at:instant",
    "nodes": """
        name:text routes:array capacity:count load:count version:text zone_data:text started:instant lease:instant
        seen:instant left_at:instant? process_lock:text? gone_at:instant? schema_version:text?
    """,
    "leadership": "key:key term:number node:text? until:instant",
    "served_routes": "route:text seen:instant",
}


def _kind(written: str) -> Kind:
    name = written.removesuffix("?")
    return _KINDS[name]._replace(is_optional=name != written)


KINDS: Mapping[str, Mapping[str, Kind]] = {
    table: {name: _kind(kind) for name, kind in (one.split(":") for one in written.split())}
    for table, written in _WRITTEN.items()
}
"""Of each column of each table, what its cells may hold."""

NOTHING: Mapping[str, str] = {}


class RowCheck:
    """Checks rows of some columns of a table."""

    def __init__(self, table: str, names: Sequence[str]) -> None:
        """It has seen no row yet."""
        self._kinds = [(name, KINDS[table][name]) for name in names]
        self._choices = [
            (place, kind.choices | {None}) for place, (_, kind) in enumerate(self._kinds) if kind.choices is not None
        ]
        self._prefixes = [
            (place, kind.prefixes) for place, (_, kind) in enumerate(self._kinds) if kind.prefixes is not None
        ]
        self._narrow = [place for place, (_, kind) in enumerate(self._kinds) if kind.is_narrow]
        self._measured = [
            place for place, (_, kind) in enumerate(self._kinds) if kind.holds is int and kind.high <= FURTHEST
        ]
        self._known: set[tuple[type, ...]] = set()

    def problems(self, values: Sequence[Any], *, narrow: bool = False) -> Mapping[str, str]:
        """What is wrong with each column; text that is JSON is not read. `narrow` counts have 32 bits."""
        types = tuple(map(type, values))
        if types in self._known and self._is_usual(values, narrow=narrow):
            return NOTHING
        problems = self.all_problems(values, narrow=narrow)
        if not problems and len(self._known) < _MOST_KNOWN:
            self._known.add(types)
        return problems

    def _is_usual(self, values: Sequence[Any], *, narrow: bool) -> bool:
        """Whether values of the right types are what nearly all are; loops, since this is done for every row."""
        for place in self._measured:
            value = values[place]
            if value is not None and not 0 <= value <= FURTHEST:
                return False
        for place, choices in self._choices:
            if values[place] not in choices:
                return False
        for place, prefixes in self._prefixes:
            if values[place].partition(":")[0] not in prefixes:
                return False
        return not narrow or all((values[place] or 0) <= NARROW for place in self._narrow)

    def all_problems(self, values: Sequence[Any], *, narrow: bool = False) -> dict[str, str]:
        """The same, with what does no harm: a flag that is 2."""
        problems = {
            name: problem
            for (name, kind), value in zip(self._kinds, values, strict=True)
            if (problem := kind.problem(value))
        }
        if narrow:
            over = (name for place in self._narrow if (values[place] or 0) > NARROW for name in [self._kinds[place][0]])
            problems |= {name: "is more than the database can count on from" for name in over if name not in problems}
        return problems


def describe_problems(problems: Mapping[str, str]) -> str:
    """What is wrong with a row, in a sentence."""
    return "; ".join(f"{name} {problem}" for name, problem in problems.items())


def number(value: object, default: int, *, low: int = -FURTHEST) -> int:
    """A number that a cell should hold, or another where it holds none."""
    return value if type(value) is int and low <= value <= FURTHEST else default


def _brief(value: object) -> str:
    return f"{len(value)} bytes" if isinstance(value, bytes) else shown(value)


STATES = RowCheck("schedule_states", STATE_COLUMNS)
ROWS = RowCheck("occurrences", ROW_COLUMNS)
KEYS = RowCheck("concurrency_keys", KEY_COLUMNS)
GOES_ON = frozenset({
    "fault", "patience", "fences", "holder", "live", "history", "queued", "total", "successful", "failed", "missed",
    "skipped", "failures_in_row", "last_started", "last_phase", "news", "followed", "version", "sent_back", "ended_at",
    "completed_at", "owner", "leads", "rate_window", "runaway",
})  # fmt: skip
"""With any of these damaged, a schedule goes on."""
_COUNTED = frozenset({"holder", "live", "history", "queued", "fences"})
_IDENTITIES = frozenset({"key", "schedule", "tenant", "name"})
_COUNTS = """
    SELECT count(*) - count(ended), count(ended),
        coalesce(sum(CASE WHEN phase = 'pending' AND waiting_for = 'queued' AND ready IS NULL THEN 1 ELSE 0 END), 0),
        max(CASE WHEN holds_slot = 1 THEN key END), max(CASE WHEN fence < 1000000000 THEN fence END)
    FROM occurrences WHERE schedule = ?
"""
_FENCES = 1_000_000
"""Far beyond the fence of any row."""
_KEY_COUNTS = """
    SELECT (
        SELECT count(*) FROM occurrences
        WHERE place IS NOT NULL AND (place = ? OR other_keys LIKE ?)
    ), (SELECT count(*) FROM occurrences WHERE wanted = ?)
"""


class RowCounts(NamedTuple):
    """What the rows of a schedule say of its state."""

    live: int
    history: int
    queued: int
    holder: int | None
    fence: object


def count_rows(session: Session, schedule: int) -> RowCounts:
    """Count the rows of a schedule."""
    [(live, history, queued, holder, fence)] = session.query(_COUNTS, schedule)
    return RowCounts(live, history, int(queued), holder, fence)


def repair_state(
    state: ScheduleState, problems: Mapping[str, str], *, now: Micros, count: Callable[[int], RowCounts]
) -> None:
    """Replace damaged values of a schedule state; `count` counts its rows, if that is needed."""
    spare = {
        "uid": f"damaged-{state.schedule}",
        "phase": SchedulePhase.PAUSED,
        "revision": 1,
        "version": now // (60 * SECOND),
        "updated": now,
        # Always the same, since an edit is written only if nothing has changed since it was read.
        "watermark": number(state.newest, number(state.updated, 0)),
        "patience": MIN_PATIENCE,
        "followed": 1,
    }
    _put(state, "schedule_states", problems, spare)
    if not _COUNTED.isdisjoint(problems):
        counted = count(state.schedule)
        state.live, state.history, state.queued, state.holder = counted[:4]
        if "fences" in problems:
            state.fences = number(counted.fence, 0) + _FENCES
    if not GOES_ON.issuperset(problems):
        state.fault = state.fault or describe_problems(problems)


def repair_row(row: Row, problems: Mapping[str, str], now: Micros) -> None:
    """Replace damaged values of a row, and note the damage on it."""
    time = next((one for one in (row.nominal, row.due, row.first_due) if number(one, -1, low=0) >= 0), now)
    is_over = row.ended is not None and "ended" not in problems
    spare = {
        "id": f"damaged-{row.key}",
        "revision": 1,
        "origin": "manual:damaged",
        "phase": Phase.DELIVERY_FAILED if is_over else Phase.PENDING,
        "reason": Reason.UNREADABLE if is_over else None,
        **dict.fromkeys(("nominal", "due", "first_due"), time),
    }
    _put(row, "occurrences", problems, spare)
    row.damage = describe_problems(problems)


def repair_key(session: Session, key: ConcurrencyKey) -> None:
    """Count again the rows that hold and want a place under a concurrency key."""
    [(key.taken, key.waiting)] = session.query(_KEY_COUNTS, key.key, f"%[{key.key},%", key.key)


def _put(record: ScheduleState | Row, table: str, problems: Mapping[str, str], spare: Mapping[str, object]) -> None:
    for name in problems:
        if name not in _IDENTITIES:
            kind = KINDS[table][name]
            nothing = None if kind.is_optional else "" if kind.holds is str else 0
            setattr(record, name, spare.get(name, nothing))
