"""Changes of the clock: what they did to a time that a wall-clock trigger names, or to one that it seems to name."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from noonmark.core.describe.words import instant_words
from noonmark.core.explain.explanation import DOES_NOT_APPLY, Rule, Step
from noonmark.core.frozen import frozen
from noonmark.core.instants import EPOCH, SECOND, to_text
from noonmark.core.triggers import CalendarTrigger, CronTrigger
from noonmark.core.triggers.recurrence import FIXED, MAX_GAP_SECONDS, WILDCARD, Gap
from noonmark.core.triggers.zones import FIRST_SECOND, LAST_SECOND, Pass, load_zone

if TYPE_CHECKING:
    from noonmark.core.explain.explanation import Facts
    from noonmark.core.instants import Micros
    from noonmark.core.triggers import Trigger
    from noonmark.core.triggers.recurrence import DstRule
    from noonmark.core.triggers.wallclock import TimesOnDays
    from noonmark.core.triggers.zones import Segment

MAX_TIMES = 3
NOTHING = Step(rule=Rule.DST, decision=DOES_NOT_APPLY)
PASSES = {Pass.FIRST: "first_pass", Pass.SECOND: "second_pass"}


@frozen(kw_only=True)
class Hint:
    """Why a trigger does not fire at an instant although it seems to name it."""

    step: Step
    words: str
    moved_to: Micros | None = None


def at_fire(trigger: Trigger, nominal: Micros) -> Step:
    """What a change of the clock did to a time that the trigger names."""
    change = _segment_of(trigger, nominal)
    if change is None:
        return NOTHING
    trigger, second, segment = change
    facts = _facts(trigger, second, segment)
    if second != segment.start or not segment.gap:
        return Step(rule=Rule.DST, decision=PASSES.get(segment.reading, "ordinary"), facts=facts)
    made_up = [rule for rule in trigger.rules if _rule_of(trigger, rule).gap is Gap.AFTER]
    lost = sorted({wall for rule in made_up for wall in _swallowed(rule, segment)})
    if not lost or segment.gap > MAX_GAP_SECONDS:
        return Step(rule=Rule.DST, decision="ordinary", facts=facts)
    is_regular = any(_matches(rule, second + segment.offset) for rule in trigger.rules)
    swallowed = {"swallowed": [_wall_text(wall) for wall in lost[:MAX_TIMES]], **_jump(segment)}
    return Step(rule=Rule.DST, decision="merged" if is_regular else "moved", facts=facts | swallowed)


def at_silence(trigger: Trigger, at: Micros) -> Hint | None:
    """Why nothing fires at an instant that the trigger does not name, if a change of the clock is the reason."""
    change = _segment_of(trigger, at)
    if change is None or at % SECOND:
        return None
    trigger, second, segment = change
    if second - segment.start < segment.gap:
        return _in_gap(trigger, second, segment)
    wall = second + segment.offset
    if segment.reading is Pass.ONLY or not any(_matches(rule, wall) for rule in trigger.rules):
        return None
    fires_in = "second" if segment.reading is Pass.FIRST else "first"
    facts = _facts(trigger, second, segment) | {"fires_in": f"{fires_in}_pass"}
    step = Step(rule=Rule.DST, decision=PASSES[segment.reading], facts=facts)
    words = f"{_clock(wall)} comes twice on {_date(wall)} in {trigger.timezone}, and fires only the {fires_in} time"
    return Hint(step=step, words=words)


def _in_gap(trigger: CronTrigger | CalendarTrigger, second: int, segment: Segment) -> Hint | None:
    """As the clock would have shown it, had it not been put forward."""
    wall = second + segment.offset - segment.gap
    named = [_rule_of(trigger, rule) for rule in trigger.rules if _matches(rule, wall)]
    if not named:
        return None
    resumed, end = segment.start + segment.offset, segment.start * SECOND
    jump = f"the clock jumps from {_clock(resumed - segment.gap)} to {_clock(resumed)}"
    gone = f"{_clock(wall)} does not exist on {_date(wall)} in {trigger.timezone}, where {jump}"
    facts = _facts(trigger, second, segment) | {"swallowed": [_wall_text(wall)], **_jump(segment)}
    is_made_up = any(rule.gap is Gap.AFTER for rule in named) and trigger.next_micros(end - 1) == end
    if not is_made_up:
        step = Step(rule=Rule.DST, decision="skipped", facts=facts)
        return Hint(step=step, words=f"{gone}; nothing fires for it")
    step = Step(rule=Rule.DST, decision="moved", facts=facts | {"moved_to": to_text(end)})
    words = f"{gone}; the fire moved to {_clock(resumed)}, which is {instant_words(end)}"
    return Hint(step=step, words=words, moved_to=end)


def _segment_of(trigger: Trigger, at: Micros) -> tuple[CronTrigger | CalendarTrigger, int, Segment] | None:
    """The stretch of even time in which an instant lies, where the trigger follows a wall clock."""
    second = at // SECOND
    # At the ends of time there is no wall clock to show.
    if not isinstance(trigger, CronTrigger | CalendarTrigger) or not FIRST_SECOND <= second <= LAST_SECOND:
        return None
    return trigger, second, load_zone(trigger.timezone).segment_at(second)


def _rule_of(trigger: CronTrigger | CalendarTrigger, rule: TimesOnDays) -> DstRule:
    return trigger.dst.over(FIXED if rule in trigger.fixed_rules else WILDCARD)


def _matches(rule: TimesOnDays, wall: int) -> bool:
    return rule.at_or_after(wall) == wall


def _swallowed(rule: TimesOnDays, segment: Segment) -> list[int]:
    """The first few times of a rule that the jump at the start of a segment left out."""
    resumed = segment.start + segment.offset
    swallowed: list[int] = []
    wall = rule.at_or_after(resumed - segment.gap)
    while wall is not None and wall < resumed and len(swallowed) < MAX_TIMES:
        swallowed.append(wall)
        wall = rule.at_or_after(wall + 1)
    return swallowed


def _facts(trigger: CronTrigger | CalendarTrigger, second: int, segment: Segment) -> Facts:
    rules = dict.fromkeys(_rule_of(trigger, rule) for rule in trigger.rules)
    return {
        "timezone": trigger.timezone,
        "local_time": _wall_text(second + segment.offset),
        "utc_offset_seconds": segment.offset,
        "dst": [{"gap": str(one.gap), "fold": str(one.fold)} for one in rules],
    }


def _jump(segment: Segment) -> Facts:
    resumed = segment.start + segment.offset
    return {"clock_jumps_from": _wall_text(resumed - segment.gap), "clock_jumps_to": _wall_text(resumed)}


def _wall_text(wall: int) -> str:
    return f"{_date(wall)}T{_clock(wall)}"


def _clock(wall: int) -> str:
    shown = f"{EPOCH + timedelta(seconds=wall):%H:%M:%S}"
    return shown.removesuffix(":00")


def _date(wall: int) -> str:
    return (EPOCH + timedelta(seconds=wall)).date().isoformat()
