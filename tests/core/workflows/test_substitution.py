"""Filling in: what a step is given, and what it can never be made to do by data."""

import pytest

from noonmark.core.targets import parse_target
from noonmark.core.targets.placeholders import SKIPPED
from noonmark.core.workflows.run import StepPhase
from noonmark.core.workflows.substitution import (
    elements,
    fill_compensation,
    fill_json,
    fill_step,
    fill_text,
    fill_wait,
    holds,
)
from tests.core.workflows.defined import CALL, defined, step

SMUGGLED = "{{ inputs.secret }}"
FACTS = {
    "schedule_id": "sch_1",
    "schedule_name": "Nightly",
    "occurrence_id": "occ_1",
    "nominal_at": "2026-03-01T12:00:00Z",
    "due_at": "2026-03-01T12:00:01Z",
    "attempt": 2,
    "payload": {"n": 1},
    "event": None,
    "inputs": {"day": "monday", "n": 5, "secret": "hunter2", "bad": SMUGGLED, "list": [1, {"a": 2}], "op": {"gt": 0}},
    "steps": {
        "first": {"result": {"id": 7, "at": "2026-03-01T13:00:00+01:00", "none": None}, "phase": "completed"},
        "skipped": {"result": None, "phase": "skipped"},
        "failed": {"result": None, "phase": "failed"},
    },
    "item": {"id": "i/1", "dots": ".."},
    "index": 3,
}
EVENT = {"event_id": "e1", "event_type": "t", "source": "s", "payload": {"path": "/a"}}
BEFORE = [step("first"), step("skipped"), step("failed")]
PROMPT = {"type": "prompt", "prompt": "Do {{ inputs.n }} things"}


def made(target, **fields):
    """A step of this target that comes after the others, for each of some elements."""
    step_document = step("me", "first", "skipped", "failed", target=target, for_each=[1], **fields)
    return defined(*BEFORE, step_document).step("me")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ inputs.n }}", 5),
        ("{{ inputs.n }}!", "5!"),
        ("{{ inputs }}", FACTS["inputs"]),
        ("{{ inputs.list.1.a }}", 2),
        ("{{ steps.first.result }}", FACTS["steps"]["first"]["result"]),
        ("{{ steps.first.result.id }}", 7),
        ("{{ steps.first.phase }}", "completed"),
        ("{{ steps.skipped.result }}", None),
        ("{{ steps.skipped.result.deep.inside }}", None),
        ("<{{ steps.skipped.result.x }}>", "<null>"),
        ("{{ steps.skipped.phase }}", "skipped"),
        ("{{ steps.failed.result }}", None),
        ("{{ item.id }} {{ index }}", "i/1 3"),
        ("{{ event }}", None),
        ("{{ event.payload.path }}", None),
        ("{{ payload.n }}", 1),
        ("{{ schedule.id }} {{ attempt }}", "sch_1 2"),
    ],
)
def test_a_placeholder_alone_is_its_value_and_among_others_it_is_text(text, value):
    assert fill_json(text, FACTS) == value
    assert fill_json({"a": [text]}, FACTS) == {"a": [value]}


def test_an_event_that_set_the_run_off_is_there():
    assert fill_json(["{{ event.id }}", "{{ event.path }}"], FACTS | {"event": EVENT}) == ["e1", "/a"]


def test_a_message_is_always_text():
    assert fill_text("{{ inputs.n }}", FACTS) == "5"


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("inputs.who", "who"),
        ("steps.first.result.who", "who"),
        ("steps.first.result.id.x", "x"),
        ("steps.failed.result.x", "x"),
        ("steps.who.result", "who"),
        ("item.who", "who"),
    ],
)
def test_what_is_not_there_is_an_error_that_names_it(name, part):
    with pytest.raises(ValueError, match=f'^the step asks for {{{{{name}}}}}, and there is no "{part}"$'):
        fill_json("{{ " + name + " }}", FACTS)


def test_outside_an_element_there_is_no_item():
    with pytest.raises(ValueError, match='there is no "item"'):
        fill_json("{{ item }}", {name: value for name, value in FACTS.items() if name != "item"})


