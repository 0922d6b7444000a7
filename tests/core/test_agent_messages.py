"""What actions become in a transcript."""

import pytest

from noonmark.core.agents.messages import action_message, message_text
from noonmark.core.agents.session import Message, Role
from noonmark.core.targets.content import BlockType, MediaBlock, MediaSource, TextBlock
from noonmark.core.targets.session import EventAction, PromptAction

IMAGE = MediaBlock(type=BlockType.IMAGE, media_type="image/png", source=MediaSource.URI, data="https://a.example/b.png")


@pytest.mark.parametrize(
    ("action", "role", "parts", "text"),
    [
        (PromptAction(prompt="Go."), Role.USER, ({"type": "text", "text": "Go."},), "Go."),
        (
            PromptAction(prompt=(TextBlock(text="Look:"), IMAGE, TextBlock(text="What is it?"))),
            Role.USER,
            ({"type": "text", "text": "Look:"}, IMAGE.to_document(), {"type": "text", "text": "What is it?"}),
            "Look:\n\nWhat is it?",
        ),
        (
            EventAction(event_type="deployed"),
            Role.EVENT,
            ({"type": "text", "text": "Event deployed"},),
            "Event deployed",
        ),
        (
            EventAction(event_type="deployed", payload={"to": "prod"}),
            Role.EVENT,
            ({"type": "text", "text": 'Event deployed:\n{"to": "prod"}'},),
            'Event deployed:\n{"to": "prod"}',
        ),
    ],
)
def test_an_action_becomes_a_message(action, role, parts, text):
    message = action_message(action)
    assert message == Message(role=role, parts=parts)
    assert message_text(message) == text
