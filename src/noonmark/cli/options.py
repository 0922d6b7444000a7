"""Options that several commands share. Each class is one argument of a command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from noonmark.cli.parameters import Group, Parameter

TRIGGER = Group("Trigger", 1)
TARGET = Group("Target", 2)
POLICIES = Group("Name and policies", 3)
SELECTION = Group("Selection", 4)
CONNECTION = Group("Connection", 9)


Text = Annotated[str | None, Parameter(show_default=False)]
Number = Annotated[int | None, Parameter(show_default=False)]
Texts = Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)]
ScheduleId = Annotated[
    str, Parameter(help="The id of the schedule, or its name if no other has it.", complete="schedule")
]
OneOrSelection = Annotated[
    str | None,
    Parameter(
        show_default=False,
        help="The id of the schedule, or its name if no other has it; or select several.",
        complete="schedule",
    ),
]
Reason = Annotated[str | None, Parameter(show_default=False, help="The reason, for the audit log.")]
Limit = Annotated[int, Parameter(help="The maximum number of entries, newest first.")]
OldestLimit = Annotated[int, Parameter(help="The maximum number of entries, oldest first.")]
AsJson = Annotated[bool, Parameter(name="--json", negative=(), show_default=False, help="Print JSON.")]
Confirm = Annotated[
    bool, Parameter(negative=(), show_default=False, help="Ask for confirmation if there is a terminal.")
]


@dataclass(frozen=True, kw_only=True)
class Connection:
    """The server or store to use, and how to print the answer."""

    server: Annotated[
        Text,
        Parameter(group=CONNECTION, help="The server; default: NOONMARK_SERVER, else http://127.0.0.1:8001."),
    ] = None
    store: Annotated[
        Text, Parameter(group=CONNECTION, help="Use this store directly, without a server: sqlite:///noonmark.db.")
    ] = None
    key_file: Annotated[Text, Parameter(group=CONNECTION, help="A file with the key; default: NOONMARK_KEY.")] = None
    key: Annotated[
        Text,
        Parameter(
            name=("--key", "--api-key"),
            group=CONNECTION,
            allow_leading_hyphen=True,
            help="The key itself. Other users of this machine can see it, and your shell may record it.",
        ),
    ] = None
    ca_file: Annotated[
        Text,
        Parameter(
            group=CONNECTION,
            help="A file with the certificates to check an https server against; default: NOONMARK_CA_FILE.",
        ),
    ] = None
    as_tenant: Annotated[
        Text, Parameter(group=CONNECTION, help="Act for this tenant; needs a key of tenant '*', or --store.")
    ] = None
    as_json: Annotated[
        bool, Parameter(name="--json", negative=(), group=CONNECTION, help="Print JSON.", show_default=False)
    ] = False


@dataclass(frozen=True, kw_only=True)
class ConnectionBesideKey(Connection):
    """The same for a command whose `--key` is an idempotency key."""

    key: Annotated[
        Text,
        Parameter(
            name="--api-key",
            group=CONNECTION,
            allow_leading_hyphen=True,
            help="The key of the server. Other users of this machine can see it, and your shell may record it.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class OccurrenceSelection:
    """Which occurrences of all schedules."""

    since: Annotated[
        Text, Parameter(group=SELECTION, help="Ended at this instant or later, or this long ago: 1d, 2h.")
    ] = None
    until: Annotated[Text, Parameter(group=SELECTION, help="Ended at this instant or earlier, or this long ago.")] = (
        None
    )
    schedule: Annotated[Text, Parameter(group=SELECTION, help="Of this schedule.")] = None
    label: Annotated[Texts, Parameter(group=SELECTION, help="Of schedules with this label, as name=value.")] = ()
    phase: Annotated[
        Texts,
        Parameter(group=SELECTION, help="In this phase; default: failed, timed_out, delivery_failed and misfired."),
    ] = ()
    why: Annotated[
        Texts, Parameter(name="--reason", group=SELECTION, help="For this reason, such as target_missing.")
    ] = ()


@dataclass(frozen=True, kw_only=True)
class ScheduleSelection:
    """Which schedules a command acts on, instead of one by its id."""

    label: Annotated[Texts, Parameter(group=SELECTION, help="All with this label, as name=value; repeatable.")] = ()
    kind: Annotated[Text, Parameter(group=SELECTION, help="All of this kind: periodic, delayed, event or cron.")] = None
    status: Annotated[
        Text, Parameter(name=("--status", "--phase"), group=SELECTION, help="All that are active, paused or completed.")
    ] = None
    text: Annotated[Text, Parameter(group=SELECTION, help="All with this text in the name, description or id.")] = None
    limit: Annotated[int, Parameter(group=SELECTION, help="Refuse a selection of more schedules, up to 10,000.")] = (
        1_000
    )
    dry_run: Annotated[
        bool, Parameter(negative=(), group=SELECTION, show_default=False, help="Only show the selection.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class OnceOptions:
    """A single instant, absolute or relative to now."""

    at: Annotated[Text, Parameter(group=TRIGGER, help="Once, at this instant: 2027-05-25T02:00:00Z.")] = None
    delay: Annotated[Text, Parameter(name="--in", group=TRIGGER, help="Once, after this delay: 30m.")] = None


@dataclass(frozen=True, kw_only=True)
class EventOptions:
    """The events that trigger a schedule."""

    event: Annotated[
        Texts, Parameter(group=TRIGGER, help="On events of this type; repeat for any of several types.")
    ] = ()
    filter_json: Annotated[Text, Parameter(group=TRIGGER, help="Only events whose payload matches these filters.")] = (
        None
    )


@dataclass(frozen=True, kw_only=True)
class TriggerOptions(EventOptions, OnceOptions):
    """When a schedule fires: one kind of trigger and its bounds."""

    cron: Annotated[
        Texts, Parameter(group=TRIGGER, help="A cron expression in quotes; repeatable.", allow_leading_hyphen=True)
    ] = ()
    every: Annotated[Text, Parameter(group=TRIGGER, help="At an interval: 10s, 15m, 1.5h.")] = None
    timezone: Annotated[
        Text, Parameter(group=TRIGGER, help="IANA time zone of the cron expressions; default: this machine's.")
    ] = None
    start_at: Annotated[Text, Parameter(group=TRIGGER, help="Not before this instant.")] = None
    end_at: Annotated[Text, Parameter(group=TRIGGER, help="Not after this instant.")] = None
    jitter: Annotated[Text, Parameter(group=TRIGGER, help="Delay each fire by up to this long, spread evenly.")] = None


@dataclass(frozen=True, kw_only=True)
class TargetOptions:
    """What a schedule starts: exactly one kind of target."""

    function: Annotated[Text, Parameter(group=TARGET, help="A function that a node has registered, by name.")] = None
    payload_json: Annotated[Text, Parameter(group=TARGET, help="The payload of the function, command or event.")] = None
    http: Annotated[Text, Parameter(group=TARGET, help="A request to this URL.")] = None
    method: Annotated[Text, Parameter(group=TARGET, help="The method of the request; default: POST.")] = None
    header: Annotated[Texts, Parameter(group=TARGET, help='A header, as "Name: value"; repeatable.')] = ()
    secret_header: Annotated[
        Texts, Parameter(group=TARGET, help='A header with the value of a secret, as "Name: secret"; repeatable.')
    ] = ()
    body_json: Annotated[Text, Parameter(group=TARGET, help="The body of the request.")] = None
    command: Annotated[
        Texts,
        Parameter(
            group=TARGET,
            consume_multiple=True,
            help="A program and its arguments, in quotes; or put them after -- at the end. Not run in a shell.",
        ),
    ] = ()
    emit: Annotated[Text, Parameter(group=TARGET, help="An event of this type.")] = None
    ping: Annotated[
        Text,
        Parameter(group=TARGET, help="A ping from a job that runs elsewhere, at most this long after it is due: 10m."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class PolicyOptions:
    """The name, the labels and the policies of a schedule."""

    name: Annotated[Text, Parameter(group=POLICIES, help="A name for people.")] = None
    description: Annotated[Text, Parameter(group=POLICIES, help="What the schedule is for.")] = None
    label: Annotated[Texts, Parameter(group=POLICIES, help="A label, as name=value; repeatable.")] = ()
    allow_overlap: Annotated[
        bool,
        Parameter(negative=(), group=POLICIES, show_default=False, help="Start a run while another one is running."),
    ] = False
    overlap: Annotated[
        Text, Parameter(group=POLICIES, help="When busy: skip, queue, queue_one, allow, cancel_running or terminate.")
    ] = None
    misfire: Annotated[
        Text,
        Parameter(
            name=("--misfire", "--missed-policy"),
            group=POLICIES,
            help="When late: skip, catch_up_one, catch_up_all, catch_up_within or spread.",
        ),
    ] = None
    catchup_limit: Annotated[Number, Parameter(group=POLICIES, help="The maximum number of missed fires that run.")] = (
        None
    )
    catchup_window: Annotated[
        Text,
        Parameter(group=POLICIES, help="How late catch_up_within runs a fire, or how long spread spreads them: 2h."),
    ] = None
    window: Annotated[Text, Parameter(group=POLICIES, help="Run only within this long of the due time: 2h.")] = None
    timeout: Annotated[Text, Parameter(group=POLICIES, help="The maximum duration of a run.")] = None
    expected: Annotated[
        Text, Parameter(group=POLICIES, help="How long a run usually takes: 10m. One that takes longer is reported.")
    ] = None
    at_least: Annotated[Number, Parameter(group=POLICIES, help="Report when fewer runs succeed within --per.")] = None
    at_most: Annotated[Number, Parameter(group=POLICIES, help="Report when more runs start within --per.")] = None
    per: Annotated[Text, Parameter(group=POLICIES, help="The window of --at-least and --at-most: 1d.")] = None
    max_fires_per_hour: Annotated[
        Number, Parameter(group=POLICIES, help="Pause the schedule when it starts more often in an hour; 0: never.")
    ] = None
    max_spend_factor: Annotated[
        float | None,
        Parameter(
            group=POLICIES,
            show_default=False,
            help="Pause it when an hour costs more than this many times its usual hours; 0: never.",
        ),
    ] = None
    max_identical_results: Annotated[
        Number, Parameter(group=POLICIES, help="Pause it after more identical results in a row; 0: never.")
    ] = None
    retries: Annotated[Number, Parameter(group=POLICIES, help="How often a failed run is retried.")] = None
    retry_on: Annotated[
        Texts, Parameter(group=POLICIES, help="Retry a function only after this exception, by name; repeatable.")
    ] = ()
    retry_not_on: Annotated[
        Texts, Parameter(group=POLICIES, help="Never retry a function after this exception; repeatable.")
    ] = ()
    ping_start: Annotated[Text, Parameter(group=POLICIES, help="A URL to call when an occurrence starts.")] = None
    ping_success: Annotated[Text, Parameter(group=POLICIES, help="A URL to call when it succeeded.")] = None
    ping_failure: Annotated[
        Text, Parameter(group=POLICIES, help="A URL to call when it failed, after the last attempt.")
    ] = None
    max_runs: Annotated[Number, Parameter(group=POLICIES, help="Complete the schedule after this many runs.")] = None
    depends_on: Annotated[
        Texts, Parameter(group=POLICIES, help="Run after this schedule has completed; repeatable.")
    ] = ()
    schedule_json: Annotated[
        Text, Parameter(group=POLICIES, help="A schedule document; other options take precedence over it.")
    ] = None