def test_too_much_is_refused_before_it_is_made():
    with pytest.raises(ValueError, match="the step is larger than 1,048,576 characters"):
        fill_json(["{{ inputs.day }}"] * 100, FACTS | {"inputs": {"day": "x" * 20_000}})


@pytest.mark.parametrize(
    ("target", "given", "expected"),
    [
        pytest.param(
            CALL | {"args": ["{{ inputs.n }}"], "kwargs": {"a": "{{ item }}", "b": 1}, "payload": "{{ index }}"},
            {"b": "{{ steps.first.result.id }}"},
            {"args": [5], "kwargs": {"a": FACTS["item"], "b": 7}, "payload": 3},
            id="function",
        ),
        pytest.param(
            {"target_kind": "command", "argv": ["run", "{{ inputs.n }}"], "env": {"payload": "{{ inputs.n }}"}},
            {"x": "{{ inputs.n }}"},
            {"argv": ["run", "5"], "env": {"payload": "5"}, "payload": {"x": 5}},
            id="command",
        ),
        pytest.param(
            {"target_kind": "command", "argv": ["run"], "stdin": "{{ inputs.n }}"},
            {"x": 1},
            {"argv": ["run"], "stdin": "5"},
            id="command with text to read",
        ),
        pytest.param(
            {"target_kind": "command", "argv": ["run"], "payload": "{{ inputs.n }}"},
            {"x": 1},
            {"argv": ["run"], "payload": 5},
            id="command with a payload",
        ),
        pytest.param(
            {"target_kind": "http", "url": "https://x/{{ item.id }}?q={{ inputs.n }}", "headers": {"A": "{{ index }}"}},
            {"x": "{{ inputs.list }}"},
            {
                "method": "POST",
                "url": "https://x/i%2F1?q=5",
                "headers": {"A": "3"},
                "body": {"x": [1, {"a": 2}]},
                "literal": True,
            },
            id="http",
        ),
        pytest.param(
            {"target_kind": "http", "url": "https://x/", "body": "{{ inputs.n }}", "timeout_seconds": 2},
            {"x": 1},
            {"method": "POST", "url": "https://x/", "body": 5, "timeout_seconds": 2, "literal": True},
            id="http with a body",
        ),
        pytest.param(
            {"target_kind": "http", "url": "https://x/{{inputs.n}}", "literal": True},
            {"x": "{{ inputs.n }}"},
            {"method": "POST", "url": "https://x/{{inputs.n}}", "body": {"x": 5}, "literal": True},
            id="literal http",
        ),
        pytest.param(
            {"target_kind": "event", "event_type": "e"},
            {"x": "{{ inputs.n }}"},
            {"event_type": "e", "payload": {"x": 5}},
            id="event",
        ),
        pytest.param(
            {"target_kind": "event", "event_type": "e", "payload": ["{{ inputs.n }}"]},
            {"x": 1},
            {"event_type": "e", "payload": [5]},
            id="event with a payload",
        ),
        pytest.param(
            {"target_kind": "workflow", "workflow_id": "w", "version": 2},
            {"x": "{{ inputs.n }}"},
            {"workflow_id": "w", "version": 2, "inputs": {"x": 5}},
            id="workflow",
        ),
        pytest.param(
            {"target_kind": "bundle", "bundle_id": "b", "inputs": {"x": 1, "y": "{{ inputs.n }}"}},
            {"x": 2},
            {"bundle_id": "b", "inputs": {"x": 2, "y": 5}},
            id="bundle",
        ),
        pytest.param(
            {"target_kind": "task", "query": "{{ inputs.n }}", "context": {"n": "{{ inputs.n }}"}},
            {},
            {"query": "5", "context": {"n": 5}},
            id="task",
        ),
        pytest.param(
            {"target_kind": "mob", "type": "flow", "mob_id": "m", "flow_id": "f", "params": "{{ inputs.list }}"},
            {},
            {"type": "flow", "mob_id": "m", "flow_id": "f", "params": [1, {"a": 2}]},
            id="mob",
        ),
        pytest.param(
            {"target_kind": "session", "type": "exact_session", "session_id": "s", "action": PROMPT},
            {},
            {"type": "exact_session", "session_id": "s", "action": {"type": "prompt", "prompt": "Do 5 things"}},
            id="prompt",
        ),
        pytest.param(
            {
                "target_kind": "session",
                "type": "materialize_on_demand_session",
                "create": {"model": "m", "max_tokens": 5, "labels": {"day": "{{ inputs.day }}"}},
                "action": {"type": "event", "event_type": "e", "payload": "{{ inputs.n }}"},
            },
            {},
            {
                "type": "materialize_on_demand_session",
                "create": {"model": "m", "max_tokens": 5, "labels": {"day": "monday"}},
                "action": {"type": "event", "event_type": "e", "payload": 5},
            },
            id="event of a session",
        ),
    ],
)
def test_the_input_of_a_step_reaches_its_target(target, given, expected):
    filled = fill_step(made(target, input=given), FACTS)
    assert filled == {"target_kind": target["target_kind"]} | _whole(target["target_kind"]) | expected
    assert parse_target(filled).to_document() == filled


