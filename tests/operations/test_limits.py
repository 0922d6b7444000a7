"""The limits of callers: which apply to whom, and what they see of them."""

from dataclasses import replace

import pytest

from noonmark.core.errors import InvalidSchedule, QuotaExceeded
from noonmark.core.instants import SECOND, to_text
from noonmark.core.quotas import UNLIMITED, Limits, Resource
from noonmark.core.rate_limit import parse_rate
from noonmark.core.schedule import Owner
from noonmark.operations.service import LOCAL, Service
from noonmark.operations.table import perform
from noonmark.operations.uploads import Intake
from noonmark.stores.files import UploadFolder
from noonmark.stores.memory import MemoryStore
from noonmark.testing.conformance import HandClock

LIMITS = Limits(
    per_user={
        Resource.SCHEDULES: {"*": 2},
        Resource.EVENTS: {"acme": 2},
        Resource.QUEUED: {"*": 2},
        Resource.IN_FLIGHT: {"acme": 1},
    },
    per_tenant={Resource.SCHEDULES: {"acme": 3}, Resource.EVENTS: {"none": 0}, Resource.IN_FLIGHT: {"acme": 4}},
    min_interval=60 * SECOND,
    max_budget_usd=5,
)
TASK_LIMITS = Limits(per_user={Resource.TASKS: {"*": 50}}, per_tenant={})
TARGET = {"target_kind": "http", "url": "https://example.com/"}


def caller(tenant, user):
    return replace(LOCAL, owner=Owner(tenant=tenant, user=user), is_root=False)


ADA, BOB, EVE = caller("acme", "ada"), caller("acme", "bob"), caller("other", "eve")


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def service(clock):
    numbers = iter(range(100))
    return Service(
        store=MemoryStore(clock),
        lookahead=2 * SECOND,
        fresh_id=lambda: f"fresh{next(numbers)}",
        limits=LIMITS,
        task_limits=TASK_LIMITS,
    )


def create(service, who, **fields):
    document = {"trigger": {"type": "interval", "every_seconds": 60}, "target": TARGET, **fields}
    return perform(service, who, "schedule/create", document)


def used(service, who):
    return {(one["name"], one["scope"]): one["used"] for one in perform(service, who, "limits/get", {})["limits"]}


def test_a_user_and_a_tenant_have_their_own_limits(service):
    first = create(service, ADA)
    create(service, ADA)
    with pytest.raises(QuotaExceeded, match="limit of 2 schedules per user"):
        create(service, ADA)
    create(service, BOB)
    with pytest.raises(QuotaExceeded, match="limit of 3 schedules per tenant"):
        create(service, BOB)
    create(service, EVE)
    perform(service, ADA, "schedule/delete", {"schedule_id": first["schedule_id"]})
    create(service, BOB)
    assert used(service, BOB)["schedules", "user"] == 2
    assert used(service, BOB)["schedules", "tenant"] == 3
    assert used(service, EVE)["schedules", "user"] == 1


def test_an_upsert_that_creates_is_limited_and_one_that_edits_is_not(service):
    for name in ("a", "b"):
        perform(
            service,
            ADA,
            "schedule/upsert",
            {"name": name, "trigger": {"type": "cron", "expression": "0 9 * * *"}, "target": TARGET},
        )
    edited = {"name": "a", "trigger": {"type": "cron", "expression": "0 8 * * *"}, "target": TARGET}
    assert perform(service, ADA, "schedule/upsert", edited)["revision"] == 2
    with pytest.raises(QuotaExceeded):
        perform(service, ADA, "schedule/upsert", {**edited, "name": "c"})


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"trigger": {"type": "interval", "every_seconds": 59}}, "trigger"),
        ({"trigger": {"type": "cron", "crons": ["0 9 * * *", "30 0 9 * * *"]}}, "trigger"),
        ({"budget": {"max_cost_usd": 6}}, "budget.max_cost_usd"),
    ],
)
def test_what_fires_too_often_or_costs_too_much_is_refused(service, fields, field):
    with pytest.raises(InvalidSchedule) as refused:
        create(service, ADA, **fields)
    assert refused.value.field == field
    schedule = create(service, ADA)
    with pytest.raises(InvalidSchedule):
        perform(service, ADA, "schedule/update", {"schedule_id": schedule["schedule_id"], **fields})
    create(service, LOCAL, **fields)


def emit(service, who, **fields):
    return perform(service, who, "event/emit", {"event_type": "order", **fields})


