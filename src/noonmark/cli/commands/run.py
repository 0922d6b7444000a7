"""Occurrences and runs: `noonmark run`, and the commands of `noonmark schedule` that start, list or explain them."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

from noonmark.cli.commands.schedule import act_on_selection, is_selection, schedule_filter
from noonmark.cli.inputs import parse_optional_instant, parse_optional_json, parse_past
from noonmark.cli.options import (
    Connection,
    ConnectionBesideKey,
    Limit,
    OccurrenceSelection,
    OneOrSelection,
    Reason,
    ScheduleId,
    ScheduleSelection,
)
from noonmark.cli.output import (
    EXIT_FAILED,
    one_line,
    print_answer,
    print_errors,
    print_json,
    print_line,
    print_text,
    print_warning,
    progress_bar,
    shorten,
)
from noonmark.cli.parameters import Parameter
from noonmark.cli.remote import MAX_PAGE, connect, nodes_of_open, read_pages
from noonmark.core.documents import present
from noonmark.core.errors import InvalidRequest, NotFound
from noonmark.core.lifecycle import FAILURES, FINAL
from noonmark.core.reasons import Reason as Reasons
from noonmark.core.run import output_text

if TYPE_CHECKING:
    from noonmark.cli.remote import Remote


def filters(selection: OccurrenceSelection) -> dict[str, Any]:
    """The filters of an operation."""
    return schedule_filter(None, selection.label) | present(
        phase=list(selection.phase) or None,
        reason=list(selection.why) or None,
        schedule_id=selection.schedule,
        since=parse_past(selection.since, "--since"),
        until=parse_past(selection.until, "--until"),
    )


def failures(
    *, selection: OccurrenceSelection = OccurrenceSelection(), limit: Limit = 100, connection: Connection = Connection()
) -> None:
    """List what failed or was missed, across schedules, latest end first.

    See one with noonmark schedule explain OCCURRENCE, and run it again with noonmark run redrive OCCURRENCE.
    """
    arguments = {"phase": sorted(FAILURES), **filters(selection)}
    with connect(connection) as remote:
        answer = read_pages(remote, "occurrence/list", arguments, entries="occurrences", limit=limit)
    if connection.as_json:
        print_json(answer)
        return
    from noonmark.cli.render.tables import more_entries, show_failures

    show_failures(answer["occurrences"], more_entries(answer, limit))


def redrive(
    *occurrence_ids: Annotated[str, Parameter(name="OCCURRENCE-ID", help="The ids of ended occurrences.")],
    selection: OccurrenceSelection = OccurrenceSelection(),
    limit: Annotated[int, Parameter(help="Refuse a selection of more occurrences, up to 10,000.")] = 1_000,
    dry_run: Annotated[bool, Parameter(negative=(), show_default=False, help="Only show what would run.")] = False,
    comment: Reason = None,
    connection: Connection = Connection(),
) -> int:
    """Run occurrences again that failed or were missed: by id, or all that a selection finds.

    Each runs again once, as a new occurrence with the same nominal time and payload.
    """
    arguments = filters(selection)
    if bool(occurrence_ids) == bool(arguments):
        raise InvalidRequest("give the ids of occurrences, or a selection such as --since 1d")
    selections = [{"occurrence_id": one} for one in occurrence_ids] or [arguments | {"limit": limit}]
    with connect(connection) as remote:
        more = present(dry_run=dry_run or None, comment=comment)
        answers = [remote.call("occurrence/redrive", one | more) for one in selections]
    answer = {
        "count": sum(one["count"] for one in answers),
        "occurrences": [row for one in answers for row in one["occurrences"]],
        "refused": [row for one in answers for row in one["refused"]],
    }
    if connection.as_json:
        print_json(answers[0] if len(answers) == 1 else answer)
    else:
        _show_redrive(answer, dry_run=dry_run)
    return EXIT_FAILED if answer["refused"] and not answer["count"] else 0


def _show_redrive(answer: dict[str, Any], *, dry_run: bool) -> None:
    from noonmark.cli.render.tables import show_failures

    # What has ended already is the answer to an earlier redrive of the same occurrence.
    ended = [row for row in answer["occurrences"] if row["completed_at_utc"] is not None]
    waiting = [row for row in answer["occurrences"] if row["completed_at_utc"] is None]
    show_failures(waiting, " would run again" if dry_run else " to run again")
    for row in ended:
        old = row["origin"].rpartition("redrive:")[2]
        print_line(f"{old} ran again already, as {row['occurrence_id']}: {row['phase']}.")
    for refused in answer["refused"]:
        print_line(f"{refused['occurrence_id']} does not run again: {refused['problem']}.")


RUN_POLL_SECONDS = 0.25
UNCLAIMED_SECONDS = 2
"""A node that is alive claims what is due in less."""
BACKFILL_POLL_SECONDS = 0.5
_OCCURRENCE_ID = re.compile(r"occ_[0-9a-f]{32}")
_RUN_ID = re.compile(r"(occ_[0-9a-f]{32})-[0-9]+")
"""The id of a run: the id of its occurrence, and the attempt."""


def run_now(  # noqa: PLR0913 - one argument per option
    schedule_id: OneOrSelection = None,
    /,
    *,
    selection: ScheduleSelection = ScheduleSelection(),
    payload_json: Annotated[str | None, Parameter(show_default=False, help="The payload, as JSON.")] = None,
    overlap: Annotated[
        str | None, Parameter(show_default=False, help="Another overlap policy for this run, such as allow.")
    ] = None,
    key: Annotated[
        str | None, Parameter(show_default=False, help="An idempotency key; the same key again is the same run.")
    ] = None,
    wait: Annotated[
        bool,
        Parameter(
            negative=(), show_default=False, help="Wait for the end, including retries; fail unless it completes."
        ),
    ] = False,
    reason: Reason = None,
    connection: ConnectionBesideKey = ConnectionBesideKey(),
) -> int:
    """Run a schedule now, or all that a selection finds, in addition to their own fires."""
    payload = parse_optional_json(payload_json, "--payload-json")
    arguments = present(schedule_id=schedule_id, payload=payload, overlap=overlap, key=key, reason=reason)
    if is_selection(schedule_id, selection):
        if wait:
            raise InvalidRequest("waits for one run; give the id of a schedule", field="--wait")
        return act_on_selection(connection, "selection/run", selection, arguments, ("Requested a run of", "Would run"))
    with connect(connection) as remote:
        occurrence = remote.call("schedule/run", arguments)
        occurrence_id = occurrence["occurrence_id"]
        if wait:
            occurrence = _wait_for_occurrence(remote, occurrence_id)
            occurrence["runs"] = remote.call("occurrence/runs", {"occurrence_id": occurrence_id})["runs"]
    sentence = (
        f"{occurrence_id} {_outcome(occurrence)}" if wait else f"Requested a run of {schedule_id}: {occurrence_id}."
    )
    print_answer(occurrence, sentence, as_json=connection.as_json)
    if wait and not connection.as_json:
        for line in _written_before(occurrence):
            print_text(f"    {shorten(line)}\n")
    return EXIT_FAILED if wait and occurrence["phase"] != "completed" else 0


def _wait_for_occurrence(remote: Remote, occurrence_id: str) -> dict[str, Any]:
    """Poll an occurrence until it ends; say it if no node takes it up."""
    arguments, is_said, polls = {"occurrence_id": occurrence_id}, False, 0
    while (occurrence := remote.call("occurrence/get", arguments))["phase"] not in FINAL:
        why = _why_it_waits(occurrence, polls * RUN_POLL_SECONDS)
        if why is not None and not is_said:
            is_said = True
            print_errors([f"{occurrence_id} waits: {why}"])
        threading.Event().wait(RUN_POLL_SECONDS)
        polls += 1
    return occurrence


def _why_it_waits(occurrence: dict[str, Any], seconds: float) -> str | None:
    """What somebody has to do before an occurrence runs that has been waited for so long; None if nothing is known."""
    if occurrence["waiting_for"] == Reasons.TARGET_MISSING:
        return str(occurrence["why"])
    is_new = occurrence["phase"] == "pending" and not occurrence["attempt"] and occurrence["why"] is None
    if is_new and seconds >= UNCLAIMED_SECONDS:
        return "no node has claimed it; start one, such as `noonmark serve`, or the program that has its function"
    return None


def _outcome(occurrence: dict[str, Any]) -> str:
    """The final phase of an occurrence, with its result or the reason of its failure."""
    phase = occurrence["phase"].replace("_", " ")
    last = _final_run(occurrence)
    if last is not None and last["error"]:
        return f"{phase}: {shorten(last['error'].strip().splitlines()[-1])}"
    if last is not None and last["result"] is not None:
        return f"{phase}: {json.dumps(last['result'], ensure_ascii=False)}"
    if occurrence["phase"] == "completed" or occurrence["why"] is None:
        return f"{phase}."
    return f"{phase}: {occurrence['why']}"


def _written_before(occurrence: dict[str, Any]) -> list[str]:
    """What a failed program wrote at last, line by line; the last line of its error says how it ended."""
    last = _final_run(occurrence)
    lines = [] if last is None or not last["error"] else last["error"].strip().splitlines()[:-1]
    return [] if lines and lines[0].startswith("Traceback") else lines


def _final_run(occurrence: dict[str, Any]) -> dict[str, Any] | None:
    return max(occurrence["runs"], key=lambda run: run["attempt"], default=None)


def cancel(
    occurrence_id: Annotated[str, Parameter(help="The id of an occurrence, or of its run, as the lists show it.")],
    /,
    *,
    reason: Reason = None,
    connection: Connection = Connection(),
) -> None:
    """Cancel a pending occurrence, or ask its run to stop. The schedule continues."""
    run_id = _RUN_ID.fullmatch(occurrence_id)
    arguments = present(occurrence_id=occurrence_id if run_id is None else run_id[1], reason=reason)
    with connect(connection) as remote:
        occurrence = remote.call("occurrence/cancel", arguments)
    if occurrence["phase"] in FINAL:
        sentence = f"Cancelled {occurrence['occurrence_id']}."
    else:
        sentence = f"Asked {occurrence['occurrence_id']} to stop; it is still running."
    print_answer(occurrence, sentence, as_json=connection.as_json)


def output(
    some_id: Annotated[str, Parameter(name="ID", help="The id of a run, or of an occurrence for its last run.")],
    /,
    *,
    follow: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Print what is added, until the run ends.")
    ] = False,
    connection: Connection = Connection(),
) -> None:
    """Print what a run left: the output of a command, another result, or its error."""
    with connect(connection) as remote:
        run_id = some_id if _OCCURRENCE_ID.fullmatch(some_id) is None else _last_run(remote, some_id)
        run = remote.call("run/get", {"run_id": run_id})
        if connection.as_json:
            print_json(run)
            return
        printed = print_output(run, 0)
        while follow and run["ended_at_utc"] is None:
            threading.Event().wait(RUN_POLL_SECONDS)
            run = remote.call("run/get", {"run_id": run_id})
            printed = print_output(run, printed)


def _last_run(remote: Remote, occurrence_id: str) -> str:
    runs = remote.call("occurrence/runs", {"occurrence_id": occurrence_id})["runs"]
    if not runs:
        raise NotFound(f"{occurrence_id} has no run; noonmark schedule explain {occurrence_id} says why", field="ID")
    run_id: str = runs[0]["run_id"]
    return run_id


def print_output(run: dict[str, Any], printed: int) -> int:
    """Print what follows the bytes that are printed already; returns how many are printed then."""
    if run["ended_at_utc"] is None and run["result"] is None:
        return printed
    text = output_text(run["result"], run["error"])
    dropped = run["result"].get("output_dropped", 0) if isinstance(run["result"], dict) else 0
    if dropped > printed:
        print_warning(f"{dropped - printed:,} bytes before this are not stored")
    content = text.encode(errors="replace")
    print_text(content[max(0, printed - dropped) :].decode(errors="replace"))
    return max(printed, dropped + len(content))


def list_occurrences(
    schedule_id: ScheduleId,
    /,
    *,
    phase: Annotated[str | None, Parameter(show_default=False, help="Only in this phase, such as failed.")] = None,
    limit: Limit = 100,
    connection: Connection = Connection(),
) -> None:
    """List the occurrences of a schedule, with the reasons for their phases."""
    arguments = present(schedule_id=schedule_id, phase=phase)
    with connect(connection) as remote:
        answer = read_pages(remote, "schedule/occurrences", arguments, entries="occurrences", limit=limit)
    if connection.as_json:
        print_json(answer)
        return
    from noonmark.cli.render.tables import more_entries, show_occurrences

    show_occurrences(answer["occurrences"], more_entries(answer, limit))


def list_runs(schedule_id: ScheduleId, /, *, limit: Limit = 100, connection: Connection = Connection()) -> None:
    """List the runs of a schedule, with their results or errors."""
    with connect(connection) as remote:
        answer = read_pages(remote, "schedule/runs", {"schedule_id": schedule_id}, entries="runs", limit=limit)
        if connection.as_json:
            print_json(answer)
            return
        nodes = nodes_of_open(remote, answer["runs"])
    from noonmark.cli.render.tables import lost_nodes, more_entries, show_runs

    show_runs(answer["runs"], more_entries(answer, limit), lost_nodes(nodes))


def explain(
    some_id: Annotated[str, Parameter(name="ID", help="The id or name of a schedule, or the id of an occurrence.")],
    /,
    *,
    at: Annotated[
        str | None, Parameter(show_default=False, help="The instant to explain; default: the last run.")
    ] = None,
    connection: Connection = Connection(),
) -> None:
    """Explain why something ran or did not run: a summary, and the decision of each rule."""
    instant = parse_optional_instant(at, "--at")
    is_occurrence = _OCCURRENCE_ID.fullmatch(some_id) is not None
    if is_occurrence and instant is not None:
        raise InvalidRequest("requires the id of a schedule: an occurrence has its own time", field="--at")
    with connect(connection) as remote:
        if is_occurrence:
            answer = remote.call("occurrence/explain", {"occurrence_id": some_id})
        else:
            answer = remote.call("schedule/explain", present(schedule_id=some_id, at=instant))
    if connection.as_json:
        print_json(answer)
        return
    from noonmark.cli.render.details import show_explanation

    show_explanation(one_line(answer["summary"]), answer["steps"])


def backfill(  # noqa: PLR0913 - one argument per option
    schedule_id: ScheduleId,
    /,
    *,
    first: Annotated[str, Parameter(name="--from", help="The first instant: 2026-11-01T00:00:00Z.")],
    last: Annotated[str, Parameter(name="--to", help="The last instant, inclusive; not later than now.")],
    dry_run: Annotated[bool, Parameter(negative=(), show_default=False, help="Only show what would run.")] = False,
    limit: Annotated[int, Parameter(help="Refuse a backfill of more occurrences, up to 10,000.")] = 1_000,
    concurrency: Annotated[
        int | None, Parameter(show_default=False, help="How many run at the same time; default: one.")
    ] = None,
    key: Annotated[
        str | None, Parameter(show_default=False, help="An idempotency key; the same key again is the same backfill.")
    ] = None,
    wait: Annotated[bool, Parameter(negative=(), show_default=False, help="Wait until all have ended.")] = False,
    connection: ConnectionBesideKey = ConnectionBesideKey(),
) -> int:
    """Run past fires of a schedule, from the first instant to the last."""
    arguments = present(
        schedule_id=schedule_id,
        to=parse_optional_instant(last, "--to"),
        dry_run=dry_run,
        limit=limit,
        concurrency=concurrency,
        key=key,
    ) | {"from": parse_optional_instant(first, "--from")}
    with connect(connection) as remote:
        answer = remote.call("schedule/backfill", arguments)
        phases = _wait_for_backfill(remote, schedule_id, answer) if wait and not dry_run else {}
    if connection.as_json:
        print_json(answer | ({"phases": phases} if phases else {}))
    else:
        _show_backfill(answer, phases, dry_run=dry_run)
    return EXIT_FAILED if set(phases) - {"completed"} else 0


def _wait_for_backfill(remote: Remote, schedule_id: str, answer: dict[str, Any]) -> dict[str, int]:
    """Wait until all occurrences have ended; returns how many ended in each phase."""
    origin, count = f"backfill:{answer['backfill_id']}", answer["count"]
    pending = count
    with progress_bar("Running", count) as advance:
        while pending:
            live = _count_phases(remote, schedule_id, origin, count, include_terminal=False).total()
            advance(pending - live)
            pending = live
            if pending:
                threading.Event().wait(BACKFILL_POLL_SECONDS)
    return dict(_count_phases(remote, schedule_id, origin, count, include_terminal=True))


def _count_phases(
    remote: Remote, schedule_id: str, origin: str, expected: int, *, include_terminal: bool
) -> Counter[str]:
    """Count the occurrences of one origin by phase."""
    phases: Counter[str] = Counter()
    arguments = {"schedule_id": schedule_id, "include_terminal": include_terminal, "limit": MAX_PAGE}
    while True:
        page = remote.call("schedule/occurrences", arguments)
        phases.update(one["phase"] for one in page["occurrences"] if one["origin"] == origin)
        if page["next_cursor"] is None or phases.total() >= expected:
            return phases
        arguments["cursor"] = page["next_cursor"]


def _show_backfill(answer: dict[str, Any], phases: dict[str, int], *, dry_run: bool) -> None:
    if dry_run:
        from noonmark.cli.render.tables import show_occurrences

        show_occurrences(answer["occurrences"], " would run")
        return
    count = f"{answer['count']:,} {'occurrence' if answer['count'] == 1 else 'occurrences'}"
    ended = ": " + ", ".join(f"{number:,} {phase}" for phase, number in sorted(phases.items())) if phases else ""
    print_line(f"Backfill {answer['backfill_id']}: {count}{ended}.")
