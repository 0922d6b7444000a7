"""`noonmark schedule`: create, list, show, change, pause, resume and delete schedules."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from noonmark.cli.document_builder import (
    MERGED_FIELDS,
    TARGET_OPTIONS,
    TRIGGER_OPTIONS,
    given_document,
    given_parts,
    policy_document,
    target_document,
    trigger_document,
    zone_note,
)
from noonmark.cli.inputs import parse_future, parse_optional_instant, parse_pair
from noonmark.cli.options import (
    Confirm,
    Connection,
    OldestLimit,
    OnceOptions,
    OneOrSelection,
    PolicyOptions,
    Reason,
    ScheduleId,
    ScheduleSelection,
    TargetOptions,
    Texts,
    TriggerOptions,
)
from noonmark.cli.output import (
    EXIT_FAILED,
    display_name,
    one_line,
    print_answer,
    print_json,
    print_line,
    print_warning,
    proposed_sentence,
)
from noonmark.cli.parameters import Parameter
from noonmark.cli.remote import connect, nodes_of_open, push_or_find, read_pages
from noonmark.core.documents import present
from noonmark.core.errors import InvalidRequest, NotFound
from noonmark.core.json_values import shown

if TYPE_CHECKING:
    from noonmark.cli.options import EventOptions

NO_INSTANT = "a schedule needs a trigger: give --at or --in"
LATEST = 5
"""How many occurrences `noonmark schedule status` shows."""
LISTED_FIRES = 12
"""How many fires that change `noonmark schedule update --dry-run` shows."""

Bundle = Annotated[
    str | None,
    Parameter(show_default=False, help="A bundle to run: a folder or zip file, which is pushed, or the id of one."),
]
NewId = Annotated[
    str | None, Parameter(name="--id", show_default=False, help="The id of the schedule; default: a generated one.")
]
Status = Annotated[
    str | None, Parameter(name=("--status", "--phase"), show_default=False, help="active, paused or completed.")
]
Labels = Annotated[Texts, Parameter(help="With this label, as name=value.")]


def create(
    bundle: Bundle = None,
    /,
    *,
    trigger: TriggerOptions = TriggerOptions(),
    target: TargetOptions = TargetOptions(),
    policies: PolicyOptions = PolicyOptions(),
    schedule_id: NewId = None,
    connection: Connection = Connection(),
) -> None:
    """Create a schedule from a trigger, a target and policies.

    A bundle without a trigger has the schedule of its manifest.
    """
    parts = given_parts(policies.schedule_json)
    if bundle is not None and not any(trigger_document(trigger, part.document.get("trigger")) for part in parts):
        create_from_manifest(
            connection, bundle, "schedule", needs=f"a schedule needs a trigger: give {TRIGGER_OPTIONS}"
        )
        return
    bundle_document = find_bundle(connection, bundle)
    documents = [build_document(trigger, target, policies, bundle_document, part.document) for part in parts]
    for document in documents:
        if "trigger" not in document and not document.get("depends_on"):
            raise InvalidRequest(f"a schedule needs a trigger: give {TRIGGER_OPTIONS}, or --depends-on")
    notes = [zone_note(trigger, part.document.get("trigger")) for part in parts]
    create_schedules(connection, documents, schedule_id, notes)


def find_bundle(connection: Connection, bundle: str | None) -> dict[str, Any] | None:
    """The bundle that a command names, pushed if it is a path."""
    if bundle is None:
        return None
    with connect(connection) as remote:
        return push_or_find(remote, bundle)


def create_from_manifest(connection: Connection, bundle: str, kind: str, *, needs: str) -> None:
    """Push a bundle, and show the schedules of its manifest; `kind` is `schedule` or `trigger`.

    `needs` says which options to give if there are none.
    """
    with connect(connection) as remote:
        if not Path(bundle).exists():
            raise InvalidRequest(f"{needs}, or a folder whose manifest has a {kind}")
        pushed = remote.push(bundle)
        declared = [one for one in pushed[f"{kind}s"] if one["action"] != "deleted"]
        if not declared:
            raise InvalidRequest(f"{needs}; the manifest has no {kind} either")
        documents = [remote.call("schedule/get", {"schedule_id": one["schedule_id"]}) for one in declared]
    if connection.as_json:
        print_json(documents[0] if len(documents) == 1 else {"schedules": documents})
        return
    for one, document in zip(declared, documents, strict=True):
        _show_schedule(connection, document, one["action"].capitalize())


def delay(
    bundle: Bundle = None,
    /,
    *,
    once: OnceOptions = OnceOptions(),
    target: TargetOptions = TargetOptions(),
    policies: PolicyOptions = PolicyOptions(),
    schedule_id: NewId = None,
    connection: Connection = Connection(),
) -> None:
    """Create a schedule that runs once, at an instant or after a delay."""
    schedule_json = given_document(policies.schedule_json)
    if bundle is not None and trigger_document(once, schedule_json.get("trigger")) is None:
        create_from_manifest(connection, bundle, "schedule", needs=NO_INSTANT)
        return
    document = build_document(once, target, policies, find_bundle(connection, bundle), schedule_json)
    if trigger_type(document) != "once":
        raise InvalidRequest(NO_INSTANT)
    create_schedules(connection, [document], schedule_id, [None])


def build_document(
    trigger: TriggerOptions | OnceOptions | EventOptions,
    target: TargetOptions,
    policies: PolicyOptions,
    bundle: dict[str, Any] | None,
    given: dict[str, Any],
) -> dict[str, Any]:
    """The document of a new schedule: the given one, with what the options say."""
    document = given | policy_document(policies, given)
    document |= present(trigger=trigger_document(trigger, given.get("trigger")))
    bundled = None if bundle is None else bundle["target"]
    if bundle is not None:
        document.setdefault("name", bundle["name"])
    target_settings = target_document(target, bundled, given.get("target"), is_given=True)
    if target_settings is None:
        raise InvalidRequest(f"a schedule needs a target: give {TARGET_OPTIONS}, or a bundle")
    return document | {"target": target_settings}


def trigger_type(document: dict[str, Any]) -> object:
    """The type of the trigger; None if there is no valid trigger."""
    trigger = document.get("trigger")
    return trigger.get("type") if isinstance(trigger, dict) else None


def create_schedules(
    connection: Connection, documents: list[dict[str, Any]], schedule_id: str | None, notes: list[str | None]
) -> None:
    """Create schedules from their documents, and show them with their notes; nothing if a document is invalid."""
    if len(documents) > 1:
        _check_documents(documents, schedule_id)
    with connect(connection) as remote:
        created = [remote.call("schedule/create", one | present(schedule_id=schedule_id)) for one in documents]
    if connection.as_json and len(created) > 1:
        print_json({"schedules": created})
        return
    for document, note in zip(created, notes, strict=True):
        _show_schedule(connection, document, "Created", note)


def _check_documents(documents: list[dict[str, Any]], schedule_id: str | None) -> None:
    """Refuse several schedules if one of them cannot be created."""
    from noonmark.clocks import SystemClock
    from noonmark.core.schedule import parse_schedule

    if schedule_id is not None:
        raise InvalidRequest(f"names one schedule, but there are {len(documents)}", field="--id")
    for document in documents:
        parse_schedule(document, now=SystemClock().now())


def update(  # noqa: PLR0913 - each is a group of options
    schedule_id: ScheduleId,
    /,
    *,
    trigger: TriggerOptions = TriggerOptions(),
    target: TargetOptions = TargetOptions(),
    policies: PolicyOptions = PolicyOptions(),
    expected_revision: Annotated[
        int | None, Parameter(show_default=False, help="Fail if the schedule has another revision.")
    ] = None,
    dry_run: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Only show what would change, and which fires.")
    ] = False,
    connection: Connection = Connection(),
) -> None:
    """Change the given fields of a schedule; other fields, labels and headers keep their values.

    An empty value removes a label or header; null in --schedule-json resets a field.
    """
    given = given_document(policies.schedule_json)
    with connect(connection) as remote:
        before = remote.call("schedule/get", {"schedule_id": schedule_id})
        changes = given | policy_document(policies, before | given, is_change=True)
        merged = {
            "trigger": trigger_document(trigger, given.get("trigger", before["trigger"])),
            "target": target_document(
                target, before=given.get("target", before["target"]), is_given="target" in given, is_change=True
            ),
        }
        changes |= {name: value for name, value in merged.items() if value is not None and value != before[name]}
        if not changes:
            raise InvalidRequest("nothing to change; see noonmark schedule update --help")
        if dry_run:
            answer = remote.call("schedule/preview", {"schedule_id": before["schedule_id"], "changes": changes})
            if connection.as_json:
                print_json(answer)
            else:
                _show_impact(before, answer["impact"])
            return
        if expected_revision is None and (merged.keys() | MERGED_FIELDS) & changes.keys():
            # These are partly what was read above, so a change in between must not be overwritten.
            expected_revision = before["revision"]
        arguments = {"schedule_id": schedule_id, **present(expected_revision=expected_revision), **changes}
        after = remote.call("schedule/update", arguments)
    note = zone_note(trigger, given.get("trigger", before["trigger"])) if "trigger" in changes else None
    _show_schedule(connection, after, "Changed", note)


def _show_impact(schedule: dict[str, Any], impact: dict[str, Any]) -> None:
    """Show what a change would do: to the fields, and to the fires."""
    from noonmark.cli.render.times import local_times

    times = local_times()
    print_line(f"Would change {display_name(schedule)}; nothing is changed yet.")
    for change in impact["changes"]:
        print_line(f"{change['field']}: {shown(change['before'])} -> {shown(change['after'])}")
    counts = [f"{impact[name]} {name}" for name in ("kept", "moved", "added", "removed") if impact[name]]
    print_line(f"Fires until {times.local(impact['until_utc'])}: {', '.join(counts) or 'none'}.")
    for fire in impact["fires"][:LISTED_FIRES]:
        before, after = fire["before_utc"], fire["after_utc"]
        if before is not None and after is not None:
            print_line(f"{times.local(before)} -> {times.local(after)}")
        else:
            print_line(f"- {times.local(before)}" if after is None else f"+ {times.local(after)}")


def _show_schedule(connection: Connection, document: dict[str, Any], verb: str, note: str | None = None) -> None:
    if connection.as_json:
        print_json(document)
        return
    from noonmark.cli.render.details import show_schedule

    show_schedule(document, proposed_sentence(document) or f"{verb} {display_name(document)}.")
    if note is not None:
        print_line(note)


def list_schedules(  # noqa: PLR0913 - one argument per option
    *,
    kind: Annotated[
        str | None,
        Parameter(show_default=False, help="periodic, delayed or event; or a type of trigger, such as cron."),
    ] = None,
    status: Status = None,
    label: Labels = (),
    text: Annotated[
        str | None, Parameter(show_default=False, help="With this text in the name, description or id.")
    ] = None,
    last: Annotated[
        str | None,
        Parameter(show_default=False, help="Only those whose last occurrence completed, failed or was skipped."),
    ] = None,
    next_before: Annotated[
        str | None, Parameter(show_default=False, help="Next due before this instant, or this long from now: 2h.")
    ] = None,
    outcomes: Annotated[int, Parameter(help="Show the marks of this many of the last outcomes, up to 30.")] = 0,
    limit: OldestLimit = 100,
    connection: Connection = Connection(),
) -> None:
    """List schedules."""
    arguments = schedule_filter(status, label) | present(
        kind=kind,
        text=text,
        last_state=last,
        next_before=parse_future(next_before, "--next-before"),
        outcomes=outcomes or None,
    )
    show_schedule_list(connection, "schedule/list", arguments, "schedules", limit=limit)


def schedule_filter(status: str | None, label: tuple[str, ...]) -> dict[str, Any]:
    """The arguments that select schedules by phase and labels."""
    return present(
        phase=None if status is None else status.lower(),
        labels=dict(parse_pair(pair, "=", "--label") for pair in label) or None,
    )


def show_schedule_list(
    connection: Connection, operation: str, arguments: dict[str, Any], entries: str, *, limit: int
) -> None:
    """Call an operation that lists schedules, and show them."""
    with connect(connection) as remote:
        answer = read_pages(remote, operation, arguments, entries=entries, limit=limit)
    if connection.as_json:
        print_json(answer)
        return
    from noonmark.cli.render.tables import more_entries, show_schedules

    show_schedules(answer[entries], more_entries(answer, limit))
    for warning in answer.get("warnings", []):
        print_warning(warning)


def status(schedule_id: ScheduleId, /, *, connection: Connection = Connection()) -> None:
    """Show a schedule, its next fires, its last run and its last occurrences."""
    with connect(connection) as remote:
        document = remote.call("schedule/get", {"schedule_id": schedule_id, "include_deleted": True})
        latest = remote.call("schedule/occurrences", {"schedule_id": schedule_id, "limit": LATEST})["occurrences"]
        if connection.as_json:
            print_json(document | {"occurrences": latest})
            return
        runs = remote.call("schedule/runs", {"schedule_id": schedule_id, "limit": 1})["runs"]
        nodes = nodes_of_open(remote, runs)
    from noonmark.cli.render.details import show_schedule

    show_schedule(document, display_name(document), latest, runs, nodes)


def preview(
    schedule_id: Annotated[
        str | None, Parameter(show_default=False, help="The id of the schedule, or its name.")
    ] = None,
    /,
    *,
    trigger: TriggerOptions = TriggerOptions(),
    count: Annotated[int, Parameter(help="How many fires, 1 to 1,000.")] = 5,
    after: Annotated[
        str | None, Parameter(show_default=False, help="The start: 2027-10-24T00:00:00Z; default: now.")
    ] = None,
    connection: Connection = Connection(),
) -> None:
    """Show the next fires of a schedule, or of a trigger given by options."""
    document = trigger_document(trigger)
    if (schedule_id is None) == (document is None):
        raise InvalidRequest("give the id of a schedule, or a trigger: --cron, --every, --at or --in")
    start = parse_optional_instant(after, "--after")
    with connect(connection) as remote:
        arguments = present(schedule_id=schedule_id, trigger=document, count=count, after=start)
        answer = remote.call("schedule/preview", arguments)
        if connection.as_json:
            print_json(answer)
            return
        if schedule_id is not None:
            document = remote.call("schedule/get", {"schedule_id": schedule_id})["trigger"]
    from noonmark.cli.render.details import show_preview

    show_preview(answer, document, after=start, count=count)
    if schedule_id is None and (note := zone_note(trigger)) is not None:
        print_line(note)


def pause(
    schedule_id: OneOrSelection = None,
    /,
    *,
    selection: ScheduleSelection = ScheduleSelection(),
    reason: Reason = None,
    until: Annotated[
        str | None,
        Parameter(show_default=False, help="Resume by itself at this instant, or after this long: 2h, 1d."),
    ] = None,
    connection: Connection = Connection(),
) -> int:
    """Pause a schedule, or all that a selection finds.

    Active runs continue, and fires missed meanwhile are recorded as skipped.
    """
    more = present(reason=reason, until=parse_future(until, "--until"))
    if is_selection(schedule_id, selection):
        return act_on_selection(connection, "selection/pause", selection, more, ("Paused", "Would pause"))
    _change_phase(connection, "schedule/pause", {"schedule_id": schedule_id, **more}, "Paused")
    return 0


def resume(
    schedule_id: OneOrSelection = None,
    /,
    *,
    selection: ScheduleSelection = ScheduleSelection(),
    reason: Reason = None,
    connection: Connection = Connection(),
) -> int:
    """Resume a paused schedule, or all that a selection finds, from now on."""
    more = present(reason=reason)
    if is_selection(schedule_id, selection):
        return act_on_selection(connection, "selection/resume", selection, more, ("Resumed", "Would resume"))
    _change_phase(connection, "schedule/resume", {"schedule_id": schedule_id, **more}, "Resumed")
    return 0


def label(
    schedule_id: OneOrSelection = None,
    /,
    *,
    labels: Annotated[
        Texts, Parameter(name="--set", help="The label to set, as name=value; an empty value removes it; repeatable.")
    ],
    selection: ScheduleSelection = ScheduleSelection(),
    reason: Reason = None,
    connection: Connection = Connection(),
) -> int:
    """Set labels of a schedule, or of all that a selection finds; other labels stay."""
    if not is_selection(schedule_id, selection):
        update(schedule_id or "", policies=PolicyOptions(label=labels), connection=connection)
        return 0
    changes = dict(parse_pair(pair, "=", "--set") for pair in labels)
    more = {"set_labels": changes, **present(reason=reason)}
    return act_on_selection(connection, "selection/label", selection, more, ("Labelled", "Would label"))


def is_selection(schedule_id: str | None, selection: ScheduleSelection) -> bool:
    """Whether a command acts on a selection, and not on one schedule."""
    is_given = bool(_selection_filter(selection))
    if (schedule_id is None) != is_given:
        raise InvalidRequest("give the id of a schedule, or select several, such as --label team=a")
    if selection.dry_run and not is_given:
        raise InvalidRequest("requires a selection, such as --label team=a", field="--dry-run")
    return is_given


def act_on_selection(
    connection: Connection,
    operation: str,
    selection: ScheduleSelection,
    more: dict[str, Any],
    words: tuple[str, str],
) -> int:
    """Act on all schedules that a selection finds, and show them; returns the exit code.

    `words` say what was done, and what a dry run would have done.
    """
    arguments = _selection_filter(selection) | {"limit": selection.limit, "dry_run": selection.dry_run} | more
    with connect(connection) as remote:
        answer = remote.call(operation, arguments)
    if connection.as_json:
        print_json(answer)
    else:
        from noonmark.cli.render.tables import show_selected

        show_selected(answer, words[selection.dry_run])
    return EXIT_FAILED if answer["count"] < len(answer["schedules"]) else 0


def _selection_filter(selection: ScheduleSelection) -> dict[str, Any]:
    return schedule_filter(selection.status, selection.label) | present(kind=selection.kind, text=selection.text)


def _change_phase(connection: Connection, operation: str, arguments: dict[str, Any], verb: str) -> None:
    with connect(connection) as remote:
        document = remote.call(operation, arguments)
    until = (document.get("paused") or {}).get("until_utc")
    ends = "" if until is None else f" It resumes by itself at {until}."
    sentence = proposed_sentence(document) or f"{verb} {display_name(document)}.{ends}"
    print_answer(document, sentence, as_json=connection.as_json)


def delete(
    schedule_id: OneOrSelection = None,
    /,
    *,
    selection: ScheduleSelection = ScheduleSelection(),
    stop_running: Annotated[bool, Parameter(negative="", help="Ask its runs to stop, suspended ones too.")] = False,
    reason: Reason = None,
    confirm: Confirm = False,
    connection: Connection = Connection(),
) -> int:
    """Delete a schedule, or all that a selection finds; the history is kept. Runs go on, unless they are to stop."""
    if not is_selection(schedule_id, selection):
        return delete_schedule(connection, schedule_id or "", reason=reason, confirm=confirm, stop_running=stop_running)
    if confirm and not selection.dry_run and not is_confirmed("Delete all schedules of the selection?"):
        return EXIT_FAILED
    more = present(reason=reason, stop_running=stop_running or None)
    return act_on_selection(connection, "selection/delete", selection, more, ("Deleted", "Would delete"))


def delete_schedule(
    connection: Connection,
    schedule_id: str,
    *,
    reason: str | None,
    confirm: bool,
    only_triggers: bool = False,
    stop_running: bool = False,
) -> int:
    """Delete a schedule, after confirmation if asked; returns the exit code."""
    with connect(connection) as remote:
        document = remote.call("schedule/get", {"schedule_id": schedule_id, "include_deleted": True})
        if only_triggers and trigger_type(document) != "event":
            raise NotFound(
                f"{schedule_id} is not triggered by events; delete it with noonmark schedule delete",
                field="schedule_id",
            )
        if confirm and not is_confirmed(f"Delete {display_name(document)}?"):
            return EXIT_FAILED
        arguments = present(schedule_id=schedule_id, reason=reason, stop_running=stop_running or None)
        deleted = remote.call("schedule/delete", arguments)
    sentence = f"Deleted {display_name(deleted)}; its history is kept.{_runs_after_delete(deleted)}"
    print_answer(deleted, proposed_sentence(deleted) or sentence, as_json=connection.as_json)
    return 0


def _runs_after_delete(deleted: dict[str, Any]) -> str:
    sentence = ""
    if stopped := deleted.get("stopped_runs"):
        sentence += f" Asked {_run_count(stopped)} to stop."
    if unfinished := deleted.get("unfinished_runs"):
        command = f"noonmark schedule delete {deleted['schedule_id']} --stop-running"
        sentence += f" Not ended: {_run_count(unfinished)}; `{command}` stops what runs."
    return sentence


def _run_count(count: int) -> str:
    """`1 run`, `2 runs`."""
    return f"{count:,} run{'s' * (count != 1)}"


def is_confirmed(question: str) -> bool:
    """Ask on the terminal; without one, the answer is yes."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    sys.stderr.write(f"{one_line(question)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def ping_url(
    schedule_id: ScheduleId,
    /,
    *,
    rotate: Annotated[
        bool, Parameter(negative=(), help="Replace the URL; the old one is unknown from then on.")
    ] = False,
    connection: Connection = Connection(),
) -> None:
    """Print the URL that the job of a schedule calls. Anyone with the URL can call it."""
    with connect(connection) as remote:
        answer = remote.call("ping/rotate" if rotate else "ping/url", {"schedule_id": schedule_id})
    if connection.as_json:
        print_json(answer)
    else:
        sys.stdout.write(f"{answer['ping_url']}\n")  # exactly as it is
