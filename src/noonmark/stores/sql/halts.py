"""Halts in the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.halt import Halt
from noonmark.core.json_values import storable
from noonmark.stores.rules.records import Unreadable
from noonmark.stores.sql.records import from_json, to_json
from noonmark.stores.sql.row_checks import RowCheck

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from noonmark.stores.sql.session import Session, Values

    Report = Callable[[str, object, Mapping[str, str]], None]

COLUMNS = ("tenant", "halt_id", "halted", "caller", "reason", "labels", "lineage")
_CHECK = RowCheck("halts", COLUMNS)
_SELECT = f"SELECT {', '.join(COLUMNS)} FROM halts"
_ORDER = "ORDER BY halted, halt_id"
OF_TENANT = f"{_SELECT} WHERE tenant = ? {_ORDER}"
_ALL = f"{_SELECT} {_ORDER}"
_DELETE = "DELETE FROM halts WHERE tenant = ? AND halt_id = ?"


def read(session: Session, report: Report, tenant: str | None) -> list[Halt]:
    """The halts of a tenant, or of all, oldest first."""
    rows = session.query(_ALL) if tenant is None else session.query(OF_TENANT, tenant)
    return [to_halt(columns, report) for columns in rows]


def add(session: Session, halt: Halt) -> None:
    """Store a halt."""
    session.insert("halts", COLUMNS, [halt_values(halt)])


def halt_values(halt: Halt) -> Values:
    """The columns of a halt."""
    reason = None if halt.reason is None else storable(halt.reason)
    labels = to_json(dict(halt.labels)) if halt.labels else None
    lineage = None if halt.lineage is None else storable(halt.lineage)
    return (halt.tenant, halt.halt_id, halt.at, storable(halt.by), reason, labels, lineage)


def delete(session: Session, halt: Halt) -> None:
    """Delete a halt."""
    session.execute(_DELETE, halt.tenant, halt.halt_id)


def to_halt(columns: Values, report: Report) -> Halt:
    """The halt of a row. A damaged one stops the whole tenant, until somebody lifts it: that is the safe side."""
    tenant, halt_id, halted, caller, reason, packed, lineage = columns
    problems: Mapping[str, str] = _CHECK.problems(columns)
    labels: Any = None
    try:
        labels = from_json(packed, "labels") or {}
    except Unreadable as error:
        problems = {**problems, "labels": str(error)}
    if not isinstance(labels, dict):
        problems = {**problems, "labels": "is not an object"}
    if problems:
        report("halts", f"{tenant}, {halt_id}", problems)
        at = halted if type(halted) is int else 0
        return Halt(tenant=str(tenant), halt_id=str(halt_id), at=at, by="", reason="the record of this halt is damaged")
    return Halt(tenant=tenant, halt_id=halt_id, at=halted, by=caller, reason=reason, labels=labels, lineage=lineage)
