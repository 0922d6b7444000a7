"""A small store with one of everything, and a node that runs on it for a few minutes after one cell was damaged."""

import logging
import re
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from noonmark.core import edits
from noonmark.core.admission import Start
from noonmark.core.agents.session import Message, Mob, Role, Session, member_session
from noonmark.core.api_key import ApiKey, Scope
from noonmark.core.budgets.budget import Budget, BudgetScope, Period, Reservation, Reserved
from noonmark.core.budgets.spend import Amount, Usage
from noonmark.core.event import Event
from noonmark.core.halt import Halt
from noonmark.core.ids import manual
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.lineage import Lineage
from noonmark.core.occurrence import Overrides
from noonmark.core.page_session import PageSession
from noonmark.core.policies import overlap
from noonmark.core.policies.limits import Concurrency, Dependency
from noonmark.core.policies.retry import RetryPolicy
from noonmark.core.proposals import Proposal, ProposedAction
from noonmark.core.rate_limit import RateLimit
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.schedule import AuditEntry, Owner
from noonmark.core.secret import Secret
from noonmark.core.settlement import Accepted, Suspended, settle
from noonmark.core.targets import WorkflowTarget
from noonmark.core.targets.session import SessionSpec
from noonmark.core.triggers import EventTrigger, OnceTrigger
from noonmark.core.workflows.run import StepPhase, StepRecord, WorkflowRun
from noonmark.ports.budgets import Settled, UsageBy
from noonmark.ports.bundles import Bundle
from noonmark.ports.records import Heartbeat
from noonmark.ports.sessions import Turn
from noonmark.ports.workflows import ApprovalRequest, EventWait, StepWrites, UsedKind, WorkflowVersion
from noonmark.testing import factories
from noonmark.testing.factories import MINUTE, NOW
from tests.driver.rig import ROUTE, Rig

MINUTES = 2
TENANTS = ("acme", "other")
OTHER = Owner(tenant="other", user="bob")
STEP = 30 * SECOND
ROUNDS = 6
"""So often, at most, every duty is done at one moment; a healthy store is quiet long before."""
TOGETHER = {
    "up": {"up", "down", "gated"},
    "keyed": {"keyed", "keyed-too"},
    "keyed-too": {"keyed", "keyed-too"},
}
"""Whoever depends on a damaged schedule, or shares a key with it, may suffer with it."""
LOUD = 12
"""So many lines of a log, at most, one damaged cell is worth within these minutes."""


