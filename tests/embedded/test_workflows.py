"""Workflows in a Python program: declared, run, waited for, and read."""

import asyncio
import threading
from datetime import timedelta

import pytest

from noonmark import (
    AsyncScheduler,
    Conflict,
    InvalidRequest,
    InvalidWorkflow,
    KeyReused,
    NotFound,
    RunFailed,
    Scheduler,
    step,
    workflow,
)
from noonmark.core.schedule import TRUSTED
from noonmark.testing import FakeClock, ManualDriver
from tests.embedded.conftest import START
from tests.embedded.waiting import NEVER, SOON, Gate, ended, eventually


def rows(day: str, count: int = 3):
    return [f"{day}{number}" for number in range(count)]


@step(for_each=rows, concurrency=2)
def double(item):
    return 2 * item


async def join(double, day):
    return day + "".join(double)


@step(after=rows)
def fail(day):
    raise KeyError("missing")


STEPS = [rows, double, join]
RESULTS = {"rows": ["a0", "a1"], "double": ["a0a0", "a1a1"], "join": "aa0a0a1a1"}
SLEEP = {"workflow_id": "sleepy", "steps": [{"id": "wait", "wait": {"seconds": 3600}}]}


UNDONE = []


def undo(extract):
    UNDONE.append(extract)


@workflow("etl")
class Etl:
    """The functions of a class, found again by its name."""

    @step(compensate=undo)
    def extract(day):  # noqa: N805 - a step has no object
        return {"day": day}

    def load(extract, broken=False):  # noqa: N805, FBT002
        if broken:
            raise OSError("disk full")
        return extract["day"].upper()


@pytest.fixture(params=["not started", "started"])
def either(request, keeper):
    """A scheduler on each kind of store, started or not."""
    if request.param == "started":
        keeper.start()
    return keeper


