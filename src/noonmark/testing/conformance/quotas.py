"""Quotas: what an owner may have is counted in the transaction that adds to it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core.edits import edit
from noonmark.core.errors import QuotaExceeded
from noonmark.core.event import Event
from noonmark.core.ids import manual
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.planner import first_plan
from noonmark.core.quotas import Quota, Resource, Scope
from noonmark.core.rate_limit import RateLimit
from noonmark.core.schedule import Owner
from noonmark.core.targets import TaskTarget
from noonmark.core.triggers import IntervalTrigger
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LOOKAHEAD, case
from noonmark.testing.factories import MINUTE, NOW

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.planner import Plan, Snapshot
    from noonmark.core.schedule import Schedule
    from noonmark.testing.conformance.bench import Bench

PER_USER = Quota(Resource.SCHEDULES, Scope.USER, 2)
PER_TENANT = Quota(Resource.SCHEDULES, Scope.TENANT, 3)
TASKS = Quota(Resource.TASKS, Scope.USER, 1)
BOB = Owner(tenant="acme", user="bob")
ELSEWHERE = Owner(tenant="elsewhere", user="ada")


def _refused(bench: Bench, schedules: list[Schedule], *quotas: Quota) -> dict[str, str | int] | None:
    """Create schedules; what the refusal says, if they do not fit."""
    plans = [replace(first_plan(one, lookahead=LOOKAHEAD), quotas=quotas) for one in schedules]
    try:
        assert all(bench.store.create(plans))
    except QuotaExceeded as error:
        return dict(error.limit or {})
    return None


@case
def a_quota_counts_the_active_and_paused_schedules_of_a_user(bench: Bench) -> None:
    paused = factories.schedule("b", phase=SchedulePhase.PAUSED)
    assert _refused(bench, [factories.schedule("a"), paused], PER_USER) is None
    said = {"name": "schedules", "scope": "user", "value": 2, "used": 2}
    assert _refused(bench, [factories.schedule("c")], PER_USER) == said
    assert bench.store.find_uid("c") is None
    assert _refused(bench, [factories.schedule("d", owner=BOB)], PER_USER) is None
    assert _refused(bench, [factories.schedule("e", owner=ELSEWHERE)], PER_USER) is None
    assert _refused(bench, [factories.schedule("f")]) is None


@case
def a_quota_of_a_tenant_counts_all_of_its_users(bench: Bench) -> None:
    assert _refused(bench, [factories.schedule("a"), factories.schedule("b", owner=BOB)], PER_TENANT) is None
    many = [factories.schedule("c"), factories.schedule("d")]
    assert _refused(bench, many, PER_TENANT) == {"name": "schedules", "scope": "tenant", "value": 3, "used": 3}
    assert bench.store.find_uid("c") is None
    assert _refused(bench, [factories.schedule("e", owner=ELSEWHERE)], PER_TENANT) is None


@case
def a_quota_of_tasks_counts_tasks_alone(bench: Bench) -> None:
    task = TaskTarget(query="look")
    assert _refused(bench, [factories.schedule("a"), factories.schedule("b", target=task)], TASKS) is None
    assert _refused(bench, [factories.schedule("c")], TASKS) is None
    assert _refused(bench, [factories.schedule("d", target=task)], TASKS) is not None


@case
def a_completed_schedule_needs_room_to_start_again(bench: Bench) -> None:
    done = factories.schedule("done", phase=SchedulePhase.COMPLETED)
    assert _refused(bench, [factories.schedule("a"), factories.schedule("b"), done], PER_USER) is None

    def reopen(snapshot: Snapshot, now: Micros) -> Plan:
        declared = factories.declaration(trigger=IntervalTrigger(120, start_at=from_micros(NOW + MINUTE)))
        return replace(edit(snapshot, declared, now=now, lookahead=LOOKAHEAD), quotas=(PER_USER,))

    used = None
    try:
        bench.store.change("done", reopen)
    except QuotaExceeded as error:
        used = (error.limit or {})["used"]
    assert used == 2
    stored = bench.store.find_uid("done")
    assert stored is not None
    assert stored.schedule.phase is SchedulePhase.COMPLETED


def _added(bench: Bench, rows: list[Occurrence], *limits: Quota) -> dict[str, str | int] | list[bool]:
    """Add occurrences: which are new, or what the refusal says."""
    try:
        return bench.store.add(rows, limits=limits)
    except QuotaExceeded as error:
        return dict(error.limit or {})


@case
def occurrences_beyond_the_queue_of_an_owner_are_not_added(bench: Bench) -> None:
    per_user, per_tenant = Quota(Resource.QUEUED, Scope.USER, 2), Quota(Resource.QUEUED, Scope.TENANT, 3)
    ada, bob, eve = (
        bench.create_quiet(uid, owner=owner)
        for uid, owner in (("a", Owner(tenant="acme", user="ada")), ("b", BOB), ("c", ELSEWHERE))
    )
    # Those of a backfill are due one after another.
    of_ada = [factories.occurrence(ada, manual(str(number)), due=bench.now + number) for number in range(4)]
    of_bob = [factories.occurrence(bob, manual(str(number)), due=bench.now) for number in range(2)]
    assert _added(bench, of_ada[:1], per_user, per_tenant) == [True]
    full = {"name": "queued", "scope": "user", "value": 2, "used": 1}
    assert _added(bench, of_ada[1:3], per_user, per_tenant) == full
    assert _added(bench, [of_ada[0], of_ada[1], of_ada[1]], per_user, per_tenant) == [False, True, False]
    assert _added(bench, of_ada[:2], per_user, per_tenant) == [False, False]
    full = {"name": "queued", "scope": "tenant", "value": 3, "used": 2}
    assert _added(bench, of_bob, per_user, per_tenant) == full
    assert _added(bench, of_bob[:1], per_user, per_tenant) == [True]
    assert _added(bench, [factories.occurrence(eve, manual("x"))], per_user, per_tenant) == [True]
    assert (bench.store.count_waiting("acme", "ada"), bench.store.count_waiting("acme")) == (2, 3)
    assert _emitted(bench, "one", "ada", per_user) == {"name": "queued", "scope": "user", "value": 2, "used": 2}
    assert bench.store.cancel(of_ada[0].id)
    assert _added(bench, of_ada[2:3], per_user, per_tenant) == [True]
    assert bench.store.count_waiting("acme", "ada") == 2


@case
def a_fire_waits_from_its_due_time_until_it_starts(bench: Bench) -> None:
    schedule = bench.create(trigger=IntervalTrigger(60, start_at=from_micros(bench.now + SECOND)))
    tenant, user = schedule.owner.tenant, schedule.owner.user
    assert bench.store.count_waiting(tenant, user) == 0
    bench.advance(SECOND)
    assert bench.store.count_waiting(tenant, user) == 1
    [claim] = bench.claim()
    assert bench.store.count_waiting(tenant, user) == 1
    bench.start(claim)
    assert bench.store.count_waiting(tenant, user) == 0


def _emitted(bench: Bench, event_id: str, user: str, *limits: Quota) -> dict[str, str | int] | bool:
    """Emit an event: whether it is new, or what the refusal says."""
    event = Event(event_type="order", emitted=0, source="shop", payload=None, event_id=event_id)
    try:
        return bench.store.emit("acme", [event], user=user, limits=limits)[0]
    except QuotaExceeded as error:
        return dict(error.limit or {})


@case
def events_beyond_the_rate_of_a_user_or_a_tenant_are_not_stored(bench: Bench) -> None:
    per_user, per_tenant = Quota(Resource.EVENTS, Scope.USER, 2), Quota(Resource.EVENTS, Scope.TENANT, 3)
    said = {"name": "events_per_minute", "scope": "user", "value": 2, "used": 2}
    assert _emitted(bench, "a", "ada", per_user, per_tenant) is True
    assert _emitted(bench, "b", "ada", per_user, per_tenant) is True
    assert _emitted(bench, "c", "ada", per_user, per_tenant) == said
    assert _emitted(bench, "b", "ada", per_user, per_tenant) is False
    assert _emitted(bench, "d", "bob", per_user, per_tenant) is True
    full = {"name": "events_per_minute", "scope": "tenant", "value": 3, "used": 3}
    assert _emitted(bench, "e", "bob", per_user, per_tenant) == full
    # What was refused has taken nothing of the user's own.
    assert _emitted(bench, "e", "bob", per_user) is True
    assert [one.event_id for one in bench.store.events("acme", 9)] == ["e", "d", "b", "a"]


@case
def a_bucket_of_tokens_is_shared_and_refills(bench: Bench) -> None:
    limit = RateLimit(10, SECOND, 5)
    assert bench.store.take_tokens("key a", limit, 3).granted == 3
    assert bench.store.take_tokens("key b", limit, 3).granted == 3
    assert bench.store.take_tokens("key a", limit, 3).granted == 2
    refused = bench.store.take_tokens("key a", limit, 3)
    assert (refused.granted, refused.left) == (0, 0)
    assert 0 < refused.wait <= SECOND // 10