def populate(make_store):
    """Write one of everything; gives the time at which it was left."""
    rig = Rig(make_store=make_store, lease=15 * SECOND)
    store = rig.store.store
    store.open()
    for uid, changes in {
        "one": {"labels": {"team": "a"}, "description": "the first", "name": "One"},
        "two": {},
        "three": {"owner": OTHER},
        "up": {},
        "down": {"trigger": None, "depends_on": (Dependency(schedule_id="schedule-of-up"),)},
        "gated": {"depends_on": (Dependency(schedule_id="schedule-of-up", require_success=False),)},
        "ears": {"trigger": EventTrigger("seen"), "overlap_policy": overlap.Allow()},
        "picky": {"trigger": EventTrigger("seen", {"n": 1}), "overlap_policy": overlap.Allow()},
        "abroad": {"trigger": EventTrigger("seen"), "overlap_policy": overlap.Allow(), "owner": OTHER},
        "alarm": {"trigger": EventTrigger("occurrence.failed"), "overlap_policy": overlap.Allow()},
        "crowd": {"trigger": EventTrigger("none"), "overlap_policy": overlap.Queue(), "max_runs": 1_000},
        "keyed": {"trigger": EventTrigger("none"), "concurrency": Concurrency(key="k", limit=1)},
        "keyed-too": {"trigger": EventTrigger("none"), "concurrency": Concurrency(key="k", limit=1)},
        "again": {"trigger": EventTrigger("none"), "retry_policy": RetryPolicy(max_attempts=3, backoff=90 * SECOND)},
        "later": {"trigger": EventTrigger("none")},
        "paused": {},
        "gone": {},
        "over": {"trigger": OnceTrigger(from_micros(NOW + MINUTE))},
        "flow": {"trigger": EventTrigger("none"), "target": WorkflowTarget(workflow_id="etl")},
    }.items():
        schedule = rig.create(uid, **changes)
        setattr(rig, uid.replace("-", "_"), schedule)
    for of, edit in ((rig.paused, edits.pause), (rig.gone, edits.delete)):
        assert store.commit_plans([edit(store.snapshot(of.uid), now=rig.world.now)]) == [True]
    for key in ("a", "b", "c"):
        rig.add(rig.crowd, key, payload={"n": 1}, overrides=Overrides(overlap_policy=overlap.Queue()))
    rig.add(rig.keyed, "a")
    rig.add(rig.keyed_too, "a")
    rig.add(rig.again, "a")
    rig.add(rig.later, "a")
    emit(rig, "before", n=1)
    live(rig, MINUTE, keep=("crowd", "keyed"))
    emit(rig, "left", n=1)
    for name, left in (("alive", False), ("gone", True), ("lost", False)):
        store.beat(Heartbeat(node=name, routes=(ROUTE,), capacity=9, lease=15 * SECOND), now=rig.world.now)
        if left:
            store.leave(name)
    for tenant in TENANTS:
        now = rig.world.now
        for number in range(2):
            note = AuditEntry(
                at=now, caller="ada", operation="schedule/create", schedule_id="schedule-of-one", uid="one"
            )
            store.add_audit_entries(tenant, [note])
            store.claim_key(tenant, f"key-{number}", "fingerprint", now=now, lifetime=MINUTE)
            secret = Secret(name=f"s{number}", hosts=("example.com",), sealed="sealed", created=now, updated=now)
            store.put_secret(tenant, secret, most=9)
            key_id = f"nm_live_{tenant[:4]}{number}"
            scopes = frozenset({Scope.READ})
            store.keep_api_key(
                ApiKey(key_id=key_id, digest="", tenant=tenant, user="ada", scopes=scopes, created=now), most=9
            )
            store.add_bundle_chunk(tenant, f"content-{number}", 0, b"zip")
            store.keep_bundle(
                Bundle(
                    tenant=tenant,
                    bundle_id=f"bundle-{number}",
                    digest="0f" * 32,
                    manifest={},
                    size=3,
                    files=1,
                    content_id=f"content-{number}",
                    user="ada",
                    source="rest",
                    created=now,
                    pushed=now,
                )
            )
            store.take_tokens(f"key {key_id}", RateLimit(10, SECOND, 5), 1)
    run_workflow(store, rig.flow, rig.world.now)
    spend(store)
    propose(store)
    store.own_key()
    rig.lead_once()
    store.close()
    return rig.world.now


def run_workflow(store, schedule, now):
    """Leave a workflow run that waits for an event, an approval and a child."""
    for tenant in TENANTS:
        for number in range(2):
            version = WorkflowVersion(
                tenant=tenant, workflow_id=f"etl-{number}", document={}, digest="", source="", created=now, user="ada"
            )
            store.put_workflow(version)
    assert store.add([factories.occurrence(schedule, manual("a"), nominal=now)]) == [True]
    [claim] = store.claim("alive", ["workflow"], now=now, until=now, limit=1, lease=15 * SECOND)
    [admitted] = store.admit([Start(claim=claim, takes_slot=True)], now=now, lease=15 * SECOND)
    occurrence = admitted.occurrence
    running = StepRecord(step_id="load", phase=StepPhase.RUNNING, attempt=1, started=now, is_external=True)
    writes = StepWrites(
        occurrence_id=occurrence.id,
        fence=occurrence.fence,
        run=WorkflowRun(occurrence_id=occurrence.id, workflow_id="etl", version=1, inputs={}, started=now),
        steps=[running, replace(running, step_id="ask"), replace(running, step_id="each", index=0)],
        waits=[EventWait(step_id="load", event_types=("seen", "paid"), filters={"n": 2})],
        approvals=[ApprovalRequest(approval_id="ok", step_id="ask", message="?", expires=now + 90 * SECOND)],
    )
    assert store.commit_steps([writes]) == [True]
    talk(store, occurrence, now)
    suspended = Suspended(
        started=now, ended=now, until=None, waiting_for=Reason.STEP_PENDING, open_steps=frozenset({("load", None)})
    )
    assert store.settle([settle(occurrence, claim.schedule, suspended, node="alive")]) == [True]


