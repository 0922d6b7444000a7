"""Admit: at its due time a claimed occurrence starts, waits or ends.

A start is committed a little early, so that nothing but a timer stands between an occurrence and its due time. When a
place is taken that early, the decision waits for the due time itself.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core.admission import (
    Busy,
    Claim,
    End,
    Replan,
    Start,
    Wait,
    admit,
    after_upstreams,
    depends_on_others,
    missing_agent,
    refused,
    times_in_question,
    unknown_workflow,
)
from noonmark.core.agents import turns
from noonmark.core.errors import NoonmarkError
from noonmark.core.ids import TRIGGER, OriginKind, kind_of
from noonmark.core.instants import MAX_INSTANT
from noonmark.core.lifecycle import FINAL, Phase
from noonmark.core.quotas import UNLIMITED, inflight_keys
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.system_events import is_late
from noonmark.core.targets import AGENT_KINDS, AGENT_ROUTES, FunctionTarget, WorkflowTarget
from noonmark.core.targets.ping import Moment
from noonmark.driver import logs
from noonmark.driver.steps.reports import AdmitReport
from noonmark.driver.steps.settle import hand_back
from noonmark.driver.store_executor import Priority
from noonmark.ports import events
from noonmark.ports.records import Admitted, Lease, LeaseLost
from noonmark.ports.target import Assignment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from noonmark.core.admission import Admission
    from noonmark.core.agents.turns import AgentTarget
    from noonmark.core.budgets.budget import Reservation
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.policies.limits import Dependency
    from noonmark.core.quotas import Limits
    from noonmark.core.run import Run
    from noonmark.core.schedule import Schedule
    from noonmark.driver.node import Node
    from noonmark.ports.store import Store

    Answer = Admitted | LeaseLost | Busy
    UpstreamResults = dict[str, dict[str, dict[str, Any]]]
    """The results of the upstreams of each occurrence, by its id."""

logger = logging.getLogger("noonmark.driver")

CROWDED = frozenset({Reason.OVERLAP, Reason.QUEUE_FULL, Reason.TARGET_BUSY})
"""The reasons of skips behind an occurrence that may hang."""
_LOOKED_UP = AGENT_KINDS | {WorkflowTarget.kind}
_DISPATCHING, _LEASE_LOST, _START = Phase.DISPATCHING, Reason.LEASE_LOST, Moment.START
PAGE = 100
FEW = 5
"""Runs are read with their results, which may be large."""
COMPLETED = frozenset({Phase.COMPLETED})
ENDED = FINAL - {Phase.SUPERSEDED}


def read_upstream_results(store: Store, claims: Sequence[Claim]) -> list[dict[str, dict[str, Any]]]:
    """The name and the result of each upstream of each claim, by id; without those that have not run."""
    return [_results(store, claim) for claim in claims]


def _results(store: Store, claim: Claim) -> dict[str, dict[str, Any]]:
    results = {}
    for dependency in claim.schedule.declaration.depends_on:
        stored = store.find(claim.schedule.owner.tenant, dependency.schedule_id)
        if stored is not None and (run := _counted(store, claim, dependency, stored.schedule)) is not None:
            results[dependency.schedule_id] = {"name": stored.schedule.declaration.name, "result": run.result}
    return results


def _counted(store: Store, claim: Claim, dependency: Dependency, upstream: Schedule) -> Run | None:
    """The run of an upstream that counts for a claim: that of its newest fire in the times in question, or its last.

    What follows its upstreams has the time of their ends, so a retry finds the same one.
    """
    is_timed = claim.schedule.declaration.trigger is not None
    if is_timed and claim.occurrence.origin == TRIGGER:
        fire = _newest_fire(store, claim, upstream, COMPLETED if dependency.require_success else ENDED)
        if fire is not None:
            last = store.last_runs([fire.id]).get(fire.id)
            stored = None if last is None else store.run(last.id)
            return None if stored is None else stored[1]
    until = MAX_INSTANT if is_timed else claim.occurrence.nominal
    return _last_run(store, upstream, until, completed=dependency.require_success)


def _last_run(store: Store, upstream: Schedule, until: Micros, *, completed: bool) -> Run | None:
    """The run that started last, of those that had ended by an instant."""
    before = None
    while True:
        runs = store.runs(upstream.uid, FEW, before=before)
        for run in runs:
            has_ended = run.ended is not None and run.ended <= until and run.outcome is not Outcome.LEASE_LOST
            if has_ended and (run.outcome is Outcome.COMPLETED or not completed):
                return run
        if len(runs) < FEW:
            return None
        before = (runs[-1].started, runs[-1].id)


def _newest_fire(store: Store, claim: Claim, upstream: Schedule, phases: frozenset[Phase]) -> Occurrence | None:
    after, until = times_in_question(claim)
    before = (until + 1, "")
    while True:
        rows = store.occurrences(upstream.uid, PAGE, before=before, phases=phases)
        for row in rows:
            if row.nominal <= after:
                return None
            if row.origin == TRIGGER:
                return row
        if len(rows) < PAGE:
            return None
        before = (rows[-1].nominal, rows[-1].id)


async def admit_once(node: Node) -> AdmitReport:
    """Decide every claim whose time has come, and hand starts to the target."""
    if node.is_in_doubt:
        return AdmitReport()
    now, lease = node.now, node.timing.lease
    due = node.take_due(node.batch)
    limits = node.runtime.limits
    decisions = [_decide(one, limits, now=now, lease=lease) for one in due]
    counts = _Counts()
    results: UpstreamResults = {}
    try:
        if not all(map(_starts_at_once, decisions)):
            decisions = await _look_up_workflows(node, await _look_upstream(node, decisions))
            decisions = await _look_up_agents(node, decisions)
            decisions = await _with_first_calls(node, decisions)
            decisions = _in_time(node, decisions, counts)
            results = await _upstream_results(node, decisions)
    except Exception:
        for claim in due:
            node.decide_at(claim, node.now)
        raise
    while decisions:
        try:
            answers = await _admit(node, decisions)
        except Exception:
            # It may have been written or not. On the next try, what took effect answers as lost.
            for decision in decisions:
                node.decide_at(decision.claim, node.now)
            raise
        decisions = await _carry_out(node, decisions, answers, counts, results)
    return counts.report()


async def _admit(node: Node, decisions: Sequence[Admission]) -> list[Answer]:
    """Write decisions together. If the store cannot write one of them, write each alone."""
    try:
        answers: list[Answer] = await node.executor.call(
            node.store.admit, decisions, now=node.now, lease=node.timing.lease, priority=Priority.URGENT
        )
    except NoonmarkError:
        raise
    except Exception:
        claimed = decisions[0].claim.occurrence
        if len(decisions) > 1:
            return [answer for one in decisions for answer in await _admit(node, [one])]
        logger.exception("could not admit occurrence %s", claimed.id)
        return [LeaseLost(occurrence_id=claimed.id)]
    return answers


def _decide(claim: Claim, limits: Limits, *, now: Micros, lease: Micros) -> Admission:
    """Decide one claim. A record that cannot be decided ends, so that it does not block the others."""
    try:
        keys = () if limits is UNLIMITED else inflight_keys(limits, claim.schedule.owner)
        return admit(claim, now=max(now, claim.occurrence.due), lease=lease, keys=keys)
    except Exception as error:
        logger.exception("could not decide occurrence %s", claim.occurrence.id)
        facts = {"problem": repr(error)}
        return End(claim=claim, phase=Phase.DELIVERY_FAILED, reason=Reason.UNREADABLE, facts=facts)


def _starts_at_once(decision: Admission) -> bool:
    """Whether it starts without a look at anything else: at its upstreams, its workflow or its agent."""
    if not isinstance(decision, Start) or decision.claim.occurrence.route in AGENT_ROUTES:
        return False
    declaration = decision.claim.schedule.declaration
    return not declaration.depends_on and declaration.target.kind not in _LOOKED_UP


async def _look_upstream(node: Node, decisions: list[Admission]) -> list[Admission]:
    """Check the upstreams of what could start."""
    asking = [one.claim for one in decisions if isinstance(one, Start) and depends_on_others(one.claim)]
    if not asking:
        return decisions
    standings = await node.executor.call(node.store.upstreams, asking, priority=Priority.URGENT)
    verdicts = {
        claim.occurrence.id: after_upstreams(claim, standing, now=max(node.now, claim.occurrence.due))
        for claim, standing in zip(asking, standings, strict=True)
    }
    return [verdicts.get(one.claim.occurrence.id) or one for one in decisions]


async def _look_up_workflows(node: Node, decisions: list[Admission]) -> list[Admission]:
    """Apply the missing-target policy where a workflow that could start does not exist."""
    asking = [
        (decision.claim, target)
        for decision in decisions
        if isinstance(decision, Start)
        and isinstance(target := decision.claim.schedule.declaration.target, WorkflowTarget)
        and not decision.claim.occurrence.has_begun
    ]
    if not asking:
        return decisions
    missing = await node.executor.call(_missing_workflows, node.store, asking, priority=Priority.URGENT)
    return [missing.get(decision.claim.occurrence.id) or decision for decision in decisions]


def _missing_workflows(store: Store, asking: Sequence[tuple[Claim, WorkflowTarget]]) -> dict[str, End]:
    """The ends of claims whose workflow does not exist, by the id of the occurrence."""
    existence: dict[tuple[str, str, int | None], bool] = {}
    ends = {}
    for claim, target in asking:
        key = (claim.schedule.owner.tenant, target.workflow_id, target.version)
        if key not in existence:
            existence[key] = store.workflow(*key) is not None
        if not existence[key]:
            ends[claim.occurrence.id] = unknown_workflow(claim, target)
    return ends


async def _look_up_agents(node: Node, decisions: list[Admission]) -> list[Admission]:
    """Apply the missing-target policy where the session, mob, member or flow of what could start does not exist."""
    if not node.runtime.has_remote_host:
        decisions = [_without_host(decision) for decision in decisions]
    asking = [
        (decision.claim, target)
        for decision in decisions
        if isinstance(decision, Start)
        and (target := turns.agent_target(decision.claim.schedule.declaration.target)) is not None
        and not decision.claim.occurrence.has_begun
    ]
    if not asking:
        return decisions
    missing = await node.executor.call(_missing_agents, node.store, asking, priority=Priority.URGENT)
    return [missing.get(decision.claim.occurrence.id) or decision for decision in decisions]


def _without_host(decision: Admission) -> Admission:
    """Apply the missing-target policy to a first start that asks for a remote agent host."""
    claim = decision.claim
    is_first = isinstance(decision, Start) and not claim.occurrence.has_begun
    if not is_first or claim.occurrence.route not in AGENT_ROUTES:
        return decision
    is_remote = turns.asks_for_remote(claim.schedule.declaration.target)
    return missing_agent(claim, {"host": "remote"}) if is_remote else decision


def _missing_agents(store: Store, asking: Sequence[tuple[Claim, AgentTarget]]) -> dict[str, End]:
    """The ends of claims of agents that do not exist, by the id of the occurrence."""
    ends = {}
    for claim, target in asking:
        tenant = claim.schedule.owner.tenant
        session_id, mob_id = turns.needed_session(target), turns.needed_mob(target)
        session = None if session_id is None else store.session(tenant, session_id)
        mob = None if mob_id is None else store.mob(tenant, mob_id)
        facts = turns.missing(target, session, mob)
        if facts is not None:
            ends[claim.occurrence.id] = missing_agent(claim, facts)
    return ends


async def _with_first_calls(node: Node, decisions: list[Admission]) -> list[Admission]:
    """Let the first start of an agent reserve the first call of its model."""
    if node.runtime.first_call is None:
        return decisions
    asking = [
        one.claim
        for one in decisions
        if isinstance(one, Start) and one.claim.occurrence.route in AGENT_ROUTES and not one.claim.occurrence.has_begun
    ]
    if not asking:
        return decisions
    calls = await node.executor.call(_first_calls, node.runtime.first_call, asking, priority=Priority.URGENT)
    return [
        replace(one, reservation=calls[one.claim.occurrence.id])
        if isinstance(one, Start) and one.claim.occurrence.id in calls
        else one
        for one in decisions
    ]


def _first_calls(
    first_call: Callable[[Schedule, Occurrence], Reservation | None], claims: Sequence[Claim]
) -> dict[str, Reservation]:
    """What to reserve for each claim. Without it, a run starts, and its host reserves the call before it makes it."""
    calls = {}
    for claim in claims:
        try:
            call = first_call(claim.schedule, claim.occurrence)
        except NoonmarkError:
            raise
        except Exception:
            logger.exception("could not tell what the first call of occurrence %s may use", claim.occurrence.id)
            continue
        if call is not None:
            calls[claim.occurrence.id] = call
    return calls


async def _upstream_results(node: Node, decisions: Sequence[Admission]) -> UpstreamResults:
    """Read the results of the upstreams of functions that could start."""
    asking = [
        decision.claim
        for decision in decisions
        if isinstance(decision, Start)
        and (declaration := decision.claim.schedule.declaration).depends_on
        and isinstance(declaration.target, FunctionTarget)
    ]
    if not asking:
        return {}
    results = await node.executor.call(read_upstream_results, node.store, asking, priority=Priority.URGENT)
    return {claim.occurrence.id: one for claim, one in zip(asking, results, strict=True)}


def _in_time(node: Node, decisions: list[Admission], counts: _Counts) -> list[Admission]:
    """Hold what would wait only briefly, and decide it then: it would be claimed again at once."""
    ahead = node.now + node.timing.lookahead
    others: list[Admission] = []
    for decision in decisions:
        if isinstance(decision, Wait) and decision.until is not None and decision.until <= ahead:
            node.decide_at(decision.claim, decision.until)
            counts.postponed += 1
        else:
            others.append(decision)
    return others


class _Counts:
    """Running counts for the report."""

    def __init__(self) -> None:
        self.started = self.ended = self.waiting = self.replanned = self.lost = self.postponed = self.late = 0

    def report(self) -> AdmitReport:
        return AdmitReport(**vars(self))


async def _carry_out(
    node: Node, decisions: Sequence[Admission], answers: Sequence[Answer], counts: _Counts, results: UpstreamResults
) -> list[Admission]:
    """Act on the answers of the store. A busy start is decided again."""
    assignments: list[Assignment] = []
    driver_events: list[events.DriverEvent] = []
    lost: list[Lease] = []
    again: list[Admission] = []
    now, has_sink = node.now, node.has_sink
    for decision, answer in zip(decisions, answers, strict=True):
        claim = decision.claim
        match answer:
            case Admitted(occurrence=occurrence, alert=alert):
                node.drop(claim)
                if alert is not None:
                    logs.rate(claim.schedule, alert)
                    driver_events.append(events.RateExceeded(claim.schedule.schedule_id, alert))
                if isinstance(decision, Start):
                    assignment = _assign(node, claim, occurrence)
                    assignment.upstream = results.get(occurrence.id) if results else None
                    assignments.append(assignment)
                    counts.late += is_late(occurrence.first_due, now)
                    if has_sink:
                        driver_events.append(events.Started(occurrence))
                else:
                    driver_events.append(_not_started(node, decision, occurrence, counts))
            case Busy():
                if now < claim.occurrence.due:
                    node.decide_at(claim, claim.occurrence.due)
                    counts.postponed += 1
                else:
                    again.append(refused(claim, answer, decision.keys if isinstance(decision, Start) else ()))
            case _:
                node.drop(claim)
                lost.append(Lease(occurrence_id=claim.occurrence.id, fence=claim.occurrence.fence))
                driver_events.append(events.LeaseLost(claim.occurrence.id))
                counts.lost += 1
    if assignments:
        counts.started += await _hand_over(node, assignments)
    node.report(driver_events)
    if lost:
        # If only the revision changed, this node still holds the row, which would wait for the end of its lease. A
        # failure here costs no more than that; decisions to repeat must not be lost with it.
        with suppress(Exception):
            await node.executor.call(node.store.release, lost)
    return again


def _assign(node: Node, claim: Claim, occurrence: Occurrence) -> Assignment:
    """Record a start that was written, and report it."""
    assignment = node.deliveries[occurrence.id] = Assignment(
        occurrence, claim.schedule, occurrence.due, traces=node.runtime.traces
    )
    if claim.found_in is _DISPATCHING or claim.occurrence.reason is _LEASE_LOST:
        logs.begins_again(claim.schedule, occurrence)
    if occurrence.attempt == 1 and claim.schedule.declaration.ping_urls is not None:
        node.ping(claim.schedule, occurrence, _START)
    return assignment


async def _hand_over(node: Node, assignments: list[Assignment]) -> int:
    """Hand starts to the target; returns how many.

    If the answer took longer than a lease, another node may have taken them over.
    """
    since = node.now - node.timing.lease
    late = [one for one in assignments if one.occurrence.started is not None and one.occurrence.started <= since]
    if late:
        lost = set(late).difference(await _still_held(node, late))
        assignments = [one for one in assignments if one not in lost]
    if assignments:
        node.runtime.target.deliver(assignments)
    return len(assignments)


async def _still_held(node: Node, late: list[Assignment]) -> list[Assignment]:
    """The starts that this node still holds, by an answer that is not late itself; the rest is handed back."""
    holds = [Lease(occurrence_id=one.occurrence.id, fence=one.occurrence.fence) for one in late]
    asked_at, lost = node.now, frozenset(hold.occurrence_id for hold in holds)
    with suppress(Exception):  # ownership is unknown then
        renewal = await node.lease_executor.call(node.store.renew, holds, now=asked_at, lease=node.timing.lease)
        lost = renewal.lost if node.now < asked_at + node.timing.lease else lost
    hand_back(node, [one for one in late if one.occurrence.id in lost])
    return [one for one in late if one.occurrence.id not in lost]


def _not_started(
    node: Node, decision: End | Wait | Replan, occurrence: Occurrence, counts: _Counts
) -> events.DriverEvent:
    match decision:
        case Wait():
            counts.waiting += 1
            if decision.cancels:
                _stop_running(node, occurrence)
            return events.Waiting(occurrence)
        case Replan():
            counts.replanned += 1
            return events.Waiting(occurrence)
        case End():
            counts.ended += 1
            reach = node.runtime.reach
            node.ended(occurrence)
            if decision.breach is not None:
                logs.runaway(decision.claim.schedule, decision.breach, reach=reach)
                node.report([events.RanAway(occurrence.schedule_id, decision.breach.rule)])
            if occurrence.reason in CROWDED and kind_of(occurrence.origin) is not OriginKind.MANUAL:
                logs.skipped(node.warned_of_skips, decision.claim.schedule, occurrence, now=node.now, reach=reach)
            else:
                logs.ended(decision.claim.schedule, occurrence, reach=reach)
            return events.Ended(occurrence)


def _stop_running(node: Node, newer: Occurrence) -> None:
    """Stop the run that has to make room at once if it is delivered here."""
    for assignment in node.deliveries.values():
        if assignment.occurrence.uid == newer.uid:
            assignment.stop(Reason.REPLACED)
