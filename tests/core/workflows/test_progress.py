"""What follows for a workflow run from how far its steps have come."""

from dataclasses import replace

import pytest

from noonmark.core.instants import SECOND
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.workflows.definition import MAX_RESULT, parse_definition
from noonmark.core.workflows.progress import (
    Closing,
    decide,
    end_of_compensation,
    end_of_step,
    for_next_attempt,
    read_closing,
    result_problem,
    results,
    started_target,
)
from noonmark.core.workflows.run import Compensation, StepPhase, StepRecord
from noonmark.core.workflows.state import RunState

NOW = 1_000 * SECOND


def call(name="f", **kwargs):
    return {"target_kind": "function", "function": name, "kwargs": kwargs}


def step(step_id, *after, **fields):
    kind = {} if {"wait", "approval"} & set(fields) else {"target": call(step_id)}
    return {"id": step_id, "depends_on": list(after), **kind, **fields}


def workflow(*steps, **fields):
    return parse_definition({"workflow_id": "w", "steps": list(steps), **fields})[0]


class Play:
    """A run, played step by step: what is decided is carried out, and the test says how steps end."""

    def __init__(self, *steps, inputs=None, **fields):
        self.definition = workflow(*steps, **fields)
        self.facts = {"inputs": inputs or {}, "payload": None, "event": None}
        self.records, self.under_way, self.now = {}, {}, NOW
        self.closing, self.turn, self.sequence = None, None, 0
        self.state = RunState(self.definition)

    def look(self, **options):
        """Look at it twice: as a node that has followed it, and as one that has just read it."""
        for key, record in self.records.items():
            if self.state.records.get(key) is not record:
                self.state.put(record)
        self.turn, read = (
            decide(state, self.facts, now=self.now, under_way=self.under_way, **{"closing": self.closing, **options})
            for state in (self.state, RunState(self.definition, self.records.values()))
        )
        assert self.turn == read
        self.records.update(self.turn.writes)
        self.closing = self.closing or self.turn.closing
        written = RunState(self.definition, self.records.values())
        for start in self.turn.starts:
            self.under_way[start.record.key] = start
            # Whoever delivers it fills it in from what is written.
            assert started_target(written, self.facts, start.record, undoes=start.is_compensation) == start.target
        return self.started()

    def started(self):
        """The steps that begin, with what undoes one marked, and elements by their index."""
        return [("undo " if one.is_compensation else "") + name(one.record.key) for one in self.turn.starts]

    def end(self, step_id, index=None, outcome=Outcome.COMPLETED, **said):
        start = self.under_way.pop((step_id, index))
        self.sequence = max([self.sequence, *(one.sequence for one in self.records.values())]) + 1
        if start.is_compensation:
            ended = end_of_compensation(
                start.step, self.records[step_id, index], outcome=outcome, now=self.now,
                error=said.get("error"), attempt=said.get("attempt", 9), occurrence_id="occ",
            )  # fmt: skip
        else:
            ended = end_of_step(
                start.step, self.records[step_id, index], outcome=outcome, now=self.now, sequence=self.sequence,
                occurrence_id="occ", **said,
            )  # fmt: skip
        self.records[step_id, index] = ended
        return self

    def fail(self, step_id, index=None, **said):
        return self.end(step_id, index, Outcome.FAILED, error=said.pop("error", "boom"), **said)

    def phases(self):
        return {name(key): str(record.phase) for key, record in self.records.items()}


def name(key):
    return key[0] if key[1] is None else f"{key[0]}[{key[1]}]"


def test_steps_begin_when_all_that_they_depend_on_has_completed():
    play = Play(step("a"), step("b"), step("c", "a", "b"))
    assert play.look() == ["a", "b"]
    assert play.end("a").look() == []
    assert play.end("b").look() == ["c"]
    play.end("c", result={"n": 1}).look()
    assert play.turn.end == Closing(outcome=Outcome.COMPLETED)
    assert results(play.definition, play.records) == {"a": None, "b": None, "c": {"n": 1}}


def test_the_result_of_a_step_reaches_the_next_one():
    play = Play(
        step("a"), step("b", "a", input={"x": "{{ steps.a.result.n }}", "y": "{{ inputs.y }}"}), inputs={"y": 2}
    )
    play.look()
    play.end("a", result={"n": 7}).look()
    assert play.turn.starts[0].target["kwargs"] == {"x": 7, "y": 2}