def talk(store, occurrence, now):
    """Leave sessions with messages, and mobs."""
    spec = SessionSpec(model="test", labels={"team": "a"})
    for tenant in TENANTS:
        for mob_id in ("news", "tests"):
            mob = Mob(tenant=tenant, mob_id=mob_id, user="ada", document={"members": []}, created=now, updated=now)
            session_id = member_session(mob_id, "writer")
            session = Session(tenant=tenant, session_id=session_id, user="ada", spec=spec, mob_id=mob_id)
            assert store.put_mob(mob, [session])
            turn = Turn(tenant=tenant, session_id=session_id, occurrence_id=occurrence.id, fence=occurrence.fence)
            said = [Message(role=role, parts=({"type": "text", "text": "hi"},)) for role in (Role.USER, Role.ASSISTANT)]
            assert store.begin_turn(turn, said) is not None


def spend(store):
    """Leave budgets, a call of each kind, a breaker, a halt of another tenant, and somebody who has signed in."""
    signed_in = PageSession(digest="d1", key_id="nm_live_ab12cd", created=1, used=2)
    store.add_page_session(signed_in, most=1, used_since=0, created_since=0)
    halt = Halt(halt_id="h1", tenant="elsewhere", at=1, by="ada", reason="a loop", labels={"team": "blue"})
    assert store.set_halt(halt, most=1) == 0
    for tenant in TENANTS:
        for scope, period in ((BudgetScope.USER, Period.DAY), (BudgetScope.TENANT, Period.TOTAL)):
            name = "ada" if scope is BudgetScope.USER else tenant
            limit = 10**9
            store.put_budget(Budget(tenant=tenant, scope=scope, scope_id=name, period=period, max_cost=limit))
        assert [type(one) for one in store.reserve([a_call(tenant, "open"), a_call(tenant, "done")])] == [Reserved] * 2
        assert store.settle_calls([Settled(call_id="done", tenant=tenant, usage=Usage(input_tokens=3, cost=7))])
        store.provider_failed(tenant, "ada")


def propose(store):
    """Leave a proposed schedule, and a proposed change of another one."""
    for tenant in TENANTS:
        for action, name in ((ProposedAction.CREATE, "proposed"), (ProposedAction.DELETE, "changed")):
            proposal = Proposal(
                proposal_id=f"{tenant}-{name}",
                action=action,
                uid=f"{tenant}-{name}",
                schedule_id=name,
                owner=Owner(tenant=tenant, user="ada"),
                document=factories.declaration().to_document(),
                base_revision=1,
                source="test",
                by="ada",
                proposed=NOW,
                expires=NOW + 1_000 * MINUTE,
                lineage=Lineage(depth=1, session_id="talk"),
            )
            note = AuditEntry(at=NOW, caller="ada", operation="schedule/create")
            assert store.put_proposal(proposal, most=9, note=note)


def a_call(tenant, call_id):
    return Reservation(
        call_id=call_id,
        tenant=tenant,
        user="ada",
        schedule_id="schedule-of-one",
        session_id="talk",
        occurrence_id="occ_1",
        fence=None,
        model="m",
        provider="p",
        most=Amount(tokens=9, cost=90),
    )


def emit(rig, name, **payload):
    for tenant in TENANTS:
        one = Event(event_type="seen", emitted=0, event_id=f"{tenant}-{name}", payload=payload)
        assert rig.store.store.emit(tenant, [one]) == [True]


@dataclass
class Told:
    """What was seen of a store while a node lived with it."""

    fires: Counter = field(default_factory=Counter)
    """By schedule; of one that events set off, only what the events after the damage set off."""
    failures: list = field(default_factory=list)
    """What still fails in the end."""
    lines: list = field(default_factory=list)


class Log(logging.Handler):
    def __init__(self, lines):
        super().__init__(logging.WARNING)
        self._lines = lines

    def emit(self, record):
        self._lines.append(record.getMessage())


