"""Definitions of workflows: what they say, and everything that can be wrong with them."""

import json

import pytest

from noonmark.core.errors import InvalidSchedule, InvalidWorkflow
from noonmark.core.instants import SECOND
from noonmark.core.policies.retry import RetryPolicy
from noonmark.core.workflows.definition import (
    Approval,
    Input,
    OnFailure,
    Wait,
    check_inputs,
    parse_definition,
    restore_definition,
)
from tests.core.workflows.defined import CALL, defined, problems_of, step, workflow

DAY = 86_400 * SECOND
UNDO = {"target_kind": "function", "function": "undo", "kwargs": {"id": "{{ steps.load.result.id }}"}}
FULL = {
    "workflow_id": "nightly.etl",
    "name": "Nightly",
    "description": "Copies\nall.",
    "inputs": {"day": {"type": "string", "description": "which"}, "sizes": {"default": [1, 2]}},
    "steps": [
        {"id": "extract", "target": {"target_kind": "command", "argv": ["extract", "{{ inputs.day }}"]}},
        {
            "id": "load",
            "target": {"target_kind": "function", "function": "load", "args": [], "kwargs": {}},
            "depends_on": ["extract"],
            "input": {"rows": "{{ steps.extract.result.rows }}", "size": "{{ item }}", "n": "{{ index }}"},
            "when": {"steps.extract.phase": "completed", "inputs.sizes": {"exists": True}},
            "for_each": "{{ inputs.sizes }}",
            "concurrency": 3,
            "retry": {
                "max_attempts": 3,
                "backoff_seconds": 1,
                "multiplier": 2,
                "max_backoff_seconds": 300,
                "on": ["OSError"],
            },
            "timeout_seconds": 1.5,
            "compensate": {"target_kind": "function", "function": "undo", "args": [], "kwargs": UNDO["kwargs"]},
        },
        {"id": "pause", "wait": {"seconds": 60}, "depends_on": ["load"]},
        {"id": "night", "wait": {"until": "2026-03-01T12:00:00Z"}},
        {
            "id": "event",
            "wait": {
                "event_type": ["a", "b"],
                "filters": {"id": "{{ steps.extract.result.id }}"},
                "timeout_seconds": 3600,
            },
            "depends_on": ["extract"],
        },
        {"id": "ask", "approval": {"message": "Go on with {{ inputs.day }}?", "expires_seconds": 60}},
    ],
    "on_failure": "continue",
}


def test_a_full_document_keeps_every_field():
    definition, version = parse_definition(FULL | {"version": 7})
    assert version == 7
    assert definition.to_document() == FULL
    assert restore_definition(json.loads(json.dumps(FULL))) == definition
    load = definition.step("load")
    assert (load.kind, load.route, load.compensation_route) == ("function", "function:load", "function:undo")
    assert (load.concurrency, load.timeout, load.retry.on) == (3, 1_500_000, ("OSError",))
    assert definition.step("ask").approval == Approval(message="Go on with {{ inputs.day }}?", expires=60 * SECOND)
    assert (definition.step("ask").kind, definition.step("pause").kind) == ("approval", "wait")
    assert definition.inputs["sizes"] == Input(default=[1, 2])
    assert definition.routes == {"command", "function:load", "function:undo"}


def test_what_is_left_out_has_a_default():
    definition, version = parse_definition(
        workflow(
            step("a", for_each=[1]), step("b", wait={"event_type": "e"}), step("c", approval={}), step("d", when={})
        )
    )
    a, b, c, d = definition.steps
    assert version is None
    assert (definition.name, definition.description, definition.inputs) == (None, "", None)
    assert definition.on_failure is OnFailure.STOP
    assert (a.concurrency, a.retry, a.timeout, a.compensate) == (10, RetryPolicy(), None, None)
    assert b.wait == Wait(event_types=("e",), timeout=DAY)
    assert c.approval == Approval(expires=7 * DAY)
    assert (d.when, d.concurrency) == (None, None)
    assert restore_definition(definition.to_document()) == definition