def test_what_is_lost_with_its_node_begins_again_with_the_same_attempt():
    play = Play(step("a"))
    play.look()
    play.under_way.clear()
    assert play.look() == ["a"]
    assert play.records["a", None].attempt == 1


# Conditions


@pytest.mark.parametrize(("day", "runs"), [("MON", True), ("TUE", False)])
def test_a_condition_decides_whether_a_step_runs(day, runs):
    play = Play(step("a", when={"inputs.day": "MON"}), step("b", "a"), inputs={"day": day})
    assert play.look() == (["a"] if runs else [])
    if not runs:
        assert play.phases() == {"a": "skipped", "b": "skipped"}
        assert play.turn.end.outcome is Outcome.COMPLETED


def test_a_step_that_joins_branches_runs_if_one_of_them_did():
    play = Play(
        step("a", when={"inputs.x": True}),
        step("b", when={"inputs.x": False}),
        step("c", "a", "b", input={"a": "{{ steps.a.result }}", "b": "{{ steps.b.result }}"}),
        inputs={"x": True},
    )
    assert play.look() == ["a"]
    assert play.end("a", result=1).look() == ["c"]
    assert play.turn.starts[0].target["kwargs"] == {"a": 1, "b": None}


@pytest.mark.parametrize(
    "fields",
    [
        {"input": {"x": "{{ steps.a.result.gone }}"}},
        {"for_each": "{{ steps.a.result }}"},
        {"wait": {"until": "{{ steps.a.result.text }}"}},
    ],
)
def test_what_cannot_be_filled_in_fails_its_step(fields):
    play = Play(step("a"), step("b", "a", **fields))
    play.look()
    play.end("a", result={"text": "soon"}).look()
    assert play.phases() == {"a": "completed", "b": "failed"}
    assert play.turn.end.outcome is Outcome.FAILED
    assert play.turn.end.error.startswith("step 'b' failed: ")


# Failures


def test_a_failure_stops_the_others_and_cancels_the_rest():
    play = Play(step("a"), step("b"), step("c", "b"), step("d", wait={"seconds": 60}))
    assert play.look() == ["a", "b"]
    play.fail("a").look()
    assert (play.turn.stops, play.turn.end, play.turn.closing.outcome) == ([("b", None)], None, Outcome.FAILED)
    assert play.phases() == {"a": "failed", "b": "running", "c": "cancelled", "d": "cancelled"}
    play.end("b", outcome=Outcome.CANCELLED).look()
    assert play.phases()["b"] == "cancelled"
    assert play.turn.end == Closing(outcome=Outcome.FAILED, error="step 'a' failed: boom")


def test_a_traceback_comes_before_the_line_that_says_what_failed():
    play = Play(step("a"))
    play.look()
    play.fail("a", error="Traceback\n  in f\nValueError: no rows\n").look()
    assert play.turn.end.error == "Traceback\n  in f\nValueError: no rows\nstep 'a' failed: ValueError: no rows"


def test_on_failure_continue_goes_on_with_what_does_not_depend_on_it():
    play = Play(step("a"), step("b"), step("c", "a"), step("d", "b"), on_failure="continue")
    play.look()
    play.fail("a").look()
    assert play.phases()["c"] == "skipped"
    assert play.turn.end is None
    assert play.end("b").look() == ["d"]
    play.end("d").look()
    assert play.turn.end.outcome is Outcome.FAILED
    assert play.phases() == {"a": "failed", "b": "completed", "c": "skipped", "d": "completed"}


def test_what_was_skipped_for_a_failure_holds_back_what_joins_it():
    play = Play(
        step("bad"),
        step("good"),
        step("after_bad", "bad"),
        step("both", "after_bad", "good"),
        step("choice", when={"inputs.x": 1}),
        step("joined", "choice", "good"),
        on_failure="continue",
    )
    play.look()
    play.fail("bad").end("good")
    assert play.look() == ["joined"]
    assert [play.phases()[one] for one in ("after_bad", "both", "choice")] == ["skipped"] * 3
    assert play.records["both", None].error == "a step that it depends on failed"