class TestRunning:
    def test_the_results_are_given_by_step(self, either):
        workflow = either.workflow("letters", steps=STEPS)
        assert (workflow.workflow_id, workflow.version, workflow.definition["workflow_id"]) == ("letters", 1, "letters")
        assert workflow.run(day="a", count=2) == RESULTS
        assert either.run_workflow("letters", {"day": "a", "count": 2}) == RESULTS
        [first, second] = either.workflow_runs("letters")
        assert (str(first.phase), second.inputs) == ("completed", {"day": "a", "count": 2})

    def test_a_run_can_be_read(self, either):
        run = either.workflow_run(either.workflow("letters", steps=STEPS).start(day="a", count=2))
        assert (run.workflow_id, run.version, run.inputs["day"]) == ("letters", 1, "a")
        either.start()
        run = eventually(lambda: (read := either.workflow_run(run.id)).ended and read)
        assert (str(run.phase), run.result, run.error) == ("completed", RESULTS, None)
        assert [(one.step_id, one.index) for one in run.steps] == [
            *(("rows", None), ("double", None), ("double", 0), ("double", 1), ("join", None))
        ]
        assert (run.step("join").result, str(run.step("rows").phase), run.step("rows").attempt) == (
            *("aa0a0a1a1", "completed"),
            1,
        )
        assert run.step("rows").started <= run.step("rows").ended <= run.step("join").started
        with pytest.raises(KeyError):
            run.step("other")
        assert "completed" in repr(run)
        assert "join" in repr(run.steps[-1])

    def test_documents_take_functions_programs_and_events(self, either):
        definition = {
            "workflow_id": "mixed",
            "inputs": {"day": "monday"},
            "steps": [
                {"id": "rows", "target": rows, "input": {"day": "{{ inputs.day }}", "count": 1}},
                {
                    "id": "upper",
                    "target": {"target_kind": "command", "argv": ["cat"]},
                    "input": {"row": "{{ steps.rows.result }}"},
                    "depends_on": ["rows"],
                },
                {
                    "id": "tell",
                    "target": {"target_kind": "event", "event_type": "told"},
                    "input": {"text": "{{ steps.upper.result.output }}"},
                    "depends_on": ["upper"],
                },
            ],
        }
        assert [either.create_workflow(definition), either.create_workflow(definition)] == [1, 1]
        results = either.run_workflow("mixed")
        assert (results["rows"], results["upper"]["output"]) == (["monday0"], '{"row": ["monday0"]}')
        [event] = either.events("told")
        assert event.payload == {"text": '{"row": ["monday0"]}'}
        [stored] = either.workflows()
        assert (stored.workflow_id, stored.version, stored.source) == ("mixed", 1, TRUSTED)
        assert stored.document["steps"][0]["target"]["function"] == f"{__name__}:rows"

    def test_a_workflow_runs_another_one(self, either):
        either.workflow("letters", steps=STEPS)
        inner = {"target_kind": "workflow", "workflow_id": "letters", "inputs": {"day": "a", "count": 2}}
        middle = {"target_kind": "workflow", "workflow_id": "middle"}
        either.create_workflow({"workflow_id": "middle", "steps": [{"id": "inner", "target": inner}]})
        either.create_workflow({"workflow_id": "outer", "steps": [{"id": "middle", "target": middle}]})
        assert either.run_workflow("outer") == {"middle": {"inner": RESULTS}}

    def test_a_key_stands_for_one_run(self, either):
        counted = []
        either.register_function("count", lambda: counted.append(1))
        either.create_workflow(
            {"workflow_id": "once", "steps": [{"id": "a", "target": {"target_kind": "function", "function": "count"}}]}
        )
        run_id = either.run_workflow("once", wait=False, key="monday")
        assert either.run_workflow("once", key="monday") == {"a": None}
        assert either.run_workflow("once", wait=False, key="monday") == run_id
        assert counted == [1]
        with pytest.raises(KeyReused):
            either.run_workflow("once", {"x": 1}, key="monday")

    def test_a_schedule_with_inputs_that_do_not_fit_is_refused(self, keeper):
        workflow = keeper.workflow("letters", steps=STEPS)
        refused = {"inputs.day: is required": None, "there is no such input": {"day": "a", "dya": "b"}}
        for problem, inputs in refused.items():
            with pytest.raises(InvalidRequest, match=problem):
                workflow.schedule(trigger=NEVER, inputs=inputs)
        assert keeper.list_jobs() == []

    def test_a_schedule_runs_it(self, keeper):
        workflow = keeper.workflow("letters", steps=STEPS)
        job = workflow.schedule(trigger=NEVER, inputs={"day": "a", "count": 2}, timeout=60)
        again = workflow.schedule(trigger=NEVER, inputs={"day": "a", "count": 2}, timeout=60)
        assert (again, keeper.get_job(job).name) == (job, "letters")
        assert keeper.run_now(job) == RESULTS
        with keeper:
            other = keeper.schedule({"target_kind": "workflow", "workflow_id": "letters", "inputs": {"day": "b"}})
            assert ended(keeper, other) == ["completed"]
        with pytest.raises(Conflict, match="schedules name this workflow"):
            keeper.delete_workflow("letters")
        keeper.delete(job)
        keeper.delete(other)
        keeper.delete_workflow("letters")
        assert keeper.workflows() == []
        with pytest.raises(NotFound, match="there is no workflow 'letters'"):
            keeper.run_workflow("letters")


