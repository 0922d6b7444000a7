"""Commands that steer what is there: pause, resume, run now, delete and backfill; events and the worker."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from noonmark.cli import exits
from noonmark.cli.documents import parse_json
from noonmark.cli.options import USUAL_PLACE, Place, Reason, ScheduleId, Where
from noonmark.cli.output import called, one_line, print_json
from noonmark.cli.pages import MAX_PAGE, bar
from noonmark.cli.remote import connected
from noonmark.cli.times import read_instant
from noonmark.core.documents import present
from noonmark.core.errors import NotFound

if TYPE_CHECKING:
    from noonmark.cli.remote import Remote

LOOK_AGAIN = 0.5
"""Seconds between two looks at how far a backfill is."""

Payload = Annotated[str | None, Parameter(show_default=False, help="JSON that goes with it.")]
Confirm = Annotated[
    bool, Parameter(negative=(), show_default=False, help="Ask first, if there is a terminal to ask on.")
]


def pause(schedule_id: ScheduleId, /, *, reason: Reason = None, place: Where = USUAL_PLACE) -> None:
    """Let nothing start by itself until it is resumed; what runs goes on."""
    _steer(place, "schedule/pause", present(schedule_id=schedule_id, reason=reason), "Paused {}.")


def resume(schedule_id: ScheduleId, /, *, reason: Reason = None, place: Where = USUAL_PLACE) -> None:
    """Let it run again, from now on."""
    _steer(place, "schedule/resume", present(schedule_id=schedule_id, reason=reason), "Resumed {}.")


def delete(
    schedule_id: ScheduleId, /, *, reason: Reason = None, confirm: Confirm = False, place: Where = USUAL_PLACE
) -> int:
    """Let nothing of it start any more; its history stays."""
    return _delete(schedule_id, reason=reason, confirm=confirm, place=place, kind=None)


def delete_trigger(
    schedule_id: ScheduleId, /, *, reason: Reason = None, confirm: Confirm = False, place: Where = USUAL_PLACE
) -> int:
    """Let no event set it off any more; its history stays."""
    return _delete(schedule_id, reason=reason, confirm=confirm, place=place, kind="event")


def _delete(schedule_id: str, *, reason: str | None, confirm: bool, place: Place, kind: str | None) -> int:
    with connected(place) as remote:
        document = remote.call("schedule/get", {"schedule_id": schedule_id, "include_deleted": True})
        if kind is not None and (document["trigger"] or {}).get("type") != kind:
            raise NotFound(
                f"{schedule_id} is a schedule that no event sets off; noonmark schedule delete deletes it",
                field="schedule_id",
            )
        if confirm and not _is_sure(f"Delete {called(document)}?"):
            return exits.FAILED
        gone = remote.call("schedule/delete", present(schedule_id=schedule_id, reason=reason))
    _tell(place, gone, f"Deleted {called(gone)}; its history stays.")
    return 0


def _is_sure(question: str) -> bool:
    """What somebody at a terminal answers; where there is none, nobody is asked."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    sys.stderr.write(f"{one_line(question)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def backfill(  # noqa: PLR0913 - each is an option of its own
    schedule_id: ScheduleId,
    /,
    *,
    first: Annotated[str, Parameter(name="--from", help="The first instant: 2026-11-01T00:00:00Z.")],
    last: Annotated[str, Parameter(name="--to", help="The last instant, inclusive; not later than now.")],
    dry_run: Annotated[bool, Parameter(negative=(), show_default=False, help="Only say what would run.")] = False,
    limit: Annotated[int, Parameter(help="Refuse more than so many, up to 10,000.")] = 1_000,
    concurrency: Annotated[
        int | None, Parameter(show_default=False, help="So many at a time; one after another unless given.")
    ] = None,
    key: Annotated[
        str | None, Parameter(show_default=False, help="The same key again is the same backfill, not another one.")
    ] = None,
    wait: Annotated[bool, Parameter(negative=(), show_default=False, help="Wait until all have ended.")] = False,
    place: Where = USUAL_PLACE,
) -> int:
    """Run past times of a schedule again, from the first to the last."""
    arguments = present(
        schedule_id=schedule_id,
        to=read_instant(last, "--to"),
        dry_run=dry_run,
        limit=limit,
        concurrency=concurrency,
        key=key,
    ) | {"from": read_instant(first, "--from")}
    with connected(place) as remote:
        answer = remote.call("schedule/backfill", arguments)
        phases = _await(remote, schedule_id, answer) if wait and not dry_run else {}
    if place.as_json:
        print_json(answer | ({"phases": phases} if phases else {}))
    else:
        _show_backfill(answer, phases, is_dry=dry_run)
    return exits.FAILED if set(phases) - {"completed"} else 0


def _await(remote: Remote, schedule_id: str, answer: dict[str, Any]) -> dict[str, int]:
    """Wait until all have ended; how many did in each phase."""
    origin, left = f"backfill:{answer['backfill_id']}", answer["count"]
    with bar("Running", left) as advance:
        while left:
            live = _count(remote, schedule_id, origin, answer["count"], include_terminal=False).total()
            advance(left - live)
            left = live
            if left:
                threading.Event().wait(LOOK_AGAIN)
    return dict(_count(remote, schedule_id, origin, answer["count"], include_terminal=True))


def _count(remote: Remote, schedule_id: str, origin: str, most: int, *, include_terminal: bool) -> Counter[str]:
    """The phases of the occurrences of one origin."""
    found: Counter[str] = Counter()
    asked = {"schedule_id": schedule_id, "include_terminal": include_terminal, "limit": MAX_PAGE}
    while True:
        page = remote.call("schedule/occurrences", asked)
        found.update(one["phase"] for one in page["occurrences"] if one["origin"] == origin)
        if page["next_cursor"] is None or found.total() >= most:
            return found
        asked["cursor"] = page["next_cursor"]


def _show_backfill(answer: dict[str, Any], phases: dict[str, int], *, is_dry: bool) -> None:
    from noonmark.cli.tables import show_occurrences  # noqa: PLC0415 - JSON needs no rich, which is slow to load

    if is_dry:
        show_occurrences(answer["occurrences"], " would run")
        return
    count = f"{answer['count']:,} {'occurrence' if answer['count'] == 1 else 'occurrences'}"
    ended = ": " + ", ".join(f"{number:,} {phase}" for phase, number in sorted(phases.items())) if phases else ""
    _print(f"Backfill {answer['backfill_id']}: {count}{ended}.")


def emit(
    event_type: Annotated[str, Parameter(help="The type of the event, such as file_uploaded.")],
    /,
    *,
    payload_json: Payload = None,
    source: Annotated[str, Parameter(help="Who emits it.")] = "cli",
    event_id: Annotated[
        str | None, Parameter(show_default=False, help="The same id again is the same event, not another one.")
    ] = None,
    place: Where = USUAL_PLACE,
) -> None:
    """Emit an event; the schedules that wait for it follow by themselves."""
    payload = None if payload_json is None else parse_json(payload_json, field="--payload-json")
    arguments = present(event_type=event_type, payload=payload, source=source, event_id=event_id)
    with connected(place) as remote:
        answer = remote.call("event/emit", arguments)
    if answer.get("duplicate"):
        told = f"{answer['event_id']} was emitted before, with another type or payload: nothing new."
    else:
        told = f"Emitted {event_type} as {answer['event_id']}."
    _tell(place, answer, told)


def start_worker(*, place: Where = USUAL_PLACE) -> None:
    """Let the server that is asked run what is due."""
    _worker(place, "worker/start")


def stop_worker(*, place: Where = USUAL_PLACE) -> None:
    """Let the server that is asked start nothing more; other nodes go on."""
    _worker(place, "worker/stop")


def confirm_time(*, place: Where = USUAL_PLACE) -> None:
    """Tell the server that is asked that its store's time is right, although it leapt ahead."""
    _worker(place, "worker/confirm-time")


def worker_status(*, place: Where = USUAL_PLACE) -> None:
    """Say whether the server that is asked runs what is due."""
    _worker(place, "worker/status")


def _worker(place: Place, name: str) -> None:
    with connected(place) as remote:
        answer = remote.call(name, {})
    if place.as_json:
        print_json(answer)
        return
    from noonmark.cli.show import facts_table, page  # noqa: PLC0415 - as above

    told = {name.replace("_", " "): _fact(value) for name, value in answer["worker_status"].items()}
    with page() as out:
        out.print(f"The worker is {one_line(answer['status'])}.")
        out.print(facts_table(told))


def _fact(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


def _steer(place: Place, name: str, arguments: dict[str, Any], done: str) -> None:
    with connected(place) as remote:
        document = remote.call(name, arguments)
    _tell(place, document, done.format(called(document)))


def _tell(place: Place, document: dict[str, Any], sentence: str) -> None:
    if place.as_json:
        print_json(document)
    else:
        _print(sentence)


def _print(sentence: str) -> None:
    sys.stdout.write(one_line(sentence) + "\n")
