"""Sessions, their messages and mobs, as tables and text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from noonmark.cli.output import print_line, shorten
from noonmark.cli.render.console import facts_table, open_console
from noonmark.cli.render.tables import show_table
from noonmark.cli.render.times import local_times

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_CALL = 200
"""How much of the arguments of a call of a tool, and of its result, is shown."""


def show_sessions(sessions: Sequence[dict[str, Any]], more: str) -> None:
    """Show sessions."""
    times = local_times()
    rows = [
        [
            one["session_id"],
            one["state"],
            one["model"],
            one["message_count"],
            one["usage"]["total_tokens"],
            cost_text(one["cost_usd"]),
            times.local(one["updated_at_utc"]),
        ]
        for one in sessions
    ]
    titles = ["Session", "State", "Model", "Messages", "Tokens", "Cost", times.titles("Updated")[0]]
    show_table(titles, rows, _count(len(sessions), "session") + more)


def show_session(session: Mapping[str, Any]) -> None:
    """Show a session."""
    times, usage = local_times(), session["usage"]
    labels = ", ".join(f"{name}={value}" for name, value in session["labels"].items())
    calls = f"{_count(usage['model_calls'], 'model call')}, {_count(usage['tool_calls'], 'tool call')}"
    facts = {
        "Session": f"{session['session_id']} ({session['state']})",
        "Model": session["model"],
        "System prompt": session.get("system_prompt"),
        "Labels": labels,
        "Schedule": session["schedule_id"],
        "Mob": session["mob_id"],
        "Role": session["role"],
        "Messages": f"{session['message_count']:,}",
        "Used": f"{_count(usage['total_tokens'], 'token')}, {calls}, {cost_text(session['cost_usd'])}",
        "Last turn": session["occurrence_id"],
        "Created": f"{times.local(session['created_at_utc'])} by {session['owner']['user']}",
        "Updated": times.local(session["updated_at_utc"]),
    }
    with open_console() as console:
        console.print(facts_table({name: fact for name, fact in facts.items() if fact}))


def message_text(message: Mapping[str, Any]) -> str:
    """A message, with who said it and when."""
    head = f"{message['number']} {message['role']}, {local_times().local(message['at_utc'])}"
    lines = [line for part in message["parts"] for line in _part(part).splitlines()]
    return "\n".join([head, *(f"    {line}" for line in lines)]) + "\n"


def _part(part: Mapping[str, Any]) -> str:
    match part:
        case {"type": "text", "text": text}:
            return str(text)
        case {"type": "tool_call", "name": name, "arguments": arguments}:
            return f"calls {name}({_short(arguments)})"
        case {"type": "tool_result", "name": name, "content": content}:
            return f"{name} {'failed' if part.get('is_error') else 'answered'}: {_short(content)}"
        case _:
            return f"[{part.get('type', 'unknown')}]"


def _short(value: object) -> str:
    return shorten(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), MAX_CALL)


def show_mobs(mobs: Sequence[dict[str, Any]], more: str) -> None:
    """Show mobs."""
    times = local_times()
    rows = [
        [
            one["mob_id"],
            ", ".join(member["member_id"] for member in one["members"]),
            ", ".join(one["flows"]) or "-",
            times.local(one["created_at_utc"]),
        ]
        for one in mobs
    ]
    show_table(["Mob", "Members", "Flows", times.titles("Created")[0]], rows, _count(len(mobs), "mob") + more)


def show_mob(mob: Mapping[str, Any]) -> None:
    """Show the members of a mob, and its flows."""
    rows = [
        [member["member_id"], member.get("role") or "-", member["model"], member["session_id"]]
        for member in mob["members"]
    ]
    created = f"{local_times().local(mob['created_at_utc'])} by {mob['owner']['user']}"
    with open_console() as console:
        console.print(facts_table({"Mob": mob["mob_id"], "Created": created}))
        console.print()
    show_table(["Member", "Role", "Model", "Session"], rows, _count(len(rows), "member"))
    if mob["flows"]:
        print_line("")
        flows = [
            [flow_id, ", ".join(str(step.get("id")) for step in flow["steps"])]
            for flow_id, flow in mob["flows"].items()
        ]
        show_table(["Flow", "Steps"], flows, _count(len(flows), "flow"))


def cost_text(cost_usd: float | None) -> str:
    """An amount of money; a price may be unknown."""
    return "unknown cost" if cost_usd is None else f"${cost_usd:.4f}"


def _count(number: int, singular: str) -> str:
    return f"{number:,} {singular if number == 1 else f'{singular}s'}"