class TestWaiting:
    def test_somebody_decides(self, either):
        workflow = either.workflow(
            "publish",
            steps=[
                rows,
                {"id": "ask", "approval": {"message": "Publish {{ steps.rows.result }}?"}, "depends_on": ["rows"]},
            ],
        )
        for decide, by in ((either.approve, "alice"), (either.deny, "bob")):
            waiting = Caller(lambda: workflow.run(day="a", count=1))
            [approval] = eventually(either.approvals)
            assert approval.message == 'Publish ["a0"]?'
            run = eventually(lambda: (read := either.workflow_run(approval.occurrence_id)).waiting_for and read)  # noqa: B023
            assert (run.waiting_for, run.step("ask").approval_id) == ("approval", approval.approval_id)
            decide(approval.approval_id, "so be it", by=by)
            outcome = waiting.outcome()
            if by == "alice":
                assert outcome["ask"] == {"approved": True, "by": "alice", "comment": "so be it"}
            else:
                assert (type(outcome), outcome.step_id) == (RunFailed, "ask")
                assert "denied by bob" in str(outcome)
        with pytest.raises(Conflict, match="denied already"):
            either.approve(approval.approval_id)

    def test_an_event_comes(self, either):
        wait = {"event_type": "paid", "filters": {"order": "{{ inputs.order }}"}}
        either.create_workflow({"workflow_id": "order", "steps": [{"id": "paid", "wait": wait}]})
        waiting = Caller(lambda: either.run_workflow("order", {"order": 7}))
        eventually(lambda: [run for run in either.workflow_runs("order") if run.waiting_for])
        either.emit("paid", {"order": 6})
        either.emit("paid", {"order": 7})
        assert waiting.outcome()["paid"]["payload"] == {"order": 7}

    def test_it_is_cancelled(self, either):
        either.create_workflow(SLEEP)
        waiting = Caller(lambda: either.run_workflow("sleepy"))
        [run] = eventually(lambda: [run for run in either.workflow_runs("sleepy") if run.waiting_for])
        either.cancel_workflow_run(run.id)
        assert f"run {run.id} of workflow 'sleepy' ended as cancelled" in str(waiting.outcome())
        assert str(either.workflow_run(run.id).step("wait").phase) == "cancelled"

    def test_the_scheduler_is_stopped_and_another_one_goes_on(self, open_on_file):
        first, gate = open_on_file(), Gate()
        first.register_function("gate", gate)
        workflow = first.workflow("gated", steps=[rows, step(after=rows)(gate_of(gate))])
        first.start()
        waiting = Caller(lambda: workflow.run(day="a"))
        gate.wait()
        first.stop(wait=False)
        gate.opened.set()
        assert isinstance(waiting.outcome(), Conflict)
        [run] = first.workflow_runs("gated")
        second = open_on_file()
        second.register_function("gate", lambda: "second")
        second.start()
        run = eventually(lambda: (read := second.workflow_run(run.id)).ended and read)
        assert (run.step("rows").attempt, run.step("gate").result) == (1, "second")


class TestFailures:
    def test_the_step_is_named_and_the_exception_is_the_cause(self, either):
        workflow = either.workflow("broken", steps=[rows, fail])
        with pytest.raises(RunFailed, match=r"step 'fail' failed: KeyError: 'missing' \(run occ_") as raised:
            workflow.run(day="a", count=1)
        assert (raised.value.step_id, raised.value.result) == ("fail", {"rows": ["a0"]})
        assert isinstance(raised.value.__cause__, KeyError)
        [run] = either.workflow_runs("broken")
        assert str(run.phase) == "failed"
        with pytest.raises(RunFailed, match=r"\(step 'fail' failed: KeyError: 'missing'\)"):
            either.run_now(workflow.schedule(trigger=NEVER, inputs={"day": "a"}))

    def test_an_element_is_named(self, keeper):
        @step(for_each=[1, 0])
        def divide(item):
            return 1 // item

        keeper.register_function("divide", divide)
        with pytest.raises(RunFailed, match=r"step 'divide', element 1, failed: ZeroDivisionError"):
            keeper.workflow("divided", steps=[divide]).run()

    def test_what_completed_is_undone(self, keeper):
        UNDONE.clear()
        workflow = keeper.workflow(Etl)
        assert workflow.run(day="a") == {"extract": {"day": "a"}, "load": "A"}
        with pytest.raises(RunFailed, match="disk full"):
            workflow.run(day="b", broken=True)
        assert UNDONE == [{"day": "b"}]

    def test_an_event_that_undoes_one_is_an_event_of_its_own(self, keeper):
        book = {"target_kind": "event", "event_type": "booked"}
        undo = {"target_kind": "event", "event_type": "cancelled"}
        break_off = {"target_kind": "function", "function": "fail"}
        keeper.register_function("fail", fail)
        steps = [{"id": "book", "target": book, "compensate": undo}, {"id": "stop", "target": break_off}]
        steps[1]["depends_on"] = ["book"]
        keeper.create_workflow({"workflow_id": "trip", "steps": steps})
        with pytest.raises(RunFailed):
            keeper.run_workflow("trip")
        assert [event.event_type for event in keeper.events()] == ["cancelled", "booked"]

    def test_a_step_that_nobody_can_do_is_refused_where_nothing_is_started(self, keeper):
        target = {"target_kind": "function", "function": "elsewhere"}
        keeper.create_workflow({"workflow_id": "far", "steps": [{"id": "a", "target": target}]})
        with pytest.raises(Conflict, match="function:elsewhere cannot be run here"):
            keeper.run_workflow("far")
        assert keeper.workflow_runs() == []

    @pytest.mark.parametrize(
        ("inputs", "field"), [({}, "inputs.day"), ({"day": 5}, "inputs.day"), ({"day": "a", "x": 1}, "inputs.x")]
    )
    def test_inputs_that_do_not_fit(self, keeper, inputs, field):
        workflow = keeper.workflow("letters", steps=STEPS)
        with pytest.raises(InvalidRequest) as refused:
            workflow.run(**inputs)
        assert refused.value.field == field

    def test_an_unknown_run(self, keeper):
        for call in (keeper.workflow_run, keeper.cancel_workflow_run):
            with pytest.raises(NotFound):
                call("occ_0")


