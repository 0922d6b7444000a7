"""Dependencies in the tables: who depends on a schedule, and the newest fires of upstreams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.ports.records import Graph
from noonmark.stores.rules.records import PHASES
from noonmark.stores.sql.row_checks import number

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.lifecycle import Phase
    from noonmark.stores.rules.unit_of_work import FireQuestion, Identity
    from noonmark.stores.sql.session import Session

COLUMNS = ("schedule", "position", "tenant", "upstream_id")
IDENTITIES = """
    SELECT j.c0 AS tenant, j.c1 AS schedule_id, own.key IS NOT NULL AS is_taken,
        (SELECT 1 FROM dependencies WHERE tenant = j.c0 AND upstream_id = j.c1 LIMIT 1) AS is_followed
    FROM ROWS(text, text) AS j
    LEFT JOIN schedules AS own ON own.tenant = j.c0 AND own.schedule_id = j.c1 AND own.is_listed = 1
"""
"""The first by a join: without statistics, PostgreSQL reads all schedules of the tenant, and a join does so only once.

The second not by EXISTS: PostgreSQL may then read every dependency.
"""
# Only for the schedule that has the id now: a deleted schedule with that id is no longer an upstream.
DOWNSTREAM = """
    SELECT other.key, other.trigger_document IS NULL FROM schedules AS own
    CROSS JOIN dependencies ON dependencies.tenant = own.tenant AND upstream_id = own.schedule_id
    CROSS JOIN schedules AS other ON other.key = dependencies.schedule
    WHERE own.key = ? AND (own.is_listed = 1 OR NOT EXISTS (
        SELECT 1 FROM schedules AS newer
        WHERE newer.tenant = own.tenant AND newer.schedule_id = own.schedule_id AND newer.is_listed = 1
    )) ORDER BY other.key
"""
_RISE = """
    INSERT INTO dependency_graphs (tenant, version) VALUES (?, 1)
    ON CONFLICT (tenant) DO UPDATE SET version = dependency_graphs.version + 1
"""
_VERSION = "SELECT version FROM dependency_graphs WHERE tenant = ?"
GRAPH = """
    WITH RECURSIVE reached(own, position, id, upstream_id) AS (
        SELECT own.key, position, own.schedule_id, upstream_id FROM EACH(text) AS j
        CROSS JOIN schedules AS own ON own.tenant = ? AND own.schedule_id = j.value AND own.is_listed = 1
        LEFT JOIN dependencies ON dependencies.schedule = own.key
        UNION
        SELECT own.key, dependencies.position, own.schedule_id, dependencies.upstream_id FROM reached
        CROSS JOIN schedules AS own ON own.tenant = ? AND own.schedule_id = reached.upstream_id AND own.is_listed = 1
        LEFT JOIN dependencies ON dependencies.schedule = own.key
    )
    SELECT id, upstream_id FROM reached ORDER BY own, position
"""
# Of each question (number, schedule, after, until): the newest row with its nominal time in between, the newest gap
# that ends there, and the one that reaches beyond: where a pause left one within another, that is the inner one.
# Each is the first of an index.
NEWEST = """
    SELECT j.c0, coalesce(missed_last, nominal), j.c3, nominal, phase
    FROM ROWS(bigint, bigint, bigint, bigint) AS j CROSS JOIN occurrences ON occurrences.key IN (
        (SELECT o.key FROM occurrences AS o WHERE o.schedule = j.c1
            AND o.nominal > j.c2 AND o.nominal <= j.c3
            AND o.origin = 'trigger' AND o.phase <> 'superseded' ORDER BY o.nominal DESC LIMIT 1),
        (SELECT o.key FROM occurrences AS o WHERE o.schedule = j.c1 AND o.missed_last IS NOT NULL
            AND o.missed_last > j.c2 AND o.missed_last < j.c3
            AND o.origin = 'trigger' AND o.phase <> 'superseded' ORDER BY o.missed_last DESC LIMIT 1),
        (SELECT o.key FROM occurrences AS o WHERE o.schedule = j.c1 AND o.missed_last IS NOT NULL
            AND o.missed_last >= j.c3 AND o.nominal <= j.c3
            AND o.origin = 'trigger' AND o.phase <> 'superseded' ORDER BY o.missed_last LIMIT 1)
    )
"""


def known_ids(session: Session, identities: Collection[Identity]) -> tuple[set[Identity], set[Identity]]:
    """Those ids that are taken, and those that other schedules depend on."""
    rows = session.gather("tenant, schedule_id, is_taken, is_followed", f"({IDENTITIES})", list(identities))
    taken = {(tenant, one) for tenant, one, is_taken, _ in rows if is_taken}
    return taken, {(tenant, one) for tenant, one, _, is_followed in rows if is_followed}


def downstream(session: Session, key: int) -> dict[int, bool]:
    """The schedules that depend on a schedule, in order, and whether each has no trigger."""
    return {other: follows == 1 for other, follows in session.query(DOWNSTREAM, key)}


def replace(session: Session, key: int, tenant: str, upstreams: Sequence[str]) -> None:
    """Store the ids of the schedules that a schedule depends on."""
    session.delete("dependencies", "schedule", [key])
    if upstreams:
        rows = [(key, position, tenant, one) for position, one in enumerate(upstreams)]
        session.insert("dependencies", COLUMNS, rows)


def raise_version(session: Session, tenant: str) -> None:
    """The dependencies of a tenant have changed."""
    session.execute(_RISE, tenant)


def version(session: Session, tenant: str) -> int:
    """How often the dependencies of a tenant have changed."""
    rows = session.query(_VERSION, tenant)
    return number(rows[0][0], 0) if rows else 0


def graph(session: Session, tenant: str, schedule_ids: Collection[str]) -> Graph:
    """What schedules depend on, directly and through others."""
    graph: dict[str, tuple[str, ...]] = {}
    for schedule_id, upstream in session.query(GRAPH, list(schedule_ids), tenant, tenant):
        graph[schedule_id] = (*graph.get(schedule_id, ()), *([] if upstream is None else [upstream]))
    return Graph(version=version(session, tenant), upstreams=graph)


def newest_fires(session: Session, questions: Sequence[FireQuestion]) -> dict[int, tuple[Micros, Phase]]:
    """The newest fire that each question is about, by its number."""
    best: dict[int, tuple[Micros, Micros, str]] = {}
    for question, last, until, nominal, phase in session.query(NEWEST, list(questions)) if questions else ():
        if not (type(last) is type(nominal) is int and phase in PHASES):
            continue  # a damaged row says nothing
        fire = (min(last, until), nominal, phase)
        best[question] = max(best.get(question, fire), fire)
    return {question: (last, PHASES[phase]) for question, (last, _, phase) in best.items()}