def _whole(kind):
    return {"function": "f", "args": [], "kwargs": {}} if kind == "function" else {}


def test_what_undoes_a_step_is_filled_in_without_its_input():
    undo = CALL | {"kwargs": {"id": "{{ steps.me.result.id }}"}}
    facts = FACTS | {"steps": FACTS["steps"] | {"me": {"result": {"id": 9}, "phase": "completed"}}}
    found = fill_compensation(made(CALL, input={"x": 1}, compensate=undo), facts)
    assert found["kwargs"] == {"id": 9}


@pytest.mark.parametrize(
    "target",
    [
        CALL | {"kwargs": {"x": "{{ inputs.bad }}"}},
        {"target_kind": "command", "argv": ["run", "{{ inputs.bad }}"]},
        {"target_kind": "http", "url": "https://x/{{ inputs.bad }}", "headers": {"A": "{{ inputs.bad }}"}},
        {"target_kind": "http", "url": "https://x/", "body": ["{{ inputs.bad }}"]},
        {"target_kind": "event", "event_type": "e", "payload": "{{ inputs.bad }}"},
        {"target_kind": "workflow", "workflow_id": "w", "inputs": {"x": "{{ inputs.bad }}"}},
    ],
    ids=lambda target: target["target_kind"],
)
def test_data_that_looks_like_a_placeholder_stays_data(target):
    found = fill_step(made(target), FACTS)
    read = parse_target(found).to_document()
    assert read == found
    assert "hunter2" not in str(found)
    assert SMUGGLED in str(found) or "%7B%7B%20inputs.secret%20%7D%7D" in str(found)
    assert SMUGGLED in str(elements(made(CALL), FACTS) + fill_json(["{{ inputs.bad }}"], FACTS))


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({"target_kind": "http", "url": "https://x/{{ item.dots }}"}, "it would change the path"),
        ({"target_kind": "http", "url": "https://x/{{ inputs.long }}"}, "more than 16,384 characters"),
        (
            {"target_kind": "http", "url": "https://x/", "headers": {"A": "{{ inputs.lines }}"}},
            "which would break the request",
        ),
    ],
)
def test_data_cannot_break_a_request(target, words):
    inputs = {"long": "x" * 16_384, "lines": "a\r\nHost: evil.example"}
    with pytest.raises(ValueError, match=words):
        fill_step(made(target), FACTS | {"inputs": inputs})


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ({}, True),
        ({"inputs.n": 5}, True),
        ({"inputs.n": {"gt": 5}}, False),
        ({"inputs.n": {"gt": 4}, "steps.first.result.id": [7, 8]}, True),
        ({"inputs.n": 5, "steps.first.phase": "failed"}, False),
        ({"inputs.who": {"exists": False}}, True),
        ({"inputs.who": {"not": 1}}, False),
        ({"inputs": {"exists": True}, "inputs.who": {"exists": True}}, False),
        ({"inputs.list.1.a": 2}, True),
        ({"steps.skipped.result": None, "steps.skipped.phase": "skipped"}, True),
        ({"steps.failed.result.x": {"exists": True}}, False),
        ({"item.id": {"prefix": "i/"}, "index": {"lt": 4}}, True),
        ({"event": None}, True),
        ({"payload.n": 1, "schedule.name": "Nightly", "attempt": 2}, True),
        ({"inputs.bad": SMUGGLED}, True),
    ],
)
def test_conditions_are_filters_over_the_same_names(when, expected):
    assert holds(when, FACTS) is expected


