"""The page of the events that Noonmark emits by itself."""

from __future__ import annotations

from docs.generating.words import NOTE
from noonmark.core.causation import MAX_DEPTH, MAX_FACTS, MAX_OF_TYPE
from noonmark.core.event import MAX_STEPS, NOONMARK
from noonmark.core.ids import TRIGGER
from noonmark.core.pings import Ping, Signal, ping_fields
from noonmark.core.policies.expected_rate import ExpectedRate, RateAlert, RateProblem
from noonmark.core.policies.runaway import Breach, RunawayRule
from noonmark.core.system_events import (
    MAX_ERROR,
    MAX_LINE,
    SystemEvent,
    of_lost_node,
    of_occurrence,
    of_ping,
    of_rate,
    of_runaway,
    of_schedule,
)
from noonmark.testing import factories

OF_SCHEDULES = {
    "schedule_id": "of which schedule",
    "schedule_name": "its name, or its id where it has none",
    "labels": "its labels; `labels.team` in a filter is one of them",
    "user": "who owns it",
    "target_kind": "what it starts: `http`, `function`, ..",
}
LAST = {
    "depth": "1, or one more than that of the event which led to it",
    "chain": "the ids of the schedules that led to it, by facts or as upstreams; the last one is this schedule",
}
OCCURRENCES = {
    "occurrence_id": "of which occurrence",
    **OF_SCHEDULES,
    "origin": "what asked for it: `trigger`, or `manual:`, `event:` and `backfill:` with a key",
    "phase": "where it stands now",
    "reason": "the [code](reasons.md) of why; null of one that has just started",
    "summary": "the same in a sentence",
    "detail": "the numbers behind the reason",
    "nominal_at": "the time that its trigger named",
    "due_at": "when it was first due",
    "attempt": "how many attempts it has had",
    "retry_at": "of `occurrence.retrying`, when the next one is due; else null",
    "late_seconds": "of `occurrence.late`, by how much; else null",
    "expected_seconds": "of `occurrence.overdue`, how long it was expected to take; else null",
    "waited_for": "of `occurrence.late`, the code of what it had to wait for, if it had to; else null",
    "missed_count": "how many fires a row stands for that was missed, skipped or cancelled as a gap; else 0",
    "missed_from": "the first of them; else null",
    "missed_to": "the last of them; else null",
    "error": f"what went wrong, on one line of at most {MAX_LINE} characters; empty if nothing did",
    "error_text": f"the last {MAX_ERROR:,} characters of its error",
    **LAST,
}
SCHEDULES = {
    **OF_SCHEDULES,
    "trigger_type": "`cron`, `event`, ..; null where it follows others",
    "phase": "where it stands now",
    "revision": "its revision now",
    "at": "when",
    "by": "who asked for it; null where it came by itself, or a program did it to its own schedule",
    "reason": "what they gave for one; `pause_on_failure` where it paused itself",
    "failures_in_row": "after how many failures in a row it paused itself; else 0",
    **LAST,
}
RATES = {
    **OF_SCHEDULES,
    "summary": "what happened, in a sentence",
    "expected_rate": "what was expected: `at_least`, `at_most`, `per_seconds`",
    "count": "how many starts or, of `schedule.too_rare`, successes there were in the first of the windows",
    "windows": "how many windows in a row it is about",
    "window_from": "when the first of them began",
    "window_to": "when the last of them ended or, of `schedule.too_often`, ends",
    **LAST,
}
RUNAWAYS = {
    **OF_SCHEDULES,
    "summary": "what happened, in a sentence",
    "rule": "`fires_per_hour`, `spend_per_hour` or `identical_results`",
    "seen": "how many starts, dollars or results there were",
    "limit": "how many are allowed",
    "since": "when the hour began or, of `identical_results`, the counting",
    "phase": "where it stands now: `paused`, or `completed` where nothing is left to pause",
    **LAST,
}
PINGS = {
    **OF_SCHEDULES,
    "occurrence_id": "of `ping.early`, which occurrence it counts for; else null",
    "due_at": "of `ping.early`, when that is due; else null",
    "signal": "`start`, `success` or `fail`",
    "exit_status": "the exit status that it reported; null if it reported none",
    "output": "the body, or the last 16 KiB of it",
    "at": "when it came",
    **LAST,
}
NODES = {
    "node": "its name",
    "seen_at": "the time of its last heartbeat",
    "started_at": "when it began",
    "version": "the version of Noonmark that it ran",
    "load": "how many occurrences it held at its last heartbeat",
    "routes": "what it served",
    "depth": "1",
}


