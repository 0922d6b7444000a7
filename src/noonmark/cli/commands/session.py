"""`noonmark session`: create sessions with agents, talk in them, and read them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Annotated, Any

from noonmark.cli.inputs import parse_json, parse_pair
from noonmark.cli.options import Connection, ConnectionBesideKey, Limit, Number, Reason, Text, Texts
from noonmark.cli.output import EXIT_FAILED, print_answer, print_errors, print_json, print_line, print_text
from noonmark.cli.parameters import Parameter
from noonmark.cli.remote import connect, read_pages
from noonmark.core.documents import present
from noonmark.core.lifecycle import FINAL

if TYPE_CHECKING:
    from noonmark.cli.remote import Remote

POLL_SECONDS = 0.25
SessionId = Annotated[str, Parameter(help="The id of the session.")]
WithLabels = Annotated[Texts, Parameter(name="--label", help="A label, as name=value.")]


def create(  # noqa: PLR0913 - one argument per option
    session_id: Annotated[Text, Parameter(help="The id of the session; default: a generated one.")] = None,
    /,
    *,
    model: Annotated[
        Text,
        Parameter(help="The model, such as openai:gpt-5 or test, which needs no provider; default: the server's."),
    ] = None,
    system_prompt: Annotated[Text, Parameter(help="What the agent is told before every conversation.")] = None,
    label: WithLabels = (),
    max_tokens: Annotated[Number, Parameter(help="The most tokens of one answer.")] = None,
    spec_json: Annotated[Text, Parameter(help="Other fields of the session, as a JSON object.")] = None,
    connection: Connection = Connection(),
) -> None:
    """Create a session: a conversation with an agent."""
    more = {} if spec_json is None else parse_json(spec_json, field="--spec-json")
    labels = dict(parse_pair(one, "=", "--label") for one in label)
    given = present(
        session_id=session_id,
        model=model,
        system_prompt=system_prompt,
        labels=labels or None,
        max_tokens=max_tokens,
    )
    with connect(connection) as remote:
        answer = remote.call("session/create", {**(more if isinstance(more, dict) else {"spec_json": more}), **given})
    print_answer(answer, f"Created session {answer['session_id']}.", as_json=connection.as_json)


def list_sessions(
    *,
    state: Annotated[Text, Parameter(help="idle, active, suspended or archived.")] = None,
    label: WithLabels = (),
    owner: Annotated[Text, Parameter(help="Only of this user.")] = None,
    mob: Annotated[Text, Parameter(help="Only of this mob.")] = None,
    limit: Limit = 100,
    connection: Connection = Connection(),
) -> None:
    """List sessions, latest creation first."""
    labels = dict(parse_pair(one, "=", "--label") for one in label)
    arguments = present(state=state, labels=labels or None, owner=owner, mob_id=mob)
    with connect(connection) as remote:
        answer = read_pages(remote, "session/list", arguments, entries="sessions", limit=limit)
    if connection.as_json:
        print_json(answer)
        return
    from noonmark.cli.render.sessions import show_sessions
    from noonmark.cli.render.tables import more_entries

    show_sessions(answer["sessions"], more_entries(answer, limit))


def show(session_id: SessionId, /, *, connection: Connection = Connection()) -> None:
    """Show a session: its state, what it was created with, and what it has used."""
    with connect(connection) as remote:
        session = remote.call("session/get", {"session_id": session_id})
    if connection.as_json:
        print_json(session)
        return
    from noonmark.cli.render.sessions import show_session

    show_session(session)


def messages(
    session_id: SessionId,
    /,
    *,
    follow: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Print new messages as they come, until Ctrl-C.")
    ] = False,
    limit: Annotated[int, Parameter(help="How many of the newest messages to print.")] = 100,
    connection: Connection = Connection(),
) -> None:
    """Print the newest messages of a session, the oldest of them first."""
    arguments = {"session_id": session_id, "newest_first": True}
    with connect(connection) as remote:
        answer = read_pages(remote, "session/messages", arguments, entries="messages", limit=limit)
        if connection.as_json and not follow:
            print_json(answer)
            return
        page = answer["messages"][::-1]
        if not page and not follow:
            print_line("0 messages")
        last = 0
        while True:
            for message in page:
                _print_message(message, as_json=connection.as_json)
                last = message["number"]
            if not follow:
                return
            threading.Event().wait(POLL_SECONDS)
            page = remote.call("session/messages", {"session_id": session_id, "after": last})["messages"]


def _print_message(message: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(message)
        return
    from noonmark.cli.render.sessions import message_text

    print_text(message_text(message))


def send(
    session_id: SessionId,
    prompt: Annotated[str, Parameter(help="The message.")],
    /,
    *,
    wait: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Wait for the answer and print it; fail without one.")
    ] = False,
    key: Annotated[Text, Parameter(help="An idempotency key; the same key again is the same turn.")] = None,
    connection: ConnectionBesideKey = ConnectionBesideKey(),
) -> int:
    """Send a message to a session. Its turn begins when the one before has ended."""
    with connect(connection) as remote:
        turn = remote.call("session/send", present(session_id=session_id, prompt=prompt, key=key))
        if not wait:
            sentence = f"Sent to {session_id}: {turn['occurrence_id']}."
            print_answer(turn, sentence, as_json=connection.as_json)
            return 0
        turn = _wait(remote, turn)
        query = {"session_id": session_id, "occurrence_id": turn["occurrence_id"], "newest_first": True, "limit": 1}
        last = remote.call("session/messages", query)["messages"]
    answer = last[0] if last and last[0]["role"] == "assistant" else None
    if connection.as_json:
        print_json({**turn, "answer": answer})
    elif turn["phase"] == "completed" and answer is not None:
        print_text(f"{answer['text']}\n")
    else:
        print_line(f"{turn['occurrence_id']} {turn['phase'].replace('_', ' ')}: {turn['failure_detail']}")
    return 0 if turn["phase"] == "completed" else EXIT_FAILED


def _wait(remote: Remote, turn: dict[str, Any]) -> dict[str, Any]:
    """Poll an occurrence until it ends; say what it waits for."""
    shown_reasons: set[str] = set()
    while turn["phase"] not in FINAL:
        waiting_for = turn["waiting_for"]
        if waiting_for is not None and waiting_for not in shown_reasons:
            shown_reasons.add(waiting_for)
            print_errors([f"{turn['occurrence_id']} waits: {turn['why']}"])
        threading.Event().wait(POLL_SECONDS)
        turn = remote.call("occurrence/get", {"occurrence_id": turn["occurrence_id"]})
    return turn


def archive(session_id: SessionId, /, *, reason: Reason = None, connection: Connection = Connection()) -> None:
    """Archive a session: its transcript is kept, and it takes no messages."""
    with connect(connection) as remote:
        answer = remote.call("session/archive", present(session_id=session_id, reason=reason))
    print_answer(answer, f"Archived session {answer['session_id']}.", as_json=connection.as_json)


def delete(session_id: SessionId, /, *, reason: Reason = None, connection: Connection = Connection()) -> None:
    """Delete a session with its messages, unless a schedule or a mob needs it."""
    with connect(connection) as remote:
        answer = remote.call("session/delete", present(session_id=session_id, reason=reason))
    print_answer(answer, f"Deleted session {answer['session_id']}.", as_json=connection.as_json)