def test_the_first_failure_is_named_and_the_others_are_counted():
    play = Play(step("a"), step("b"), on_failure="continue")
    play.look()
    play.now += SECOND
    play.fail("b", error="first")
    play.now += SECOND
    play.fail("a").look()
    assert play.turn.end.error == "step 'b' failed (and 1 more of 2 steps): first"


def test_a_failed_attempt_is_tried_again_at_its_time():
    play = Play(step("a", retry={"max_attempts": 2, "backoff_seconds": 10}), step("b", "a"))
    play.look()
    play.fail("a")
    assert play.look() == []
    record = play.records["a", None]
    assert (record.phase, record.attempt, record.error, play.turn.wake_at) == ("pending", 1, "boom", record.ready)
    assert 10 * SECOND <= record.ready - NOW <= 11 * SECOND
    play.now = record.ready
    assert play.look() == ["a"]
    assert play.records["a", None].attempt == 2
    play.fail("a").look()
    assert play.turn.end.outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("said", "phase", "error"),
    [
        ({"outcome": Outcome.TIMED_OUT}, "failed", "it took longer than its timeout"),
        ({"outcome": Outcome.TIMED_OUT, "error": "no answer"}, "failed", "no answer"),
        ({"outcome": Outcome.FAILED, "error": "bad", "is_final": True}, "failed", "bad"),
        ({"outcome": Outcome.CANCELLED, "error": None}, "cancelled", None),
        (
            {"outcome": Outcome.COMPLETED, "result": "x" * MAX_RESULT},
            "failed",
            "its result has 65,538 bytes as JSON; a step may have at most 65,536",
        ),
    ],
)
def test_how_a_step_ends(said, phase, error):
    retry = {"max_attempts": 3} if said.get("is_final") else {"max_attempts": 1}
    play = Play(step("a", retry=retry))
    play.look()
    play.end("a", **said)
    record = play.records["a", None]
    assert (record.phase, record.error, record.ended) == (phase, error, NOW)


def test_the_largest_result_is_stored():
    assert result_problem("x" * (MAX_RESULT - 2)) is None


# Lists


def test_a_list_runs_once_per_element_up_to_its_concurrency():
    play = Play(
        step("a", for_each="{{ inputs.files }}", concurrency=2, input={"file": "{{ item }}", "at": "{{ index }}"}),
        step("b", "a", input={"all": "{{ steps.a.result }}"}),
        inputs={"files": ["x", "y", "z"]},
    )
    assert play.look() == ["a[0]", "a[1]"]
    assert [one.target["kwargs"] for one in play.turn.starts] == [{"file": "x", "at": 0}, {"file": "y", "at": 1}]
    assert play.end("a", 1, result="Y").look() == ["a[2]"]
    play.end("a", 0, result="X").end("a", 2, result="Z")
    assert play.look() == ["b"]
    assert play.turn.starts[0].target["kwargs"] == {"all": ["X", "Y", "Z"]}


def test_an_empty_list_completes_at_once():
    play = Play(step("a", for_each=[]), step("b", "a", input={"all": "{{ steps.a.result }}"}))
    assert play.look() == ["b"]
    assert play.turn.starts[0].target["kwargs"] == {"all": []}


def test_a_failed_element_ends_its_list_and_names_itself():
    play = Play(step("a", for_each=[1, 2, 3], concurrency=2))
    play.look()
    play.fail("a", 0).look()
    assert play.turn.stops == [("a", 1)]
    play.end("a", 1, outcome=Outcome.CANCELLED).look()
    assert play.phases() == {"a": "failed", "a[0]": "failed", "a[1]": "cancelled"}
    assert play.turn.end.error == "step 'a' failed: 1 of 3 elements failed; element 0: boom"


def test_on_failure_continue_runs_all_elements():
    play = Play(step("a", for_each=[1, 2, 3], concurrency=1), on_failure="continue")
    play.look()
    assert play.fail("a", 0).look() == ["a[1]"]
    assert play.end("a", 1, result=2).look() == ["a[2]"]
    play.end("a", 2).look()
    assert play.phases()["a"] == "failed"
    assert play.turn.end.outcome is Outcome.FAILED


@pytest.mark.parametrize(("on_failure", "begun"), [("stop", ["a[0]"]), ("continue", ["a[0]", "a[2]"])])
def test_an_element_that_cannot_be_filled_in_fails(on_failure, begun):
    items = [{"n": 1}, {}, {"n": 3}]
    play = Play(step("a", for_each=items, input={"n": "{{ item.n }}"}), on_failure=on_failure)
    play.look()
    assert play.phases()["a[1]"] == "failed"
    assert play.started() == ([] if on_failure == "stop" else begun)