@contextmanager
def listened(lines):
    logger, handler = logging.getLogger("noonmark"), Log(lines)
    before = logger.propagate
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = before


def live(rig, until, keep=()):
    """Let a node do its duties until a moment; gives what still failed at that moment."""
    failures = []
    end = rig.world.now + until
    while rig.world.now < end:
        rig.advance(STEP)
        failures = []
        duties = {"renew": rig.renew_once, "lead": rig.lead_once, "reap": rig.reap_once, "rewind": rig.rewind_once}
        _done(failures, duties)
        for _ in range(ROUNDS):
            # As a node does them: to match, to plan and to claim is one.
            look = {"look": lambda: [rig.match_once().matched, rig.plan_once().planned, rig.claim_once().claimed]}
            others = {"admit": rig.admit_once, "end": lambda: end_all(rig, keep), "settle": rig.settle_once}
            if not _done(failures, look | others):
                break
        _done(failures, {"prune": rig.prune_once})
    return failures


def _done(failures, duties):
    """Do some duties; whether they found anything to do."""
    done = []
    for name, duty in duties.items():
        try:
            answer = duty()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            failures.append(f"{name}: {error!r}")
        else:
            done += answer if isinstance(answer, list) else [getattr(answer, "settled", 0)]
    return any(done)


def end_all(rig, keep):
    given, rig.target.given = rig.target.given, []
    for one in given:
        name = one.schedule.uid
        if name in keep:
            rig.target.given.append(one)
        elif name == "again":
            rig.target.end(one, Outcome.FAILED, error="no")
        elif name == "later":
            one.is_closed = True
            now = rig.target.now()
            rig.target.report(one, Accepted(started=now, accepted=now, deadline=now + 90 * SECOND))
        else:
            rig.target.end(one)
            told = getattr(rig, "told", None)
            if told is not None and (
                one.occurrence.origin.startswith("event:") <= ("-after-" in one.occurrence.origin)
            ):
                told.fires[name] += 1


def watch(make_store, now):
    """Live with a store for a few minutes, and look at everything."""
    told = Told()
    rig = Rig(make_store=make_store, node="node-b", lease=15 * SECOND, keep_for=MINUTE, keep_count=2)
    rig.world.now, rig.told = now, told
    rig.__dict__["node"].store_clock.note(now)
    rig.__dict__["node"].must_rewind = True  # as after a clock was ahead: then times of every kind are looked at
    store = rig.store.store
    with listened(told.lines):
        store.open()
        try:
            for minute in range(MINUTES):
                try:
                    emit(rig, f"after-{minute}", n=1)
                except Exception as error:  # noqa: BLE001 - likewise
                    told.failures.append(f"emit: {error!r}")
                told.failures += live(rig, MINUTE) if minute == MINUTES - 1 else (live(rig, MINUTE) and [])
            told.failures += look(rig, store)
        finally:
            store.close()
    return told


SCHEDULES = (
    "one", "two", "three", "up", "down", "gated", "ears", "picky", "abroad", "alarm", "crowd", "keyed", "keyed-too",
    "again", "later", "paused", "over", "flow",
)  # fmt: skip


WITNESSES = ("two", "down", "crowd")
"""Those of which everything is looked at: in each case, at least one of them is not the damaged one."""