def test_two_documents_that_say_the_same_have_one_digest():
    one = defined(step("a", target={"target_kind": "http", "url": "https://x/{{ inputs.a }}"}), on_failure="stop")
    same = defined(
        {"target": {"url": "https://x/{{inputs.a}}", "target_kind": "http", "method": "post"}, "id": "a"}, version=3
    )
    other = defined(step("a", target={"target_kind": "http", "url": "https://x/{{inputs.b}}"}))
    assert one.digest == same.digest
    assert one.digest != other.digest
    assert len(one.digest) == 64
    assert one.digest == restore_definition(one.to_document()).digest


def test_later_changes_of_the_callers_document_do_not_reach_it():
    document = workflow(step("a", input={"x": [1]}, for_each=[{"y": 1}], when={"inputs.x": [1]}))
    definition, _ = parse_definition(document)
    digest = definition.digest
    entry = document["steps"][0]
    entry["input"]["x"].append(2)
    entry["for_each"][0]["y"] = 2
    entry["when"]["inputs.x"].append(2)
    definition.to_document()["steps"][0]["input"]["x"].append(3)
    assert parse_definition(definition.to_document())[0].digest == digest


def test_the_order_follows_the_dependencies_and_then_the_document():
    definition = defined(step("d", "b", "c", "b"), step("c", "a"), step("b", "a"), step("a"), step("alone"))
    assert [one.id for one in definition.order] == ["a", "alone", "c", "b", "d"]
    assert definition.downstream("a") == {"b", "c", "d"}
    assert definition.downstream("d") == frozenset()
    assert definition.step("d").depends_on == ("b", "c")
    with pytest.raises(KeyError):
        definition.step("e")


@pytest.mark.parametrize(
    "target",
    [
        {"target_kind": "http", "url": "https://x/{{ item.id }}", "headers": {"X": "{{ steps.a.result }}"}},
        {"target_kind": "http", "url": "https://x/{{nothing", "body": "{{ who }}", "literal": True},
        {"target_kind": "event", "event_type": "e", "payload": {"x": ["{{ event.x }}", "{{ steps.a.phase }}"]}},
        {"target_kind": "workflow", "workflow_id": "w", "version": 1, "inputs": {"all": "{{ inputs }}"}},
        {"target_kind": "bundle", "bundle_id": "b", "inputs": {"n": "{{ index }}"}},
        {"target_kind": "task", "query": "What of {{ payload.x }} at {{ nominal_time }}?"},
        {"target_kind": "mob", "type": "flow", "mob_id": "m", "flow_id": "f", "params": {"x": "{{ item }}"}},
        {
            "target_kind": "session",
            "type": "exact_session",
            "session_id": "s",
            "action": {"type": "prompt", "prompt": "{{ steps.a.result.text }}"},
        },
    ],
    ids=lambda target: target["target_kind"],
)
def test_every_kind_of_target_can_be_a_step(target):
    found = defined(step("a"), step("b", "a", target=target, for_each=[1])).step("b")
    assert found.kind == target["target_kind"]
    assert found.route == ("workflow" if target.get("type") == "flow" else found.kind)


