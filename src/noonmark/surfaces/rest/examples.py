"""Bodies that show how each operation is asked for; a test sends every one."""

from __future__ import annotations

from typing import Any

NOON = {"type": "cron", "expression": "0 12 * * *", "timezone": "Europe/Stockholm"}
EXAMPLES: dict[str, dict[str, Any]] = {
    "schedule/create": {
        "a function every day at noon": {
            "name": "noon report",
            "trigger": NOON,
            "target": {"target_kind": "function", "function": "report"},
        },
        "a call every five minutes, tried three times": {
            "trigger": {"type": "interval", "every_seconds": 300},
            "target": {"target_kind": "http", "method": "POST", "url": "https://example.org/refresh"},
            "retry_policy": {"max_attempts": 3, "backoff_seconds": 10},
            "overlap_policy": "queue",
        },
        "a command whenever a file comes": {
            "trigger": {"type": "event", "event_type": "file_uploaded", "filters": {"name": {"suffix": ".csv"}}},
            "target": {"target_kind": "command", "argv": ["import-csv"]},
            "labels": {"team": "data"},
        },
    },
    "schedule/upsert": {
        "our own document": {
            "schedule_id": "nightly",
            "trigger": {"type": "cron", "expression": "@daily"},
            "target": {"target_kind": "function", "function": "tidy"},
        },
        "the cron service's document": {
            "workflow_id": "example_workflow",
            "version": 1,
            "user_id": "user123",
            "cron_expr": "0 */5 * * * *",
            "timezone": "America/New_York",
        },
    },
    "schedule/update": {
        "an hour later": {"trigger": {**NOON, "expression": "0 13 * * *"}, "description": "after lunch"}
    },
    "schedule/pause": {"with a reason": {"reason": "maintenance"}, "as the cron service has it": {"paused": True}},
    "schedule/resume": {"with a reason": {"reason": "maintenance is over"}},
    "schedule/delete": {"with a reason": {"reason": "no longer needed"}},
    "schedule/run": {"with a payload": {"payload": {"day": "2030-01-01"}, "overlap": "allow"}},
    "schedule/backfill": {
        "how much it would be": {"from": "2026-01-01T00:00:00Z", "to": "2026-01-08T00:00:00Z", "dry_run": True}
    },
    "schedule/preview": {"three times": {"trigger": NOON, "count": 3, "after": "2030-03-30T00:00:00Z"}},
    "occurrence/complete": {"with a result": {"result": {"rows": 12}, "usage": {"tokens": 900, "cost_usd": 0.01}}},
    "occurrence/fail": {"with an error": {"error": "the file was empty"}},
    "occurrence/cancel": {"with a reason": {"reason": "not today"}},
    "event/emit": {"a file": {"event_type": "file_uploaded", "payload": {"name": "a.csv"}, "event_id": "upload-1"}},
    "secret/set": {"a token": {"value": "Bearer put-your-token-here", "hosts": ["api.example.com", "*.example.org"]}},
    "event/match": {
        "which of the last events": {
            "event_type": "file_uploaded",
            "filters": {"path": {"prefix": "/datasets/"}},
            "limit": 50,
        },
        "one that was never emitted": {
            "trigger": {"type": "event", "event_type": "file_uploaded", "filters": {"size": {"gt": 0}}},
            "event": {"payload": {"size": 12}},
        },
    },
}


TASK: dict[str, Any] = {
    "name": "Daily research",
    "cron_expression": "0 9 * * 1-5",
    "timezone": "America/New_York",
    "task_query": "What is new in durable scheduling?",
    "task_context": {"force_research": True},
    "max_budget_per_run_usd": 0.5,
    "timeout_seconds": 1_800,
}
