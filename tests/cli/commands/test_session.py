"""`noonmark session` and `mob`, on a store with a node whose agents answer without a provider."""

import json
import subprocess

import pytest

from noonmark import Scheduler
from tests.cli.runner import call
from tests.cli.terminal import NOONMARK
from tests.embedded.waiting import SOON, eventually

CREW = {
    "mob_id": "crew",
    "members": [{"member_id": "writer", "model": "test", "role": "editor"}],
    "flows": {"news": {"steps": [{"id": "draft", "member_id": "writer", "prompt": "Go."}]}},
}


@pytest.fixture(scope="module")
def desk(cli):
    """The commands, with a node and a session."""
    assert cli("session", "create", "desk", "--model", "test", "--label", "of=tests") == "Created session desk.\n"
    with Scheduler(cli.connection[1], agents="embedded") as scheduler:
        yield cli
    scheduler.close()


def test_an_answer_is_waited_for_and_in_the_transcript(desk):
    answer = desk("session", "send", "desk", "Say hello.", "--wait")
    assert answer.strip()
    found = desk.json("session", "messages", "desk")["messages"]
    assert [one["role"] for one in found] == ["assistant", "user"]  # newest first, as the operation has it
    assert found[0]["text"] == answer.strip()
    printed = desk("session", "messages", "desk")
    assert printed.index("1 user") < printed.index("Say hello.") < printed.index("2 assistant") < printed.index(answer)
    session = desk.json("session", "show", "desk")
    assert (session["state"], session["message_count"], session["usage"]["model_calls"]) == ("idle", 2, 1)
    shown = desk("session", "show", "desk")
    assert "desk (idle)" in shown
    assert "of=tests" in shown
    assert "desk" in desk("session", "list", "--label", "of=tests")
    sent = desk.json("session", "send", "desk", "And again.", "--key", "again", "--wait")
    assert (sent["phase"], sent["answer"]["role"], sent["answer"]["number"]) == ("completed", "assistant", 4)


def test_a_session_without_messages_says_so(desk):
    desk("session", "create", "silent", "--model", "test")
    assert desk("session", "messages", "silent") == "0 messages\n"


def test_a_message_is_told_as_it_was_typed(desk):
    desk("session", "create", "braces", "--model", "test")
    desk("session", "send", "braces", "What is {{ payload.x }} at {{ due_at }}?", "--wait")
    assert "What is {{ payload.x }} at {{ due_at }}?" in desk("session", "messages", "braces")


def test_a_transcript_is_followed(desk):
    desk("session", "create", "followed", "--model", "test")
    command = (*NOONMARK, "session", "messages", "followed", "--follow", "--json", *desk.connection)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        try:
            desk("session", "send", "followed", "One.", "--wait")
            desk("session", "send", "followed", "Two.", "--wait")
            documents = [json.loads(following.stdout.readline()) for _ in range(4)]
        finally:
            following.kill()
            following.wait(SOON)
    assert [(one["number"], one["role"]) for one in documents] == [
        (1, "user"), (2, "assistant"), (3, "user"), (4, "assistant"),
    ]  # fmt: skip
    assert documents[2]["text"] == "Two."


def test_a_session_whose_provider_fails_can_be_archived(desk):
    desk("session", "create", "broken", "--model", "openai:none", "--spec-json", '{"max_tokens": 5}')
    sent = desk.json("session", "send", "broken", "Hello.")

    def has_ended():
        shown = desk.json("session", "show", "broken")
        return shown["occurrence_id"] == sent["occurrence_id"] and shown["state"] == "suspended"

    eventually(has_ended)
    desk("session", "archive", "broken", "--reason", "over")
    assert desk.refused(4, "session", "send", "broken", "Hello.") == [
        "session_id: it is archived, and takes no messages"
    ]


def test_a_mob_is_created_from_a_file(desk, tmp_path):
    file = tmp_path / "crew.json"
    file.write_text(json.dumps(CREW))
    assert desk("mob", "create", file) == "Created mob crew with writer.\n"
    assert "news" in desk("mob", "list")
    shown = desk("mob", "show", "crew")
    assert "mob:crew:writer" in shown
    assert "draft" in shown
    assert shown.split()[:2] == ["Mob", "crew"]
    assert "\n\n1 member\n\nFlow" in shown
    assert desk("session", "send", "mob:crew:writer", "Hello.", "--wait").strip()
    assert " tokens, 1 model call, 0 tool calls, " in desk("session", "show", "mob:crew:writer")
    wrong = {"mob_id": "other", "members": CREW["members"], "flows": {"f": {"steps": [
        {"id": "s", "member_id": "boss", "prompt": "Go."}]}}}  # fmt: skip
    file.write_text(json.dumps(wrong))
    assert desk.refused(2, "mob", "create", file) == [
        'flows.f.steps[0].member_id: must be a member of the mob, one of writer, not "boss"'
    ]
    missing = {"target_kind": "session", "type": "exact_session", "session_id": "gone",
               "action": {"type": "prompt", "prompt": "Hi."}}  # fmt: skip
    desk("schedule", "create", "--schedule-json", json.dumps({"schedule_id": "gone", "target": missing}), "--every=6h")
    ended = call("schedule", "run-now", "gone", "--wait", *desk.connection)
    assert ended.out.endswith("misfired: There was no session `gone`.\n")
    desk("schedule", "delete", "gone")
    assert desk("mob", "delete", "crew") == "Deleted mob crew.\n"
    assert desk("session", "delete", "mob:crew:writer") == "Deleted session mob:crew:writer.\n"
    file.write_text("[1]")
    assert desk.refused(2, "mob", "create", file) == [f"{file}: must have one document, with a mob"]