def test_an_element_is_tried_again_and_one_that_was_lost_begins_again():
    play = Play(step("a", for_each=[1, 2], retry={"max_attempts": 2, "backoff_seconds": 0}))
    play.look()
    play.fail("a", 0)
    assert play.look() == ["a[0]"]
    play.under_way.clear()
    assert play.look() == ["a[0]", "a[1]"]
    assert play.records["a", 0].attempt == 2


def test_a_retry_that_cannot_be_filled_in_any_more_fails():
    play = Play(
        step("b"),
        step("a", "b", input={"n": "{{ steps.b.result.n }}"}),
        step("c", "b", for_each=[1], input={"n": "{{ steps.b.result.n }}"}),
        on_failure="continue",
    )
    play.look()
    play.end("b", result={"n": 1}).look()
    play.records["b", None] = replace(play.records["b", None], result={})
    play.under_way.clear()
    play.look()
    assert play.phases() == {"b": "completed", "a": "failed", "c": "failed", "c[0]": "failed"}


# Waits and approvals


@pytest.mark.parametrize(
    ("wait", "seconds"), [({"seconds": 90}, 90), ({"until": "1970-01-01T00:18:20Z"}, 100), ({"seconds": 0}, 0)]
)
def test_a_wait_ends_at_its_time(wait, seconds):
    play = Play(step("a", wait=wait), step("b", "a"))
    started = play.look()
    if seconds:
        assert (started, play.turn.wake_at - NOW) == ([], seconds * SECOND)
        play.now += seconds * SECOND
        started = play.look()
    assert started == ["b"]
    assert play.phases()["a"] == "completed"


def test_a_wait_for_an_event_is_stored_and_ended_by_others():
    play = Play(
        step("a", wait={"event_type": "paid", "filters": {"id": "{{ inputs.id }}"}}), step("b", "a"), inputs={"id": 7}
    )
    play.look()
    [waiting] = play.turn.event_waits
    assert (waiting.step_id, waiting.wait.event_types, waiting.wait.filters) == ("a", ("paid",), {"id": 7})
    record = play.records["a", None]
    assert (record.is_external, record.ready) == (True, NOW + 86_400 * SECOND)
    assert play.look() == []
    play.records["a", None] = replace(record, phase=StepPhase.COMPLETED, ended=NOW, result={"payload": 1})
    assert play.look() == ["b"]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"wait": {"event_type": "paid", "timeout_seconds": 5}}, "no matching event came in time"),
        ({"approval": {"expires_seconds": 5}}, "the approval expired"),
    ],
)
def test_what_nobody_ends_in_time_fails(fields, error):
    play = Play(step("a", **fields))
    play.look()
    play.now += 5 * SECOND
    play.look()
    assert play.records["a", None].error == error
    assert [record.step_id for record in play.turn.dropped] == ["a"]
    assert play.turn.end.outcome is Outcome.FAILED


def test_an_approval_is_asked_for_with_its_message():
    play = Play(step("a", approval={"message": "Pay {{ inputs.sum }}?", "expires_seconds": 60}), inputs={"sum": 7})
    play.look()
    [ask] = play.turn.asks
    assert (ask.step_id, ask.message, ask.expires) == ("a", "Pay 7?", NOW + 60 * SECOND)


# The end of a run that is stopped


CANCELLED = Closing(outcome=Outcome.CANCELLED, reason=Reason.CANCELLED)


def test_a_run_that_is_cancelled_tells_its_steps_and_cancels_the_rest():
    play = Play(step("a"), step("b", "a"), step("c", wait={"event_type": "e"}))
    play.look()
    play.closing = CANCELLED
    play.look()
    assert (play.turn.stops, [one.step_id for one in play.turn.dropped]) == ([("a", None)], ["c"])
    play.end("a", result=1).look()  # it did not listen
    assert play.phases() == {"a": "completed", "b": "cancelled", "c": "cancelled"}
    assert play.turn.end == CANCELLED


