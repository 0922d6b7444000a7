"""Schedules are created with their first plan, found by id and name, and listed by filters."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core import edits
from noonmark.core.errors import QuotaExceeded
from noonmark.core.ids import TRIGGER, default_id, event, manual, occurrence_id
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.planner import first_plan
from noonmark.core.policies.limits import Dependency
from noonmark.core.quotas import Quota, Resource, Scope
from noonmark.core.reasons import Reason
from noonmark.core.schedule import Owner
from noonmark.core.targets import FunctionTarget
from noonmark.core.triggers import CronTrigger, EventTrigger, OnceTrigger
from noonmark.ports.records import ScheduleFilter
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LOOKAHEAD, case
from noonmark.testing.factories import MINUTE, NOW

if TYPE_CHECKING:
    from noonmark.core.planner import Plan
    from noonmark.ports.records import StoredSchedule
    from noonmark.testing.conformance.bench import Bench


@case
def a_created_schedule_is_stored_with_its_first_plan(bench: Bench) -> None:
    schedule = bench.create()
    stored = bench.stored(schedule)
    assert stored.schedule == schedule
    assert stored.next_due == NOW + MINUTE
    assert stored.counters.total == 0
    [planned] = bench.store.occurrences(schedule.uid)
    assert planned.id == occurrence_id(schedule.uid, TRIGGER, NOW + MINUTE)
    assert (planned.phase, planned.fence, planned.attempt) == (Phase.PENDING, 0, 0)


@case
def tenants_with_schedules_are_listed(bench: Bench) -> None:
    for number, tenant in enumerate(("zeta", "acme", "acme", "mid")):
        bench.create(f"uid-{number}", schedule_id=f"s-{number}", owner=Owner(tenant=tenant, user="ada"))
    assert bench.store.tenants(10) == ["acme", "mid", "zeta"]
    assert bench.store.tenants(2) == ["acme", "mid"]


@case
def an_id_is_taken_within_its_tenant_only(bench: Bench) -> None:
    bench.create("uid-1", schedule_id="report")
    theirs = factories.schedule("uid-2", schedule_id="report", owner=Owner(tenant="other", user="ada"))
    again = factories.schedule("uid-3", schedule_id="report", owner=Owner(tenant="acme", user="bob"))
    plans = [first_plan(one, lookahead=LOOKAHEAD) for one in (again, theirs)]
    assert bench.store.create(plans) == [False, True]
    assert bench.store.snapshot("uid-3") is None
    assert bench.store.occurrences("uid-3") == []
    stored = bench.store.find("other", "report")
    assert stored is not None
    assert stored.schedule == theirs


@case
def an_id_is_taken_by_an_earlier_schedule_of_the_same_call(bench: Bench) -> None:
    plans = [
        first_plan(factories.schedule(uid, schedule_id="report"), lookahead=LOOKAHEAD) for uid in ("uid-1", "uid-2")
    ]
    assert bench.store.create(plans) == [True, False]
    assert bench.store.snapshot("uid-2") is None


@case
def plans_of_several_callers_are_created_each_by_itself(bench: Bench) -> None:
    bench.create("uid-1", schedule_id="report")
    full = replace(_planned("uid-2"), quotas=(Quota(Resource.SCHEDULES, Scope.USER, 1),))
    stale = replace(_planned("uid-3"), graph=99)
    others = [
        _planned("uid-4", schedule_id="report"),
        _planned("uid-5"),
        _planned("uid-6", owner=Owner(tenant="other", user="ada")),
    ]
    answers = bench.store.create_each([full, stale, *others])
    assert isinstance(answers[0], QuotaExceeded)
    assert answers[1:] == [False, False, True, True]
    for uid in ("uid-2", "uid-3", "uid-4"):
        assert bench.store.snapshot(uid) is None
    for plan in others[1:]:
        assert bench.stored(plan.snapshot.schedule).schedule == plan.snapshot.schedule
        assert len(bench.store.occurrences(plan.snapshot.schedule.uid)) == 1
    assert bench.store.create_each([]) == []


@case
def a_repeated_request_creates_nothing(bench: Bench) -> None:
    plan = replace(_planned("uid-1", schedule_id=default_id("uid-1")), may_exist=True)
    assert bench.store.create_each([plan, plan]) == [True, False]
    assert bench.store.create([plan]) == [False]
    assert bench.commit(edits.delete(bench.snapshot(plan.snapshot.schedule), now=bench.now))
    assert bench.store.create([plan]) == [False]
    assert bench.store.create_each([plan, _planned("uid-2")]) == [False, True]


def _planned(uid: str, **fields: Any) -> Plan:
    return first_plan(factories.schedule(uid, **fields), lookahead=LOOKAHEAD)


@case
def an_id_is_free_again_after_delete(bench: Bench) -> None:
    schedule = bench.create("uid-1", schedule_id="report", name="Report")
    assert bench.commit(edits.delete(bench.snapshot(schedule), now=bench.now))
    assert bench.store.find("acme", "report") is None
    assert bench.store.find_named("acme", "ada", "Report") is None
    again = bench.create("uid-2", schedule_id="report", name="Report")
    assert bench.stored(again).schedule == again
    snapshot = bench.snapshot(schedule)
    assert snapshot.schedule.phase is SchedulePhase.DELETED
    [cancelled] = bench.store.occurrences(schedule.uid)
    assert (cancelled.phase, cancelled.reason) == (Phase.CANCELLED, Reason.DELETED)


@case
def an_unknown_schedule_is_not_found(bench: Bench) -> None:
    bench.create()
    assert bench.store.find("acme", "nothing") is None
    assert bench.store.find_named("acme", "ada", "nothing") is None
    assert bench.store.snapshot("nothing") is None
    assert bench.store.occurrence("nothing") is None
    assert bench.store.occurrences("nothing") == []
    assert bench.store.runs("nothing") == []


@case
def by_name_the_oldest_of_the_owner_is_found(bench: Bench) -> None:
    bench.create("uid-1", name="Report", created=NOW + 2)
    oldest = bench.create("uid-2", name="Report", created=NOW + 1)
    bench.create("uid-3", name="Report", owner=Owner(tenant="acme", user="bob"))
    bench.create("uid-4", name="Report", owner=Owner(tenant="other", user="ada"))
    bench.create("uid-5", name="Other")
    stored = bench.store.find_named("acme", "ada", "Report")
    assert stored is not None
    assert stored.schedule == oldest
    renamed = edits.edit(bench.snapshot(oldest), factories.declaration(name="New"), now=bench.now, lookahead=LOOKAHEAD)
    assert bench.commit(renamed)
    stored = bench.store.find_named("acme", "ada", "Report")
    assert stored is not None
    assert stored.schedule.uid == "uid-1"
    stored = bench.store.find_named("acme", "ada", "New")
    assert stored is not None
    assert stored.schedule.uid == "uid-2"


@case
def an_edit_may_change_the_source_of_a_schedule(bench: Bench) -> None:
    schedule = bench.create("uid-1", name="Report")
    assert bench.store.routes("embedded") == []
    declared = schedule.declaration
    plan = edits.edit(bench.snapshot(schedule), declared, now=bench.now, lookahead=LOOKAHEAD, source="embedded")
    assert bench.commit(plan)
    assert bench.snapshot(schedule).schedule.source == "embedded"
    assert bench.store.routes("embedded") == [declared.target.route]
    again = edits.edit(bench.snapshot(schedule), declared, now=bench.now, lookahead=LOOKAHEAD)
    assert bench.commit(again)
    assert bench.snapshot(schedule).schedule.source == "embedded"


@case
def schedules_are_listed_in_pages_in_the_order_of_their_creation(bench: Bench) -> None:
    created = [("uid-1", "c", 3), ("uid-2", "b", 1), ("uid-3", "a", 3), ("uid-4", "d", 2)]
    for uid, schedule_id, after in created:
        bench.create(uid, schedule_id=schedule_id, created=NOW + after)
    bench.create("uid-5", schedule_id="e", owner=Owner(tenant="other", user="ada"))
    pages = _pages(bench, "acme", 2)
    assert [[kept.schedule.schedule_id for kept in page] for page in pages] == [["b", "d"], ["a", "c"], []]
    assert [kept.schedule.uid for kept in bench.store.schedules("other", limit=9)] == ["uid-5"]
    assert bench.store.schedules("nobody", limit=9) == []
    assert bench.store.schedules("acme", limit=0) == []
    assert bench.store.schedules("acme", after="nothing", limit=9) == []


@case
def schedules_are_listed_as_they_are_found(bench: Bench) -> None:
    timed, quiet = bench.create("uid-1"), bench.create_quiet("uid-2", created=NOW + 1)
    assert bench.settle(bench.run(quiet, "ran"))
    bench.add(quiet, "later", MINUTE)
    bench.add(quiet, "sooner", 5)
    listed = bench.store.schedules("acme", limit=9)
    assert listed == [bench.stored(timed), bench.stored(quiet)]
    assert [(kept.counters.total, kept.next_due) for kept in listed] == [(0, NOW + MINUTE), (1, NOW + 5)]


@case
def a_requested_run_does_not_move_the_next_fire(bench: Bench) -> None:
    schedule = bench.create()
    bench.add(schedule, "sooner", 5)
    stored = bench.stored(schedule)
    assert (stored.next_due, stored.next_own) == (NOW + 5, NOW + MINUTE)
    quiet = bench.create_quiet("uid-2")
    bench.add(quiet, "asked", 5)
    assert bench.stored(quiet).next_own is None
    bench.store.add([factories.occurrence(quiet, event("e1"), nominal=NOW + MINUTE)])
    stored = bench.stored(quiet)
    assert (stored.next_due, stored.next_own) == (NOW + 5, NOW + MINUTE)


@case
def a_list_goes_on_after_a_schedule_that_was_deleted_or_changed(bench: Bench) -> None:
    schedules = [bench.create(f"uid-{number}", created=NOW + number) for number in range(4)]
    assert bench.commit(edits.delete(bench.snapshot(schedules[1]), now=bench.now))
    renamed = factories.declaration(name="New")
    assert bench.commit(edits.edit(bench.snapshot(schedules[0]), renamed, now=bench.now, lookahead=LOOKAHEAD))
    assert bench.commit(edits.pause(bench.snapshot(schedules[2]), now=bench.now))
    listed = bench.store.schedules("acme", limit=9)
    assert [kept.schedule.uid for kept in listed] == ["uid-0", "uid-2", "uid-3"]
    after = bench.store.schedules("acme", after=schedules[1].uid, limit=1)
    assert [kept.schedule.uid for kept in after] == ["uid-2"]
    again = bench.create("uid-9", schedule_id=schedules[1].schedule_id, created=NOW + 9)
    assert [kept.schedule for kept in bench.store.schedules("acme", after="uid-3", limit=9)] == [again]


def _pages(bench: Bench, tenant: str, limit: int) -> list[list[StoredSchedule]]:
    """Page after page, until one has nothing in it."""
    pages = [bench.store.schedules(tenant, limit=limit)]
    while pages[-1]:
        pages.append(bench.store.schedules(tenant, after=pages[-1][-1].schedule.uid, limit=limit))
    return pages


@case
def an_occurrence_is_added_once(bench: Bench) -> None:
    schedule = bench.create_quiet()
    occurrence = factories.occurrence(schedule, manual("key"), payload={"a": [1]})
    assert bench.store.add([occurrence, occurrence]) == [True, False]
    assert bench.store.add([occurrence]) == [False]
    assert bench.row(occurrence) == occurrence
    assert bench.stored(schedule).next_due == NOW


@case
def an_occurrence_is_added_to_a_schedule_that_is_there(bench: Bench) -> None:
    schedule = bench.create_quiet()
    strange = factories.occurrence(factories.schedule("nothing"), manual("key"))
    assert bench.store.add([strange]) == [False]
    assert bench.commit(edits.delete(bench.snapshot(schedule), now=bench.now))
    late = factories.occurrence(schedule, manual("key"))
    assert bench.store.add([late]) == [False]
    assert bench.store.occurrence(late.id) is None


@case
def an_occurrence_may_have_ended_when_it_is_added(bench: Bench) -> None:
    schedule = bench.create_quiet()
    bench.add_event(schedule, "event-1", phase=Phase.SKIPPED, reason=Reason.PAUSED)
    assert bench.claim() == []
    counters = bench.stored(schedule).counters
    assert (counters.total, counters.skipped, counters.last_phase) == (1, 1, Phase.SKIPPED)


@case
def closing_twice_is_the_same_as_once(bench: Bench) -> None:
    bench.store.close()
    bench.store.close()


@case
def a_store_says_what_it_can_do(bench: Bench) -> None:
    traits = bench.store.traits
    assert {type(traits.is_durable), type(traits.blocks), type(traits.is_in_process)} == {bool}
    assert traits.max_concurrency >= 1
    # Somebody may wait for what another process has asked for: a store that does not ring is looked at every second.
    if traits.watch_interval is None or traits.watch_interval <= SECOND:
        assert not bench.store.changed_by_others()
    else:
        assert traits.watch_interval <= 10 * SECOND
        bench.store.listen(lambda: None)()


@case
def the_clock_is_the_one_the_store_was_given(bench: Bench) -> None:
    assert bench.store.clock() == NOW
    bench.advance(1)
    assert bench.store.clock() == NOW + 1


BOB = Owner(tenant="acme", user="bob")
THEIRS = Owner(tenant="other", user="ada")


def _create(bench: Bench, number: int, **changes: Any) -> None:
    """Keep a schedule that is younger than those with lower numbers."""
    bench.create(f"uid-{number}", created=NOW + number, **changes)


def _seen(bench: Bench, *, deleted: bool = False, **filters: Any) -> list[int]:
    """The numbers of those that are wanted; they are counted alike, and alike in pages and in the other order."""
    chosen = ScheduleFilter(**filters)
    store = bench.store
    uids = [one.schedule.uid for one in store.schedules("acme", limit=99, deleted=deleted, wanted=chosen)]
    assert store.count_schedules("acme", chosen, deleted=deleted) == len(uids)
    for newest_first in (False, True):
        paged: list[str] = []
        while page := store.schedules(
            "acme",
            limit=2,
            deleted=deleted,
            wanted=chosen,
            newest_first=newest_first,
            after=paged[-1] if paged else None,
        ):
            paged += [one.schedule.uid for one in page]
        assert paged == (uids[::-1] if newest_first else uids)
    return [int(uid.removeprefix("uid-")) for uid in uids]


@case
def schedules_are_listed_the_newest_first(bench: Bench) -> None:
    created = [("uid-1", "c", 3), ("uid-2", "b", 1), ("uid-3", "a", 3), ("uid-4", "d", 2)]
    for uid, schedule_id, age in created:
        bench.create(uid, schedule_id=schedule_id, created=NOW + age)
    bench.create("uid-5", owner=THEIRS)
    listed = bench.store.schedules("acme", limit=3, newest_first=True)
    assert [one.schedule.schedule_id for one in listed] == ["c", "a", "d"]
    after = bench.store.schedules("acme", limit=3, newest_first=True, after="uid-4")
    assert [one.schedule.schedule_id for one in after] == ["b"]
    assert bench.store.schedules("acme", limit=3, newest_first=True, after="uid-5") == []
    assert bench.store.schedules("acme", limit=3, newest_first=True, after="nothing") == []


@case
def schedules_are_counted(bench: Bench) -> None:
    assert bench.store.count_schedules("acme") == 0
    for number in range(3):
        _create(bench, number)
    bench.create("uid-9", owner=THEIRS)
    assert bench.commit(edits.delete(bench.snapshot(factories.schedule("uid-1")), now=bench.now))
    assert bench.store.count_schedules("acme") == 2
    assert bench.store.count_schedules("acme", deleted=True) == 1
    assert bench.store.count_schedules("nobody") == 0


@case
def an_omitted_filter_matches_everything(bench: Bench) -> None:
    for number in range(5):
        _create(bench, number)
    assert _seen(bench) == [0, 1, 2, 3, 4]
    assert _seen(bench, text="") == [0, 1, 2, 3, 4]


@case
def schedules_are_listed_by_owner_name_and_route(bench: Bench) -> None:
    _create(bench, 0, name="Report")
    _create(bench, 1, name="Report", owner=BOB)
    _create(bench, 2, name="report", target=FunctionTarget(function="other"))
    _create(bench, 3)
    bench.create("uid-9", name="Report", owner=THEIRS)
    assert _seen(bench, user="ada") == [0, 2, 3]
    assert _seen(bench, user="nobody") == []
    assert _seen(bench, name="Report") == [0, 1]
    assert _seen(bench, name="Rep") == []
    assert _seen(bench, target="function:other") == [2]
    assert _seen(bench, user="ada", name="Report", target="function:work") == [0]


@case
def schedules_are_listed_by_phase(bench: Bench) -> None:
    schedules = [bench.create(f"uid-{number}", created=NOW + number) for number in range(4)]
    assert bench.commit(edits.pause(bench.snapshot(schedules[1]), now=bench.now))
    assert bench.commit(edits.delete(bench.snapshot(schedules[2]), now=bench.now))
    assert _seen(bench, phases=frozenset({SchedulePhase.ACTIVE})) == [0, 3]
    assert _seen(bench, phases=frozenset({SchedulePhase.PAUSED})) == [1]
    assert _seen(bench, phases=frozenset({SchedulePhase.ACTIVE, SchedulePhase.PAUSED})) == [0, 1, 3]
    assert _seen(bench, phases=frozenset({SchedulePhase.DELETED})) == []
    assert _seen(bench, phases=frozenset({SchedulePhase.DELETED}), deleted=True) == [2]
    assert _seen(bench, user="bob", deleted=True) == []


@case
def schedules_are_listed_by_the_type_of_their_trigger(bench: Bench) -> None:
    _create(bench, 0)
    _create(bench, 1, trigger=CronTrigger("0 9 * * *"))
    _create(bench, 2, trigger=OnceTrigger(at=from_micros(NOW + MINUTE)))
    _create(bench, 3, trigger=EventTrigger("seen"))
    _create(bench, 4, trigger=None, depends_on=(Dependency(schedule_id="schedule-of-uid-0"),))
    assert _seen(bench, kinds=frozenset({"cron"})) == [1]
    assert _seen(bench, kinds=frozenset({"interval", "once"})) == [0, 2]
    assert _seen(bench, kinds=frozenset({""})) == [4]
    assert _seen(bench, kinds=frozenset({"event", ""})) == [3, 4]
    assert _seen(bench, kinds=frozenset({"nothing"})) == []
    changed = factories.declaration(trigger=EventTrigger("seen"))
    snapshot = bench.snapshot(factories.schedule("uid-0"))
    assert bench.commit(edits.edit(snapshot, changed, now=bench.now, lookahead=LOOKAHEAD))
    assert _seen(bench, kinds=frozenset({"event"})) == [0, 3]


@case
def schedules_are_listed_by_the_events_they_listen_for(bench: Bench) -> None:
    _create(bench, 0)
    _create(bench, 1, trigger=EventTrigger("seen"))
    _create(bench, 2, trigger=EventTrigger(["told", "seen"]))
    _create(bench, 3, trigger=EventTrigger("told"))
    bench.create("uid-9", trigger=EventTrigger("seen"), owner=THEIRS)
    assert _seen(bench, event_type="seen") == [1, 2]
    assert _seen(bench, event_type="told", kinds=frozenset({"event"})) == [2, 3]
    assert _seen(bench, event_type="see") == []
    assert bench.commit(edits.pause(bench.snapshot(factories.schedule("uid-1")), now=bench.now))
    assert bench.commit(edits.delete(bench.snapshot(factories.schedule("uid-2")), now=bench.now))
    assert _seen(bench, event_type="seen") == [1]
    assert _seen(bench, event_type="seen", deleted=True) == []


@case
def schedules_are_listed_by_their_labels(bench: Bench) -> None:
    _create(bench, 0, labels={"team": "data", "tier": "1"})
    _create(bench, 1, labels={"tier": "1"})
    _create(bench, 2, labels={"team": "database"})
    _create(bench, 3)
    _create(bench, 4, labels={"a team": "data", "empty": ""})
    assert _seen(bench, labels={"team": "data"}) == [0]
    assert _seen(bench, labels={"tier": "1"}) == [0, 1]
    assert _seen(bench, labels={"team": "data", "tier": "1"}) == [0]
    assert _seen(bench, labels={"team": "data", "tier": "2"}) == []
    assert _seen(bench, labels={"empty": ""}) == [4]
    assert _seen(bench, labels={"team": ""}) == []
    assert _seen(bench, labels={"Team": "data"}) == []


@case
def labels_are_matched_literally(bench: Bench) -> None:
    """Whatever is written in a label, it is that label, and no other is."""
    strange = ['"', "\\", "%", "_", "'", ": ", ", ", '", "', '": "', "{}", "é", "😀", "\\n", "$.a", "a,b:c"]
    for number, text in enumerate(strange):
        _create(bench, number, labels={f"x{text}": f"{text}y", "all": "1"})
    for number, text in enumerate(strange):
        assert _seen(bench, labels={f"x{text}": f"{text}y"}) == [number]
        assert _seen(bench, labels={text: f"{text}y"}) == []
        assert _seen(bench, labels={f"x{text}": text}) == []
    assert _seen(bench, labels={": ": ", "}) == []
    _create(bench, 90, labels={"x, ": ": ", "y": "z"})
    assert _seen(bench, labels={": ": ", "}) == []


@case
def schedules_are_listed_by_a_part_of_their_texts(bench: Bench) -> None:
    _create(bench, 0, name="Nightly Report")
    _create(bench, 1, description="Writes the\nREPORT of the day.")
    _create(bench, 2, schedule_id="report-2")
    _create(bench, 3, name="Other", labels={"report": "report"})
    _create(bench, 4, name="ÉTÉ in Paris")
    assert _seen(bench, text="report") == [0, 1, 2]
    assert _seen(bench, text="RePoRt") == [0, 1, 2]
    assert _seen(bench, text="the\nreport") == [1]
    assert _seen(bench, text="ÉTÉ IN") == [4]
    assert _seen(bench, text="été") == []
    assert _seen(bench, text="schedule-of") == [0, 1, 3, 4]
    assert _seen(bench, text="report", user="bob") == []


@case
def a_text_is_matched_literally(bench: Bench) -> None:
    strange = ["%", "_", "*", "?", "'", '"', "\\", "\\\\", "[a]", "';--", "$1", "😀", "!"]
    for number, text in enumerate(strange):
        _create(bench, number, name=f"a{text}b")
    for number, text in enumerate(strange):
        assert _seen(bench, text=f"A{text}B") == [number]
    assert _seen(bench, text="a%b%") == _seen(bench, text="a.b") == _seen(bench, text="ab") == []
    for text in ("\0", "a\0b", "\ud800", "x" * 200_000, "%" * 100_000):
        assert _seen(bench, text=text) == _seen(bench, name=text) == []
        assert _seen(bench, user=text) == _seen(bench, target=text) == []
        assert _seen(bench, kinds=frozenset({text})) == []
        assert _seen(bench, labels={text: text}) == []
