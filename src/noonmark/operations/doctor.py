"""The doctor: whether a store is sound, which of its rows are damaged, and what to do about them. Changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.clock_rewind import rewind
from noonmark.core.clock_trust import LEAP, LONG_SILENCE, discrepancy
from noonmark.core.errors import NotAllowed
from noonmark.core.instants import SECOND, micros_to_seconds
from noonmark.operations.arguments import Arguments

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.instants import Micros
    from noonmark.core.plans import Snapshot
    from noonmark.operations.service import Caller, Service
    from noonmark.ports.records import Condition, Damaged, Position
    from noonmark.ports.store import Store

PAGE = 1_000
"""So many rows are looked at in one transaction."""
USUAL_ROWS, MOST_ROWS = 100_000, 10_000_000
MOST_TOLD = 1_000
"""So many damaged cells are told one by one."""
MOST_NAMED = 5
"""So many schedules that are planned too far ahead are told by name."""
APART: Micros = 60 * SECOND
"""By so much a clock may differ from another before somebody should know."""
LARGE_JOURNAL = 256 * 1024 * 1024

_REMOVE = "Nothing depends on it; remove it: DELETE FROM {table} WHERE {where}"
_BY_ITSELF = "Nodes write it anew by themselves; if it stays, remove it: DELETE FROM {table} WHERE {where}"
_ADVICE = {
    "schedules": "Put the value back, from a backup; or give the schedule up, and create it anew under the same id:"
    " UPDATE schedules SET is_listed = 0 WHERE {where}",
    "schedule_states": "Change the schedule in any way, its description for one: then it is planned again, from now on."
    " If that is refused, put the value back from a backup",
    "occurrences": "It ends by itself, as delivery_failed, when it falls due; or remove it:"
    " DELETE FROM runs WHERE occurrence = {key}; DELETE FROM occurrences WHERE {where}",
    "runs": _REMOVE,
    "concurrency_keys": "It is counted again when the next occurrence takes or leaves a place",
    "dependencies": "Set depends_on of the schedule with this number again",
    "dependency_graphs": _BY_ITSELF,
    "event_listeners": "Set the trigger of the schedule with this number again",
    "event_streams": "It is mended when the next event is emitted",
    "events": _REMOVE,
    "notes": _REMOVE,
    "idempotency_keys": _REMOVE,
    "secrets": "Set the secret again: noonmark secret set",
    "nodes": _BY_ITSELF,
    "leadership": _BY_ITSELF,
    "served_routes": _BY_ITSELF,
}
_KEYS = {"runs": ("occurrence", "fence")}
_NAMES = {"nodes": "name", "served_routes": "route", "dependency_graphs": "tenant"}
"""Tables whose rows are found by a text; those of others by a number, `key`."""


def examine(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Look whether the store is sound, row by row, and whether clocks agree; changes nothing."""
    asked = Arguments(arguments)
    rows: int = asked.integer("rows", USUAL_ROWS, low=1, high=MOST_ROWS)
    asked.done()
    if not caller.is_admin:
        raise NotAllowed("only an admin may look at the rows of all tenants")
    store = service.store
    condition = store.condition()
    checks = [_store(condition), _schema(condition)]
    seen, damaged, is_complete = 0, list["Damaged"](), False
    if checks[-1]["status"] == "ok":
        seen, damaged, is_complete = _rows(store, rows)
        checks.append(_told_rows(seen, damaged, is_complete=is_complete))
        checks.append(_clock(service))
    return {
        "status": "ok" if all(one["status"] == "ok" for one in checks) else "problems",
        "checks": checks,
        "damaged_rows": [_document(one) for one in damaged[:MOST_TOLD]],
        "rows_checked": seen,
        "is_complete": is_complete,
    }


def _rows(store: Store, most: int) -> tuple[int, list[Damaged], bool]:
    """Look at rows, page by page: how many, what is damaged, and whether those were all."""
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


def _store(found: Condition) -> dict[str, Any]:
    journal = found.journal_bytes or 0
    problems = list(found.problems)
    if journal > LARGE_JOURNAL:
        problems.append(f"its journal has {journal // 2**20} MB: somebody has been reading for long")
    told = f"{found.kind} {found.version}".strip()
    if found.journal_bytes is not None:
        told += f", {journal // 2**20} MB in its journal"
    fine = "sound as a whole" if found.is_complete else "too large to be checked to its end; nothing wrong so far"
    return _check("store", problems, f"{told}, {fine}", told)


def _schema(found: Condition) -> dict[str, Any]:
    problems = []
    if found.schema != found.expected_schema:
        problems.append(
            f"it has version {found.schema or 'none'}, and this Noonmark works with {found.expected_schema};"
            " the rows were not looked at. noonmark migrate brings an older one up to date"
        )
    return _check("schema", problems, f"version {found.schema}" if found.schema else "none is needed")


def _told_rows(seen: int, damaged: list[Damaged], *, is_complete: bool) -> dict[str, Any]:
    those = "all" if is_complete else "the first"
    rows = len({(one.table, one.key) for one in damaged})
    problems = [f"{rows} damaged among {those} {seen}"] if rows else []
    return _check("rows", problems, f"{those} {seen} are sound")


def _clock(service: Service) -> dict[str, Any]:
    """The store's time beside that of this machine, and beside the times that are stored."""
    store = service.store
    remembered, now = store.newest_time(), store.clock()
    machine = now if service.machine is None else service.machine()
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
            " set such times back once nobody has written any for a lease"
        )
    problems += [
        f"node {one.name} was last heard of {_seconds(one.seen - now)} in the future"
        for one in store.nodes()
        if one.seen > now + APART
    ]
    ahead = [
        one.schedule.schedule_id
        for one in store.planned_ahead(now=now, until=now + LEAP, after="", limit=PAGE)
        if _is_ahead(one, now=now, lookahead=service.lookahead)
    ]
    if ahead:
        named = ", ".join(ahead[:MOST_NAMED]) + (", .." if len(ahead) > MOST_NAMED else "")
        problems.append(f"schedules are planned further ahead than any plan made now would be: {len(ahead)} ({named})")
    return _check("clock", problems, "store and machine agree, and nothing stored lies ahead of them")


def _is_ahead(snapshot: Snapshot, *, now: Micros, lookahead: Micros) -> bool:
    try:
        return rewind(snapshot, now=now, lookahead=lookahead) is not None
    except Exception:  # noqa: BLE001 - a record that makes no sense is nothing that a plan made now would be
        return True


def _seconds(time: Micros) -> str:
    return f"{micros_to_seconds(abs(time)):,.0f} s"


def _check(name: str, problems: list[str], fine: str, besides: str = "") -> dict[str, Any]:
    told = "; ".join([*([besides] if besides and problems else []), *problems]) or fine
    return {"check": name, "status": "problem" if problems else "ok", "detail": told}


def _document(one: Damaged) -> dict[str, Any]:
    advice = _ADVICE[one.table].format(table=one.table, where=_where(one), key=one.key)
    return {"table": one.table, "key": one.key, "column": one.column, "problem": one.problem, "advice": advice}


def _where(one: Damaged) -> str:
    """The condition of SQL that finds the row, and no other."""
    if (name := _NAMES.get(one.table)) is not None:
        return f"{name} = {_quoted(one.key)}"
    columns = _KEYS.get(one.table, ("key",))
    values = one.key.split(", ", len(columns) - 1)
    return " AND ".join(
        f"{column} = {value if value.lstrip('-').isdigit() else _quoted(value)}"
        for column, value in zip(columns, values, strict=True)
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