def look(rig, store):
    """Whatever does not work of what callers read; of each schedule by name, since its own record may be damaged."""
    asked = {
        "next_time": lambda: store.next_time([ROUTE]),
        "nodes": store.nodes,
        "backlog": lambda: store.backlog(rig.world.now, 100),
        "routes": lambda: store.routes("test"),
        "newest_time": store.newest_time,
        "due_since": lambda: store.due_since([ROUTE]),
        "run usage": lambda: store.run_usage("occ_1"),
        "costs": lambda: store.costs_of_runs("one", 9),
        "prune usage": lambda: store.prune_usage(before=NOW, limit=9),
        "planned_ahead": lambda: store.planned_ahead(now=rig.world.now, until=rig.world.now, after="", limit=2),
    }
    for tenant in TENANTS:
        asked |= {
            f"schedules {tenant}": lambda tenant=tenant: store.schedules(tenant, limit=100),
            f"events {tenant}": lambda tenant=tenant: store.events(tenant, 100),
            f"workflows {tenant}": lambda tenant=tenant: store.workflows(tenant, 9),
            f"workflow runs {tenant}": lambda tenant=tenant: store.workflow_runs(tenant, 9),
            f"approvals {tenant}": lambda tenant=tenant: store.approvals(tenant, 9),
            f"users {tenant}": lambda tenant=tenant: store.schedules_using(tenant, UsedKind.WORKFLOW, "etl", 9),
            f"sessions {tenant}": lambda tenant=tenant: store.sessions(tenant, 9),
            f"messages {tenant}": lambda tenant=tenant: store.messages(tenant, "mob:news:writer", 9),
            f"mobs {tenant}": lambda tenant=tenant: store.mobs(tenant, 9),
            f"proposals {tenant}": lambda tenant=tenant: store.proposals(tenant, 9),
            f"budgets {tenant}": lambda tenant=tenant: store.budgets(tenant, 9),
            f"usage {tenant}": lambda tenant=tenant: store.usage(
                tenant, UsageBy.DAY, since=0, until=rig.world.now, limit=9
            ),
            f"reserve {tenant}": lambda tenant=tenant: store.reserve(
                [a_call(tenant, "open"), a_call(tenant, "done"), a_call(tenant, "new")]
            ),
            f"settle {tenant}": lambda tenant=tenant: store.settle_calls(
                [Settled(call_id=one, tenant=tenant, usage=Usage(cost=1)) for one in ("open", "done")]
            ),
            f"notes {tenant}": lambda tenant=tenant: store.audit_entries(tenant, 100),
            f"secrets {tenant}": lambda tenant=tenant: store.secrets(tenant),
            f"find_secrets {tenant}": lambda tenant=tenant: store.find_secrets(tenant, ["s0", "s1"]),
            f"claim_key {tenant}": lambda tenant=tenant: store.claim_key(
                tenant, "key-0", "fingerprint", now=rig.world.now, lifetime=MINUTE
            ),
        }
    for name in SCHEDULES:
        tenant = "other" if name in ("three", "abroad") else "acme"
        asked[f"{name}: find"] = lambda name=name, tenant=tenant: store.find(tenant, f"schedule-of-{name}")
        if name in WITNESSES:
            asked |= {
                f"{name}: occurrences": lambda name=name: store.occurrences(name),
                f"{name}: runs": lambda name=name: store.runs(name),
                f"{name}: activities": lambda name=name: store.activities([name]),
                f"{name}: snapshot": lambda name=name: store.snapshot(name),
            }
    failures = []
    answers = {}
    for what, ask in asked.items():
        try:
            answers[what] = ask()
        except Exception as error:  # noqa: BLE001 - likewise
            failures.append(f"{what}: {error!r}")
    listed = {one.schedule.uid for tenant in TENANTS for one in answers.get(f"schedules {tenant}", ())}
    failures += [f"{name}: not listed" for name in SCHEDULES if name not in listed]
    failures += [f"{name}: not found" for name in SCHEDULES if answers.get(f"{name}: find", 1) is None]
    time = answers.get("next_time")
    if time is not None and not isinstance(time, int):
        failures.append(f"next_time: {time!r}")
    elif time is not None and time <= rig.world.now:
        failures.append("next_time: it finds something to do for ever")
    return failures


def judged(undamaged, told, *owners):
    """What is wrong with a store in which a cell of each of these schedules was damaged; None is nobody's."""
    affected = set().union(*(TOGETHER.get(owner, {owner}) for owner in owners))
    wrong = [
        f"{name} ran {told.fires[name]} times instead of {count}"
        for name, count in undamaged.fires.items()
        if name not in affected and told.fires[name] != count
    ]
    about = None if None in owners else re.compile(rf"({'|'.join(map(re.escape, affected))}): ")
    wrong += [one for one in told.failures if about is None or not about.match(one)]
    if len(told.lines) > LOUD:
        wrong.append(f"{len(told.lines)} lines in the log, such as {told.lines[-1]}")
    return wrong
