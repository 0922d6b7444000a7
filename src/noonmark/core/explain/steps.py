"""A step for every rule: whether it applies, what it decided, and the facts behind that."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from noonmark.core.describe.words import instant_words, took_words, words
from noonmark.core.explain.clock_changes import NOTHING, at_fire
from noonmark.core.explain.explanation import DOES_NOT_APPLY, Rule, Step
from noonmark.core.ids import OriginKind
from noonmark.core.instants import micros_to_seconds, to_text
from noonmark.core.interruption import real_deadline
from noonmark.core.lifecycle import LIVE
from noonmark.core.policies import overlap, window
from noonmark.core.policies.misfire import judge
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.core.explain.deciding_rule import Case, Standing
    from noonmark.core.explain.explanation import Facts
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.run import Run

MAX_ANSWER = 200
"""How much of a response or of a program's output is quoted."""
MAX_LINES = 3
"""How many of the last lines of a program's output are quoted."""
ENDED = {
    Outcome.COMPLETED: "completed",
    Outcome.FAILED: "failed",
    Outcome.TIMED_OUT: "timed out",
    Outcome.CANCELLED: "was cancelled",
    Outcome.DELIVERY_FAILED: "could not be delivered",
    Outcome.LEASE_LOST: "was given up",
    Outcome.SUSPENDED: "was suspended",
}


def run_facts(run: Run, *, target_kind: str, is_lost: bool = False) -> Facts:
    """The facts of a run, and as `told` the sentence about it; `is_lost` if the node that runs it is not alive."""
    reported = _reported(run, target_kind)
    facts = {
        "run_id": run.id,
        "attempt": run.attempt,
        "node": run.node,
        "started_at": to_text(run.started),
        "ended_at": None if run.ended is None else to_text(run.ended),
        "outcome": None if run.outcome is None else str(run.outcome),
        "error": run.summary,
        **reported,
        "told": _words(run, reported, is_lost=is_lost),
    }
    return {name: value for name, value in facts.items() if value is not None}


def _words(run: Run, reported: Facts, *, is_lost: bool) -> str:
    """A run on one line."""
    who = f" on node {run.node}" if run.node else ""
    lead = f"Attempt {run.attempt}{who} began at {instant_words(run.started)}"
    if run.ended is None or run.outcome is None:
        return f"{lead}, and its node is not alive" if is_lost else f"{lead}, and is still running"
    parts = [f"{lead}, and {ENDED[run.outcome]} after {took_words(run.ended - run.started)}"]
    if run.summary is not None:
        parts.append(run.summary)
    if "status" in reported and str(reported["status"]) not in (run.summary or ""):
        parts.append(f"HTTP status {reported['status']}")
    if reported.get("answer"):
        parts.append(f"it answered `{reported['answer']}`")
    if reported.get("last_output"):
        parts.append(f"it wrote at last `{reported['last_output']}`")
    return ": ".join([parts[0], "; ".join(parts[1:])]) if parts[1:] else parts[0]


def _reported(run: Run, target_kind: str) -> Facts:
    """The status of a call and the beginning of its answer, or the exit code of a program and how its output ended."""
    result = run.result
    if not isinstance(result, dict):
        return {}
    if target_kind == "http":
        return {"status": result.get("status"), "answer": _beginning(result.get("body"))}
    if target_kind != "command":
        return {}
    has_failed = run.outcome is not None and run.outcome is not Outcome.COMPLETED
    return {"exit_code": result.get("exit_code"), "last_output": _end(result.get("output")) if has_failed else None}


def _beginning(body: Any) -> str | None:
    if body is None:
        return None
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    line = " ".join(text[: 4 * MAX_ANSWER].split())
    return (line if len(line) <= MAX_ANSWER else f"{line[: MAX_ANSWER - 1]}…") or None


def _end(output: Any) -> str | None:
    """The last lines of an output as one line, with unprintable characters escaped."""
    if not isinstance(output, str):
        return None
    lines = output.rstrip()[-4 * MAX_ANSWER :].splitlines()[-MAX_LINES:]
    text = "".join(each if each.isprintable() else repr(each)[1:-1] for each in "\n".join(lines))
    return (text if len(text) <= MAX_ANSWER else f"…{text[1 - MAX_ANSWER :]}") or None


MAX_RUNS_SHOWN = 10
ORDER = tuple(Rule)
ASKED_FOR = {
    OriginKind.BACKFILL: "backfilled",
    OriginKind.MANUAL: "asked_for",
    OriginKind.EVENT: "event_matched",
}


def chain(case: Case, at: Standing) -> tuple[Step, ...]:
    """All steps, in order."""
    return tuple(_placed(case, at, tell(case)) for tell in STEPS)


def _missed(row: Occurrence) -> Facts:
    """How many fires a row stands for, and which."""
    return known(
        missed_count=row.missed_count or None,
        missed_from=instant(row.missed_first),
        missed_to=instant(row.missed_last),
    )


