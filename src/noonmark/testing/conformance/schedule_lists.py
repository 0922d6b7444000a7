"""Listing: a caller sees the schedules that are wanted, page by page in either order, and how many there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core import edits
from noonmark.core.instants import from_micros
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.policies.limits import Dependency
from noonmark.core.schedule import Owner
from noonmark.core.targets import FunctionTarget
from noonmark.core.triggers import CronTrigger, EventTrigger, OnceTrigger
from noonmark.ports.records import ScheduleFilter
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LOOKAHEAD, case
from noonmark.testing.factories import MINUTE, NOW

if TYPE_CHECKING:
    from noonmark.testing.conformance.bench import Bench

BOB = Owner(tenant="acme", user="bob")
THEIRS = Owner(tenant="other", user="ada")


def _create(bench: Bench, number: int, **changes: Any) -> None:  # noqa: ANN401 - as create takes them
    """Keep a schedule that is younger than those with lower numbers."""
    bench.create(f"uid-{number}", created=NOW + number, **changes)


def _seen(bench: Bench, *, deleted: bool = False, **wanted: Any) -> list[int]:  # noqa: ANN401 - the fields of Wanted
    """The numbers of those that are wanted; they are counted alike, and alike in pages and in the other order."""
    chosen = ScheduleFilter(**wanted)
    store = bench.store
    found = [one.schedule.uid for one in store.schedules("acme", limit=99, deleted=deleted, wanted=chosen)]
    assert store.count_schedules("acme", chosen, deleted=deleted) == len(found)
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
        assert paged == (found[::-1] if newest_first else found)
    return [int(uid.removeprefix("uid-")) for uid in found]


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
def whatever_is_left_out_is_wanted_of_any_kind(bench: Bench) -> None:
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
    made = [bench.create(f"uid-{number}", created=NOW + number) for number in range(4)]
    assert bench.commit(edits.pause(bench.snapshot(made[1]), now=bench.now))
    assert bench.commit(edits.delete(bench.snapshot(made[2]), now=bench.now))
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
def labels_mean_nothing_but_themselves(bench: Bench) -> None:
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
def schedules_are_listed_by_a_part_of_what_people_read(bench: Bench) -> None:
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
def a_text_means_nothing_but_itself(bench: Bench) -> None:
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