@pytest.mark.parametrize(
    ("fields", "where", "words"),
    [
        pytest.param({"target": None}, "", "exactly one of target, wait, approval", id="nothing"),
        pytest.param({"wait": {"seconds": 1}, "target": CALL}, "", "not target and wait", id="two kinds"),
        pytest.param({"id": None}, ".id", "is required", id="no id"),
        pytest.param({"id": "ä"}, ".id", "1 to 64 letters, digits, - or _", id="unicode id"),
        pytest.param({"id": "a.b"}, ".id", "1 to 64", id="dotted id"),
        pytest.param({"id": "a" * 65}, ".id", "1 to 64", id="long id"),
        pytest.param({"id": 5}, ".id", "1 to 64", id="id a number"),
        pytest.param({"colour": "red"}, ".colour", "unknown field", id="unknown field"),
        pytest.param({"target": 5}, ".target", "must be an object", id="target a number"),
        pytest.param({"target": {}}, ".target.target_kind", "is required", id="no target kind"),
        pytest.param({"target": {"target_kind": "ping"}}, ".target.target_kind", "not be ping", id="ping"),
        pytest.param({"compensate": {"target_kind": "ping"}}, ".compensate.target_kind", "not be ping", id="undo ping"),
        pytest.param({"compensate": []}, ".compensate", "must be an object", id="undo a list"),
        pytest.param(
            {"target": {"target_kind": "task", "query": "Why?"}, "input": {"x": 1}},
            ".input",
            "does not reach a task: put placeholders",
            id="input of an agent",
        ),
        pytest.param({"depends_on": "a"}, ".depends_on", "must be an array", id="dependency a text"),
        pytest.param({"depends_on": ["ä"]}, ".depends_on[0]", "1 to 64", id="dependency unicode"),
        pytest.param({"depends_on": ["b"]}, ".depends_on[0]", 'no step "b"', id="unknown dependency"),
        pytest.param({"depends_on": ["first", "b"]}, ".depends_on[1]", 'no step "b"', id="one is unknown"),
        pytest.param({"depends_on": ["me"]}, ".depends_on[0]", "the step itself", id="self"),
        pytest.param({"depends_on": ["b"] * 101}, ".depends_on", "at most 100", id="many dependencies"),
        pytest.param({"input": [1]}, ".input", "must be an object", id="input a list"),
        pytest.param({"when": [1]}, ".when", "must be an object", id="when a list"),
        pytest.param({"when": {"inputs.x": {"like": 1}}}, ".when.inputs.x.like", "unknown operator", id="operator"),
        pytest.param({"when": {"colour": 1}}, ".when.colour", "no such name", id="unknown name in when"),
        pytest.param({"when": {"item": 1}}, ".when.item", "for_each", id="item in when"),
        pytest.param({"when": {"steps.b.result": 1}}, ".when.steps.b.result", 'no step "b"', id="step in when"),
        pytest.param({"when": {"steps.me.phase": 1}}, ".when.steps.me.phase", "depends_on", id="itself in when"),
        pytest.param({"when": {"payload": ["{{ item }}"]}}, ".when.payload[0]", "as it is written", id="filled when"),
        pytest.param({"for_each": 5}, ".for_each", "an array, or one placeholder", id="for_each a number"),
        pytest.param({"for_each": "{{ payload }}!"}, ".for_each", "an array, or one placeholder", id="for_each a text"),
        pytest.param({"for_each": ["{{ item }}"]}, ".for_each[0]", "for_each", id="item in for_each"),
        pytest.param({"for_each": "{{ steps.b.result }}"}, ".for_each", 'no step "b"', id="for_each of nothing"),
        pytest.param({"for_each": [0] * 10_001}, ".for_each", "at most 10,000", id="many elements"),
        pytest.param({"concurrency": 5}, ".concurrency", "for_each", id="concurrency of one"),
        pytest.param({"concurrency": 0, "for_each": []}, ".concurrency", "from 1 to 1,000", id="no concurrency"),
        pytest.param({"retry": {"max_attempts": 0}}, ".retry.max_attempts", "from 1", id="retry"),
        pytest.param(
            {"retry": {"on": ["OSError"]}, "target": {"target_kind": "command", "argv": ["x"]}},
            ".retry.on",
            "for functions alone",
            id="exceptions of a command",
        ),
        pytest.param({"timeout_seconds": 0}, ".timeout_seconds", "from 0.001", id="timeout"),
        pytest.param({"wait": 5}, ".wait", "must be an object", id="wait a number"),
        pytest.param({"wait": {}}, ".wait", "exactly one of seconds, until, event_type", id="empty wait"),
        pytest.param(
            {"wait": {"seconds": 1, "until": "2026-01-01T00:00:00Z"}}, ".wait", "not seconds and until", id="two waits"
        ),
        pytest.param({"wait": {"seconds": -1}}, ".wait.seconds", "from 0", id="negative wait"),
        pytest.param({"wait": {"until": "soon"}}, ".wait.until", "RFC 3339", id="until soon"),
        pytest.param({"wait": {"until": 5}}, ".wait.until", "RFC 3339", id="until a number"),
        pytest.param({"wait": {"until": "{{ item }}"}}, ".wait.until", "for_each", id="until an item"),
        pytest.param({"wait": {"event_type": []}}, ".wait.event_type", "must name", id="no event type"),
        pytest.param({"wait": {"event_type": "a b"}}, ".wait.event_type", "1 to 160", id="event type"),
        pytest.param({"wait": {"event_type": ["a", 5]}}, ".wait.event_type[1]", "1 to 160", id="second event type"),
        pytest.param({"wait": {"seconds": 1, "filters": {"a": 1}}}, ".wait.filters", "event_type", id="filters alone"),
        pytest.param(
            {"wait": {"event_type": "e", "filters": {"a": {"x": 1}}}},
            ".wait.filters.a.x",
            "unknown operator",
            id="filter operator",
        ),
        pytest.param(
            {"wait": {"event_type": "e", "filters": {"a": "{{ steps.b.result }}"}}},
            ".wait.filters.a",
            'no step "b"',
            id="filter of nothing",
        ),
        pytest.param(
            {"wait": {"event_type": "e", "timeout_seconds": 2_592_001}}, ".wait.timeout_seconds", "2,592,000", id="long"
        ),
        pytest.param({"wait": {"seconds": 1, "x": 1}}, ".wait.x", "unknown field", id="unknown in wait"),
        pytest.param({"wait": {"seconds": 1}, "for_each": []}, ".for_each", "steps with a target", id="waits"),
        pytest.param({"approval": {}, "compensate": CALL}, ".compensate", "steps with a target", id="undo approval"),
        pytest.param({"approval": True}, ".approval", "must be an object", id="approval true"),
        pytest.param({"approval": {"expires_seconds": 0}}, ".approval.expires_seconds", "from 1", id="expired"),
        pytest.param({"approval": {"message": "{{ item }}"}}, ".approval.message", "for_each", id="message"),
        pytest.param({"input": {"x": ["{{ who }}"]}}, ".input.x[0]", "asks for {{who}}: there is no such", id="name"),
        pytest.param({"input": {"x": "{{ steps.me.result }}"}}, ".input.x", "does not depend on me", id="own result"),
        pytest.param({"input": {"x": "{{ steps.me }}"}}, ".input.x", "steps.<id>.result", id="whole step"),
        pytest.param({"input": {"x": "{{ steps }}"}}, ".input.x", "steps.<id>.result", id="all steps"),
        pytest.param({"input": {"x": "{{ index }}"}}, ".input.x", "for_each", id="index"),
        pytest.param({"input": {"x": "{{ inputs.x"}}, ".input.x", "{{ without its }}", id="open"),
        pytest.param(
            {"target": {"target_kind": "function", "function": "{{ inputs.f }}"}},
            ".target.function",
            "decides what runs",
            id="function",
        ),
        pytest.param(
            {"target": {"target_kind": "command", "argv": ["{{ inputs.f }}", "{{ inputs.x }}"]}},
            ".target.argv[0]",
            "decides what runs",
            id="program",
        ),
        pytest.param(
            {"target": {"target_kind": "bundle", "bundle_id": "{{ inputs.f }}"}},
            ".target.bundle_id",
            "decides what runs",
            id="bundle",
        ),
        pytest.param(
            {"target": {"target_kind": "bundle", "bundle_id": "b", "labels": {"gpu": "{{inputs.x}}"}}},
            ".target.labels.gpu",
            "or where",
            id="labels",
        ),
        pytest.param(
            {"target": {"target_kind": "http", "url": "https://{{inputs.x}}/"}}, ".target.url", "host", id="host"
        ),
        pytest.param(
            {"target": {"target_kind": "http", "url": "https://x/{{hunter2}}"}},
            ".target.url",
            "has an unknown placeholder: there is no such name",
            id="url",
        ),
        pytest.param(
            {"target": {"target_kind": "http", "url": "https://x/{{steps.b.result}}"}},
            ".target.url",
            "asks for {{steps.b.result}}",
            id="step in url",
        ),
        pytest.param(
            {"target": {"target_kind": "http", "url": "https://x", "headers": {"A": "{{hunter2}}"}}},
            ".target.headers.A",
            "has an unknown placeholder",
            id="header",
        ),
        pytest.param(
            {"target": {"target_kind": "http", "url": "https://x", "secret_headers": {"A": "{{ item }}"}}},
            ".target.secret_headers.A",
            "the name of a secret",
            id="secret",
        ),
        pytest.param(
            {"target": {"target_kind": "http", "url": "https://x", "body": {"a": "{{ who }}"}}},
            ".target.body.a",
            "asks for {{who}}",
            id="body",
        ),
        pytest.param(
            {"compensate": CALL | {"kwargs": {"a": "{{ item }}"}}}, ".compensate.kwargs.a", "for_each", id="undo item"
        ),
    ],
)
def test_a_wrong_step_is_refused_with_its_place(fields, where, words):
    entry = {"id": "me"} | ({} if fields.keys() & {"wait", "approval"} else {"target": CALL}) | fields
    ((field, message),) = problems_of(workflow(step("first"), entry))
    assert field == f"steps[1]{where}"
    assert words in message
    assert "hunter2" not in message


