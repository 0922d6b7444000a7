"""The doctor: checks a store, its rows and the clocks, and says how to repair damage. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.clock_rewind import rewind
from noonmark.core.clock_trust import LEAP, LONG_SILENCE, discrepancy
from noonmark.core.errors import NoonmarkError, NotAllowed
from noonmark.core.instants import SECOND, micros_to_seconds

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.planner import Snapshot
    from noonmark.operations.models.arguments import DoctorRequest
    from noonmark.operations.service import Caller, Service
    from noonmark.ports.records import Condition, Damaged, Position
    from noonmark.ports.store import Store

PAGE = 1_000
"""How many rows are checked in one transaction."""
MAX_LISTED = 1_000
"""How many damaged cells are listed."""
MAX_INSPECTED = 10_000
"""How many rows are checked to name damaged schedules in a list."""
MAX_NAMED = 5
"""How many schedules that are planned too far ahead are named."""
APART: Micros = 60 * SECOND
"""How far two clocks may differ without a warning."""
LARGE_JOURNAL = 256 * 1024 * 1024

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
    "nodes": _BY_ITSELF,
    "leadership": _BY_ITSELF,
    "served_routes": _BY_ITSELF,
}
_KEYS = {"runs": ("occurrence", "fence")}
_NAMES = {"nodes": "name", "served_routes": "route", "dependency_graphs": "tenant"}
"""Tables whose rows have a text for their key; the others have a number, `key`."""


def examine(service: Service, caller: Caller, arguments: DoctorRequest) -> dict[str, Any]:
    """Check the store row by row, and the clocks; changes nothing."""
    if not caller.is_admin:
        raise NotAllowed("only an admin may check the rows of all tenants")
    store = service.store
    condition = store.condition()
    checks = [_store_check(condition), _schema_check(condition)]
    seen, damaged, is_complete = 0, list["Damaged"](), False
    if checks[-1]["status"] == "ok":
        seen, damaged, is_complete = _rows(store, arguments.rows)
        checks.append(_rows_check(seen, damaged, is_complete=is_complete))
        checks.append(_clock_check(service))
    return {
        "status": "ok" if all(check["status"] == "ok" for check in checks) else "problems",
        "checks": checks,
        "damaged_rows": [_document(cell) for cell in damaged[:MAX_LISTED]],
        "rows_checked": seen,
        "is_complete": is_complete,
    }


def unreadable_schedules(service: Service, caller: Caller) -> list[str]:
    """A sentence for each schedule of the caller that is damaged so that it cannot be read, and is not listed."""
    store = service.store
    if not store.damage().get("schedules"):  # reading a page has noticed it
        return []
    problems: dict[str, str] = {}
    after: Position | None = None
    for _ in range(MAX_INSPECTED // PAGE):
        found = store.inspect(after, limit=PAGE)
        for cell in found.damaged:
            if cell.table == "schedules" and cell.schedule_id is not None:
                problems.setdefault(cell.schedule_id, f"{cell.column} {cell.problem}")
        after = found.after
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
    seen, damaged = 0, list["Damaged"]()
    after: Position | None = None
    while seen < most:
        page = store.inspect(after, limit=min(PAGE, most - seen))
        seen += page.rows
        damaged += page.damaged
        if page.after is None:
            return seen, damaged, True
        after = page.after
    return seen, damaged, False


def _store_check(found: Condition) -> dict[str, Any]:
    journal = found.journal_bytes or 0
    problems = list(found.problems)
    if journal > LARGE_JOURNAL:
        problems.append(f"its journal has {journal // 2**20} MB: a reader has been open for long")
    about = f"{found.kind} {found.version}".strip()
    if found.journal_bytes is not None:
        about += f", {journal // 2**20} MB in its journal"
    fine = "sound as a whole" if found.is_complete else "too large to be checked to its end; nothing wrong so far"
    return _check("store", problems, f"{about}, {fine}", about)


def _schema_check(found: Condition) -> dict[str, Any]:
    problems = []
    if found.schema != found.expected_schema:
        problems.append(
            f"it has version {found.schema or 'none'}, and this Noonmark works with {found.expected_schema};"
            " the rows were not looked at. noonmark migrate brings an older one up to date"
        )
    return _check("schema", problems, f"version {found.schema}" if found.schema else "none is needed")


def _rows_check(seen: int, damaged: list[Damaged], *, is_complete: bool) -> dict[str, Any]:
    those = "all" if is_complete else "the first"
    rows = len({(cell.table, cell.key) for cell in damaged})
    problems = [f"{rows} damaged among {those} {seen}"] if rows else []
    return _check("rows", problems, f"{those} {seen} are sound")


def _clock_check(service: Service) -> dict[str, Any]:
    """Compare the store's time with that of this machine and with the stored times."""
    store = service.store
    remembered, now = store.newest_time(), store.clock()
    machine = now if service.machine_clock is None else service.machine_clock()
    problems = []
    if abs(now - machine) > APART:
        way = "ahead of" if now > machine else "behind"
        problems.append(f"the store is {_seconds(now - machine)} {way} the machine that looks")
    doubt = None if service.worker is None else service.worker.clock_ahead
    if doubt is not None:
        problems.append(
            f"the store's time leapt ahead by {_seconds(doubt)}, and this node plans and changes nothing until it"
            " returns, has gone on for a lease, or is confirmed by `noonmark worker confirm-time`"
        )
    apart = discrepancy(now, remembered)
    if apart > LONG_SILENCE:
        problems.append(
            f"the store was not used for {_seconds(apart)}, or its time is ahead: a node that starts waits for a lease"
        )
    elif apart < 0:
        problems.append(
            f"the store remembers a time {_seconds(apart)} ahead of now: its clock was ahead once, or is behind; nodes"
            " set such times back once none was written for a lease"
        )
    problems += [
        f"node {node.name} was last seen {_seconds(node.seen - now)} in the future"
        for node in store.nodes()
        if node.seen > now + APART
    ]
    ahead = [
        snapshot.schedule.schedule_id
        for snapshot in store.planned_ahead(now=now, until=now + LEAP, after="", limit=PAGE)
        if _is_ahead(snapshot, now=now, lookahead=service.lookahead)
    ]
    if ahead:
        named = ", ".join(ahead[:MAX_NAMED]) + (", .." if len(ahead) > MAX_NAMED else "")
        problems.append(f"schedules are planned further ahead than any plan made now would be: {len(ahead)} ({named})")
    return _check("clock", problems, "store and machine agree, and nothing stored lies ahead of them")


def _is_ahead(snapshot: Snapshot, *, now: Micros, lookahead: Micros) -> bool:
    try:
        return rewind(snapshot, now=now, lookahead=lookahead) is not None
    except Exception:  # noqa: BLE001 - a record that makes no sense cannot be a plan made now
        return True


def _seconds(time: Micros) -> str:
    return f"{micros_to_seconds(abs(time)):,.0f} s"


def _check(name: str, problems: list[str], fine: str, about: str = "") -> dict[str, Any]:
    detail = "; ".join([*([about] if about and problems else []), *problems]) or fine
    return {"check": name, "status": "problem" if problems else "ok", "detail": detail}


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