def test_events_beyond_the_rate_are_refused_and_not_stored(service, clock):
    emit(service, ADA, event_id="one")
    emit(service, ADA)
    with pytest.raises(QuotaExceeded, match="limit of 2 events a minute per user is reached, 2 are used") as refused:
        emit(service, ADA)
    assert refused.value.wait == 30
    assert emit(service, ADA, event_id="one") == {"event_id": "one"}
    assert used(service, ADA)["events_per_minute", "user"] == 2
    assert used(service, BOB)["events_per_minute", "user"] == 0
    assert len(perform(service, ADA, "event/list", {})["events"]) == 2
    clock.now += 30 * SECOND
    emit(service, ADA)
    with pytest.raises(QuotaExceeded, match="limit of 0 events a minute per tenant is reached"):
        emit(service, caller("none", "eve"))
    emit(service, replace(LOCAL, owner=Owner(tenant="none", user="eve")))


def test_what_callers_request_is_refused_while_the_queue_is_full(service, clock):
    run, began = {"schedule_id": create(service, EVE)["schedule_id"]}, clock.now
    clock.now += 300 * SECOND
    first = perform(service, EVE, "schedule/run", {**run, "key": "first"})
    times = {"from": to_text(began + SECOND), "to": to_text(clock.now)}
    with pytest.raises(QuotaExceeded, match="does not allow 5 more, 2 are used"):
        perform(service, EVE, "schedule/backfill", {**run, **times})
    assert perform(service, EVE, "schedule/backfill", {**run, **times, "dry_run": True})["count"] == 5
    with pytest.raises(QuotaExceeded, match="limit of 2 waiting occurrences per user is reached, 2 are used"):
        perform(service, EVE, "schedule/run", run)
    assert perform(service, EVE, "schedule/run", {**run, "key": "first"})["occurrence_id"] == first["occurrence_id"]
    with pytest.raises(QuotaExceeded, match="waiting occurrences"):
        emit(service, EVE)
    assert used(service, EVE)["queued", "user"] == 2
    perform(service, EVE, "occurrence/cancel", {"occurrence_id": first["occurrence_id"]})
    again = perform(service, EVE, "occurrence/redrive", {"occurrence_id": first["occurrence_id"]})
    perform(service, EVE, "occurrence/cancel", {"occurrence_id": again["occurrence_id"]})
    perform(service, EVE, "schedule/run", run)
    with pytest.raises(QuotaExceeded, match="waiting occurrences"):
        perform(service, EVE, "occurrence/redrive", {"occurrence_id": again["occurrence_id"]})
    perform(service, replace(LOCAL, owner=EVE.owner), "schedule/run", run)


def test_an_administrator_of_all_tenants_has_no_limits_but_those_of_tasks(service):
    for _ in range(4):
        create(service, replace(LOCAL, owner=ADA.owner))
    assert perform(service, LOCAL, "limits/get", {})["limits"] == [
        {"name": "tasks", "scope": "user", "value": 50, "used": 0}
    ]


def test_the_limits_of_uploads_and_requests_are_listed_for_whom_they_count(service, tmp_path):
    rates = {"key": parse_rate("600/m"), "address": parse_rate("200/s")}
    uploads = UploadFolder(tmp_path / "uploads", max_bytes=100, quota=1_000)
    service = replace(service, rates=rates, uploads=uploads, limits=UNLIMITED, task_limits=UNLIMITED)
    intake = Intake(service, ADA, None)
    intake.write(b"something")
    intake.finish({"filename": "some.txt"}, None)
    for_all = [
        {"name": "uploads", "scope": "tenant", "value": 10_000, "used": 1},
        {"name": "upload_bytes", "scope": "tenant", "value": 1_000, "used": 9},
        {"name": "requests_per_minute", "scope": "key", "value": 600, "used": None},
        {"name": "requests_per_second", "scope": "address", "value": 200, "used": None},
    ]
    assert perform(service, ADA, "limits/get", {})["limits"] == for_all
    local = perform(service, replace(LOCAL, owner=ADA.owner), "limits/get", {})["limits"]
    assert local == [one for one in for_all if one["scope"] != "key"]
    assert perform(service, EVE, "limits/get", {})["limits"][1]["used"] == 0


def test_all_limits_of_a_caller_are_listed(service):
    assert perform(service, ADA, "limits/get", {})["limits"] == [
        {"name": "tasks", "scope": "user", "value": 50, "used": 0},
        {"name": "schedules", "scope": "user", "value": 2, "used": 0},
        {"name": "schedules", "scope": "tenant", "value": 3, "used": 0},
        {"name": "events_per_minute", "scope": "user", "value": 2, "used": 0},
        {"name": "queued", "scope": "user", "value": 2, "used": 0},
        {"name": "inflight", "scope": "user", "value": 1, "used": 0},
        {"name": "inflight", "scope": "tenant", "value": 4, "used": 0},
        {"name": "min_interval_seconds", "scope": "schedule", "value": 60, "used": None},
        {"name": "max_budget_usd", "scope": "schedule", "value": 5, "used": None},
    ]