@pytest.mark.parametrize(
    ("document", "where", "words"),
    [
        (None, "", "must be an object"),
        ([], "", "must be an object"),
        (workflow(), "steps", "at least one step"),
        (workflow(steps=None), "steps", "at least one step"),
        (workflow(steps={}), "steps", "must be an array"),
        (workflow(step("a"), 5), "steps[1]", "must be an object"),
        (workflow(step("a"), workflow_id=None), "workflow_id", "is required"),
        (workflow(step("a"), workflow_id="ä"), "workflow_id", "1 to 128"),
        (workflow(step("a"), workflow_id="~x"), "workflow_id", "1 to 128"),
        (workflow(step("a"), version=0), "version", "from 1"),
        (workflow(step("a"), version="latest"), "version", "an integer"),
        (workflow(step("a"), name=""), "name", "1 to 200"),
        (workflow(step("a"), description="x" * 10_001), "description", "10,000"),
        (workflow(step("a"), on_failure="retry"), "on_failure", "stop, continue"),
        (workflow(step("a"), colour=1), "colour", "unknown field"),
        (workflow(step("a"), step("b"), step("a")), "steps[2].id", "the id of steps[0] too"),
        (workflow(step("a"), name=float("nan")), "name", "NaN"),
        (workflow(step("a"), step("b", input={"x": object()})), "steps[1]", "is not JSON"),
        (float("nan"), "", "NaN"),
    ],
)
def test_a_wrong_document_is_refused_with_its_place(document, where, words):
    ((field, message),) = problems_of(document)
    assert field == where
    assert words in message


