"""`noonmark schedule run-now` and `noonmark run cancel`: one run, asked for or called off."""

from __future__ import annotations

import json
import sys
import threading
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from noonmark.cli import exits
from noonmark.cli.documents import parse_json
from noonmark.cli.options import USUAL_PLACE, Reason, ScheduleId, Where
from noonmark.cli.output import MAX_LINE, one_line, print_json
from noonmark.cli.remote import connected
from noonmark.core.documents import present
from noonmark.core.lifecycle import FINAL

if TYPE_CHECKING:
    from noonmark.cli.remote import Remote

LOOK_AGAIN = 0.25
"""Seconds between two looks at a run that is waited for."""


def run_now(  # noqa: PLR0913 - each is an option of its own
    schedule_id: ScheduleId,
    /,
    *,
    payload_json: Annotated[str | None, Parameter(show_default=False, help="JSON that goes with it.")] = None,
    overlap: Annotated[
        str | None, Parameter(show_default=False, help="Another overlap policy for this run, such as allow.")
    ] = None,
    key: Annotated[
        str | None, Parameter(show_default=False, help="The same key again is the same run, not another one.")
    ] = None,
    wait: Annotated[
        bool,
        Parameter(negative=(), show_default=False, help="Wait for its end, with retries; fail unless it completes."),
    ] = False,
    reason: Reason = None,
    place: Where = USUAL_PLACE,
) -> int:
    """Run it now, beside its own times."""
    payload = None if payload_json is None else parse_json(payload_json, field="--payload-json")
    arguments = present(schedule_id=schedule_id, payload=payload, overlap=overlap, key=key, reason=reason)
    with connected(place) as remote:
        one = remote.call("schedule/run", arguments)
        asked = {"occurrence_id": one["occurrence_id"]}
        if wait:
            one = _ended(remote, asked)
            one["runs"] = remote.call("occurrence/runs", asked)["runs"]
    if place.as_json:
        print_json(one)
    elif wait:
        _print(f"{one['occurrence_id']} {_told(one)}")
    else:
        _print(f"Asked for a run of {schedule_id}: {one['occurrence_id']}.")
    return exits.FAILED if wait and one["phase"] != "completed" else 0


def _ended(remote: Remote, asked: dict[str, Any]) -> dict[str, Any]:
    """The occurrence, when it has ended."""
    while (one := remote.call("occurrence/get", asked))["phase"] not in FINAL:
        threading.Event().wait(LOOK_AGAIN)
    return one


def _told(one: dict[str, Any]) -> str:
    """How an occurrence ended, and what it gave or why it failed."""
    ended, last = one["phase"].replace("_", " "), max(one["runs"], key=lambda run: run["attempt"], default=None)
    if last is not None and last["error"]:
        return f"{ended}: {_short(last['error'])}"
    if last is not None and last["result"] is not None:
        return f"{ended}: {json.dumps(last['result'], ensure_ascii=False)}"
    return f"{ended}." if one["phase"] == "completed" or one["why"] is None else f"{ended}: {one['why']}"


def _short(error: str) -> str:
    """The first thing to know of an error: of a traceback, that is how it ends."""
    lines = error.strip().splitlines()
    text = lines[-1] if lines and lines[0].startswith("Traceback") else error
    return text if len(text) <= MAX_LINE else f"{text[:MAX_LINE]}…"


def cancel(
    occurrence_id: Annotated[str, Parameter(help="The id of the occurrence, as run-now and the lists show it.")],
    /,
    *,
    reason: Reason = None,
    place: Where = USUAL_PLACE,
) -> None:
    """Let one occurrence not begin, or ask its run to stop; the schedule goes on."""
    with connected(place) as remote:
        one = remote.call("occurrence/cancel", present(occurrence_id=occurrence_id, reason=reason))
    if place.as_json:
        print_json(one)
    elif one["phase"] in FINAL:
        _print(f"Cancelled {one['occurrence_id']}.")
    else:
        _print(f"Asked {one['occurrence_id']} to stop; it is {one['phase']}.")


def _print(sentence: str) -> None:
    sys.stdout.write(one_line(sentence) + "\n")