class TestDeclaring:
    def test_nothing_is_opened_before_it_is_needed(self, tmp_path):
        scheduler = Scheduler(tmp_path / "none" / "jobs.db")
        workflow = scheduler.workflow("letters", steps=STEPS)
        with pytest.raises(InvalidWorkflow, match='there is no step "other"'):
            scheduler.workflow("wrong", steps=[{"id": "a", "wait": {"seconds": 1}, "depends_on": ["other"]}])
        assert workflow.definition["steps"][0]["id"] == "rows"
        (tmp_path / "none").mkdir()
        assert workflow.version == 1
        scheduler.close()

    def test_a_program_that_starts_again_finds_its_version(self, open_on_file):
        assert [open_on_file().workflow("letters", steps=STEPS).version for _ in range(2)] == [1, 1]
        changed = open_on_file().workflow("letters", steps=[*STEPS, fail])
        assert changed.version == 2
        assert open_on_file().run_workflow("letters", {"day": "a", "count": 2}, version=1) == RESULTS

    def test_a_decorated_class_is_the_workflow(self):
        @Scheduler().workflow(description="Twice")
        class Local:
            def first(number: int):  # noqa: N805
                return number

            def second(first):  # noqa: N805
                return 2 * first

        assert (Local.workflow_id, Local.definition["description"], Local.second(4)) == ("Local", "Twice", 8)
        assert "Local" in repr(Local)
        with pytest.raises(AttributeError):
            Local.other  # noqa: B018 - read for its error
        assert Local.run(number=3) == {"first": 3, "second": 6}

    def test_the_functions_of_a_class_are_found_by_its_name(self, open_on_file):
        scheduler = open_on_file()
        workflow = scheduler.workflow(Etl)
        functions = [one["target"]["function"] for one in workflow.definition["steps"]]
        assert functions == [f"{__name__}:Etl.extract", f"{__name__}:Etl.load"]
        assert workflow.run(day="a")["load"] == "A"

    def test_a_function_that_no_other_process_finds_is_refused_on_a_file(self, open_on_file):
        with pytest.raises(ValueError, match=r"function_name=\.\.\. or register_function"):
            open_on_file().workflow("local", steps=[lambda_of(1)])

    @pytest.mark.parametrize(
        ("of", "steps", "field"),
        [
            (5, [rows], "workflow_id"),
            (type("Running", (), {"run": rows}), None, "run"),
            (type("Empty", (), {}), None, "steps"),
            (type("Both", (), {"rows": rows}), [rows], "steps"),
        ],
    )
    def test_what_is_refused(self, keeper, of, steps, field):
        with pytest.raises(InvalidWorkflow) as refused:
            keeper.workflow(of, steps=steps)
        assert refused.value.field == field


