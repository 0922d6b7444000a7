"""`noonmark schedule preview`: when a stored schedule runs next, or one of these options would."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from noonmark.cli.drafting import trigger_document
from noonmark.cli.options import NO_TIMING, USUAL_PLACE, Whenever, Where
from noonmark.cli.output import print_json
from noonmark.cli.remote import connected
from noonmark.cli.times import read_instant
from noonmark.core.documents import present
from noonmark.core.errors import InvalidRequest


def preview(
    schedule_id: Annotated[str | None, Parameter(show_default=False, help="The id of a schedule.")] = None,
    /,
    *,
    timing: Whenever = NO_TIMING,
    count: Annotated[int, Parameter(help="How many fires, 1 to 1,000.")] = 5,
    after: Annotated[
        str | None, Parameter(show_default=False, help="Where to start: 2027-10-24T00:00:00Z; now unless given.")
    ] = None,
    place: Where = USUAL_PLACE,
) -> None:
    """Show when a schedule runs next, or when it would with these options."""
    trigger = trigger_document(timing)
    if (schedule_id is None) == (trigger is None):
        raise InvalidRequest("name a schedule, or say when one would run: --cron, --every, --at or --in")
    arguments = present(schedule_id=schedule_id, trigger=trigger, count=count, after=read_instant(after, "--after"))
    with connected(place) as remote:
        answer = remote.call("schedule/preview", arguments)
        if schedule_id is not None and not place.as_json:
            trigger = remote.call("schedule/get", {"schedule_id": schedule_id})["trigger"]
    if place.as_json:
        print_json(answer)
        return
    from noonmark.cli.stored import show_answer  # noqa: PLC0415 - JSON needs no rich, which is slow to load

    show_answer(answer, trigger, after=arguments.get("after"), count=count)