def events_page() -> str:
    """Every fact, when it is told, and every field of its payload."""
    made = factories.schedule()
    one = factories.occurrence(made, TRIGGER)
    ping = of_ping(SystemEvent.PING_UNEXPECTED, made, "", ping_fields(Ping(signal=Signal.START), None, now=0))
    lost = of_lost_node("", seen=0, started=0, version="", load=0, routes=())
    created = of_schedule(SystemEvent.SCHEDULE_CREATED, made)
    alert = RateAlert(problem=RateProblem.TOO_RARE, rate=ExpectedRate(per=1, at_least=1), first=0, last=1, count=0)
    breach = Breach(rule=RunawayRule.FIRES, seen=2, limit=1, since=0, text="")
    rules = (of_rate(made, alert), of_runaway(made, breach))
    examples = (of_occurrence(SystemEvent.FAILED, made, one), created, *rules, ping, lost)
    for fields, event in zip((OCCURRENCES, SCHEDULES, RATES, RUNAWAYS, PINGS, NODES), examples, strict=True):
        if event is None or list(fields) != list(event.payload):
            raise ValueError(f"{event} has other fields than the page lists: {list(fields)}")
    return (
        f"{NOTE}# Events that Noonmark emits\n\n"
        "What happens to occurrences, schedules and nodes is emitted as an event, in the transaction that makes it\n"
        "so, if a schedule of the tenant subscribes to its type: an [alert](../guides/alerts.md). Otherwise\n"
        "it is not stored, except for events of [pings](../guides/dead-mans-switch.md), which always are.\n"
        f"The source of all of them is `{NOONMARK}`, which is reserved; the types are free\n"
        "to use, so that an alert can be tried.\n\n"
        "| type | emitted when |\n| --- | --- |\n"
        + "".join(f"| `{fact}` | {fact.sentence} |\n" for fact in SystemEvent)
        + "\n## What ends the chain\n\n"
        "- No schedule is triggered by a fact about itself, by an event that its own run has emitted, or by an event\n"
        "  that follows from one of these.\n"
        f"- A chain has at most {MAX_FACTS} facts: one about a run that no fact has triggered, and one about a run\n"
        "  that such a fact has triggered. Events that schedules emit in between change nothing about that.\n"
        f"- Of the events of a chain that schedules emit, at most {MAX_OF_TYPE} are of one type, with the one from\n"
        "  outside that began it.\n"
        f"- At most {MAX_DEPTH} events trigger each other, one after another.\n"
        "- What runs because its upstreams have ended stands where they stand; if several have, with the deepest.\n\n"
        "A fact beyond that is logged, and not emitted; a run that would emit such an event is `delivery_failed`.\n"
        "The id of an event says where it stands in its chain: `evt3.1_..` is the third one, and one of the three is\n"
        f"a fact. In `evt3.1_..-..`, what precedes the hyphen stands for the last {MAX_STEPS} steps that led to it.\n"
        + _section("Of an occurrence", OCCURRENCES)
        + _section("Of a schedule", SCHEDULES)
        + _section("Of an expected rate", RATES)
        + _section("Of a runaway", RUNAWAYS)
        + _section("Of a ping", PINGS)
        + _section("Of a node", NODES)
    )


def _section(title: str, fields: dict[str, str]) -> str:
    rows = "".join(f"| `{name}` | {meaning} |\n" for name, meaning in fields.items())
    return f"\n## {title}\n\n| field of the payload | |\n| --- | --- |\n{rows}"
