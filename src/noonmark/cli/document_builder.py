"""Builds schedule documents from options. Options take precedence over a given or stored document."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from noonmark.cli.inputs import parse_json, parse_optional_duration, parse_optional_instant, parse_pair
from noonmark.cli.local_zone import document_note, flag_zone, local_zone, machine_note
from noonmark.cli.manifest import Part, read_parts
from noonmark.cli.options import TriggerOptions
from noonmark.cli.output import print_warning
from noonmark.core.documents import present
from noonmark.core.errors import InvalidRequest
from noonmark.core.json_values import shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.cli.options import EventOptions, OnceOptions, PolicyOptions, TargetOptions

TRIGGER_OPTIONS = "--cron, --every, --at, --in or --event"
TARGET_OPTIONS = "--function, --http, --command, --emit or --ping"
TARGET_OPTION = {
    "function": "--function",
    "http": "--http",
    "command": "--command",
    "event": "--emit",
    "ping": "--ping",
}
"""The option for each kind of target."""
EXCLUSIVE_FIELDS = {
    "expression": "crons",
    "crons": "expression",
    "due_at_utc": "delay_seconds",
    "delay_seconds": "due_at_utc",
}
"""Fields of a trigger that replace each other."""
SHELL_WORDS = frozenset({"|", "||", "&", "&&", ";", ">", ">>", "<", "2>&1"})
MERGED_FIELDS = frozenset(
    {"labels", "overlap_policy", "misfire_policy", "window", "retry_policy", "expected_rate", "runaway", "ping_urls"}
)
"""Fields that an option may change in part; the rest of the field keeps its value."""
MISFIRE_ALIASES = {"none": "skip", "catchup_one": "catch_up_one", "catchup_all": "catch_up_all"}
"""The names of misfire policies in manifests."""
UNLIMITED_MISFIRES = frozenset({"skip", "catch_up_one"})
"""The misfire policies without a limit."""
WINDOWLESS_MISFIRES = UNLIMITED_MISFIRES | {"catch_up_all"}


def given_document(text: str | None) -> dict[str, Any]:
    """The only document of `--schedule-json`, with a manifest translated."""
    parts = given_parts(text)
    if len(parts) > 1:
        places = ", ".join(part.place for part in parts)
        raise InvalidRequest(
            f"has {len(parts)} schedules ({places}), and this command takes one; noonmark schedule create creates each",
            field="--schedule-json",
        )
    return parts[0].document


def given_parts(text: str | None) -> list[Part]:
    """The schedules of `--schedule-json`: one, or those of a manifest; an empty one without the option."""
    if text is None:
        return [Part(place="", document={})]
    given = parse_json(text, field="--schedule-json")
    if not isinstance(given, dict):
        raise InvalidRequest(f"must be an object, not {shown(given)}", field="--schedule-json")
    parts, ignored = read_parts(given, field="--schedule-json")
    for part in parts:
        for name in ("trigger", "target"):
            value = part.document.get(name)
            if not isinstance(value, dict | None):
                raise InvalidRequest(f"{name} must be an object, not {shown(value)}", field="--schedule-json")
    if ignored:
        print_warning(f"--schedule-json: ignored {', '.join(map(shown, ignored))}: no part of a schedule")
    return parts


def trigger_document(
    options: TriggerOptions | OnceOptions | EventOptions, before: Mapping[str, Any] | None = None
) -> dict[str, Any] | None:
    """The trigger that the options name or change; what they leave open stays as before. None if there is none."""
    timing = options if isinstance(options, TriggerOptions) else TriggerOptions(**asdict(options))
    named = _named_trigger(timing)
    bounds = present(
        start_at_utc=parse_optional_instant(timing.start_at, "--start-at"),
        end_at_utc=parse_optional_instant(timing.end_at, "--end-at"),
        jitter_seconds=parse_optional_duration(timing.jitter, "--jitter"),
    )
    if named is None and before is None:
        if bounds or timing.timezone is not None or timing.filter_json is not None:
            raise InvalidRequest(f"a schedule needs a trigger: give {TRIGGER_OPTIONS}")
        return None
    trigger = _merged_trigger(named or {}, before) | bounds
    kind = trigger.get("type")
    if timing.timezone is not None:
        if kind not in ("cron", "calendar"):
            raise InvalidRequest("requires --cron: instants and durations have no time zone", field="--timezone")
        trigger["timezone"] = timing.timezone
    elif timing.cron:
        trigger.setdefault("timezone", flag_zone())
    if timing.filter_json is not None:
        if kind != "event":
            raise InvalidRequest("requires --event", field="--filter-json")
        trigger["filters"] = parse_json(timing.filter_json, field="--filter-json")
    return trigger


def zone_note(
    options: TriggerOptions | OnceOptions | EventOptions, before: Mapping[str, Any] | None = None
) -> str | None:
    """Say which zone a trigger has that names none, and why: flags have that of this machine, JSON has UTC."""
    if not isinstance(options, TriggerOptions) or options.timezone is not None:
        return None
    if options.cron:
        is_kept = before is not None and before.get("type") == "cron" and before.get("timezone") is not None
        return None if is_kept else machine_note(local_zone())
    return None if _named_trigger(options) is not None else document_note(before)


def _named_trigger(timing: TriggerOptions) -> dict[str, Any] | None:
    """The trigger of the option that names one; at most one option may."""
    triggers: list[tuple[str, dict[str, Any]]] = []
    if timing.cron:
        crons = {"expression": timing.cron[0]} if len(timing.cron) == 1 else {"crons": list(timing.cron)}
        triggers.append(("--cron", {"type": "cron", **crons}))
    if timing.every is not None:
        seconds = parse_optional_duration(timing.every, "--every")
        triggers.append(("--every", {"type": "interval", "every_seconds": seconds}))
    if timing.at is not None:
        triggers.append(("--at", {"type": "once", "due_at_utc": parse_optional_instant(timing.at, "--at")}))
    if timing.delay is not None:
        triggers.append(("--in", {"type": "once", "delay_seconds": parse_optional_duration(timing.delay, "--in")}))
    if timing.event:
        types = timing.event[0] if len(timing.event) == 1 else list(timing.event)
        triggers.append(("--event", {"type": "event", "event_type": types}))
    return _at_most_one(triggers, TRIGGER_OPTIONS)[1]


def _merged_trigger(named: dict[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """The new trigger; one of the same type keeps the fields that are not named."""
    if before is None or named.get("type", before.get("type")) != before.get("type"):
        return dict(named)
    replaced = {EXCLUSIVE_FIELDS[name] for name in named if name in EXCLUSIVE_FIELDS}
    return {name: value for name, value in before.items() if name not in replaced} | named


def target_document(
    options: TargetOptions,
    bundle: Mapping[str, Any] | None = None,
    before: Mapping[str, Any] | None = None,
    *,
    is_given: bool = False,
    is_change: bool = False,
) -> dict[str, Any] | None:
    """The target that the options name or change; None if there is none.

    `bundle` is the target of a bundle. `is_given` means that `before` comes from `--schedule-json`: a conflict with it
    is an error.
    """
    option, named = _named_target(options)
    if bundle is not None:
        if named is not None:
            raise InvalidRequest("conflicts with the bundle: give one of them", field=option)
        option, named = "the bundle", dict(bundle)
    settings = _target_settings(options)
    if named is None and not settings:
        return None if before is None else dict(before)
    target = named or {}
    if before is not None:
        target = _merged_target(option, target, before, is_given=is_given)
    for setting, kinds, fields in settings:
        if target.get("target_kind") not in kinds:
            needs = f"requires {' or '.join(TARGET_OPTION[kind] for kind in kinds)}"
            if bundle is not None and setting == "--payload-json":
                needs += "; a bundle has inputs, in its manifest or as target.inputs in --schedule-json"
            raise InvalidRequest(needs, field=setting)
        for name, value in fields.items():
            if name in ("headers", "secret_headers"):
                pairs = _with_known_case(value, target.get(name))
                target[name] = _merged_pairs(target.get(name), pairs, is_change=is_change)
            else:
                target[name] = value
    return target


def _named_target(options: TargetOptions) -> tuple[str, dict[str, Any] | None]:
    """The option that names a target, and that target; at most one option may."""
    targets: list[tuple[str, dict[str, Any]]] = [
        (option, document)
        for option, document in (
            ("--function", options.function and {"target_kind": "function", "function": options.function}),
            ("--http", options.http and {"target_kind": "http", "url": options.http}),
            ("--command", options.command and {"target_kind": "command", "argv": _argv(options.command)}),
            ("--emit", options.emit and {"target_kind": "event", "event_type": options.emit}),
            (
                "--ping",
                options.ping
                and {"target_kind": "ping", "grace_seconds": parse_optional_duration(options.ping, "--ping")},
            ),
        )
        if document
    ]
    return _at_most_one(targets, TARGET_OPTIONS)


def _at_most_one(named: Sequence[tuple[str, dict[str, Any]]], options: str) -> tuple[str, dict[str, Any] | None]:
    if len(named) > 1:
        raise InvalidRequest(f"conflicts with {named[0][0]}: give one of {options}", field=named[1][0])
    return named[0] if named else ("", None)


def _merged_target(option: str, named: dict[str, Any], before: Mapping[str, Any], *, is_given: bool) -> dict[str, Any]:
    """The named target with the other fields of one of the same kind; a given one may leave its kind out."""
    kind = before.get("target_kind", named.get("target_kind") if is_given else None)
    if named.get("target_kind", kind) == kind:
        return {**before, **named}
    if is_given:
        raise InvalidRequest(f"its target_kind {shown(kind)} conflicts with {option}", field="--schedule-json")
    return named


def _target_settings(options: TargetOptions) -> list[tuple[str, tuple[str, ...], dict[str, Any]]]:
    """The options that apply to some kinds of target: the option, the kinds, and the fields it sets."""
    settings: list[tuple[str, tuple[str, ...], dict[str, Any]]] = []
    if options.payload_json is not None:
        payload = parse_json(options.payload_json, field="--payload-json")
        settings.append(("--payload-json", ("function", "command", "event"), {"payload": payload}))
    if options.method is not None:
        settings.append(("--method", ("http",), {"method": options.method}))
    if options.header:
        pairs = [parse_pair(header, ":", "--header") for header in options.header]
        settings.append(("--header", ("http",), {"headers": pairs}))
    if options.secret_header:
        pairs = [parse_pair(header, ":", "--secret-header") for header in options.secret_header]
        settings.append(("--secret-header", ("http",), {"secret_headers": pairs}))
    if options.body_json is not None:
        settings.append(("--body-json", ("http",), {"body": parse_json(options.body_json, field="--body-json")}))
    return settings


def _argv(command: tuple[str, ...]) -> list[str]:
    """The program and its arguments; a single text with blanks is split as a shell does, but no shell runs."""
    if len(command) > 1 or not any(char.isspace() for char in command[0]):
        return list(command)
    try:
        words = shlex.split(command[0])
    except ValueError as error:
        raise InvalidRequest(f"cannot be split into words: {error}", field="--command") from None
    if SHELL_WORDS & set(words):
        raise InvalidRequest(
            "is not run in a shell, so pipes and redirections have no effect; start one yourself: -- sh -c '...'",
            field="--command",
        )
    return words


def policy_document(options: PolicyOptions, before: Mapping[str, Any], *, is_change: bool = False) -> dict[str, Any]:
    """The names, labels and policies that the options set; `before` has the fields they change in part."""
    if options.allow_overlap and options.overlap is not None:
        raise InvalidRequest("conflicts with --allow-overlap", field="--overlap")
    window = parse_optional_duration(options.window, "--window")
    timeout = parse_optional_duration(options.timeout, "--timeout")
    labels = [parse_pair(label, "=", "--label") for label in options.label]
    return present(
        name=options.name,
        description=options.description,
        labels=_merged_pairs(before.get("labels"), labels, is_change=is_change) if labels else None,
        overlap_policy="allow" if options.allow_overlap else _overlap(options.overlap, before.get("overlap_policy")),
        misfire_policy=_misfire(options, before.get("misfire_policy")),
        window=None if window is None else _object(before.get("window")) | {"duration_seconds": window},
        timeout_seconds=timeout,
        expected_seconds=parse_optional_duration(options.expected, "--expected"),
        expected_rate=_expected_rate(options, before.get("expected_rate")),
        runaway=_runaway(options, before.get("runaway")),
        retry_policy=_retry(options, before.get("retry_policy")),
        ping_urls=_ping_urls(options, before.get("ping_urls"), is_change=is_change),
        max_runs=options.max_runs,
        depends_on=[{"schedule_id": schedule_id} for schedule_id in options.depends_on] or None,
    )


def _expected_rate(options: PolicyOptions, before: object) -> dict[str, Any] | None:
    """The expected rate that the options set or change."""
    per = parse_optional_duration(options.per, "--per")
    named = present(at_least=options.at_least, at_most=options.at_most, per_seconds=per)
    if not named:
        return None
    rate = _object(before) | named
    if "per_seconds" not in rate:
        option = "--at-most" if options.at_least is None else "--at-least"
        raise InvalidRequest(f"is required with {option}: the length of a window, such as 1d", field="--per")
    if "at_least" not in rate and "at_most" not in rate:
        raise InvalidRequest("requires --at-least or --at-most", field="--per")
    return rate


def _runaway(options: PolicyOptions, before: object) -> dict[str, Any] | None:
    """The rules of the runaway guard that the options set or change."""
    named = present(
        max_fires_per_hour=options.max_fires_per_hour,
        max_spend_factor=options.max_spend_factor,
        max_identical_results=options.max_identical_results,
    )
    return _object(before) | named if named else None


def _ping_urls(options: PolicyOptions, before: object, *, is_change: bool) -> dict[str, Any] | None:
    """The URLs to call; in a change, an empty one removes one."""
    named = present(start=options.ping_start, success=options.ping_success, failure=options.ping_failure)
    return _merged_pairs(before, list(named.items()), is_change=is_change) if named else None


def _retry(options: PolicyOptions, before: object) -> dict[str, Any] | None:
    """The retry policy that the options set or change."""
    named = present(
        max_attempts=None if options.retries is None else _attempts(options.retries),
        on=list(options.retry_on) or None,
        not_on=list(options.retry_not_on) or None,
    )
    if not named:
        return None
    policy = _object(before) | named
    for option, name in (("--retry-on", "on"), ("--retry-not-on", "not_on")):
        if name in named and policy.get("max_attempts", 1) == 1:
            raise InvalidRequest("requires --retries: without retries, nothing is tried again", field=option)
    return policy


def _attempts(retries: int) -> int:
    from noonmark.core.policies.options import MAX_RETRIES, RETRY_RULE

    if not 0 <= retries <= MAX_RETRIES:
        raise InvalidRequest(f"{RETRY_RULE}, not {shown(retries)}", field="--retries")
    return retries + 1


def _overlap(kind: str | None, before: object) -> str | dict[str, Any] | None:
    """The named policy; it keeps its settings if it is the same as before."""
    settings = _object(before)
    return settings if kind is not None and settings.get("type") == kind else kind


def _misfire(options: PolicyOptions, before: object) -> dict[str, Any] | None:
    settings, limit = _object(before), options.catchup_limit
    window = parse_optional_duration(options.catchup_window, "--catchup-window")
    named = None if options.misfire is None else MISFIRE_ALIASES.get(options.misfire, options.misfire)
    kind = settings.get("type") if named is None else named
    if named is None and limit is None and window is None:
        return None
    if limit is not None and (kind is None or kind in UNLIMITED_MISFIRES):
        message = f"requires --misfire catch_up_all, catch_up_within or spread{_not_kind(kind)}"
        raise InvalidRequest(message, field="--catchup-limit")
    if window is not None and (kind is None or kind in WINDOWLESS_MISFIRES):
        raise InvalidRequest(f"requires --misfire catch_up_within or spread{_not_kind(kind)}", field="--catchup-window")
    if kind != settings.get("type"):
        settings = {name: value for name, value in settings.items() if name == "grace_seconds"}
    if kind == "catch_up_within" and window is None and "window_seconds" not in settings:
        raise InvalidRequest(
            "is required with --misfire catch_up_within: how late a missed fire may still run, such as 2h",
            field="--catchup-window",
        )
    return settings | {"type": kind} | present(limit=limit, window_seconds=window)


def _not_kind(kind: str | None) -> str:
    return "" if kind is None else f", not {kind}"


def _object(value: object) -> dict[str, Any]:
    """A copy of an object; empty for any other value."""
    return dict(value) if isinstance(value, dict) else {}


def _merged_pairs(before: object, pairs: Sequence[tuple[str, str]], *, is_change: bool) -> dict[str, Any]:
    """Labels or headers with the new pairs; in a change, an empty value removes one."""
    new = dict(pairs)
    merged = _object(before) | new
    return {name: value for name, value in merged.items() if value or not is_change or name not in new}


def _with_known_case(pairs: list[tuple[str, str]], before: object) -> list[tuple[str, str]]:
    """Headers under the names they already have: header names are case-insensitive."""
    known = {name.lower(): name for name in before} if isinstance(before, dict) else {}
    return [(known.get(name.lower(), name), value) for name, value in pairs]
