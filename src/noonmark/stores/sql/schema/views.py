"""The view for those who look into the database with SQL: every occurrence with its runs, one row for each run.

It is one SELECT for all databases. Only how an instant becomes text differs, and that stands in one table here.
"""

from __future__ import annotations

INSTANTS = {
    "sqlite": "strftime('%Y-%m-%dT%H:%M:%S', {0} / 1000000, 'unixepoch') || printf('.%06dZ', {0} % 1000000)",
    "postgresql": "to_char(to_timestamp({0} / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS')"
    " || '.' || lpad(CAST({0} % 1000000 AS TEXT), 6, '0') || 'Z'",
}
"""An instant, in microseconds, as text in UTC that sorts as the instants do; nothing becomes nothing."""

_OCCURRENCE = """schedules.schedule_id,
    schedules.name AS schedule_name,
    schedules.tenant,
    schedules.username,
    occurrences.id AS occurrence_id,
    occurrences.origin,
    occurrences.phase,
    occurrences.reason,
    occurrences.missed_count,
    occurrences.nominal,
    occurrences.due,
    occurrences.ended AS occurrence_ended"""
_RUN = """occurrences.id || '-' || CAST(runs.fence AS TEXT) AS run_id,
    runs.attempt,
    runs.node,
    runs.started,
    runs.ended,
    runs.outcome,
    runs.error,
    runs.tokens,
    runs.cost_usd"""
# The start is committed a little before it is due, but nothing begins before that.
_OPEN_RUN = """occurrences.id || '-' || CAST(occurrences.fence AS TEXT),
    occurrences.attempt,
    occurrences.node,
    CASE WHEN occurrences.started < occurrences.due THEN occurrences.due ELSE occurrences.started END,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL"""
_TOLD = ("nominal", "due", "started", "ended", "occurrence_ended")


def execution_history(dialect: str) -> str:
    """The statement that creates the view `schedule_execution_history`.

    A run that goes on and was not told of is in no table yet, so it is told from its occurrence; that it has not ended
    finds the index.
    """
    texts = ",\n    ".join(f"{INSTANTS[dialect].format(name)} AS {name}_at" for name in _TOLD)
    return f"""CREATE VIEW schedule_execution_history AS
SELECT
    history.*,
    CAST(ended - started AS DOUBLE PRECISION) / 1000000 AS duration_seconds,
    {texts}
FROM (
SELECT
    {_OCCURRENCE},
    {_RUN}
FROM schedules
JOIN occurrences ON occurrences.schedule = schedules.key
LEFT JOIN runs ON runs.occurrence = occurrences.key
WHERE occurrences.phase <> 'dispatching' OR runs.occurrence IS NOT NULL
UNION ALL
SELECT
    {_OCCURRENCE},
    {_OPEN_RUN}
FROM schedules
JOIN occurrences ON occurrences.schedule = schedules.key
WHERE occurrences.phase = 'dispatching' AND occurrences.ended IS NULL AND NOT EXISTS (
    SELECT 1 FROM runs WHERE runs.occurrence = occurrences.key AND runs.fence = occurrences.fence
)
) AS history"""  # noqa: S608 - our own text
