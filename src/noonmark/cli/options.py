"""Options that several commands take, in groups: each group is one argument of a command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Group, Parameter

WHEN = Group("When", sort_key=1)
WHAT = Group("What it starts", sort_key=2)
TERMS = Group("On which terms", sort_key=3)
WHERE = Group("Where", sort_key=9)

Text = Annotated[str | None, Parameter(show_default=False)]
Number = Annotated[int | None, Parameter(show_default=False)]
Texts = Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Whom to ask, and how to print the answer."""

    server: Annotated[
        Text,
        Parameter(group=WHERE, help="The server to ask; NOONMARK_SERVER or http://127.0.0.1:8001 unless given."),
    ] = None
    store: Annotated[
        Text, Parameter(group=WHERE, help="Work on this store itself, without a server: sqlite:///noonmark.db.")
    ] = None
    as_json: Annotated[
        bool, Parameter(name="--json", negative=(), group=WHERE, help="Print JSON.", show_default=False)
    ] = False


@dataclass(frozen=True, kw_only=True)
class Moment:
    """One moment: an instant, or so long from now."""

    at: Annotated[Text, Parameter(group=WHEN, help="Once, at this instant: 2027-05-25T02:00:00Z.")] = None
    delay: Annotated[Text, Parameter(name="--in", group=WHEN, help="Once, so long from now: 30m.")] = None


@dataclass(frozen=True, kw_only=True)
class Listening:
    """An event that is waited for."""

    event: Annotated[
        Texts, Parameter(group=WHEN, help="When an event of this type is emitted; may be repeated, for one of several.")
    ] = ()
    filter_json: Annotated[Text, Parameter(group=WHEN, help="Only events whose payload meets these filters.")] = None


@dataclass(frozen=True, kw_only=True)
class Timing(Listening, Moment):
    """When a schedule fires: one of the kinds, and its bounds."""

    cron: Annotated[
        Texts, Parameter(group=WHEN, help="A cron expression in quotes; may be repeated.", allow_leading_hyphen=True)
    ] = ()
    every: Annotated[Text, Parameter(group=WHEN, help="Every so often: 10s, 15m, 1.5h.")] = None
    timezone: Annotated[
        Text, Parameter(group=WHEN, help="IANA zone of the expressions; that of this machine unless given.")
    ] = None
    start_at: Annotated[Text, Parameter(group=WHEN, help="Not before this instant.")] = None
    end_at: Annotated[Text, Parameter(group=WHEN, help="Not after this instant.")] = None
    jitter: Annotated[Text, Parameter(group=WHEN, help="Up to so long after each time, spread evenly.")] = None


@dataclass(frozen=True, kw_only=True)
class Receiver:
    """What a schedule starts: exactly one of the kinds."""

    function: Annotated[Text, Parameter(group=WHAT, help="A function that a node has registered, by name.")] = None
    payload_json: Annotated[Text, Parameter(group=WHAT, help="What the function, program or event gets.")] = None
    http: Annotated[Text, Parameter(group=WHAT, help="A request to this URL.")] = None
    method: Annotated[Text, Parameter(group=WHAT, help="The method of the request; POST unless given.")] = None
    header: Annotated[Texts, Parameter(group=WHAT, help='A header, as "Name: value"; may be repeated.')] = ()
    secret_header: Annotated[
        Texts, Parameter(group=WHAT, help='A header that carries a secret, as "Name: secret"; may be repeated.')
    ] = ()
    body_json: Annotated[Text, Parameter(group=WHAT, help="The body of the request.")] = None
    command: Annotated[
        Texts,
        Parameter(
            group=WHAT,
            consume_multiple=True,
            help="A program and its arguments, in quotes; or put them behind -- at the end. No shell runs.",
        ),
    ] = ()
    emit: Annotated[Text, Parameter(group=WHAT, help="An event of this type.")] = None


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a schedule is called, and what it does in the awkward cases."""

    name: Annotated[Text, Parameter(group=TERMS, help="What people call it.")] = None
    description: Annotated[Text, Parameter(group=TERMS, help="What it is for.")] = None
    label: Annotated[Texts, Parameter(group=TERMS, help="A label, as name=value; may be repeated.")] = ()
    allow_overlap: Annotated[
        bool,
        Parameter(negative=(), group=TERMS, show_default=False, help="Start a new run beside one that still goes on."),
    ] = False
    overlap: Annotated[
        Text, Parameter(group=TERMS, help="When busy: skip, queue, queue_one, allow or cancel_running.")
    ] = None
    misfire: Annotated[
        Text,
        Parameter(
            name=("--misfire", "--missed-policy"),
            group=TERMS,
            help="When late: skip, catch_up_one, catch_up_all, catch_up_within or spread.",
        ),
    ] = None
    catchup_limit: Annotated[
        Number, Parameter(group=TERMS, help="How many missed ones run at most under catch_up_all.")
    ] = None
    window: Annotated[Text, Parameter(group=TERMS, help="Only within so long of the time it was due: 2h.")] = None
    timeout: Annotated[Text, Parameter(group=TERMS, help="How long a run may take.")] = None
    retries: Annotated[Number, Parameter(group=TERMS, help="How often a failed run is tried again.")] = None
    max_runs: Annotated[Number, Parameter(group=TERMS, help="Stop after so many.")] = None
    depends_on: Annotated[
        Texts, Parameter(group=TERMS, help="Only after this schedule has completed; may be repeated.")
    ] = ()
    schedule_json: Annotated[
        Text, Parameter(group=TERMS, help="A schedule document; what other options say goes before it.")
    ] = None


Where = Annotated[Place, Parameter(name="*")]
Whenever = Annotated[Timing, Parameter(name="*")]
Once = Annotated[Moment, Parameter(name="*")]
OnEvent = Annotated[Listening, Parameter(name="*")]
Starts = Annotated[Receiver, Parameter(name="*")]
OnTerms = Annotated[Terms, Parameter(name="*")]

USUAL_PLACE, USUAL_TERMS = Place(), Terms()
NO_TIMING, NO_MOMENT, NO_EVENT, NO_TARGET = Timing(), Moment(), Listening(), Receiver()

ScheduleId = Annotated[str, Parameter(help="The id of the schedule.")]
Reason = Annotated[str | None, Parameter(show_default=False, help="Why, for the audit log.")]
Limit = Annotated[int, Parameter(help="How many at most, the newest first.")]