def test_everything_wrong_is_listed_at_once():
    document = workflow(
        step("a", "a", "z", input={"x": "{{ inputs.who }} {{ steps.c.result }} {{ inputs.who }}"}),
        step("a", target={"target_kind": "http", "url": "ftp://x/{{ item }}", "headers": [], "secret_headers": 5}),
        {"target": {"target_kind": "nothing", "x": "{{ who }}"}, "depends_on": ["y"]},
        step("d", "a", input={"y": "{{ steps.a.result.x }}"}, when={"steps.e.result": {"is": 1}}),
        step("e"),
        inputs={"day": {"type": "date"}},
        version=-1,
    )
    assert {field for field, _ in problems_of(document)} == {
        "version",
        "inputs.day.type",
        "steps[0].depends_on[0]",
        "steps[0].depends_on[1]",
        "steps[0].input.x",
        "steps[1].id",
        "steps[1].target.url",
        "steps[1].target.headers",
        "steps[1].target.secret_headers",
        "steps[2].id",
        "steps[2].target.target_kind",
        "steps[2].target.x",
        "steps[2].depends_on[0]",
        "steps[3].when.steps.e.result",
        "steps[3].when.steps.e.result.is",
    }
    assert [message for field, message in problems_of(document) if field == "steps[0].input.x"] == [
        "asks for {{inputs.who}}: there is no such input; there are day",
        'asks for {{steps.c.result}}: there is no step "c"',
    ]