class TestOnALoop:
    @pytest.mark.parametrize("is_started", [False, True], ids=["not started", "started"])
    def test_the_same_is_awaited(self, url, is_started):
        async def main():
            scheduler = AsyncScheduler(url)
            workflow = scheduler.workflow("letters", steps=STEPS)
            assert (workflow.version, workflow.definition["workflow_id"], repr(workflow)) == (
                *(None, "letters"),
                "AsyncWorkflow('letters')",
            )
            kind = scheduler.workflow("kind")(type("Kind", (), {"rows": rows}))
            assert (kind.workflow_id, kind.rows) == ("kind", rows)
            if is_started:
                await scheduler.start()
            assert await workflow.run(day="a", count=2) == RESULTS
            assert await scheduler.run_workflow("letters", {"day": "a", "count": 2}) == RESULTS
            assert workflow.version == 1
            run_id = await workflow.start(day="b")
            assert (await scheduler.workflow_run(run_id)).inputs["day"] == "b"
            assert await scheduler.create_workflow(SLEEP) == 1
            await scheduler.cancel_workflow_run(await scheduler.run_workflow("sleepy", wait=False))
            assert len(await scheduler.workflow_runs("letters")) >= 2
            assert await scheduler.create_workflow({"workflow_id": "q", "steps": [{"id": "ask", "approval": {}}]}) == 1
            task = asyncio.ensure_future(scheduler.run_workflow("q"))
            [approval] = await asyncio.to_thread(eventually, scheduler.blocking.approvals)
            assert await scheduler.approvals() == [approval]
            await scheduler.approve(approval.approval_id)
            assert (await task)["ask"]["by"] == "local"
            for workflow_id in ("q", "sleepy"):
                await scheduler.delete_workflow(workflow_id)
            job = await workflow.schedule(trigger=NEVER, inputs={"day": "a", "count": 2})
            assert await scheduler.run_now(job) == RESULTS
            assert [one.workflow_id for one in await scheduler.workflows()] == ["kind", "letters"]
            await scheduler.close()

        asyncio.run(asyncio.wait_for(main(), SOON))


class TestByHand:
    def test_days_pass_in_no_time(self, url):
        clock = FakeClock(START)
        scheduler = Scheduler(url, clock=clock)
        driver = ManualDriver(scheduler)
        workflow = scheduler.workflow(
            "trial",
            steps=[
                rows,
                {"id": "week", "wait": {"seconds": 7 * 86_400}, "depends_on": ["rows"]},
                joined,
            ],
        )
        run_id = workflow.start(day="a", count=1)
        driver.run_due()
        run = scheduler.workflow_run(run_id)
        assert (str(run.phase), run.step("week").waiting_for) == ("pending", "time")
        assert run.step("week").ready == START + timedelta(days=7)
        driver.run_until(START + timedelta(days=6))
        assert scheduler.workflow_run(run_id).ended is None
        driver.run_until(START + timedelta(days=8))
        run = scheduler.workflow_run(run_id)
        assert (str(run.phase), run.ended) == ("completed", START + timedelta(days=7))
        assert run.result == {"rows": ["a0"], "week": None, "joined": "a0"}
        scheduler.close()

    def test_a_clock_that_stands_still_reaches_no_time(self, url):
        scheduler = Scheduler(url, clock=FakeClock(START))
        scheduler.create_workflow(SLEEP)
        with pytest.raises(Conflict, match="the clock stands still"):
            scheduler.run_workflow("sleepy")
        scheduler.close()


class Caller:
    """A thread that waits for a run."""

    def __init__(self, call):
        self._outcome = None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call):
        try:
            self._outcome = call()
        except Exception as error:  # noqa: BLE001 - the outcome
            self._outcome = error

    def outcome(self):
        self._thread.join(SOON)
        assert not self._thread.is_alive()
        return self._outcome


def lambda_of(value):
    def local():
        return value

    return local


@step(after="week")
def joined(rows):
    return "".join(rows)


def gate_of(gate):
    gate.__name__ = "gate"
    return gate
