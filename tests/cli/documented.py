"""The commands that users of the job runtime's command line know, and what each answers here.

Where theirs names a bundle, these name a function; `tests/service/test_bundles.py` runs those with bundles. `{id}` is
an existing schedule, `{paused}` a paused one, `{trigger}` one that waits for an event, and `{event}` an event.
`tests/cli/test_documented.py` runs them.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Documented(NamedTuple):
    """A command and a part of its JSON document; for a list, ids that it has or lacks."""

    does: str
    command: tuple[str, ...]
    gives: Mapping = MappingProxyType({})
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()


NEW_YORK = {"expression": "0 2 * * *", "timezone": "America/New_York"}
MANIFEST = """
{
  "enabled": true,
  "kind": "periodic",
  "crons": ["0 2 * * *"],
  "timezone": "America/New_York",
  "prohibit_overlap": true,
  "missed_policy": "skip",
  "catchup_limit": 10,
  "window": {"duration_ms": 3600000, "end_action": "cancel"}
}
"""
FILTERS = {"path": {"prefix": "/datasets/"}}
TRIGGERS = """
{
  "triggers": [
    {
      "name": "dataset-uploaded",
      "enabled": true,
      "event_type": "file_uploaded",
      "filters": {"path": {"prefix": "/datasets/"}}
    }
  ]
}
"""

COMMANDS = (
    Documented(
        "Create a periodic schedule",
        (
            *("schedule", "create", "--function", "evaluate"),
            *("--cron", "0 2 * * *", "--timezone", "America/New_York", "--name", "nightly-eval"),
        ),
        {"name": "nightly-eval", "phase": "active", "trigger": {"type": "cron", **NEW_YORK}, "overlap_policy": "skip"},
    ),
    Documented(
        "Allow overlapping runs",
        ("schedule", "create", "--function", "evaluate", "--cron", "*/15 * * * *", "--allow-overlap"),
        {"trigger": {"expression": "*/15 * * * *"}, "overlap_policy": "allow"},
    ),
    Documented(
        "Create a bounded window",
        ("schedule", "create", "--function", "evaluate", "--cron", "0 1 * * *", "--window", "2h"),
        {"window": {"duration_seconds": 7200, "end_action": "cancel"}},
    ),
    *(
        Documented(
            f"The shortcut {shortcut}",
            ("schedule", "create", "--function", "evaluate", "--cron", shortcut),
            {"trigger": {"type": "cron", "expression": shortcut}},
        )
        for shortcut in ("@hourly", "@daily", "@weekly", "@monthly", "@yearly", "@annually")
    ),
    Documented(
        "Several expressions: the earliest fire wins",
        ("schedule", "create", "--function", "evaluate", "--cron", "0 9 * * 1-5", "--cron", "0 12 * * 6"),
        {"trigger": {"crons": ["0 9 * * 1-5", "0 12 * * 6"]}},
    ),
    Documented(
        "The schedule of a whole manifest",
        ("schedule", "create", "--function", "evaluate", "--schedule-json", f'{{"schedule": {MANIFEST}}}'),
        {"trigger": {"type": "cron", **NEW_YORK}},
    ),
    Documented(
        "Skip missed runs",
        ("schedule", "create", "--function", "evaluate", "--cron", "@daily", "--missed-policy", "skip"),
        {"misfire_policy": {"type": "skip", "grace_seconds": 60}},
    ),
    Documented(
        "Catch up with one missed run",
        ("schedule", "create", "--function", "evaluate", "--cron", "@daily", "--missed-policy", "catchup_one"),
        {"misfire_policy": {"type": "catch_up_one"}},
    ),
    Documented(
        "Catch up with several missed runs",
        (
            *("schedule", "create", "--function", "evaluate", "--cron", "@daily"),
            *("--missed-policy", "catchup_all", "--catchup-limit", "10"),
        ),
        {"misfire_policy": {"type": "catch_up_all", "limit": 10}},
    ),
    Documented(
        "Create a schedule from the schedule of a manifest; options take precedence",
        (
            *("schedule", "create", "--function", "evaluate", "--name", "from-manifest", "--schedule-json"),
            MANIFEST,
        ),
        {
            "name": "from-manifest",
            "enabled": True,
            "trigger": {"type": "cron", **NEW_YORK},
            "overlap_policy": "skip",
            "misfire_policy": {"type": "skip"},
            "window": {"duration_seconds": 3600, "end_action": "cancel"},
        },
    ),
    Documented(
        "Run once, at an exact time",
        ("schedule", "delay", "--function", "clean_up", "--at", "2036-05-25T02:00:00Z"),
        {"trigger": {"type": "once", "due_at_utc": "2036-05-25T02:00:00Z"}, "next_run_at": "2036-05-25T02:00:00Z"},
    ),
    Documented(
        "Run once, after a delay",
        ("schedule", "delay", "--function", "clean_up", "--in", "30m", "--name", "delayed-cleanup"),
        {"name": "delayed-cleanup", "trigger": {"type": "once"}, "phase": "active"},
    ),
    Documented(
        "Run once, as a manifest says",
        ("schedule", "delay", "--function", "f", "--schedule-json", '{"kind": "delayed", "delay_ms": 1800000}'),
        {"trigger": {"type": "once"}, "phase": "active"},
    ),
    Documented(
        "Run once, at the time a manifest names",
        (
            *("schedule", "delay", "--function", "f", "--schedule-json"),
            '{"kind": "delayed", "run_at": "2036-05-25T02:00:00Z"}',
        ),
        {"trigger": {"type": "once", "due_at_utc": "2036-05-25T02:00:00Z"}},
    ),
    Documented(
        "Create an event trigger",
        (
            *("trigger", "create", "--function", "load", "--event", "file_uploaded"),
            *("--filter-json", '{"path":{"prefix":"/datasets/"}}'),
        ),
        {
            "trigger": {"type": "event", "event_type": "file_uploaded", "filters": FILTERS},
            "overlap_policy": {"type": "queue"},
        },
    ),
    Documented(
        "Filter by exact values, lists, prefixes and parts",
        (
            *("trigger", "create", "--function", "load", "--event", "file_uploaded", "--filter-json"),
            '{"source": "desk", "path": {"contains": ".jsonl"}, "kind": ["dataset", "eval"]}',
        ),
        {"trigger": {"filters": {"source": "desk", "path": {"contains": ".jsonl"}, "kind": ["dataset", "eval"]}}},
    ),
    Documented(
        "A trigger of a manifest",
        ("trigger", "create", "--function", "load", "--schedule-json", TRIGGERS),
        {
            "name": "dataset-uploaded",
            "phase": "active",
            "trigger": {"type": "event", "event_type": "file_uploaded", "filters": FILTERS},
        },
    ),
    Documented(
        "Which recent events would trigger it",
        ("trigger", "test", "{trigger}", "--last", "50"),
        {"matched": 0},
    ),
    Documented(
        "Which recent events match filters",
        ("event", "match", "file_uploaded", "--filter-json", '{"path":{"prefix":"/datasets/"}}', "--last", "50"),
    ),
    Documented(
        "Emit an event",
        ("event", "emit", "file_uploaded", "--payload-json", '{"path":"/datasets/eval.jsonl","bucket":"local"}'),
    ),
    Documented("List schedules", ("schedule", "list"), has=("{id}", "{trigger}")),
    Documented(
        "List periodic schedules", ("schedule", "list", "--kind", "periodic"), has=("{id}",), lacks=("{trigger}",)
    ),
    Documented("List active schedules", ("schedule", "list", "--status", "active"), has=("{id}",), lacks=("{paused}",)),
    Documented("Show the status of a schedule", ("schedule", "status", "{id}"), {"schedule_id": "{id}"}),
    Documented(
        "Pause a schedule",
        ("schedule", "pause", "{id}", "--reason", "hold during maintenance"),
        {"schedule_id": "{id}", "phase": "paused"},
    ),
    Documented(
        "Resume a schedule",
        ("schedule", "resume", "{id}", "--reason", "maintenance complete"),
        {"schedule_id": "{id}", "phase": "active"},
    ),
    Documented("Dispatch immediately", ("schedule", "run-now", "{id}"), {"schedule_id": "{id}", "payload": None}),
    Documented(
        "Dispatch immediately, with a payload",
        ("schedule", "run-now", "{id}", "--payload-json", '{"manual":true}'),
        {"schedule_id": "{id}", "payload": {"manual": True}},
    ),
    Documented(
        "Delete a schedule",
        ("schedule", "delete", "{id}", "--reason", "retired"),
        {"schedule_id": "{id}", "phase": "deleted"},
    ),
    Documented("List event triggers", ("trigger", "list"), has=("{trigger}",), lacks=("{id}",)),
    Documented(
        "Delete an event trigger",
        ("trigger", "delete", "{trigger}", "--reason", "retired"),
        {"schedule_id": "{trigger}", "phase": "deleted"},
    ),
    Documented("List trigger events", ("event", "list", "--limit", "50"), has=("{event}",)),
)
