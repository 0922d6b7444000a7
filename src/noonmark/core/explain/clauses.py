"""The part of a sentence for each reason, with the numbers of the occurrence."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from noonmark.core.admission import end_after_loss
from noonmark.core.agents.turns import agent_target, session_of
from noonmark.core.describe.words import duration_words, instant_words, took_words
from noonmark.core.engine import workflow_id
from noonmark.core.instants import MIN_INSTANT
from noonmark.core.interruption import (
    BY_WINDOW,
    PINGED,
    SET_BY,
    engine_of,
    gone_error,
    is_begun,
    is_unpinged,
    real_deadline,
)
from noonmark.core.lifecycle import LIVE, Phase
from noonmark.core.occurrence import backfill_pause
from noonmark.core.policies.catch_up import decide
from noonmark.core.policies.expected_rate import RateProblem
from noonmark.core.policies.fires import Listed
from noonmark.core.policies.misfire import Skip
from noonmark.core.reasons import Reason, halted_words, missing_words
from noonmark.core.run import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from noonmark.core.explain.deciding_rule import Case
    from noonmark.core.interruption import LostNode
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.policies.expected_rate import RateWindow
    from noonmark.core.run import Run
    from noonmark.core.schedule import Schedule
    from noonmark.core.targets.mob import MobFlowTarget


def plain(reason: Reason) -> str:
    """A reason as a part of a sentence."""
    text = reason.sentence.removesuffix(".")
    return text[0].lower() + text[1:]


def shown(text: object) -> str:
    """An instant of a detail, as people read it."""
    return str(text).replace("T", " ").replace("Z", " UTC")


def fires(case: Case, what: str) -> str:
    """The fires that a row stands for, of which that is so."""
    row = case.occurrence
    if row.missed_count > 1 and row.missed_first is not None and row.missed_last is not None:
        stretch = f"from {instant_words(row.missed_first)} to {instant_words(row.missed_last)}"
        return f"{row.missed_count:,} fires {stretch} were {what}"
    return f"the fire of {instant_words(row.nominal)} was {what}"


def misfire_policy(case: Case) -> str:
    """The policy, by its name where that is the one that was asked."""
    return _policy("misfire policy", str(case.declaration.misfire_policy.kind), is_known=case.is_in_force)


def overlap_policy(case: Case) -> str:
    """Likewise."""
    return _policy("overlap policy", str(case.declaration.overlap_policy.kind), is_known=case.is_in_force)


def grace(case: Case) -> str:
    """How late a fire may be."""
    return duration_words(case.declaration.misfire_policy.grace)


def attempts(case: Case) -> str:
    """Which attempt it was, of how many."""
    of = f" of {case.declaration.retry_policy.max_attempts}" if case.is_in_force else ""
    return f"{case.occurrence.attempt}{of}"


def error(case: Case) -> str:
    """What went wrong in its last run."""
    summary = case.runs[-1].summary if case.runs else None
    return "" if summary is None else f", with `{summary}`"


def node(name: str | None) -> str:
    """Who runs it."""
    return f"node `{name}`" if name else "a node"


def started_words(case: Case) -> str:
    """Which node started the present attempt, and when."""
    row, run = case.occurrence, case.open_run
    began = row.started if run is None else run.started
    since = "" if began is None else f" at {instant_words(max(began, row.due))}"
    return f"{node(row.node)} started attempt {attempts(case)}{since}"


def lost_words(lost: LostNode) -> str:
    """What is known of a node that is not alive, to follow its name."""
    if lost.left is not None:
        return f"stopped at {instant_words(lost.left)}"
    if lost.gone is not None:
        return f"was found gone at {instant_words(lost.gone)} (its process had ended)"
    since = "for more than a day" if lost.seen is None else f"since {instant_words(lost.seen)}"
    return f"has sent no heartbeat {since}"


def lost_delivery(case: Case, lost: LostNode) -> str:
    """That the node which holds an occurrence is not alive, and what happens once another one can claim it."""
    row, serves = case.occurrence, f"when a node that serves `{case.occurrence.route}` is alive"
    if row.phase is Phase.CLAIMED:
        return f"{node(row.node)} had claimed it, and {lost_words(lost)}; it is claimed again {serves}"
    lead = f"{started_words(case)}, and {lost_words(lost)}"
    end = end_after_loss(case.schedule, row, now=case.now)
    if end is None:
        return f"{lead}; it begins again {serves}"
    why = ", as `at_most_once` forbids another delivery" if end is Reason.OUTCOME_UNKNOWN else ""
    return f"{lead}; it ends as `{end}` {serves}{why}"


def listed(names: Sequence[str]) -> str:
    """Names, one after another."""
    return ", ".join(f"`{name}`" for name in names)


def pause_words(schedule: Schedule) -> str:
    """Since when a schedule is paused, by whom, why, and until when."""
    pause = schedule.pause
    if pause is None:
        return "the schedule is paused"
    by = "" if pause.by is None else f" by `{pause.by}`"
    why = "" if pause.reason is None else f" ({pause.reason})"
    until = "" if pause.until is None else f", until {instant_words(pause.until)}"
    return f"the schedule has been paused since {instant_words(pause.at)}{by}{why}{until}"


def backfill_pause_words(occurrence: Occurrence) -> str | None:
    """That its backfill is paused, since when, by whom and why, and how it is resumed; None if it is not paused."""
    pause = backfill_pause(occurrence)
    if pause is None:
        return None
    backfill_id = occurrence.origin.partition(":")[2]
    since, by, why = pause.get("at_utc"), pause.get("by"), pause.get("reason")
    clause = "is paused" if since is None else f"has been paused since {shown(since)}"
    clause += f"{'' if by is None else f' by `{by}`'}{'' if why is None else f' ({why})'}"
    return f"its backfill {clause}; `noonmark backfill resume {occurrence.schedule_id} {backfill_id}` resumes it"


def rate_words(window: RateWindow | None) -> str:
    """How the schedule misses its expected rate at present; empty if it does not."""
    alert = None if window is None else window.recent_alert
    if alert is None:
        return ""
    often = "often" if alert.problem is RateProblem.TOO_OFTEN else "rarely"
    stretch = f"from {instant_words(alert.first)} to {instant_words(alert.last)}"
    return f"; the schedule ran too {often} {stretch} ({alert.to_sentence()})"


def times(count: object) -> str:
    """How often."""
    return "once" if count == 1 else f"{count} times"


def may_be_caught_up(case: Case) -> bool:
    """Whether the misfire policy lets an overdue one run, if there are no others; that depends on the whole gap."""
    policy, fires_due = case.declaration.misfire_policy, Listed((case.occurrence.due,))
    return bool(decide(policy, fires_due, uid=case.schedule.uid, after=MIN_INSTANT, now=case.now).starts)


def _policy(what: str, name: str, *, is_known: bool) -> str:
    return f"the {what} `{name}`" if is_known else f"the {what} of that time"


def _alone(reason: Reason) -> Callable[[Case], str]:
    """The clause of a reason without numbers."""
    return lambda _: plain(reason)


def _short(reason: Reason) -> Callable[[Case], str]:
    """The clause of a wait for what a node lacks, with what that is."""

    def clause(case: Case) -> str:
        problem = case.detail.get("problem")
        return plain(reason) if problem is None else f"{plain(reason)} ({problem})"

    return clause


def _unserved(case: Case) -> str:
    return unserved_clause(case.unserved or "")


def unserved_clause(words: str) -> str:
    """That no live node serves the target, with the hint in brackets: it may be a question within a sentence."""
    said, separator, hint = words.partition("; ")
    return f"{said} ({hint})" if separator else said


def _not_due(case: Case) -> str:
    unserved = "" if case.unserved is None else f"; at present, {_unserved(case)}"
    return f"it is due at {instant_words(case.occurrence.due)}{unserved}"


def _due(case: Case) -> str:
    row = case.occurrence
    return f"it has been due since {instant_words(row.due)}, and waits for a node that serves `{row.route}` to claim it"


def _caught_up(case: Case) -> str:
    return f"it was missed at first, and {misfire_policy(case)} took it up after all"


def _late(case: Case) -> str:
    row, policy = case.occurrence, case.declaration.misfire_policy
    if row.phase in LIVE:
        late = f"it has been due since {instant_words(row.due)}, and no node took it up within {grace(case)}"
        fate = "decides whether it still runs" if may_be_caught_up(case) else "drops it"
        return f"{late}; {misfire_policy(case)} {fate} as soon as a node plans the schedule again"
    them = "them" if row.missed_count > 1 else "it"
    missed = f"{fires(case, 'missed')} because no node took {them} up in time"
    if case.is_in_force and isinstance(policy, Skip):
        return f"{missed}, and {misfire_policy(case)} drops what is later than {grace(case)}"
    return f"{missed}, and {misfire_policy(case)} does not run what is so late"


def _newer_fire(case: Case) -> str:
    they, route = "they" if case.occurrence.missed_count > 1 else "it", case.detail.get("route")
    cause = f"a newer one was due before {they} started"
    if route is not None:
        cause = f"no live node served `{route}` until a newer one was due"
    return f"{fires(case, 'missed')} because {cause}, and {misfire_policy(case)} runs only the newest"


def _catch_up_limit(case: Case) -> str:
    limit = getattr(case.declaration.misfire_policy, "limit", None) if case.is_in_force else None
    at_most = "only the newest" if limit is None else f"at most the newest {limit}"
    return f"{fires(case, 'missed')}, and {misfire_policy(case)} catches up {at_most}"


def _concurrency(case: Case) -> str:
    concurrency = case.declaration.concurrency
    if concurrency is None:
        return plain(Reason.CONCURRENCY_LIMIT)
    return f"it waits because all places under the concurrency key `{concurrency.key}` ({concurrency.limit}) are taken"


def _inflight(case: Case) -> str:
    user, limit = case.schedule.owner.user, case.occurrence.wanted_limit
    allowed = "allowed" if limit is None else f"the limit of {limit:,} per user allows"
    return f"it waits because as many occurrences of the user `{user}` are in flight as {allowed}"


def _tenant_inflight(case: Case) -> str:
    tenant, limit = case.schedule.owner.tenant, case.occurrence.wanted_limit
    allowed = "allowed" if limit is None else f"the limit of {limit:,} per tenant allows"
    return f"it waits because as many occurrences of the tenant `{tenant}` are in flight as {allowed}"


def _target_busy(case: Case) -> str:
    target = agent_target(case.declaration.target)
    if target is None:
        return plain(Reason.TARGET_BUSY)
    session_id = session_of(target, case.schedule.uid)
    flow = cast("MobFlowTarget", target)
    busy = (
        f"the flow `{flow.flow_id}` of the mob `{flow.mob_id}`"
        if session_id is None
        else f"another turn of the session `{session_id}`"
    )
    if case.occurrence.phase in LIVE:
        return f"it waits because {busy} is in progress"
    return f"{busy} was in progress, and {overlap_policy(case)} does not wait for it"


def _pending_upstreams(case: Case) -> str:
    names = listed([one.schedule_id for one in case.declaration.depends_on])
    return f"it waits for what it depends on ({names})" if names else plain(Reason.DEPENDENCY_PENDING)


def _overlap(case: Case) -> str:
    holder = case.detail.get("in_flight")
    earlier = "an earlier occurrence" if holder is None else f"`{holder}`"
    return f"{earlier} was still in flight, and {overlap_policy(case)} starts no second one beside it"


def _queue_full(case: Case) -> str:
    waiting = case.detail.get("waiting", "too many")
    return f"{waiting} occurrences were waiting already, and {overlap_policy(case)} lets no more of them wait"


def _replaced(case: Case) -> str:
    if case.has_begun:
        return f"a newer occurrence was due, and {overlap_policy(case)} stops the one before it"
    return f"a newer occurrence took its place, as {overlap_policy(case)} lets only one wait"


def _window_closed(case: Case) -> str:
    closed = case.detail.get("closes_at")
    when = "had closed" if closed is None else f"closed at {shown(closed)}"
    return f"the window in which it may run {when}, before it {'had ended' if case.has_begun else 'could start'}"


def _dependency_failed(case: Case) -> str:
    match case.detail:
        case {"upstream": upstream, "phase": "missing"}:
            return f"the schedule `{upstream}`, on which it depends, does not exist"
        case {"upstream": upstream, "phase": phase}:
            return f"the schedule `{upstream}`, on which it depends, ended as `{phase}`"
        case _:
            return plain(Reason.DEPENDENCY_FAILED)


def _dependency_timed_out(case: Case) -> str:
    match case.detail:
        case {"upstream": upstream, "waits_until": limit}:
            return f"the schedule `{upstream}`, on which it depends, had not ended by {shown(limit)}"
        case _:
            return plain(Reason.DEPENDENCY_TIMED_OUT)


def _paused(case: Case) -> str:
    row = case.occurrence
    if (of_backfill := backfill_pause_words(row)) is not None:
        return of_backfill
    if row.phase in LIVE:
        return f"{pause_words(case.schedule)}, and holds it until it is resumed"
    if row.phase is Phase.CANCELLED:
        return "the schedule was paused while its agent was at work"
    by, why = case.detail.get("paused_by"), case.detail.get("pause_reason")
    author = "" if by is None else f" by `{by}`"
    author_and_reason = f"{author}{'' if why is None else f' ({why})'}"
    if row.missed_count:
        return fires(case, f"skipped by a pause of the schedule{author_and_reason}")
    return f"{plain(Reason.PAUSED)}{author_and_reason}"


def halted(case: Case) -> str:
    """Who halted it."""
    return halted_words(case.detail) or plain(Reason.HALTED)


def _target_missing(case: Case) -> str:
    row = case.occurrence
    if row.phase in LIVE:
        return f"it has been due since {instant_words(row.due)}, and {_unserved(case)}"
    missed = f"{fires(case, 'due')}, but " if row.missed_count > 1 else ""
    if (lacking := missing_words(case.detail)) is not None:
        return f"{missed}{lacking}"
    return f"{missed}no live node could serve its target, `{row.route}`"


def _max_runs(case: Case) -> str:
    limit = case.detail.get("max_runs")
    return plain(Reason.MAX_RUNS_REACHED) if limit is None else f"the schedule may run {times(limit)}, and had done so"


def _approval(case: Case) -> str:
    why = case.detail.get("why")
    return plain(Reason.APPROVAL) + ("" if why is None or case.has_begun else f", since {why}")


def _budget_exceeded(case: Case) -> str:
    if case.has_begun:
        return _failed(Reason.BUDGET_EXCEEDED)(case)
    why = case.detail.get("why")
    return plain(Reason.BUDGET_EXCEEDED) if why is None else str(why)


def _approval_denied(case: Case) -> str:
    by, why = case.detail.get("by"), case.detail.get("comment")
    who = "somebody" if by is None else f"`{by}`"
    return f"{who} denied that it goes beyond its budget{'' if why is None else f' ({why})'}"


def _approval_expired(case: Case) -> str:
    why = case.detail.get("why")
    return plain(Reason.APPROVAL_EXPIRED) + ("" if why is None else f": {why}")


def _deleted(case: Case) -> str:
    deleted = case.schedule.deleted
    when = "" if deleted is None else f" at {instant_words(deleted)}"
    missed = f"{fires(case, 'due')} when " if case.occurrence.missed_count > 1 else ""
    return f"{missed}the schedule was deleted{when}"


def _accepted(case: Case) -> str:
    row = case.occurrence
    deadline = real_deadline(row)
    if row.route == PINGED:
        by = "" if deadline is None else f" by {instant_words(deadline)}"
        if is_begun(row):
            return f"a ping said that its job started, and one about the end is expected{by}"
        return f"no ping has come yet, and one is expected{by}"
    by = "" if deadline is None else f" until {instant_words(deadline)}"
    # A request to stop may have brought the deadline forward.
    if by and row.stop is None and case.detail.get(SET_BY) == BY_WINDOW:
        by += ", when its window closes,"
    if (engine := engine_of(row)) is not None:
        name = workflow_id(row.id, row.attempt)
        return f"`{engine}` carries it out as its workflow `{name}`, and has time{by} to end it"
    return f"the target accepted the work, and has time{by} to say how it ended"


def _succeeded(case: Case) -> str:
    caught_up = f"{_caught_up(case)}; " if case.occurrence.caught_up is not None else ""
    lost = [run for run in case.runs if run.outcome is Outcome.LEASE_LOST]
    if lost:
        how = "the process of its node was gone" if all(map(_was_gone, lost)) else "its node stopped, or was lost,"
        caught_up += f"{how} {times(len(lost))} before it had ended, and it was delivered again; "
    if not case.runs or case.runs[-1].ended is None:
        return f"{caught_up}{plain(Reason.SUCCEEDED)}"
    last = case.runs[-1]
    took = took_words(case.runs[-1].ended - last.started)
    tries = "" if case.occurrence.attempt <= 1 else f" (attempt {attempts(case)})"
    return f"{caught_up}{node(last.node)} started it at {instant_words(last.started)}, and it took {took}{tries}"


def _failed(reason: Reason) -> Callable[[Case], str]:
    """For a failure: the report of the target, or the sentence of the reason, and the number of the attempt."""

    def told(case: Case) -> str:
        return f"{plain(reason)}{error(case)} (attempt {attempts(case)}){_no_retry(case)}"

    return told


def _no_retry(case: Case) -> str:
    """Why no other attempt followed although one was left."""
    match case.detail:
        case {"is_final": True}:
            return _final(case)
        case {"window_closes_at": closes_at}:
            return f"; the next attempt would have come after its window, which closed at {shown(closes_at)}"
        case {"delivery": delivery}:
            return f"; it may still have been at work, and `{delivery}` forbids another attempt then"
        case _:
            return ""


def _final(case: Case) -> str:
    """Why a failure is not retried, whatever the retry policy says."""
    result = case.runs[-1].result if case.runs else None
    status = result.get("status") if isinstance(result, dict) and case.declaration.target.kind == "http" else None
    if status is None:
        return "; a failure of this kind is never retried"
    return f"; an answer with status {status} is not retried unless `retry_statuses` has it"


def _timed_out(case: Case) -> str:
    timeout = case.declaration.timeout if case.is_in_force else None
    limit = f"its timeout{error(case)}" if timeout is None else f"its timeout of {duration_words(timeout)}"
    return f"the run took longer than {limit} (attempt {attempts(case)}){_no_retry(case)}"


def _completion_timed_out(case: Case) -> str:
    if is_unpinged(case.occurrence.route, Reason.COMPLETION_TIMED_OUT):
        return (case.runs[-1].summary if case.runs else None) or "no ping came in time"
    return f"{plain(Reason.COMPLETION_TIMED_OUT)} (attempt {attempts(case)})"


def _retry(case: Case) -> str:
    due = case.occurrence.due
    when = f"is due at {instant_words(due)}" if due > case.now else f"has been due since {instant_words(due)}"
    return f"attempt {attempts(case)} failed{error(case)}, and the next one {when}"


def _not_retried(case: Case) -> str:
    exception = case.detail.get("exception")
    named = "its exception" if exception is None else f"`{exception}`"
    return f"attempt {attempts(case)} failed{error(case)}, and the retry policy does not retry {named}"


def _lease_lost(case: Case) -> str:
    due = instant_words(case.occurrence.due)
    return f"the node that held it stopped, or was lost, so it is delivered again, from {due} on"


def _suspended(case: Case) -> str:
    due = case.occurrence.due
    return f"its workflow waits, and goes on from {instant_words(due)} on"


def _outcome_unknown(case: Case) -> str:
    why = plain(Reason.OUTCOME_UNKNOWN)
    if case.runs and _was_gone(case.runs[-1]):
        why = "delivery had begun when the process of its node was gone, and it must not begin twice"
    return f"{why} (attempt {attempts(case)})"


def _was_gone(run: Run) -> bool:
    """Whether a run was lost because the process of its node was gone."""
    return run.error == gone_error(run.node)


def _poison(case: Case) -> str:
    losses = case.detail.get("losses", case.occurrence.losses)
    return f"its node was lost {times(losses)} while it ran, so it is taken for the cause, and is not delivered again"


def _unreadable(case: Case) -> str:
    problem = case.detail.get("problem")
    return plain(Reason.UNREADABLE) + ("" if problem is None else f" ({problem})")


CLAUSES: Mapping[Reason, Callable[[Case], str]] = MappingProxyType(
    {
        Reason.NOT_DUE: _not_due,
        Reason.ON_TIME: _due,
        Reason.WITHIN_GRACE: _due,
        Reason.CAUGHT_UP: _caught_up,
        Reason.LATE: _late,
        Reason.NEWER_FIRE: _newer_fire,
        Reason.CATCH_UP_LIMIT: _catch_up_limit,
        Reason.QUEUED: _alone(Reason.QUEUED),
        Reason.CONCURRENCY_LIMIT: _concurrency,
        Reason.INFLIGHT_LIMIT: _inflight,
        Reason.TENANT_INFLIGHT_LIMIT: _tenant_inflight,
        Reason.TARGET_BUSY: _target_busy,
        Reason.DEPENDENCY_PENDING: _pending_upstreams,
        Reason.RESOURCES_SHORT: _short(Reason.RESOURCES_SHORT),
        Reason.SERVICE_UNAVAILABLE: _short(Reason.SERVICE_UNAVAILABLE),
        Reason.STEP_PENDING: _alone(Reason.STEP_PENDING),
        Reason.APPROVAL: _approval,
        Reason.OVERLAP: _overlap,
        Reason.QUEUE_FULL: _queue_full,
        Reason.REPLACED: _replaced,
        Reason.WINDOW_OPEN: _alone(Reason.WINDOW_OPEN),
        Reason.WINDOW_CLOSED: _window_closed,
        Reason.DEPENDENCY_FAILED: _dependency_failed,
        Reason.DEPENDENCY_TIMED_OUT: _dependency_timed_out,
        Reason.PAUSED: _paused,
        Reason.HALTED: halted,
        Reason.TARGET_MISSING: _target_missing,
        Reason.MAX_RUNS_REACHED: _max_runs,
        Reason.APPROVAL_DENIED: _approval_denied,
        Reason.APPROVAL_EXPIRED: _approval_expired,
        Reason.EDITED: _alone(Reason.EDITED),
        Reason.DELETED: _deleted,
        Reason.ACCEPTED: _accepted,
        Reason.SUCCEEDED: _succeeded,
        Reason.FAILED: _failed(Reason.FAILED),
        Reason.UNDELIVERABLE: _failed(Reason.UNDELIVERABLE),
        Reason.TIMED_OUT: _timed_out,
        Reason.COMPLETION_TIMED_OUT: _completion_timed_out,
        Reason.CANCELLED: _alone(Reason.CANCELLED),
        Reason.RETRY_SCHEDULED: _retry,
        Reason.ATTEMPTS_EXHAUSTED: _failed(Reason.ATTEMPTS_EXHAUSTED),
        Reason.NOT_RETRIED: _not_retried,
        Reason.BUDGET_EXCEEDED: _budget_exceeded,
        Reason.TOOL_LOOP: _failed(Reason.TOOL_LOOP),
        Reason.LEASE_LOST: _lease_lost,
        Reason.SUSPENDED: _suspended,
        Reason.POISON: _poison,
        Reason.OUTCOME_UNKNOWN: _outcome_unknown,
        Reason.UNREADABLE: _unreadable,
    }
)
"""The clause for each reason."""
