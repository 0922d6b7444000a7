"""From options to the document of a schedule: what they say goes before what a given document says."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noonmark.cli.documents import parse_json
from noonmark.cli.local_zone import local_zone
from noonmark.cli.manifest import to_document
from noonmark.cli.options import Timing
from noonmark.cli.terms import merged_pairs, pair
from noonmark.cli.times import read_duration, read_instant
from noonmark.core.documents import present
from noonmark.core.errors import InvalidRequest, NotFound
from noonmark.core.json_values import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.cli.options import Listening, Moment, Receiver

KINDS = "--cron, --every, --at, --in or --event"
TARGETS = "--function, --http, --command or --emit"
OPTIONS = {"function": "--function", "http": "--http", "command": "--command", "event": "--emit"}
"""What names each kind of target."""
INSTEAD_OF = {
    "expression": "crons",
    "crons": "expression",
    "due_at_utc": "delay_seconds",
    "delay_seconds": "due_at_utc",
}
"""Of each pair, a trigger says one."""
SHELL_WORDS = frozenset({"|", "||", "&", "&&", ";", ">", ">>", "<", "2>&1"})


def given_document(text: str | None) -> dict[str, Any]:
    """The document that `--schedule-json` gives, in our own words."""
    if text is None:
        return {}
    given = parse_json(text, field="--schedule-json")
    if not isinstance(given, dict):
        raise InvalidRequest(f"must be an object, not {shown(given)}", field="--schedule-json")
    document = to_document(given, field="--schedule-json")
    for name in ("trigger", "target"):
        if not isinstance(document.get(name), dict | None):
            raise InvalidRequest(f"{name} must be an object, not {shown(document[name])}", field="--schedule-json")
    return document


def trigger_document(
    timing: Timing | Moment | Listening, before: Mapping[str, Any] | None = None
) -> dict[str, Any] | None:
    """The trigger that options name, or that they change; what they leave open is as before. None if there is none."""
    whole = timing if isinstance(timing, Timing) else Timing(**_fields(timing))
    named = _named(whole)
    bounds = present(
        start_at_utc=read_instant(whole.start_at, "--start-at"),
        end_at_utc=read_instant(whole.end_at, "--end-at"),
        jitter_seconds=read_duration(whole.jitter, "--jitter"),
    )
    if named is None and before is None:
        if bounds or whole.timezone is not None or whole.filter_json is not None:
            raise InvalidRequest(f"say when it is to run: give {KINDS}")
        return None
    trigger = _merged(named or {}, before) | bounds
    kind = trigger.get("type")
    if whole.timezone is not None:
        if kind not in ("cron", "calendar"):
            raise InvalidRequest("goes with --cron: instants and lengths of time have no zone", field="--timezone")
        trigger["timezone"] = whole.timezone
    elif kind == "cron":
        trigger.setdefault("timezone", local_zone())
    if whole.filter_json is not None:
        if kind != "event":
            raise InvalidRequest("goes with --event", field="--filter-json")
        trigger["filters"] = parse_json(whole.filter_json, field="--filter-json")
    return trigger


def _fields(timing: Moment | Listening) -> dict[str, Any]:
    return {name: getattr(timing, name) for name in type(timing).__dataclass_fields__}


def _named(timing: Timing) -> dict[str, Any] | None:
    """What the option that names a kind of trigger says; there is at most one."""
    found: list[tuple[str, dict[str, Any]]] = []
    if timing.cron:
        crons = {"expression": timing.cron[0]} if len(timing.cron) == 1 else {"crons": list(timing.cron)}
        found.append(("--cron", {"type": "cron", **crons}))
    if timing.every is not None:
        found.append(("--every", {"type": "interval", "every_seconds": read_duration(timing.every, "--every")}))
    if timing.at is not None:
        found.append(("--at", {"type": "once", "due_at_utc": read_instant(timing.at, "--at")}))
    if timing.delay is not None:
        found.append(("--in", {"type": "once", "delay_seconds": read_duration(timing.delay, "--in")}))
    if timing.event:
        types = timing.event[0] if len(timing.event) == 1 else list(timing.event)
        found.append(("--event", {"type": "event", "event_type": types}))
    if len(found) > 1:
        raise InvalidRequest(f"cannot stand beside {found[0][0]}: give one of {KINDS}", field=found[1][0])
    return found[0][1] if found else None


def _merged(named: dict[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """The new trigger; one of the same kind keeps what is not said anew."""
    if before is None or named.get("type", before.get("type")) != before.get("type"):
        return dict(named)
    gone = {INSTEAD_OF[name] for name in named if name in INSTEAD_OF}
    return {name: value for name, value in before.items() if name not in gone} | named


def target_document(
    receiver: Receiver,
    bundle: str | None = None,
    before: Mapping[str, Any] | None = None,
    *,
    is_given: bool = False,
    is_change: bool = False,
) -> dict[str, Any] | None:
    """The target that options name, or that they change; None if they say nothing of it.

    `is_given` where the one before is that of `--schedule-json`: nothing that it says is lost without a word.
    """
    if bundle is not None:
        _refuse_bundle(bundle)
    option, named = _named_target(receiver)
    settings = _settings(receiver)
    if not named and not settings:
        return None if before is None else dict(before)
    if before is not None:
        named = _with_rest(option, named, before, is_given=is_given)
    for option, kinds, setting in settings:
        if named.get("target_kind") not in kinds:
            raise InvalidRequest(f"goes with {' or '.join(OPTIONS[kind] for kind in kinds)}", field=option)
        for name, value in setting.items():
            if name in ("headers", "secret_headers"):
                named[name] = merged_pairs(named.get(name), _spelled(value, named.get(name)), is_change=is_change)
            else:
                named[name] = value
    return named


def _named_target(receiver: Receiver) -> tuple[str, dict[str, Any]]:
    """The option that names a target, and what it says; there is at most one."""
    found: list[tuple[str, dict[str, Any]]] = [
        (option, document)
        for option, document in (
            ("--function", receiver.function and {"target_kind": "function", "function": receiver.function}),
            ("--http", receiver.http and {"target_kind": "http", "url": receiver.http}),
            ("--command", receiver.command and {"target_kind": "command", "argv": _words(receiver.command)}),
            ("--emit", receiver.emit and {"target_kind": "event", "event_type": receiver.emit}),
        )
        if document
    ]
    if len(found) > 1:
        raise InvalidRequest(f"cannot stand beside {found[0][0]}: give one of {TARGETS}", field=found[1][0])
    return found[0] if found else ("", {})


def _with_rest(option: str, named: dict[str, Any], before: Mapping[str, Any], *, is_given: bool) -> dict[str, Any]:
    """The target that is named, with the rest of one of the same kind; one that is given need not say its kind."""
    kind = before.get("target_kind", named.get("target_kind") if is_given else None)
    if named.get("target_kind", kind) == kind:
        return {**before, **named}
    if is_given:
        raise InvalidRequest(f"its target_kind {shown(kind)} cannot stand beside {option}", field="--schedule-json")
    return named


def _spelled(said: list[tuple[str, str]], before: object) -> list[tuple[str, str]]:
    """Headers by the names that they have already: those know no case."""
    known = {name.lower(): name for name in before} if isinstance(before, dict) else {}
    return [(known.get(name.lower(), name), value) for name, value in said]


def _settings(receiver: Receiver) -> list[tuple[str, tuple[str, ...], dict[str, Any]]]:
    """The options that belong to some kinds of target: their names, the kinds, and what they set."""
    found: list[tuple[str, tuple[str, ...], dict[str, Any]]] = []
    if receiver.payload_json is not None:
        payload = parse_json(receiver.payload_json, field="--payload-json")
        found.append(("--payload-json", ("function", "command", "event"), {"payload": payload}))
    if receiver.method is not None:
        found.append(("--method", ("http",), {"method": receiver.method}))
    if receiver.header:
        pairs = [pair(one, ":", "--header") for one in receiver.header]
        found.append(("--header", ("http",), {"headers": pairs}))
    if receiver.secret_header:
        pairs = [pair(one, ":", "--secret-header") for one in receiver.secret_header]
        found.append(("--secret-header", ("http",), {"secret_headers": pairs}))
    if receiver.body_json is not None:
        found.append(("--body-json", ("http",), {"body": parse_json(receiver.body_json, field="--body-json")}))
    return found


def _refuse_bundle(bundle: str) -> None:
    instead = f"name what it starts by {TARGETS}"
    if Path(bundle).exists():
        raise InvalidRequest(f"this release runs no bundles yet: {instead}", field=bundle)
    raise NotFound(f"there is no such file or folder, and bundles are not run yet: {instead}", field=bundle)


def _words(command: tuple[str, ...]) -> list[str]:
    """The program and its arguments; one text with blanks is taken apart as a shell does, but no shell runs."""
    if len(command) > 1 or not any(each.isspace() for each in command[0]):
        return list(command)
    try:
        words = shlex.split(command[0])
    except ValueError as error:
        raise InvalidRequest(f"cannot be taken apart: {error}", field="--command") from None
    if SHELL_WORDS & set(words):
        raise InvalidRequest(
            "no shell runs, so pipes and redirections mean nothing; call one yourself: -- sh -c '...'",
            field="--command",
        )
    return words