def test_cycles_are_named_and_so_is_what_comes_after_them():
    document = workflow(
        step("free"),
        step("a", "b"),
        step("b", "c"),
        step("c", "free", "a"),
        step("behind", "c"),
        step("x", "behind", "y", input={"any": "{{ steps.y.result }}"}),
        step("y", "x"),
        step("last", "x", "free"),
    )
    assert problems_of(document) == [
        ("steps[1].depends_on", "makes a cycle of 3 steps, each of which waits for the next: a -> b -> c -> a"),
        ("steps[5].depends_on", "makes a cycle of 2 steps, each of which waits for the next: x -> y -> x"),
        ("steps[4].depends_on", "leads to a cycle: the step can never start"),
        ("steps[7].depends_on", "leads to a cycle: the step can never start"),
    ]


def test_a_step_of_a_tangle_that_is_on_no_named_cycle_is_named_too():
    problems = problems_of(workflow(step("a", "b"), step("b", "a", "c"), step("c", "b")))
    assert problems == [
        ("steps[0].depends_on", "makes a cycle of 2 steps, each of which waits for the next: a -> b -> a"),
        ("steps[2].depends_on", "leads to a cycle: the step can never start"),
    ]


def test_a_condition_may_compare_with_braces():
    assert defined(step("a", when={"payload": "{{"})).step("a").when == {"payload": "{{"}


def test_only_the_result_of_a_step_before_can_be_asked_for():
    near = [step("a"), step("b", "a"), step("c", "b", input={"x": "{{ steps.a.result }}"}), step("side")]
    assert defined(*near).step("c").input == {"x": "{{ steps.a.result }}"}
    near[2]["input"]["x"] = "{{ steps.side.result }}"
    assert problems_of(workflow(*near)) == [
        (
            "steps[2].input.x",
            "asks for {{steps.side.result}}: this step does not depend on side; add it to depends_on",
        )
    ]


def test_what_undoes_a_step_knows_its_result():
    undo = CALL | {"kwargs": {"id": "{{ steps.b.result.id }}", "from": "{{ steps.a.result }}", "item": "{{ item }}"}}
    definition = defined(step("a"), step("b", "a", compensate=undo, for_each=[1]), step("c"))
    assert definition.step("b").compensate["kwargs"] == undo["kwargs"]
    other = CALL | {"kwargs": {"id": "{{ steps.c.result }}"}}
    ((field, _),) = problems_of(workflow(step("a"), step("b", "a", compensate=other), step("c")))
    assert field == "steps[1].compensate.kwargs.id"


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (5, Input(default=5)),
        (None, Input(default=None)),
        ({"a": 1}, Input(default={"a": 1})),
        ({"type": "x", "a": 1}, Input(default={"type": "x", "a": 1})),
        ({}, Input(is_required=True)),
        ({"type": "string"}, Input(type="string", is_required=True)),
        ({"required": False}, Input()),
        ({"required": True, "description": "d"}, Input(is_required=True, description="d")),
        ({"type": "number", "default": 1.5}, Input(type="number", default=1.5)),
        ({"type": "array", "default": None}, Input(type="array")),
        ({"default": 5, "required": False}, Input(default=5)),
    ],
)
def test_an_input_is_a_specification_or_a_default(declared, expected):
    definition = defined(step("a", input={"x": "{{ inputs.x }}"}), inputs={"x": declared})
    assert definition.inputs == {"x": expected}
    assert restore_definition(definition.to_document()) == definition


