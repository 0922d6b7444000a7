"""`noonmark schedule create | delay | update` and `noonmark trigger create`: declaring schedules by options."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from noonmark.cli.drafting import KINDS, TARGETS, given_document, target_document, trigger_document
from noonmark.cli.options import (
    NO_EVENT,
    NO_MOMENT,
    NO_TARGET,
    NO_TIMING,
    USUAL_PLACE,
    USUAL_TERMS,
    Listening,
    Moment,
    Once,
    OnEvent,
    OnTerms,
    Place,
    Receiver,
    ScheduleId,
    Starts,
    Terms,
    Timing,
    Whenever,
    Where,
)
from noonmark.cli.output import called, print_json
from noonmark.cli.remote import connected
from noonmark.cli.terms import PARTLY_SAID, terms_document
from noonmark.core.errors import InvalidRequest

Bundle = Annotated[str | None, Parameter(show_default=False, help="A bundle to start; none are run yet.")]
OwnId = Annotated[
    str | None, Parameter(name="--id", show_default=False, help="The id it is to have; chosen for you unless given.")
]


def create(
    bundle: Bundle = None,
    /,
    *,
    timing: Whenever = NO_TIMING,
    starts: Starts = NO_TARGET,
    terms: OnTerms = USUAL_TERMS,
    schedule_id: OwnId = None,
    place: Where = USUAL_PLACE,
) -> None:
    """Create a schedule: when it runs, what it starts, on which terms."""
    document = _draft(timing, terms, starts, bundle)
    if "trigger" not in document and not document.get("depends_on"):
        raise InvalidRequest(f"say when it is to run: give {KINDS}, or --depends-on")
    _create(place, document, schedule_id)


def delay(
    bundle: Bundle = None,
    /,
    *,
    moment: Once = NO_MOMENT,
    starts: Starts = NO_TARGET,
    terms: OnTerms = USUAL_TERMS,
    schedule_id: OwnId = None,
    place: Where = USUAL_PLACE,
) -> None:
    """Create a schedule that runs once: at an instant, or so long from now."""
    document = _draft(moment, terms, starts, bundle)
    if _kind(document) != "once":
        raise InvalidRequest("say when it is to run: give --at or --in")
    _create(place, document, schedule_id)


def create_trigger(
    bundle: Bundle = None,
    /,
    *,
    listening: OnEvent = NO_EVENT,
    starts: Starts = NO_TARGET,
    terms: OnTerms = USUAL_TERMS,
    schedule_id: OwnId = None,
    place: Where = USUAL_PLACE,
) -> None:
    """Create a schedule that an event sets off."""
    document = _draft(listening, terms, starts, bundle)
    if _kind(document) != "event":
        raise InvalidRequest("say which event sets it off", field="--event")
    _create(place, document, schedule_id)


def update(
    schedule_id: ScheduleId,
    /,
    *,
    timing: Whenever = NO_TIMING,
    starts: Starts = NO_TARGET,
    terms: OnTerms = USUAL_TERMS,
    expected_revision: Annotated[
        int | None, Parameter(show_default=False, help="Refuse if it is not at this revision any more.")
    ] = None,
    place: Where = USUAL_PLACE,
) -> None:
    """Change what options say of a schedule; all else stays, other labels and headers too.

    An empty value takes a label or header away; null in --schedule-json takes a field back.
    """
    given = given_document(terms.schedule_json)
    with connected(place) as remote:
        before = remote.call("schedule/get", {"schedule_id": schedule_id})
        changes = given | terms_document(terms, before | given, is_change=True)
        found = {
            "trigger": trigger_document(timing, given.get("trigger", before["trigger"])),
            "target": target_document(
                starts, before=given.get("target", before["target"]), is_given="target" in given, is_change=True
            ),
        }
        changes |= {name: value for name, value in found.items() if value is not None and value != before[name]}
        if not changes:
            raise InvalidRequest("say what is to change; see noonmark schedule update --help")
        if expected_revision is None and (found.keys() | PARTLY_SAID) & changes.keys():
            # Parts of these may be what was read a moment ago, and somebody may have changed them since.
            expected_revision = before["revision"]
        revision = {} if expected_revision is None else {"expected_revision": expected_revision}
        after = remote.call("schedule/update", {"schedule_id": schedule_id, **revision, **changes})
    _show(place, after, "Changed")


def _draft(timing: Timing | Moment | Listening, terms: Terms, starts: Receiver, bundle: str | None) -> dict[str, Any]:
    """The document that options declare."""
    given = given_document(terms.schedule_json)
    document = given | terms_document(terms, given)
    trigger = trigger_document(timing, given.get("trigger"))
    target = target_document(starts, bundle, given.get("target"), is_given=True)
    if target is None:
        raise InvalidRequest(f"say what it is to start: give {TARGETS}")
    return document | ({} if trigger is None else {"trigger": trigger}) | {"target": target}


def _kind(document: dict[str, Any]) -> object:
    trigger = document.get("trigger")
    return trigger.get("type") if isinstance(trigger, dict) else None


def _create(place: Place, document: dict[str, Any], schedule_id: str | None) -> None:
    own_id = {} if schedule_id is None else {"schedule_id": schedule_id}
    with connected(place) as remote:
        created = remote.call("schedule/create", document | own_id)
    _show(place, created, "Created")


def _show(place: Place, document: dict[str, Any], done: str) -> None:
    if place.as_json:
        print_json(document)
        return
    from noonmark.cli.stored import show_stored  # noqa: PLC0415 - JSON needs no rich, which is slow to load

    show_stored(document, f"{done} {called(document)}.")
