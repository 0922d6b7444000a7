"""The bounds of a turn: sizes from above, the history that is sent, and agents that go in circles."""

import pytest

from noonmark.core.agents.bounds import json_tokens, message_tokens, recent_messages, text_tokens, tool_loop
from noonmark.core.agents.session import Message, Role


def said(role, *parts, turn="now", data=None):
    return Message(role=role, parts=parts, occurrence_id=turn, data=data)


def text(words, role=Role.USER, turn="now"):
    return said(role, {"type": "text", "text": words}, turn=turn)


def call(arguments, name="look"):
    return said(Role.ASSISTANT, {"type": "tool_call", "id": "1", "name": name, "arguments": arguments})


def result(content, *, is_error=False, name="look"):
    part = {"type": "tool_result", "id": "1", "name": name, "content": content}
    return said(Role.TOOL, part | ({"is_error": True} if is_error else {}))


@pytest.mark.parametrize(("words", "tokens"), [("", 0), ("abc", 1), ("abcd", 2), ("äöü", 2), ("\ud800", 1)])
def test_the_tokens_of_a_text_are_estimated_from_its_bytes(words, tokens):
    assert text_tokens(words) == tokens


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        (text("abcdef"), 18),
        (said(Role.USER, {"type": "image", "data": "x" * 9_000}), 3_016),
        (said(Role.USER, {"type": "video", "duration_ms": 1_500}), 616),
        (said(Role.USER, {"type": "video"}), 18_016),
        (said(Role.ASSISTANT, {"type": "tool_call", "id": "1"}), 16 + json_tokens({"type": "tool_call", "id": "1"})),
        (said(Role.ASSISTANT, {"type": "text", "text": "ab"}, data="y" * 298), 116),
    ],
)
def test_a_message_counts_by_its_text_or_by_what_is_sent_of_it(message, tokens):
    assert message_tokens(message) == tokens


def test_the_history_ends_with_the_turn_and_begins_with_what_the_agent_was_told():
    old = [
        text("a" * 30, turn="old"),  # 26 tokens each
        text("b" * 30, Role.ASSISTANT, turn="old"),
        text("c" * 30, turn="new"),
        text("d" * 30, Role.ASSISTANT, turn="new"),
    ]
    own = [text("e" * 30), text("f" * 30, Role.ASSISTANT)]

    def sent(most):
        return [one.parts[0]["text"][0] for one in recent_messages([*old, *own], most=most, occurrence_id="now")]

    assert sent(1_000) == list("abcdef")
    assert sent(104) == list("abcdef")
    assert sent(103) == list("cdef")
    assert sent(51) == list("ef")
    assert sent(0) == list("ef")
    assert recent_messages(old, most=52, occurrence_id="now") == old[2:]


def loop(*messages):
    return tool_loop(messages)


def test_the_same_call_five_times_in_a_row_is_a_loop():
    same = [call({"a": 1, "b": 2}), call({"b": 2, "a": 1})] * 2
    assert loop(*same) is None
    assert loop(*same, call({"a": 1, "b": 2})) == (
        "the agent called the tool look 5 times in a row with the same arguments"
    )
    assert loop(*same, call({"a": 2})) is None
    assert loop(*same, call({"a": 1, "b": 2}, name="see")) is None
    assert loop(call(1), *same) is None


def test_the_same_error_three_times_in_a_row_is_a_loop():
    error = result("no such file", is_error=True)
    assert loop(error, error) is None
    assert loop(error, error, error) == "the tool look failed 3 times in a row with the same error"
    assert loop(error, result("no such file"), error, error) is None
    assert loop(error, error, result("another", is_error=True)) is None
    assert loop(error, error, result("no such file", is_error=True, name="see")) is None
    assert loop(text("hello"), error, error, text("x", Role.ASSISTANT), error) is not None
