"""Drawings of a workflow."""

import pytest

from noonmark.core.workflows.diagram import caption, escape, layers, mermaid
from tests.core.workflows.defined import CALL, defined, step

HOOK = {"target_kind": "http", "url": "https://hooks.example/secret/{{inputs.x}}", "method": "GET"}


def test_layers_are_what_can_start_together():
    definition = defined(step("c", "a", "b"), step("a"), step("b", "a"), step("d"))
    assert [[one.id for one in layer] for layer in layers(definition)] == [["a", "d"], ["b"], ["c"]]


def test_mermaid_draws_steps_and_arrows():
    definition = defined(
        step("end"),
        step("go-on", "end", approval={}),
        step("each", "end", "go-on", when={"steps.end.result": 1}, for_each=[1]),
        step("w", wait={"seconds": 1.5}),
        name='A "name": ---\u2067',
    )
    assert mermaid(definition) == (
        "---\n"
        'title: "A \\"name\\": ---\\u2067"\n'
        "---\n"
        "flowchart TD\n"
        '    s0["end<br/>function f"]\n'
        '    s1{{"go-on<br/>approval"}}\n'
        '    s2["each<br/>function f for each"]\n'
        '    s3(["w<br/>wait 1.5 s"])\n'
        "    s0 --> s1\n"
        "    s0 -.-> s2\n"
        "    s1 -.-> s2\n"
    )


def test_a_label_cannot_leave_its_quotes():
    evil = '"] --> x["<img src=x onerror=alert(1)>#quot;\n%%{init'
    text = mermaid(defined(step("a", target=CALL | {"function": evil.replace("\n", " ")})))
    assert text.count('"') == 2
    assert "<img" not in text
    assert escape('a"<ü') == "a#34;#60;#252;"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"target": CALL}, "function f"),
        ({"target": HOOK}, "http GET https://hooks.example"),
        ({"target": {"target_kind": "command", "argv": ["backup.sh", "--now"]}}, "command backup.sh"),
        ({"target": {"target_kind": "event", "event_type": "e"}}, "event e"),
        ({"target": {"target_kind": "workflow", "workflow_id": "w"}}, "workflow w"),
        ({"target": {"target_kind": "bundle", "bundle_id": "b"}}, "bundle b"),
        ({"target": {"target_kind": "bundle", "digest": "0f" * 32}}, "bundle 0f0f0f0f0f0f"),
        ({"target": {"target_kind": "task", "query": "q"}}, "task"),
        ({"wait": {"until": "{{ due_at }}"}}, "wait until {{ due_at }}"),
        ({"wait": {"event_type": ["a", "b"]}}, "wait for a, b"),
        ({"wait": {"seconds": 60}}, "wait 60 s"),
        ({"approval": {}}, "approval"),
    ],
)
def test_a_caption_says_what_a_step_does_and_nothing_secret(fields, words):
    assert caption(defined(step("a", **fields)).step("a")) == words
