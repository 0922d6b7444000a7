"""A schedule is restored from its stored parts, whatever it declares."""

import json
from dataclasses import replace

import pytest

from noonmark.core.budgets.spend import Usage
from noonmark.core.instants import from_micros
from noonmark.core.schedule import parse_schedule
from noonmark.stores.sql import schedule_documents
from noonmark.stores.sqlite import SqliteStore
from noonmark.testing import factories
from noonmark.testing.conformance import HandClock
from noonmark.testing.conformance.bench import Bench
from noonmark.testing.factories import NOW

FUNCTION = {"target_kind": "function", "function": "work", "args": [1, 2.5, None], "kwargs": {"deep": [{"a": True}]}}
DOCUMENTS = [
    {"trigger": {"type": "cron", "expression": "H 3 * * MON", "timezone": "Europe/Berlin"}, "target": FUNCTION},
    {
        "trigger": {"type": "event", "event_type": ["a", "b"], "filters": {"size": {"gt": 3}}},
        "target": {"target_kind": "http", "method": "POST", "url": "https://example.com/hook", "body": {"ü": "☃"}},
        "overlap_policy": {"type": "queue", "queue_limit": 7},
        "concurrency_key": "db",
        "concurrency_limit": 3,
    },
    {
        "schedule_id": "mine",
        "name": "Nightly",
        "description": "Every night,\nwhatever happens.",
        "labels": {"team": "data"},
        "trigger": {"type": "interval", "every_seconds": 0.5, "jitter_seconds": 0.1},
        "target": FUNCTION,
        "misfire_policy": {"type": "spread", "window_seconds": 30, "limit": 5, "grace_seconds": 2},
        "retry_policy": {"max_attempts": 3, "backoff_seconds": 0.25, "multiplier": 1.5},
        "window": {"duration_seconds": 60},
        "budget": {"max_cost_usd": 0.1, "max_tokens": 9},
        "timeout_seconds": 1.5,
        "max_runs": 4,
        "pause_on_failure": 2,
        "delivery": "at_most_once",
        "enabled": False,
    },
    {"depends_on": [{"schedule_id": "mine", "require_success": False}], "target": FUNCTION},
]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_is_declared_reads_back_equal(tmp_path, document):
    declared = parse_schedule(document, now=from_micros(NOW))
    clock = HandClock()
    store = SqliteStore(tmp_path / "noonmark.db", clock)
    store.open()
    changes = {name: getattr(declared, name) for name in declared.__dataclass_fields__ if name != "schedule_id"}
    made = Bench(store, clock).create(schedule_id=declared.schedule_id, **changes)
    store._schedule_cache.forget()
    for cached in (
        schedule_documents._declared,
        schedule_documents._terms,
        schedule_documents._trigger,
        schedule_documents._text_of_times,
        schedule_documents._policies,
    ):
        cached.cache_clear()
    assert store.snapshot(made.uid).schedule == made
    store.close()


PLAIN = {"trigger": {"type": "interval", "every_seconds": 60}, "target": FUNCTION}


def terms_of(document):
    """The stored terms of a document, and its own."""
    declared = parse_schedule(document, now=from_micros(NOW))
    [_, text] = schedule_documents._written(declared)
    return json.loads(text), declared.to_document()


def test_most_policies_are_left_out_of_the_terms():
    terms, document = terms_of(PLAIN)
    assert terms == {name: document[name] for name in ("target", "overlap_policy", "misfire_policy")}
    assert document.items() >= schedule_documents.OMITTED.items()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("missing_target_policy", "skip"),
        ("retry_policy", {"max_attempts": 1, "backoff_seconds": 2, "multiplier": 2, "max_backoff_seconds": 300}),
        ("delivery", "at_most_once"),
        ("enabled", False),
        ("planning_horizon_days", 31),
        ("planning_horizon_occurrences", 2),
    ],
)
def test_a_policy_that_differs_is_stored(field, value):
    terms, _ = terms_of({**PLAIN, field: value})
    assert {name: terms[name] for name in schedule_documents.OMITTED if name in terms} == {field: value}


def test_what_is_left_out_never_changes():
    assert schedule_documents.OMITTED == {
        "missing_target_policy": "mark_misfired",
        "retry_policy": {"max_attempts": 1, "backoff_seconds": 1, "multiplier": 2, "max_backoff_seconds": 300},
        "delivery": "at_least_once",
        "enabled": True,
        "planning_horizon_days": 30,
        "planning_horizon_occurrences": 1,
    }


def test_terms_with_every_policy_read_as_those_without():
    terms, document = terms_of(PLAIN)
    every = {name: value for name, value in document.items() if name != "trigger"}
    assert schedule_documents._terms(json.dumps(every)) == schedule_documents._terms(json.dumps(terms))


def test_what_is_left_out_is_read_with_the_stored_values_and_not_with_the_defaults_of_documents(monkeypatch):
    terms, _ = terms_of(PLAIN)
    monkeypatch.setitem(schedule_documents.OMITTED, "planning_horizon_days", 7)
    assert schedule_documents._terms.__wrapped__(json.dumps(terms)).horizon.days == 7


def test_what_many_share_is_read_once(tmp_path):
    clock = HandClock()
    store = SqliteStore(tmp_path / "noonmark.db", clock)
    store.open()
    bench = Bench(store, clock)
    schedules = [bench.create(f"uid-{n}", name=f"name-{n}") for n in range(5)]
    store._schedule_cache.forget()
    schedule_documents._declared.cache_clear()
    assert [store.snapshot(one.uid).schedule for one in schedules] == schedules
    assert schedule_documents._declared.cache_info().misses == 1
    store.close()


def test_the_cache_of_schedules_is_bounded(monkeypatch):
    monkeypatch.setattr(schedule_documents, "_KNOWN", 2)
    schedule_cache = schedule_documents.ScheduleCache()
    for key in range(5):
        schedule_cache.keep({key: (1, factories.schedule(f"uid-{key}"))})
    assert list(schedule_cache._known) == [3, 4]


@pytest.mark.parametrize("error", ["plain", "a\0b", "half \ud800 of one", "é☃𝄞"])
@pytest.mark.parametrize("alone", [True, False])
def test_any_output_of_a_run_can_be_stored(tmp_path, error, alone):
    clock = HandClock()
    store = SqliteStore(tmp_path / "noonmark.db", clock)
    store.open()
    bench = Bench(store, clock)
    for uid in ("uid-1", "uid-2"):
        bench.add(bench.create_quiet(uid), "a")
    running = [bench.start(claim) for claim in bench.claim()]
    settlements = [bench.settlement(one) for one in running]
    usage = Usage(model="m", provider="p", input_tokens=3, cache_read_tokens=9, tool_calls=2, cost=2**53 + 1)
    said = replace(settlements[0].run, error=error, result={"x": error}, usage=usage)
    settlements[0] = replace(settlements[0], run=said)
    assert all(store.settle(settlements[: 1 if alone else 2]))
    [run] = store.runs(running[0].uid)
    assert run.result == {"x": error}
    assert run.usage == usage
    assert run.error == error.replace("\0", "\\0").replace("\ud800", "\\ud800")
    store.close()
