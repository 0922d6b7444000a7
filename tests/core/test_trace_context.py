"""Trace contexts are computed from ids."""

import re

from noonmark.core.trace_context import event_key, span_id, trace_id, traceparent


def test_runs_of_an_occurrence_share_its_trace_and_have_spans_of_their_own():
    first, second = (traceparent("occ_1", f"occ_1-{fence}") for fence in (1, 2))
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-00", first)
    assert first.split("-")[1] == second.split("-")[1] == trace_id("occ_1")
    assert first.split("-")[2] != second.split("-")[2] == span_id("occ_1-2")


def test_the_flag_says_whether_it_is_recorded():
    assert traceparent("occ_1", "occ_1-1", is_recorded=True).endswith("-01")


def test_an_event_that_has_the_id_of_an_occurrence_has_another_trace():
    assert trace_id(event_key("occ_1")) != trace_id("occ_1")


def test_a_step_belongs_to_the_trace_of_its_workflow_run():
    run = traceparent("occ_1", "occ_1-3")
    step = traceparent("occ_1/load/0", "occ_1/load/0-3.1")
    assert run.split("-")[1] == step.split("-")[1]
    assert run.split("-")[2] != step.split("-")[2]