@pytest.mark.parametrize(
    ("inputs", "where", "words"),
    [
        ([], "inputs", "must be an object"),
        ({str(n): 1 for n in range(101)}, "inputs", "at most 100"),
        ({"ä": 1}, "inputs.ä", "the name must be 1 to 64"),
        ({"a": {"type": "text"}}, "inputs.a.type", "string, number, integer, boolean, object, array"),
        ({"a": {"required": "yes"}}, "inputs.a.required", "true or false"),
        ({"a": {"required": True, "default": 1}}, "inputs.a.required", "a default"),
        ({"a": {"type": "string", "default": 1}}, "inputs.a.default", "of type string, not 1"),
        ({"a": {"description": 5}}, "inputs.a.description", "must be text"),
    ],
)
def test_wrong_declarations_of_inputs_are_refused(inputs, where, words):
    ((field, message),) = problems_of(workflow(step("a"), inputs=inputs))
    assert field == where
    assert words in message


@pytest.mark.parametrize(
    ("inputs", "words"),
    [({}, "the workflow has no inputs"), ({f"n{n}": 1 for n in range(12)}, "there are n0, n1, n2, n3, n4, n5, n6")],
)
def test_an_input_that_is_not_declared_cannot_be_asked_for(inputs, words):
    ((field, message),) = problems_of(workflow(step("a", input={"x": "{{ inputs.y }}"}), inputs=inputs))
    assert field == "steps[0].input.x"
    assert words in message
    assert "n11" not in message


DECLARED = {
    "text": {"type": "string"},
    "n": {"type": "integer", "default": 3},
    "on": {"type": "boolean", "default": False},
    "much": {"type": "number", "required": False},
    "map": {"type": "object", "default": {"a": [1]}},
    "list": {"type": "array", "default": []},
    "any": None,
}
DEFAULTS = {"n": 3, "on": False, "much": None, "map": {"a": [1]}, "list": [], "any": None}


@pytest.mark.parametrize(
    "given",
    [
        {"text": "x"},
        {"text": "x", "n": 5, "on": True, "much": 2, "map": {}, "list": [1], "any": "y"},
        {"text": "", "much": None, "any": [1]},
        {"text": "", "much": 0.5},
    ],
)
def test_a_run_has_its_inputs_and_the_defaults(given):
    definition = defined(step("a"), inputs=DECLARED)
    found = check_inputs(definition, given)
    assert found == DEFAULTS | given
    found["map"]["b"] = 1
    assert definition.inputs["map"].default == {"a": [1]}


def test_everything_wrong_with_the_inputs_of_a_run_is_listed_at_once():
    given = {"n": "5", "on": 1, "much": True, "map": [], "list": {}, "who": 1, "n\n": 1}
    with pytest.raises(InvalidSchedule) as caught:
        check_inputs(defined(step("a"), inputs=DECLARED), given)
    assert caught.value.code == "invalid_request"
    found = {problem.field: problem.message for problem in caught.value.problems}
    assert found.keys() == {
        "inputs.n",
        "inputs.on",
        "inputs.much",
        "inputs.map",
        "inputs.list",
        "inputs.who",
        'inputs."n\\n"',
        "inputs.text",
    }
    assert found["inputs.n"] == 'must be of type integer, not "5"'
    assert found["inputs.who"].startswith("there is no such input; there are text, n, on")
    assert found["inputs.text"] == "is required"


@pytest.mark.parametrize(
    ("inputs", "given", "words"),
    [
        (None, 5, "must be an object"),
        (None, {"x": float("nan")}, "NaN"),
        (None, {"x": "y" * 300_000}, "256 KiB"),
        ({}, {"x": 1}, "takes no inputs"),
    ],
)
def test_inputs_must_be_json_and_known(inputs, given, words):
    with pytest.raises(InvalidSchedule, match=words):
        check_inputs(defined(step("a"), inputs=inputs), given)


def test_a_definition_that_declares_no_inputs_takes_any():
    given = {"x": [1]}
    found = check_inputs(defined(step("a")), given)
    assert found == given
    assert found["x"] is not given["x"]


def test_the_error_is_one_of_a_workflow():
    with pytest.raises(InvalidWorkflow) as caught:
        parse_definition({})
    assert (caught.value.code, caught.value.field) == ("invalid_workflow", "workflow_id")
    assert isinstance(caught.value, ValueError)