def test_completed_steps_are_undone_in_reverse_order_of_completion():
    undo = {"compensate": call("undo", id="{{ steps.a.result }}")}
    play = Play(step("a", **undo), step("b", compensate=call("undo_b")), step("c", "a", "b"), step("d", "a"))
    play.look()
    play.end("b").look()
    play.end("a", result=5).look()
    play.end("d")
    play.fail("c").look()
    assert play.started() == ["undo a"]
    assert play.turn.starts[0].target["kwargs"] == {"id": 5}
    assert play.look() == []  # one at a time
    assert play.end("a").look() == ["undo b"]
    play.end("b").look()
    assert play.phases() == {"a": "compensated", "b": "compensated", "c": "failed", "d": "completed"}
    assert play.turn.end.error == "step 'c' failed: boom"


def test_elements_are_undone_one_by_one():
    play = Play(step("a", for_each=[7, 8], concurrency=1, compensate=call("undo", x="{{ item }}")), step("b", "a"))
    play.look()
    play.end("a", 0).look()
    play.end("a", 1).look()
    play.fail("b").look()
    assert (play.started(), play.turn.starts[0].target["kwargs"]) == (["undo a[1]"], {"x": 8})
    assert play.end("a", 1).look() == ["undo a[0]"]


def test_a_compensation_is_tried_again_and_one_that_fails_is_named():
    play = Play(step("a", compensate=call("undo"), retry={"max_attempts": 1, "backoff_seconds": 5}), step("b", "a"))
    play.look()
    play.end("a").look()
    play.fail("b").look()
    play.fail("a", attempt=1)
    assert play.look() == []
    assert play.turn.wake_at == play.records["a", None].ready > NOW
    play.now = play.turn.wake_at
    assert play.look() == ["undo a"]
    play.fail("a", attempt=3, error="gone").look()
    assert play.records["a", None].compensation is Compensation.FAILED
    assert play.turn.end.error == "step 'b' failed: boom; could not be undone: 'a'"


def test_an_inner_workflow_is_waited_for_before_anything_is_undone():
    inner = {"target": {"target_kind": "workflow", "workflow_id": "sub"}}
    play = Play(step("a", compensate=call("undo")), step("b", "a", **inner), step("c", "a"))
    play.look()
    play.end("a").look()
    for key, child in (("b", "occ_1"), ("c", "occ_2")):
        play.under_way.pop((key, None))
        play.records[key, None] = replace(play.records[key, None], is_external=True, child=child)
    play.closing = CANCELLED
    for _ in range(2):  # asked again, until it has ended
        assert (play.look(), play.turn.end, play.turn.awaits_inner) == ([], None, True)
        assert "occ_1" in [record.child for record in play.turn.dropped]
    assert not play.closing.is_final
    stopped = play.records["b", None]
    assert (stopped.is_being_stopped, play.records["c", None].is_being_stopped) == (True, False)
    play.records["b", None] = replace(stopped, compensation=None)
    assert play.look() == ["undo a"]


def test_a_compensation_that_cannot_be_filled_in_fails():
    play = Play(step("a", compensate=call("undo", x="{{ steps.a.result.id }}")))
    play.look()
    play.end("a", result={})
    play.closing = CANCELLED
    play.look()
    assert play.turn.end == replace(CANCELLED, error="could not be undone: 'a'")


def test_a_crash_in_the_middle_of_a_compensation_begins_it_again():
    play = Play(step("a", compensate=call("undo")), step("b", "a"))
    play.look()
    play.end("a").look()
    play.fail("b").look()
    play.under_way.clear()
    assert play.look() == ["undo a"]


def test_nothing_is_undone_while_another_attempt_follows():
    play = Play(step("a", compensate=call("undo")))
    play.look()
    play.end("a")
    play.closing = CANCELLED
    assert play.look(compensates=False) == []
    assert play.turn.end == CANCELLED


def test_a_closed_window_starts_nothing():
    play = Play(step("a"), step("b", for_each=[1]), step("c", wait={"seconds": 1}))
    assert play.look(may_start=False) == []
    assert play.records == {}
    play.look()
    play.under_way.clear()
    play.fail_later = None
    assert play.look(may_start=False) == []
    play.records["a", None] = replace(play.records["a", None], phase=StepPhase.PENDING, ready=None)
    assert play.look(may_start=False) == []
    assert play.look() == ["a", "b[0]"]


# Attempts