def known(**facts: object) -> Facts:
    """Those of the facts that there are."""
    return {name: value for name, value in facts.items() if value is not None}


def instant(micros: Micros | None) -> str | None:
    """As text, where there is one."""
    return None if micros is None else to_text(micros)


def _placed(case: Case, at: Standing, step: Step) -> Step:
    """The step of a rule, as if the occurrence had passed it."""
    if step.rule is Rule.RATE:
        return step
    if step.rule is at.rule:
        # Beside another reason than this one, the numbers are those of an earlier attempt.
        detail = case.detail if at.reason is case.occurrence.reason else {}
        return Step(rule=step.rule, decision=at.decision, facts=step.facts | _missed(case.occurrence) | detail)
    is_passed = ORDER.index(step.rule) < ORDER.index(at.reached or at.rule)
    if step.decision == DOES_NOT_APPLY or is_passed or (step.rule is Rule.RUNS and case.runs):
        return step
    return Step(rule=step.rule, decision=at.ahead, facts=step.facts)


def _trigger(case: Case) -> Step:
    row, trigger = case.occurrence, case.declaration.trigger
    event = row.payload if case.kind is OriginKind.EVENT and isinstance(row.payload, dict) else {}
    facts = known(
        origin=str(row.origin),
        event_type=event.get("event_type"),
        trigger=None if trigger is None else words(trigger),
        nominal_at=to_text(row.nominal),
        due_at=to_text(row.due),
        first_due_at=None if row.first_due == row.due else to_text(row.first_due),
        revision=row.revision,
        revision_now=None if case.is_in_force else case.schedule.revision,
        is_recorded=None if case.is_recorded else False,
    )
    return Step(rule=Rule.TRIGGER, decision=_asked_by(case), facts=facts)


def _asked_by(case: Case) -> str:
    if case.kind in ASKED_FOR:
        return ASKED_FOR[case.kind]
    if case.is_named:
        return "named"
    if not case.is_recorded:
        return "not_named"
    # What was due when an edit came is bound to the new revision, though the rule before it named the time.
    return "upstreams_ended" if case.declaration.trigger is None else "named_before"


def _dst(case: Case) -> Step:
    trigger = case.declaration.trigger
    is_timed = case.kind in (OriginKind.TRIGGER, OriginKind.BACKFILL)
    return at_fire(trigger, case.occurrence.nominal) if trigger is not None and is_timed and case.is_named else NOTHING


def _bounds(case: Case) -> Step:
    schedule, trigger = case.schedule, case.declaration.trigger
    facts = known(
        created_at=to_text(schedule.created),
        trigger_declared_at=instant(schedule.anchored),
        start_at=None if trigger is None else instant(trigger.start),
        end_at=None if trigger is None else instant(trigger.end),
        deleted_at=instant(schedule.deleted),
    )
    return Step(rule=Rule.BOUNDS, decision="within" if case.is_own else DOES_NOT_APPLY, facts=facts)


def _pause(case: Case) -> Step:
    facts: Facts = {"schedule_phase": str(case.schedule.phase)}
    if case.schedule.pause is not None:
        facts["paused"] = case.schedule.pause.to_document()
    if case.backfill_pause is not None:
        facts["backfill_paused"] = case.backfill_pause
    if (guard := case.schedule.declaration.guard) is not None:
        facts["runaway"] = guard.to_document()
    return Step(rule=Rule.PAUSE, decision="not_paused" if case.is_own else DOES_NOT_APPLY, facts=facts)


def _window(case: Case) -> Step:
    rule, row = case.declaration.window, case.occurrence
    if rule is None:
        return Step(rule=Rule.WINDOW, decision=DOES_NOT_APPLY)
    opening = window.judge(rule, first_due=row.first_due, now=case.now if case.began is None else case.began)
    is_live = row.phase in LIVE and not case.has_begun
    facts = {**rule.to_document(), "closes_at": to_text(opening.closes_at)}
    if rule.end_action is window.EndAction.PAUSE:
        facts |= _further_windows(case, rule)
    if (still := case.suspended) is not None:
        facts |= known(suspended_since=to_text(still.since), goes_on_at=instant(still.until))
        return Step(rule=Rule.WINDOW, decision=str(Reason.WINDOW_CLOSED), facts=facts)
    # An old row may have had another window, or none; that it went on says that it was open.
    return Step(rule=Rule.WINDOW, decision=str(opening.reason if is_live else Reason.WINDOW_OPEN), facts=facts)


def _further_windows(case: Case, rule: window.Window) -> Facts:
    """When the window it runs in closes, which need not be its first one, and what happens to a run then."""
    row, trigger = case.occurrence, case.declaration.trigger
    at = row.first_due
    if case.has_begun:
        at = max(at, case.now if row.ended is None else row.ended)
    period = window.window_period_at(rule, trigger, first_due=row.first_due, now=at)
    closes = period.until if period.is_open and period.until is not None else period.since
    following = window.window_period_at(rule, trigger, first_due=row.first_due, now=closes)
    if following.is_open:
        return {"closes_at": to_text(closes), "at_close": "goes_on"}
    at_close = "cancelled" if following.until is None else "suspended"
    return known(closes_at=to_text(closes), at_close=at_close, next_opens_at=instant(following.until))