def test_conditions_look_into_the_payload_of_an_event():
    assert holds({"event.path": "/a", "event.payload.path": "/a"}, FACTS | {"event": EVENT})


@pytest.mark.parametrize(
    ("for_each", "found"),
    [
        ([], []),
        ([1, "{{ inputs.n }}", {"x": "{{ inputs.day }}"}], [1, 5, {"x": "monday"}]),
        ("{{ inputs.list }}", [1, {"a": 2}]),
    ],
)
def test_a_step_runs_for_each_element(for_each, found):
    assert elements(defined(step("a", for_each=for_each)).step("a"), FACTS) == found


@pytest.mark.parametrize(
    ("value", "words"),
    [({"a": 1}, "must be an array"), (None, "must be an array"), ([0] * 10_001, "10,001 elements; at most 10,000")],
)
def test_what_is_no_list_has_no_elements(value, words):
    each = defined(step("a", for_each="{{ inputs.list }}")).step("a")
    with pytest.raises(ValueError, match=f"^for_each .*{words}"):
        elements(each, FACTS | {"inputs": {"list": value}})


def waiting(**fields):
    return defined(*BEFORE, step("me", "first", "skipped", wait=fields)).step("me").wait


@pytest.mark.parametrize(
    ("until", "found"),
    [
        ("2026-03-01T13:00:00+01:00", "2026-03-01T12:00:00Z"),
        ("{{ steps.first.result.at }}", "2026-03-01T12:00:00Z"),
        ("{{ due_at }}", FACTS["due_at"]),
    ],
)
def test_a_wait_knows_its_time(until, found):
    assert fill_wait(waiting(until=until), FACTS).until == found


def test_a_wait_for_a_while_has_nothing_to_fill_in():
    wait = waiting(seconds=5)
    assert fill_wait(wait, FACTS) == wait


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("{{ steps.first.result.id }}", 7),
        (["{{ inputs.n }}", None, 1], [5, None, 1]),
        ({"gte": "{{ inputs.n }}"}, {"gte": 5}),
        ({"equals": "{{ inputs.op }}"}, {"equals": {"gt": 0}}),
        ("{{ inputs.op }}", {"equals": {"gt": 0}}),
        (["{{ inputs.list }}"], [{"equals": [1, {"a": 2}]}]),
        ({"not": "{{ inputs.op }}"}, {"not": {"equals": {"gt": 0}}}),
        ({"not": ["{{ inputs.n }}"]}, {"not": [5]}),
        ("{{ steps.skipped.result }}", None),
    ],
)
def test_data_in_a_filter_is_compared_with_and_is_no_operator(condition, found):
    filled = fill_wait(waiting(event_type="e", filters={"x": condition, "y": 1}), FACTS)
    assert filled.filters == {"x": found, "y": 1}
    assert filled.event_types == ("e",)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"until": "{{ inputs.day }}"}, "the time to wait until must be an RFC 3339 instant"),
        ({"until": "{{ inputs.n }}"}, "the time to wait until must be"),
        (
            {"event_type": "e", "filters": {"a": {"prefix": "{{ inputs.n }}"}}},
            "the filter a.prefix cannot have the value",
        ),
    ],
)
def test_a_wait_for_nonsense_is_an_error(fields, words):
    with pytest.raises(ValueError, match=words) as caught:
        fill_wait(waiting(**fields), FACTS)
    assert "monday" not in str(caught.value)


def test_a_skipped_step_is_one_in_that_phase():
    assert SKIPPED == StepPhase.SKIPPED