def test_another_attempt_keeps_what_completed():
    records = {
        ("a", None): StepRecord(step_id="a", phase=StepPhase.COMPLETED, result=1),
        ("b", None): StepRecord(step_id="b", phase=StepPhase.FAILED, error="boom", count=2),
        ("b", 0): StepRecord(step_id="b", index=0, phase=StepPhase.COMPLETED),
        ("b", 1): StepRecord(step_id="b", index=1, phase=StepPhase.FAILED),
        ("c", None): StepRecord(step_id="c", phase=StepPhase.CANCELLED),
    }
    kept = for_next_attempt(records)
    assert {name(key): str(record.phase) for key, record in kept.items()} == {
        "a": "completed", "b": "running", "b[0]": "completed",
    }  # fmt: skip
    play = Play(step("a"), step("b", "a", for_each=[1, 2]), step("c", "b"))
    play.records, play.state = kept, RunState(play.definition)
    assert play.look() == ["b[1]"]


@pytest.mark.parametrize(
    "fields", [{"phase": StepPhase.COMPENSATED}, {"phase": StepPhase.COMPLETED, "compensation": Compensation.FAILED}]
)
def test_another_attempt_begins_anew_where_something_was_undone(fields):
    assert for_next_attempt({("a", None): StepRecord(step_id="a", **fields)}) is None


@pytest.mark.parametrize("closing", [CANCELLED, Closing(outcome=Outcome.FAILED, error="boom")])
def test_how_a_run_is_to_end_is_stored(closing):
    assert read_closing(closing.to_document()) == closing


def test_a_list_whose_elements_were_cut_off_fails_without_naming_one():
    play = Play(step("a", for_each=[1]))
    play.look()
    play.end("a", 0, outcome=Outcome.CANCELLED).look()
    assert play.turn.end.error == "step 'a' failed: 1 of 1 elements failed"


def test_another_attempt_keeps_what_completed_behind_a_skipped_step():
    play = Play(step("a"), step("b", when={"inputs.x": 1}), step("c", "a", "b"), step("d", "c"), inputs={"x": 2})
    play.look()
    play.end("a").look()
    play.end("c").look()
    play.fail("d").look()
    play.records, play.state = for_next_attempt(play.records), RunState(play.definition)
    play.closing = None
    assert play.look() == ["d"]
    assert play.phases() == {"a": "completed", "b": "skipped", "c": "completed", "d": "running"}


def test_a_long_list_goes_on_as_its_elements_end_and_after_a_restart():
    play = Play(step("a", for_each=list(range(6)), concurrency=2, input={"x": "{{ item }}"}))
    assert play.look() == ["a[0]", "a[1]"]
    assert play.end("a", 1).look() == ["a[2]"]
    assert play.end("a", 2).look() == ["a[3]"]
    play.fail("a", 0).look()
    play.end("a", 3, outcome=Outcome.CANCELLED).look()
    play.records, play.state = for_next_attempt(play.records), RunState(play.definition)
    play.closing = None
    assert play.look() == ["a[0]", "a[3]"]
    assert play.end("a", 3).look() == ["a[4]"]
    assert play.end("a", 0).end("a", 4).look() == ["a[5]"]
    play.end("a", 5).look()
    assert play.turn.end == Closing(outcome=Outcome.COMPLETED)


def test_a_target_that_nothing_is_filled_into_is_read_once():
    definition = workflow(step("a"), step("b", "a", input={"x": "{{ inputs.x }}"}))
    facts = {"inputs": {"x": 1}, "payload": None, "event": None}
    documents = {one.id: [definition.fill_target(one, facts) for _ in range(2)] for one in definition.steps}
    for step_id, (first, second) in documents.items():
        is_shared = step_id == "a"
        assert first == second
        assert (first is second) == is_shared
        assert (definition.parse_target(step_id, first) is definition.parse_target(step_id, second)) == is_shared
    assert definition.parse_target("b", documents["b"][0]).kwargs == {"x": 1}


def test_what_joins_two_steps_that_are_skipped_at_once_is_skipped_too():
    never = {"inputs.x": 1}
    play = Play(step("a", when=never), step("b", when=never), step("c", "a", "b"), inputs={"x": 2})
    assert play.look() == []
    assert play.phases() == {"a": "skipped", "b": "skipped", "c": "skipped"}
    assert play.turn.end == Closing(outcome=Outcome.COMPLETED)