def _misfire(case: Case) -> Step:
    if case.kind is not OriginKind.TRIGGER or case.declaration.trigger is None:
        return Step(rule=Rule.MISFIRE, decision=DOES_NOT_APPLY)
    facts: Facts = {"policy": case.declaration.misfire_policy.to_document()}
    row, gap = case.occurrence, case.gap
    if gap is not None:
        facts["missed_before"] = _missed(gap)
    if row.caught_up is not None:
        facts["caught_up_at"] = to_text(row.caught_up)
        return Step(rule=Rule.MISFIRE, decision=str(Reason.CAUGHT_UP), facts=facts)
    if case.began is None:
        return Step(rule=Rule.MISFIRE, decision="in_time", facts=facts)
    lateness = judge(case.declaration.misfire_policy, due=row.first_due, now=case.began)
    # Lateness counts at the claim: what was claimed in time and then had to wait was not late.
    decision = str(lateness.reason) if lateness.runs else "in_time"
    return Step(rule=Rule.MISFIRE, decision=decision, facts={**facts, **lateness.facts()})


def _dependencies(case: Case) -> Step:
    upstreams = case.declaration.depends_on
    if case.kind is not OriginKind.TRIGGER or not upstreams:
        return Step(rule=Rule.DEPENDENCIES, decision=DOES_NOT_APPLY)
    facts = {"depends_on": [one.to_document() for one in upstreams]}
    return Step(rule=Rule.DEPENDENCIES, decision="met", facts=facts)


def _overlap(case: Case) -> Step:
    policy = case.declaration.overlap_policy
    decision = "allowed" if isinstance(policy, overlap.Allow) else "free"
    return Step(rule=Rule.OVERLAP, decision=decision, facts={"policy": policy.to_document()})


def _limits(case: Case) -> Step:
    declaration = case.declaration
    facts = {} if declaration.concurrency is None else declaration.concurrency.to_document()
    facts |= known(max_runs=declaration.max_runs if case.is_own else None)
    return Step(rule=Rule.LIMITS, decision="within" if facts else DOES_NOT_APPLY, facts=facts)


def _claim(case: Case) -> Step:
    row = case.occurrence
    facts = known(route=row.route, node=row.node, claims=row.fence, losses=row.losses or None)
    if (lost := case.lost_node) is not None:
        facts |= known(
            node_seen_at=instant(lost.seen), node_left_at=instant(lost.left), node_gone_at=instant(lost.gone)
        )
    return Step(rule=Rule.CLAIM, decision="started", facts=facts)


def _runs(case: Case) -> Step:
    row, declaration, overrun = case.occurrence, case.declaration, case.overrun
    facts = known(
        attempt=row.attempt,
        max_attempts=declaration.retry_policy.max_attempts,
        timeout_seconds=None if declaration.timeout is None else micros_to_seconds(declaration.timeout),
        deadline=instant(real_deadline(row)),
        asked_to_stop=None if row.stop is None else str(row.stop),
        longer_than_interval_seconds=None if overrun is None else micros_to_seconds(overrun.interval),
        runs=[
            run_facts(run, target_kind=declaration.target.kind, is_lost=case.lost_node is not None)
            for run in case.runs[-MAX_RUNS_SHOWN:]
        ],
        earlier_runs=max(0, len(case.runs) - MAX_RUNS_SHOWN) or None,
    )
    last = case.runs[-1].outcome if case.runs else None
    return Step(rule=Rule.RUNS, decision=str(last or "running"), facts=facts)


def _rate(case: Case) -> Step:
    rate, counted = case.declaration.expected_rate, case.rate_window
    if rate is None or counted is None:
        return Step(rule=Rule.RATE, decision=DOES_NOT_APPLY)
    alert = counted.recent_alert
    facts = rate.to_document() | {
        "window_from": to_text(counted.ends - rate.per),
        "window_to": to_text(counted.ends),
        "started": counted.started,
        "succeeded": counted.succeeded,
    }
    if alert is not None:
        facts["reported"] = {
            "problem": str(alert.problem),
            "from": to_text(alert.first),
            "to": to_text(alert.last),
            "count": alert.count,
        }
    return Step(rule=Rule.RATE, decision="as_expected" if alert is None else str(alert.problem), facts=facts)


STEPS: tuple[Callable[[Case], Step], ...] = (
    _trigger,
    _dst,
    _bounds,
    _pause,
    _window,
    _misfire,
    _dependencies,
    _overlap,
    _limits,
    _claim,
    _runs,
    _rate,
)
"""One for each rule, in the order of `Rule`."""
