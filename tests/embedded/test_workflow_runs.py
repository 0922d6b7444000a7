"""Workflow runs on every store, at the time of a clock that the test moves: what starts, waits, is undone and kept."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from noonmark import IntervalTrigger, Scheduler
from noonmark.core.admission import MAX_LOSSES_OF_ENDS, admit
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase
from noonmark.core.planner import first_plan
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.settlement import Delivered, settle
from noonmark.core.workflows.run import Compensation, StepPhase
from noonmark.embedded.declarations import OWNER
from noonmark.testing import FakeClock, ManualDriver
from tests.workflow_store import put_workflow

START = datetime(2030, 3, 17, 12, 0, tzinfo=UTC)


class Rig:
    """A scheduler whose functions write down their calls, and fail as often as they are told to."""

    def __init__(self, url):
        self.clock = FakeClock(START)
        self.scheduler = Scheduler(url, clock=self.clock)
        self.driver = ManualDriver(self.scheduler)
        self.store = self.scheduler._store
        self.calls, self.failing, self.results = [], {}, {}

    def call(self, name, **kwargs):
        """The target that calls a function of that name."""

        def function(**given):
            self.calls.append((name, given) if given else name)
            if self.failing.get(name, 0) > 0:
                self.failing[name] -= 1
                raise ValueError(f"{name} failed")
            return self.results.get(name)

        self.scheduler.register_function(name, function)
        return {"target_kind": "function", "function": name, "kwargs": kwargs}

    def step(self, step_id, *after, **fields):
        kind = {} if {"wait", "approval", "target"} & set(fields) else {"target": self.call(step_id)}
        return {"id": step_id, "depends_on": list(after), **kind, **fields}

    def start(self, *steps, policies=None, inputs=None, **fields):
        """Store a workflow and start it once; returns its occurrence."""
        put_workflow(self.store, {"workflow_id": "w", "steps": list(steps), **fields})
        target = {"target_kind": "workflow", "workflow_id": "w", "inputs": inputs or {}}
        self.job = self.scheduler.schedule(target, name="w", **(policies or {}))
        self.driver.run_due()
        self.first = self.scheduler.occurrences(self.job)[-1].id
        return self.occurrence()

    def occurrence(self):
        return self.store.occurrence(self.first)

    def newest(self):
        """The occurrence that was asked for after the first one."""
        [newest] = [one for one in self.scheduler.occurrences(self.job) if one.id != self.first]
        return newest

    def pass_time(self, **duration):
        self.driver.run_until(self.clock.now() + timedelta(**duration))
        return self.occurrence()

    def phases(self):
        return {
            one.step_id if one.index is None else f"{one.step_id}[{one.index}]": str(one.phase)
            for one in self.store.workflow_run(self.occurrence().id)[1]
        }

    def decide(self, step_id, *, approved, comment=None):
        decided = self.store.decide_approval(
            OWNER.tenant, f"{self.occurrence().id}:{step_id}", approved=approved, by="ann", comment=comment
        )
        self.driver.run_due()
        return decided


@pytest.fixture
def rig(url):
    rig = Rig(url)
    yield rig
    rig.scheduler.close()


def test_a_run_completes_with_the_results_of_its_steps(rig):
    rig.results = {"extract": [1, 2], "load": "ok"}
    ended = rig.start(
        rig.step("extract"),
        rig.step("double", "extract", for_each="{{ steps.extract.result }}", input={"x": "{{ item }}"}),
        rig.step("load", "double", input={"day": "{{ inputs.day }}", "at": "{{ nominal_at }}"}),
        inputs={"day": "MON"},
    )
    assert (ended.phase, ended.attempt) == (Phase.COMPLETED, 1)
    assert rig.calls == [
        "extract", ("double", {"x": 1}), ("double", {"x": 2}), ("load", {"day": "MON", "at": "2030-03-17T12:00:00Z"}),
    ]  # fmt: skip
    [run] = rig.store.occurrence_runs(ended.id)
    assert run.result == {"extract": [1, 2], "double": [None, None], "load": "ok"}


def test_a_halted_run_undoes_its_steps_but_starts_no_occurrence_for_that(rig):
    put_workflow(rig.store, {"workflow_id": "refund", "steps": [rig.step("refunded")]})
    steps = (
        rig.step("a", compensate=rig.call("undo_a")),
        rig.step("b", "a", compensate={"target_kind": "workflow", "workflow_id": "refund"}),
        rig.step("c", "b", wait={"seconds": 3_600}),
    )
    waiting = rig.start(*steps, policies={"labels": {"team": "blue"}})
    assert waiting.reason is Reason.SUSPENDED
    halt = rig.scheduler.halt(labels={"team": "blue"}, reason="a loop")
    assert (halt.stopped, [one.halt_id for one in rig.scheduler.halts()]) == (1, [halt.halt_id])
    ended = rig.pass_time(seconds=60)
    assert (ended.phase, ended.reason) == (Phase.CANCELLED, Reason.HALTED)
    told = rig.scheduler.explain(rig.job)["summary"]
    assert "cancelled: it was halted by `embedded` at 2030-03-17T12:00:00Z (a loop)" in told
    assert rig.calls == ["a", "b", "undo_a"]
    assert rig.phases() == {"a": "compensated", "b": "completed", "c": "cancelled"}
    [b] = [one for one in rig.store.workflow_run(ended.id)[1] if one.step_id == "b"]
    assert b.compensation is Compensation.FAILED
    assert "ended as skipped/halted: It was halted by `embedded`" in b.error
    assert [one.halt_id for one in rig.scheduler.unhalt(labels={"team": "blue"})] == [halt.halt_id]
    assert rig.scheduler.halts() == []
    rig.scheduler.run_now(rig.job, wait=False)
    rig.driver.run_due()
    assert rig.newest().reason is Reason.SUSPENDED  # it waits in c again


def test_a_run_keeps_the_version_it_began_with(rig):
    rig.start(rig.step("a"), rig.step("wait", "a", wait={"seconds": 3_600}), rig.step("old", "wait"))
    put_workflow(rig.store, {"workflow_id": "w", "steps": [rig.step("new")]})
    assert rig.pass_time(hours=1).phase is Phase.COMPLETED
    assert rig.calls == ["a", "old"]
    rig.scheduler.run_now(rig.job, wait=False)
    rig.driver.run_due()
    assert rig.calls == ["a", "old", "new"]


def test_a_wait_of_days_gives_up_the_node_and_goes_on_in_time(rig):
    waiting = rig.start(rig.step("a"), rig.step("b", "a", wait={"seconds": 3 * 86_400}), rig.step("c", "b"))
    assert (waiting.phase, waiting.reason, waiting.waiting_for) == (
        Phase.PENDING, Reason.SUSPENDED, Reason.STEP_PENDING,
    )  # fmt: skip
    assert rig.pass_time(days=2.9).phase is Phase.PENDING
    ended = rig.pass_time(days=0.1)
    assert (ended.phase, ended.attempt, rig.calls) == (Phase.COMPLETED, 1, ["a", "c"])
    assert [str(run.outcome) for run in rig.store.occurrence_runs(ended.id)] == ["completed", "suspended"]


def test_an_event_that_matches_ends_a_wait_and_brings_its_payload(rig):
    rig.scheduler.emit("paid", {"id": 7, "sum": 1})  # too early
    rig.start(
        rig.step("a", wait={"event_type": "paid", "filters": {"id": "{{ inputs.id }}"}}),
        rig.step("b", "a", input={"sum": "{{ steps.a.result.payload.sum }}"}),
        inputs={"id": 7},
    )
    rig.scheduler.emit("paid", {"id": 8, "sum": 2})
    assert rig.pass_time(seconds=1).phase is Phase.PENDING
    rig.scheduler.emit("paid", {"id": 7, "sum": 3})
    assert rig.pass_time(seconds=1).phase is Phase.COMPLETED
    assert rig.calls == [("b", {"sum": 3})]


@pytest.mark.parametrize(
    ("approved", "phase", "steps"),
    [
        (True, Phase.COMPLETED, {"ask": "completed", "pay": "completed"}),
        (False, Phase.FAILED, {"ask": "failed", "pay": "cancelled"}),
    ],
)
def test_a_person_decides(rig, approved, phase, steps):
    waiting = rig.start(rig.step("ask", approval={"message": "Pay?"}), rig.step("pay", "ask"))
    assert (waiting.phase, waiting.waiting_for) == (Phase.PENDING, Reason.APPROVAL)
    [approval] = rig.store.approvals(OWNER.tenant, 10)
    assert (approval.message, str(approval.state)) == ("Pay?", "pending")
    rig.decide("ask", approved=approved, comment="too much")
    assert (rig.occurrence().phase, rig.phases()) == (phase, steps)
    if not approved:
        [run] = rig.store.occurrence_runs(waiting.id)[:1]
        assert run.error == "step 'ask' failed: denied by ann: too much"


def test_another_attempt_asks_again(rig):
    rig.start(rig.step("ask", approval={}), rig.step("pay", "ask"), policies={"retries": 1})
    rig.decide("ask", approved=False)
    assert rig.pass_time(hours=1).waiting_for is Reason.APPROVAL
    rig.decide("ask:2", approved=True)
    assert (rig.occurrence().phase, rig.calls) == (Phase.COMPLETED, ["pay"])
    assert [str(one.state) for one in rig.store.approvals(OWNER.tenant, 10)] == ["approved", "denied"]


def test_an_approval_without_a_decision_expires(rig):
    rig.start(rig.step("ask", approval={"expires_seconds": 3_600}), rig.step("pay", "ask"))
    assert rig.pass_time(hours=1).phase is Phase.FAILED
    assert rig.calls == []
    assert str(rig.decide("ask", approved=True).state) in {"expired", "cancelled"}
    assert rig.calls == []


# Failures, attempts, compensation


def test_a_step_is_tried_again_after_its_pause(rig):
    rig.failing = {"a": 2}
    waiting = rig.start(rig.step("a", retry={"max_attempts": 3, "backoff_seconds": 600}), rig.step("b", "a"))
    assert (waiting.phase, rig.phases()) == (Phase.PENDING, {"a": "pending"})
    ended = rig.pass_time(hours=1)
    assert (ended.phase, ended.attempt, rig.calls) == (Phase.COMPLETED, 1, ["a", "a", "a", "b"])


def test_another_attempt_of_the_occurrence_keeps_completed_steps_and_undoes_nothing(rig):
    rig.failing = {"b": 1}
    rig.start(rig.step("a", compensate=rig.call("undo")), rig.step("b", "a"), policies={"retries": 1})
    ended = rig.pass_time(hours=1)
    assert (ended.phase, ended.attempt, rig.calls) == (Phase.COMPLETED, 2, ["a", "b", "b"])
    assert rig.phases() == {"a": "completed", "b": "completed"}


def test_the_last_attempt_undoes_what_completed(rig):
    rig.failing, rig.results = {"c": 9}, {"a": 5}
    rig.start(
        rig.step("a", compensate=rig.call("undo_a", id="{{ steps.a.result }}")),
        rig.step("b", "a", compensate=rig.call("undo_b")),
        rig.step("c", "b"),
        policies={"retries": 1},
    )
    ended = rig.pass_time(hours=1)
    assert ended.phase is Phase.FAILED
    assert rig.calls == ["a", "b", "c", "c", "undo_b", ("undo_a", {"id": 5})]
    assert rig.phases() == {"a": "compensated", "b": "compensated", "c": "failed"}


@pytest.mark.parametrize("is_undone", [False, True])
def test_a_redrive_keeps_completed_steps_unless_they_were_undone(rig, is_undone):
    rig.failing = {"b": 1}
    undo = {"compensate": rig.call("undo")} if is_undone else {}
    failed = rig.start(rig.step("a", **undo), rig.step("b", "a"))
    assert failed.phase is Phase.FAILED
    rig.calls.clear()
    rig.scheduler.redrive(failed.id)
    rig.driver.run_due()
    assert rig.newest().phase is Phase.COMPLETED
    assert rig.calls == (["a", "b"] if is_undone else ["b"])


def test_a_result_that_is_too_large_fails_its_step(rig):
    rig.results = {"a": "x" * 65_536}
    ended = rig.start(rig.step("a"))
    assert ended.phase is Phase.FAILED
    [record] = rig.store.workflow_run(ended.id)[1]
    assert "65,538 bytes" in record.error


def test_inputs_that_do_not_fit_fail_the_run_and_are_not_tried_again(rig):
    assert rig.start(rig.step("a"), inputs={"y": 1}, policies={"retries": 3}).phase is Phase.COMPLETED
    put_workflow(rig.store, {"workflow_id": "w", "inputs": {"x": {}}, "steps": [rig.step("a")]})
    rig.scheduler.run_now(rig.job, wait=False)
    rig.driver.run_due()
    assert (rig.newest().phase, rig.newest().attempt) == (Phase.DELIVERY_FAILED, 1)
    assert "x" in rig.store.occurrence_runs(rig.newest().id)[0].error


def test_a_workflow_that_does_not_exist_is_a_missing_target(rig):
    job = rig.scheduler.schedule({"target_kind": "workflow", "workflow_id": "nope"})
    rig.driver.run_due()
    [missing] = rig.scheduler.occurrences(job)
    assert (missing.phase, missing.reason) == (Phase.MISFIRED, Reason.TARGET_MISSING)


# Stops


def test_a_suspended_run_that_is_cancelled_is_undone(rig):
    waiting = rig.start(
        rig.step("a", compensate=rig.call("undo")), rig.step("b", "a", wait={"seconds": 86_400}), rig.step("c", "b")
    )
    assert rig.store.cancel(waiting.id)
    rig.driver.run_due()
    ended = rig.occurrence()
    assert (ended.phase, ended.reason, rig.calls) == (Phase.CANCELLED, Reason.CANCELLED, ["a", "undo"])
    assert rig.phases() == {"a": "compensated", "b": "cancelled", "c": "cancelled"}


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_run_that_is_cancelled_between_its_attempts_is_undone(rig, is_deleted):
    rig.failing = {"b": 1}
    waiting = rig.start(rig.step("a", compensate=rig.call("undo")), rig.step("b", "a"), policies={"retries": 1})
    assert (waiting.phase, waiting.reason) == (Phase.PENDING, Reason.RETRY_SCHEDULED)
    if is_deleted:
        rig.scheduler.delete(rig.job)
    else:
        rig.scheduler.pause(rig.job)
        assert rig.store.cancel(waiting.id)
    rig.driver.run_due()
    assert (rig.occurrence().phase, rig.calls) == (Phase.CANCELLED, ["a", "b", "undo"])
    assert rig.phases() == {"a": "compensated", "b": "cancelled"}


def test_a_timeout_counts_from_the_first_start_and_undoes(rig):
    rig.start(
        rig.step("a", compensate=rig.call("undo")),
        rig.step("b", "a", wait={"seconds": 86_400}),
        policies={"timeout": 3_600},
    )
    assert rig.pass_time(minutes=59).phase is Phase.PENDING
    assert rig.pass_time(minutes=1).phase is Phase.TIMED_OUT
    assert rig.calls == ["a", "undo"]


@pytest.mark.parametrize(
    ("action", "phase", "calls"),
    [("cancel", Phase.CANCELLED, ["a"]), ("pause", Phase.PENDING, ["a"]), ("none", Phase.COMPLETED, ["a", "c"])],
)
def test_a_window_that_closes(rig, action, phase, calls):
    put_workflow(
        rig.store,
        {"workflow_id": "w", "steps": [rig.step("a"), rig.step("b", "a", wait={"seconds": 120}), rig.step("c", "b")]},
    )
    target = {"target_kind": "workflow", "workflow_id": "w"}
    hourly = IntervalTrigger(3_600, start_at=START)
    window = {"duration_seconds": 60, "end_action": action}
    rig.job = rig.scheduler.schedule(target, name="w", trigger=hourly, window=window)
    rig.driver.run_due()
    rig.first = rig.scheduler.occurrences(rig.job)[-1].id
    rig.driver.run_until(START + timedelta(minutes=10))
    assert (rig.occurrence().phase, rig.calls) == (phase, calls)
    if action == "pause":
        rig.driver.run_until(START + timedelta(hours=1, seconds=1))
        assert rig.occurrence().phase is Phase.COMPLETED
        assert rig.calls[:2] == ["a", "c"]


def test_a_pause_of_the_schedule_does_not_hold_a_run_that_waits(rig):
    rig.start(rig.step("a"), rig.step("b", "a", wait={"seconds": 60}), rig.step("c", "b"))
    rig.scheduler.pause(rig.job)
    assert rig.pass_time(minutes=1).phase is Phase.COMPLETED


# Steps that are occurrences of their own


def test_a_step_may_be_another_workflow(rig):
    rig.results = {"inner": 7}
    put_workflow(rig.store, {"workflow_id": "sub", "steps": [rig.step("inner", input={"n": "{{ inputs.n }}"})]})
    ended = rig.start(
        rig.step("a", target={"target_kind": "workflow", "workflow_id": "sub"}, input={"n": 3}),
        rig.step("b", "a", input={"all": "{{ steps.a.result }}"}),
    )
    assert ended.phase is Phase.COMPLETED
    assert rig.calls == [("inner", {"n": 3}), ("b", {"all": {"inner": 7}})]
    assert [job.name for job in rig.scheduler.list_jobs()] == ["w"]


def test_the_failure_of_an_inner_workflow_fails_the_step_and_is_undone(rig):
    rig.failing = {"inner": 1}
    put_workflow(rig.store, {"workflow_id": "sub", "steps": [rig.step("inner")]})
    put_workflow(rig.store, {"workflow_id": "undo", "steps": [rig.step("undone")]})
    ended = rig.start(
        rig.step("a", compensate={"target_kind": "workflow", "workflow_id": "undo"}),
        rig.step("b", "a", target={"target_kind": "workflow", "workflow_id": "sub"}),
    )
    assert (ended.phase, rig.phases()) == (Phase.FAILED, {"a": "compensated", "b": "failed"})
    assert rig.calls == ["a", "inner", "undone"]
    assert "ValueError: inner failed" in rig.store.occurrence_runs(ended.id)[0].error


def test_a_step_elsewhere_is_tried_again_and_so_is_what_undoes_it(rig):
    rig.failing = {"inner": 2, "undone": 2, "c": 1}
    put_workflow(rig.store, {"workflow_id": "sub", "steps": [rig.step("kept"), rig.step("inner", "kept")]})
    put_workflow(rig.store, {"workflow_id": "undo", "steps": [rig.step("undone")]})
    rig.start(
        rig.step(
            "a",
            target={"target_kind": "workflow", "workflow_id": "sub"},
            retry={"max_attempts": 3},
            compensate={"target_kind": "workflow", "workflow_id": "undo"},
        ),
        rig.step("c", "a"),
    )
    assert rig.pass_time(hours=1).phase is Phase.FAILED
    assert rig.calls == ["kept", *["inner"] * 3, "c", *["undone"] * 3]
    [record] = [one for one in rig.store.workflow_run(rig.first)[1] if one.step_id == "a"]
    assert (record.phase, record.attempt) == (StepPhase.COMPENSATED, 3)


def test_what_is_being_undone_is_undone_although_attempts_were_added_meanwhile(rig):
    rig.failing = {"b": 1, "undo": 1}
    undone_later = {"max_attempts": 1, "backoff_seconds": 60}
    waiting = rig.start(rig.step("a", compensate=rig.call("undo"), retry=undone_later), rig.step("b", "a"))
    assert (waiting.phase, rig.calls) == (Phase.PENDING, ["a", "b", "undo"])
    rig.scheduler.update(rig.job, retries=2)
    ended = rig.pass_time(hours=1)
    assert (ended.phase, ended.attempt) == (Phase.COMPLETED, 2)
    assert rig.calls == ["a", "b", "undo", "undo", "a", "b"], "undone first, and begun anew then"


def test_another_attempt_of_the_occurrence_runs_a_step_elsewhere_again(rig):
    rig.failing = {"inner": 1}
    put_workflow(rig.store, {"workflow_id": "sub", "steps": [rig.step("inner")]})
    rig.start(rig.step("a", target={"target_kind": "workflow", "workflow_id": "sub"}), policies={"retries": 1})
    ended = rig.pass_time(hours=1)
    assert (ended.phase, ended.attempt, rig.calls) == (Phase.COMPLETED, 2, ["inner", "inner"])


def test_the_results_of_an_inner_workflow_that_are_too_large_fail_the_step(rig):
    rig.results = {"one": "x" * 40_000, "two": "x" * 40_000}
    put_workflow(rig.store, {"workflow_id": "sub", "steps": [rig.step("one"), rig.step("two")]})
    ended = rig.start(rig.step("a", target={"target_kind": "workflow", "workflow_id": "sub"}))
    [record] = rig.store.workflow_run(ended.id)[1]
    assert (ended.phase, record.phase, record.result) == (Phase.FAILED, StepPhase.FAILED, None)
    assert "at most 65,536" in record.error
    assert rig.store.occurrence(record.child).phase is Phase.COMPLETED


def test_callers_pass_no_inputs_to_a_workflow_of_a_program_that_declares_none(rig):
    target = {"target_kind": "workflow", "workflow_id": "sub", "inputs": {"x": 1}}
    put_workflow(rig.store, {"workflow_id": "sub", "steps": [rig.step("inner", input={"x": "{{ inputs.x }}"})]})
    put_workflow(rig.store, {"workflow_id": "outer", "steps": [{"id": "a", "target": target}]}, source="rest")
    nested = rig.scheduler.schedule({"target_kind": "workflow", "workflow_id": "outer"})
    own = rig.store.find(OWNER.tenant, rig.scheduler.schedule(target)).schedule
    called = replace(own, uid="called", schedule_id="called", source="rest")
    rig.store.create([first_plan(called, lookahead=0)])
    rig.driver.run_due()
    assert rig.calls == [("inner", {"x": 1})]
    for schedule_id in (nested, "called"):
        [refused] = rig.scheduler.occurrences(schedule_id)
        assert "takes none from callers" in rig.store.occurrence_runs(refused.id)[0].error


def test_a_workflow_that_starts_itself_ends(rig):
    ended = rig.start(rig.step("again", target={"target_kind": "workflow", "workflow_id": "w"}))
    assert ended.phase is Phase.FAILED
    assert "more than 8 levels deep" in rig.store.occurrence_runs(ended.id)[0].error


def test_an_inner_workflow_is_cancelled_with_its_run(rig):
    put_workflow(
        rig.store,
        {
            "workflow_id": "sub",
            "steps": [
                rig.step("inner", compensate=rig.call("undo")),
                rig.step("wait", "inner", wait={"seconds": 9_999}),
            ],
        },
    )
    waiting = rig.start(
        rig.step("first", compensate=rig.call("undo first")),
        rig.step("a", "first", target={"target_kind": "workflow", "workflow_id": "sub"}),
    )
    assert waiting.waiting_for is Reason.STEP_PENDING
    rig.store.cancel(waiting.id)
    rig.driver.run_due()
    assert rig.occurrence().phase is Phase.CANCELLED
    assert rig.calls == ["first", "inner", "undo", "undo first"], "the inner one is undone before the outer one"
    [record] = [one for one in rig.store.workflow_run(waiting.id)[1] if one.step_id == "a"]
    assert (record.phase, rig.store.occurrence(record.child).phase) == (StepPhase.CANCELLED, Phase.CANCELLED)
    assert (record.compensation, record.error.partition(" ended as ")[2][:20]) == (None, "cancelled/cancelled:")


def test_an_outer_run_waits_for_what_undoes_the_inner_one(rig):
    undo = {"target_kind": "command", "argv": ["undo"]}
    put_workflow(
        rig.store,
        {
            "workflow_id": "sub",
            "steps": [rig.step("inner", compensate=undo), rig.step("wait", "inner", wait={"seconds": 9_999})],
        },
    )
    waiting = rig.start(rig.step("a", target={"target_kind": "workflow", "workflow_id": "sub"}))
    rig.store.cancel(waiting.id)
    rig.driver.run_due()
    assert rig.occurrence().phase is Phase.PENDING, "no node runs what undoes the inner step"
    [record] = rig.store.workflow_run(waiting.id)[1]
    assert (record.phase, record.compensation) == (StepPhase.CANCELLED, Compensation.ELSEWHERE)
    assert rig.store.workflow_run(waiting.id)[0].closing["outcome"] == "cancelled"
    claims = len(rig.store.occurrence_runs(waiting.id))
    rig.driver.run_due()
    assert len(rig.store.occurrence_runs(waiting.id)) == claims, "it is not resumed in vain"
    assert rig.pass_time(minutes=10).phase is Phase.CANCELLED
    [record] = rig.store.workflow_run(waiting.id)[1]
    assert (record.phase, record.compensation) == (StepPhase.CANCELLED, None)
    assert "could not be undone: 'inner'" in record.error


def lose(rig, *, at_once=False):
    """Let a node that is never heard of again take the run up, and its lease run out; or let it stop."""
    now = rig.store.clock()
    claims = rig.store.claim("gone", ["workflow"], now=now, until=now, limit=9, lease=SECOND)
    [claim] = [one for one in claims if one.occurrence.id == rig.first]
    admitted = admit(claim, now=now, lease=SECOND)
    [started] = rig.store.admit([admitted], now=now, lease=SECOND)
    if at_once:
        given_up = Delivered(outcome=Outcome.LEASE_LOST, started=now, ended=now)
        assert rig.store.settle([settle(started.occurrence, claim.schedule, given_up, node="gone")]) == [True]
    else:
        rig.clock.advance(1)


@pytest.mark.parametrize(
    ("policies", "losses", "reason"),
    [
        ({"delivery": "at_most_once"}, [False], Reason.OUTCOME_UNKNOWN),
        ({"delivery": "at_most_once", "retries": 3}, [True], Reason.OUTCOME_UNKNOWN),
        ({}, [False] * 6, Reason.POISON),
    ],
    ids=["at most once", "handed back", "poison"],
)
def test_a_run_whose_node_is_lost_permanently_is_undone(rig, policies, losses, reason):
    rig.start(
        rig.step("a", compensate=rig.call("undo")),
        rig.step("wait", "a", wait={"seconds": 60}),
        rig.step("b", "wait"),
        policies=policies,
    )
    rig.clock.advance(61)
    for at_once in losses:
        lose(rig, at_once=at_once)
    rig.driver.run_due()
    ended = rig.occurrence()
    assert (ended.phase, ended.reason, rig.calls) == (Phase.DELIVERY_FAILED, reason, ["a", "undo"])
    assert rig.phases() == {"a": "compensated", "wait": "cancelled", "b": "cancelled"}


def test_a_run_that_is_lost_too_often_while_it_is_undone_is_given_up(rig):
    rig.start(rig.step("a", compensate=rig.call("undo")), rig.step("wait", "a", wait={"seconds": 60}))
    rig.clock.advance(61)
    for _ in range(MAX_LOSSES_OF_ENDS + 1):
        lose(rig)
    rig.driver.run_due()
    assert (rig.occurrence().phase, rig.occurrence().reason) == (Phase.DELIVERY_FAILED, Reason.POISON)
    assert rig.calls == ["a"]


def test_a_run_that_fails_after_its_schedule_was_deleted_is_undone(rig):
    rig.start(
        rig.step("a", compensate=rig.call("undo")),
        rig.step("wait", "a", wait={"seconds": 60}),
        rig.step("b", "wait"),
        policies={"retries": 2},
    )
    rig.failing["b"] = 1
    rig.scheduler.delete(rig.job)
    ended = rig.pass_time(minutes=5)
    assert (ended.phase, ended.reason, rig.calls) == (Phase.CANCELLED, Reason.DELETED, ["a", "b", "undo"])


def test_a_step_elsewhere_ends_with_the_window_of_its_run_and_what_undoes_does_not(rig):
    nobody = {"target_kind": "command", "argv": ["true"]}
    waiting = rig.start(
        rig.step("a", compensate=nobody),
        rig.step("b", "a", target=nobody),
        policies={"window": {"duration_seconds": 30, "end_action": "cancel"}},
    )
    child = rig.store.occurrence(rig.store.workflow_run(waiting.id)[1][1].child)
    closes = child.overrides.window.closes_at(child.first_due)
    assert closes == waiting.first_due + 30 * SECOND
    rig.pass_time(seconds=31)
    assert rig.store.occurrence(child.id).phase in (Phase.SKIPPED, Phase.CANCELLED)
    undoes = rig.store.occurrence(rig.store.workflow_run(waiting.id)[1][0].child)
    assert undoes.overrides.window is None


def test_a_step_that_no_node_serves_waits_for_one_and_is_missed(rig):
    waiting = rig.start(rig.step("a", target={"target_kind": "command", "argv": ["true"]}))
    assert waiting.waiting_for is Reason.STEP_PENDING
    assert rig.pass_time(minutes=10).phase is Phase.FAILED
    assert "target_missing" in rig.store.occurrence_runs(waiting.id)[0].error
