"""The doctor: gathers facts about a store, its nodes and its server, and says what to do. Reads only."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core.clock_rewind import rewind
from noonmark.core.clock_trust import LEAP
from noonmark.core.errors import NoonmarkError, NotAllowed
from noonmark.core.ids import shown_name
from noonmark.operations.diagnosis import Clocks, Facts, Targets, judge, overall
from noonmark.operations.target_policy import unserved_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.planner import Snapshot
    from noonmark.operations.models.arguments import DoctorRequest
    from noonmark.operations.service import Caller, Service
    from noonmark.ports.records import Damaged, NodeRecord, Position, Workload
    from noonmark.ports.store import Store

PAGE = 1_000
"""How many rows are checked in one transaction."""
MAX_LISTED = 1_000
"""How many damaged cells are listed."""
MAX_INSPECTED = 10_000
"""How many rows are checked to name damaged schedules in a list."""
MAX_WORKLOAD = 100
"""How many occurrences of each kind are read: due, overdue, waiting and upcoming ones."""

_REMOVE = "Nothing depends on it; remove it: DELETE FROM {table} WHERE {where}"
_BY_ITSELF = "Nodes rewrite it by themselves; if it stays, remove it: DELETE FROM {table} WHERE {where}"
_ADVICE = {
    "schedules": "Restore the value from a backup; or delete the schedule, and create it again under the same id:"
    " UPDATE schedules SET is_listed = 0 WHERE {where}",
    "schedule_states": "Change the schedule in any way, for example its description: then it is planned again"
    " from now on. If that is refused, restore the value from a backup",
    "occurrences": "It ends by itself, as delivery_failed, when it falls due; or remove it:"
    " DELETE FROM runs WHERE occurrence = {key}; DELETE FROM occurrences WHERE {where}",
    "runs": _REMOVE,
    "concurrency_keys": "It is counted again when the next occurrence takes or leaves a slot",
    "dependencies": "Set depends_on of the schedule with this number again",
    "dependency_graphs": _BY_ITSELF,
    "event_listeners": "Set the trigger of the schedule with this number again",
    "event_streams": "It is repaired when the next event is emitted",
    "events": _REMOVE,
    "notes": _REMOVE,
    "idempotency_keys": _REMOVE,
    "secrets": "Set the secret again: noonmark secret set",
    "api_keys": "The key is refused. Create another one: noonmark key create",
    "halts": "It stops the whole tenant. Lift it, and set it again: noonmark unhalt",
    "nodes": _BY_ITSELF,
    "leadership": _BY_ITSELF,
    "served_routes": _BY_ITSELF,
}
_KEYS = {"runs": ("occurrence", "fence")}
_NAMES = {"nodes": "name", "served_routes": "route", "dependency_graphs": "tenant"}
"""Tables whose rows have a text for their key; the others have a number, `key`."""


def examine(service: Service, caller: Caller, arguments: DoctorRequest) -> dict[str, Any]:
    """Check the store, its rows, the clocks, the nodes, the disk and the settings; changes nothing."""
    if not caller.is_admin:
        raise NotAllowed("only an admin may check the rows of all tenants")
    facts = _gather(service, arguments.rows)
    checks = judge(facts)
    return {
        "status": overall(checks),
        "checks": [check.to_document() for check in checks],
        "damaged_rows": [_document(cell) for cell in facts.damaged[:MAX_LISTED]],
        "rows_checked": facts.rows,
        "is_complete": facts.clocks is not None and facts.is_complete,
    }


def _gather(service: Service, most: int) -> Facts:
    """Read what the checks judge. Of a store with another schema, nothing but its condition is read."""
    store = service.store
    facts = Facts(
        condition=store.condition(), disks=service.disks(), conflicts=service.conflicts, engine=service.engine_state()
    )
    if facts.condition.schema != facts.condition.expected_schema:
        return facts
    rows, damaged, is_complete = _rows(store, most)
    clocks = _clocks(service)
    nodes = store.nodes()
    workload = store.workload(now=clocks.now, limit=MAX_WORKLOAD)
    return replace(
        facts,
        rows=rows,
        damaged=damaged,
        is_complete=is_complete,
        clocks=clocks,
        nodes=nodes,
        zone_data=service.zone_data,
        halts=store.halts(),
        targets=_targets(service, nodes, workload),
        workload=workload,
    )


def _targets(service: Service, nodes: Sequence[NodeRecord], workload: Workload) -> Targets | None:
    """Which targets no live node serves, also of what is not due yet: what no node starts in time is soon missed."""
    if not any(node.is_alive for node in nodes):
        return None
    groups = (workload.due, workload.waiting, workload.upcoming)
    schedules = service.store.find_uids({row.uid for group in groups for row in group.occurrences})
    unserved: defaultdict[str, list[str]] = defaultdict(list)
    for schedule in (stored.schedule for stored in schedules.values()):
        if unserved_by(nodes, schedule, service.permissions) is not None:
            unserved[schedule.declaration.target.route].append(shown_name(schedule.schedule_id))
    return Targets(schedules=len(schedules), unserved={route: sorted(names) for route, names in unserved.items()})


def unreadable_schedules(service: Service, caller: Caller) -> list[str]:
    """A sentence for each schedule of the caller that is too damaged to be listed."""
    store = service.store
    if not store.damage().get("schedules"):  # reading a page has noticed it
        return []
    problems: dict[str, str] = {}
    after: Position | None = None
    for _ in range(MAX_INSPECTED // PAGE):
        inspection = store.inspect(after, limit=PAGE)
        for cell in inspection.damaged:
            if cell.table == "schedules" and cell.schedule_id is not None:
                problems.setdefault(cell.schedule_id, f"{cell.column} {cell.problem}")
        after = inspection.after
        if after is None or after[0] != "schedules":
            break
    return [
        f"schedule {schedule_id} is damaged and not listed: {problem}; noonmark doctor says how to repair or delete it"
        for schedule_id, problem in problems.items()
        if _is_unreadable(store, caller.owner.tenant, schedule_id)
    ]


def _is_unreadable(store: Store, tenant: str, schedule_id: str) -> bool:
    """Whether the tenant has such a schedule, and it cannot be read."""
    try:
        store.find(tenant, schedule_id)
    except NoonmarkError:
        return True
    return False


def _rows(store: Store, most: int) -> tuple[int, list[Damaged], bool]:
    """Check rows, page by page: how many, the damaged ones, and whether those were all."""
    row_count, damaged = 0, list["Damaged"]()
    after: Position | None = None
    while row_count < most:
        page = store.inspect(after, limit=min(PAGE, most - row_count))
        row_count += page.rows
        damaged += page.damaged
        if page.after is None:
            return row_count, damaged, True
        after = page.after
    return row_count, damaged, False


def _clocks(service: Service) -> Clocks:
    """The store's time, that of this machine, and the stored times."""
    store = service.store
    remembered, now = store.newest_time(), store.clock()
    return Clocks(
        now=now,
        machine=now if service.machine_clock is None else service.machine_clock(),
        remembered=remembered,
        unconfirmed=None if service.worker is None else service.worker.clock_ahead,
        ahead=tuple(
            snapshot.schedule.schedule_id
            for snapshot in store.planned_ahead(now=now, until=now + LEAP, after="", limit=PAGE)
            if _is_ahead(snapshot, now=now, lookahead=service.lookahead)
        ),
    )


def _is_ahead(snapshot: Snapshot, *, now: Micros, lookahead: Micros) -> bool:
    try:
        return rewind(snapshot, now=now, lookahead=lookahead) is not None
    except Exception:  # noqa: BLE001 - an invalid record cannot be a plan made now
        return True


def _document(cell: Damaged) -> dict[str, Any]:
    advice = _ADVICE[cell.table].format(table=cell.table, where=_where(cell), key=cell.key)
    return {
        "table": cell.table,
        "key": cell.key,
        "column": cell.column,
        "schedule_id": cell.schedule_id,
        "problem": cell.problem,
        "advice": advice,
    }


def _where(cell: Damaged) -> str:
    """The SQL condition that finds exactly this row."""
    if (name := _NAMES.get(cell.table)) is not None:
        return f"{name} = {_quoted(cell.key)}"
    columns = _KEYS.get(cell.table, ("key",))
    values = cell.key.split(", ", len(columns) - 1)
    return " AND ".join(
        f"{column} = {value if value.lstrip('-').isdigit() else _quoted(value)}"
        for column, value in zip(columns, values, strict=True)
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
