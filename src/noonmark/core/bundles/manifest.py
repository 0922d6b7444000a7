"""The manifest of a bundle: what it runs, what it needs, and when it runs.

The smallest one is `{"name": "eval", "command": ["python", "job.py"]}`.
"""

from __future__ import annotations

import re
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from noonmark.core.bundles.archive import invalid_bundle
from noonmark.core.bundles.notation import FIELDS, TRIGGER_FIELDS, schedule_document
from noonmark.core.documents import SUGGESTION, UNKNOWN_FIELD, Reader, present, unknown_field
from noonmark.core.errors import InvalidBundle, InvalidSchedule, Problem, TriggerNeverFires
from noonmark.core.frozen import frozen
from noonmark.core.instants import SECOND
from noonmark.core.json_values import identifier, json_copy, json_problem, shown, text_of
from noonmark.core.policies.retry import RetryPolicy, read_retry
from noonmark.core.schedule import MAX_DESCRIPTION, MAX_TIMEOUT_SECONDS, RESERVED_IDS, parse_schedule
from noonmark.core.secret import secret_name
from noonmark.core.targets import TargetKind, read_target
from noonmark.core.targets.command import MAX_ARGUMENTS, MAX_MEMORY_MB, MAX_VARIABLES, OWN_PREFIX, variable_name
from noonmark.core.targets.work import MAX_LABELS, MAX_SLOTS, node_label
from noonmark.core.urls import MAX_PORT, parse_url

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from noonmark.core.instants import Micros

MAX_SERVICES = 20
MAX_SERVICE_SECONDS = 60
SERVICE_SECONDS = 5
MAX_TRIGGERS = 100
MAX_CPUS = 4_096
SCHEDULE = "schedule"
NOT_IN_MANIFESTS = ("schedule_id", "depends_on")
"""Fields of a schedule document that a manifest does not have."""
WORK = ("command", "function", "http", "workflow")
"""What a bundle may run: exactly one of them."""
BUNDLE_LABEL = "noonmark.bundle"
"""The label of schedules that a manifest declares: the id of its bundle."""

MAX_SUFFIX = 60
"""How much of the name of a trigger is part of the id of its schedule."""
_NOT_IN_ID = re.compile(r"[^A-Za-z0-9._:-]+")
_argument = text_of(0, 131_072, multiline=True)


class ServiceKind(StrEnum):
    """How a service is asked whether it is there."""

    HTTP = "http"
    TCP = "tcp"


@frozen(kw_only=True)
class RequiredService:
    """A service that must answer before a run starts."""

    kind: ServiceKind
    address: str
    """A URL, which must answer with a status below 500; or `host:port`, which must accept a connection."""
    timeout: Micros = SERVICE_SECONDS * SECOND

    @property
    def place(self) -> tuple[str, int]:
        """The host and the port of a TCP service."""
        host, _, port = self.address.rpartition(":")
        return host.removeprefix("[").removesuffix("]"), int(port)


@frozen(kw_only=True)
class Resources:
    """What a node must have, or have free, before it starts a run."""

    cpus: float = 0
    memory_mb: int = 0
    slots: int = 0
    labels: dict[str, str] = field(default_factory=dict, hash=False)

    @property
    def is_demanding(self) -> bool:
        """Whether a node has to count."""
        return bool(self.cpus or self.memory_mb or self.slots)


@frozen(kw_only=True)
class ManagedSchedule:
    """A schedule that a manifest declares."""

    place: str
    """Where it stands: `schedule`, `triggers[0]`."""
    schedule_id: str
    document: dict[str, Any] = field(hash=False)
    """As a schedule document, with its id, its label and its target."""


@frozen(kw_only=True)
class Manifest:
    """The manifest of a bundle."""

    name: str
    """Also the id of the bundle."""
    description: str = ""
    command: tuple[str, ...] = ()
    function: str | None = None
    http: dict[str, Any] | None = field(default=None, hash=False, repr=False)
    """An HTTP target, without its kind."""
    workflow: dict[str, Any] | str | None = field(default=None, hash=False, repr=False)
    """A definition, or the name of the file in the bundle that has it."""
    inputs: dict[str, Any] = field(default_factory=dict, hash=False, repr=False)
    """Default values of the inputs of a run."""
    env: dict[str, str] = field(default_factory=dict, hash=False, repr=False)
    secret_env: dict[str, str] = field(default_factory=dict, hash=False)
    """The names of secrets, by variable."""
    resources: Resources = Resources()
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    timeout: Micros | None = None
    services: tuple[RequiredService, ...] = ()
    schedules: tuple[ManagedSchedule, ...] = ()
    document: dict[str, Any] = field(default_factory=dict, hash=False, repr=False)
    """As it was given."""

    @property
    def kind(self) -> str:
        """What it runs: one of `WORK`."""
        return next(name for name in WORK if getattr(self, name))


def parse_manifest(document: object, *, now: datetime, bundle_id: str | None = None) -> Manifest:
    """Read a manifest; InvalidBundle lists everything that is wrong with it.

    Its schedules run the bundle `bundle_id`, by default the name of the manifest. Whether times are past is judged when
    the schedules are created: the same manifest may come again, long after.
    """
    problems: list[Problem] = []
    if (problem := json_problem(document)) is not None:
        raise InvalidBundle(problem)
    given: Any = json_copy(document)
    reader = Reader(given, path="", code=InvalidBundle.code, problems=problems)
    if problems:
        raise invalid_bundle(problems)
    name, resources = _read_name(reader), _read_resources(reader)
    manifest = Manifest(
        name=name or "",
        description=reader.text("description", "", low=0, high=MAX_DESCRIPTION, multiline=True),
        **_read_work(reader),
        inputs=reader.json_object("inputs"),
        env=reader.text_map("env", key=_own_variable, value=_argument, high=MAX_VARIABLES),
        secret_env=reader.text_map("secret_env", key=_own_variable, value=secret_name, high=MAX_VARIABLES),
        resources=resources,
        retry=read_retry(reader, "retry"),
        timeout=reader.seconds("timeout_seconds", None, low=0.001, high=MAX_TIMEOUT_SECONDS),
        services=_read_services(reader),
        schedules=_read_schedules(reader, bundle_id or name or "bundle", now, resources),
        document=given,
    )
    for variable in manifest.env.keys() & manifest.secret_env.keys():
        reader.problem(f"secret_env.{variable}", "is also in env: give one of them")
    reader.text("version", None)
    reader.json_object("metadata")
    reader.close()
    if problems:
        raise invalid_bundle(problems)
    return manifest


def needs_of_manifest(document: Mapping[str, Any]) -> dict[str, Any]:
    """The labels and the slots that a stored manifest asks for, as fields of a target; only those that it has."""
    resources = document.get("resources")
    if not isinstance(resources, dict):
        return {}
    labels, slots = resources.get("labels"), resources.get("slots")
    return present(
        labels=dict(labels) if isinstance(labels, dict) and labels else None,
        slots=slots if isinstance(slots, int) and slots > 0 else None,
    )


def bundle_name(value: object) -> str:
    """The id of a bundle; ValueError for anything else."""
    name = identifier(value)
    if name in RESERVED_IDS:
        raise ValueError(f"must not be {shown(name)}, which means something else in the path of a request")
    return name


def _read_name(reader: Reader) -> str | None:
    name: str | None = reader.read("name", bundle_name, None)
    job_name: str | None = reader.read("job_name", bundle_name, None)
    if reader.raw("name") is None and reader.raw("job_name") is None:
        reader.problem("name", "is required")
    if name is not None and job_name is not None and name != job_name:
        reader.problem("job_name", "differs from name: give one of them")
    return name or job_name


def _read_work(reader: Reader) -> dict[str, Any]:
    """What the bundle runs; exactly one field says it."""
    given = [name for name in WORK if reader.raw(name) is not None]
    if len(given) != 1:
        actual = f", not {' and '.join(given)}" if given else ""
        reader.problem("", f"must have exactly one of {', '.join(WORK)}{actual}")
    work: dict[str, Any] = {}
    if "command" in given:
        work["command"] = _read_command(reader)
    if "function" in given:
        work["function"] = reader.text("function", None, high=500)
    if "http" in given:
        work["http"] = _read_http(reader)
    if "workflow" in given:
        work["workflow"] = _read_workflow(reader)
    return work


def _read_command(reader: Reader) -> tuple[str, ...]:
    before = len(reader.problems)
    command = reader.each("command", _argument, high=MAX_ARGUMENTS)
    if len(reader.problems) == before and not (command and command[0]):
        reader.problem("command", "must be an array that starts with the name of a program")
    return command


def _read_http(reader: Reader) -> dict[str, Any] | None:
    given = reader.raw("http")
    if not isinstance(given, dict):
        reader.problem("http", f"must be an object, not {shown(given)}")
        return None
    inner: list[Problem] = []
    document = {"http": {**given, "target_kind": str(TargetKind.HTTP)}}
    read_target(Reader(document, path="", code=reader.code, problems=inner), "http")
    reader.problems += inner
    return given


def _read_workflow(reader: Reader) -> dict[str, Any] | str | None:
    given = reader.raw("workflow")
    if isinstance(given, str):
        name: str | None = reader.text("workflow", None, high=255)
        return name
    if not isinstance(given, dict):
        reader.problem("workflow", f"must be a definition or the name of a file, not {shown(given)}")
        return None
    return given


def _read_resources(reader: Reader) -> Resources:
    if reader.raw("resources") is None:
        return Resources()
    fields = reader.child("resources")
    resources = Resources(
        cpus=fields.number("cpus", 0, high=MAX_CPUS),
        memory_mb=fields.integer("memory_mb", 0, high=MAX_MEMORY_MB),
        slots=fields.integer("slots", 0, high=MAX_SLOTS),
        labels=fields.text_map("labels", key=node_label, value=node_label, high=MAX_LABELS),
    )
    fields.close()
    return resources


def _read_services(reader: Reader) -> tuple[RequiredService, ...]:
    services = []
    for index, given in enumerate(reader.items("services", high=MAX_SERVICES)):
        fields = reader.entry(f"services[{index}]", given)
        if fields is None:
            continue
        kinds = [kind for kind in ServiceKind if fields.raw(kind) is not None]
        timeout = fields.seconds("timeout_seconds", SERVICE_SECONDS * SECOND, low=0.001, high=MAX_SERVICE_SECONDS)
        fields.text("name", None)
        if len(kinds) != 1:
            fields.problem("", "must have one of http, a URL, and tcp, a host and a port")
        else:
            address = fields.read(kinds[0], _http_address if kinds[0] is ServiceKind.HTTP else _tcp_address, None)
            if address is not None:
                services.append(RequiredService(kind=kinds[0], address=address, timeout=timeout))
        fields.close()
    return tuple(services)


def _http_address(value: object) -> str:
    text = text_of(1, 2_000)(value)
    parse_url(text)
    return text


def _tcp_address(value: object) -> str:
    text = text_of(1, 300)(value)
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) <= MAX_PORT:
        raise ValueError(f"must be a host and a port, such as db.example.com:5432, not {shown(text)}")
    return text


def _own_variable(value: object) -> str:
    name = variable_name(value)
    if name.startswith(OWN_PREFIX):
        raise ValueError(f"must not begin with {OWN_PREFIX}, which Noonmark sets")
    return name


def _read_schedules(reader: Reader, bundle_id: str, now: datetime, resources: Resources) -> tuple[ManagedSchedule, ...]:
    """The schedules of the manifest, each read as a document with the bundle as its target."""
    parts: list[tuple[str, str, object]] = []
    if reader.raw(SCHEDULE) is not None:
        parts.append((SCHEDULE, SCHEDULE, reader.raw(SCHEDULE)))
    for index, part in enumerate(reader.items("triggers", high=MAX_TRIGGERS)):
        name = part.get("name") if isinstance(part, dict) else None
        suffix = (
            f"trigger.{_NOT_IN_ID.sub('-', name)[:MAX_SUFFIX]}" if isinstance(name, str) else f"trigger.{index + 1}"
        )
        parts.append((f"triggers[{index}]", suffix, part))
    managed: dict[str, ManagedSchedule] = {}
    needs = present(labels=resources.labels or None, slots=resources.slots or None)
    target = {"target_kind": "bundle", "bundle_id": bundle_id} | needs
    for place, suffix, part in parts:
        if (one := _read_schedule(reader, place, f"{bundle_id}.{suffix}", part, target, now)) is None:
            continue
        if one.schedule_id in managed:
            reader.problem(f"{place}.name", f"is also the name of {managed[one.schedule_id].place}")
        managed[one.schedule_id] = one
    return tuple(managed.values())


def _read_schedule(
    reader: Reader, place: str, schedule_id: str, part: object, target: dict[str, Any], now: datetime
) -> ManagedSchedule | None:
    if not isinstance(part, dict):
        reader.problem(place, f"must be an object, not {shown(part)}")
        return None
    # `type` is no field of a schedule: a part that has it is a trigger document.
    try:
        document = schedule_document({"trigger": part} if "type" in part else part)
    except ValueError as error:
        reader.problem(f"{place}.kind", str(error).removeprefix("kind "))
        return None
    for name in [name for name in NOT_IN_MANIFESTS if name in document]:
        reader.problem(f"{place}.{name}", "is not part of a manifest")
        del document[name]
    document |= {"schedule_id": schedule_id, "target": _merged(document.get("target")) | target}
    document.setdefault("name", schedule_id)
    document["labels"] = _merged(document.get("labels")) | {BUNDLE_LABEL: target["bundle_id"]}
    try:
        parse_schedule(document, now=now)
    except InvalidSchedule as error:
        for problem in error.problems:
            if problem.field == "trigger" and "trigger" not in document:
                reader.problem(place, f"must have one of {', '.join(TRIGGER_FIELDS)}, or a trigger")
            elif problem.code != TriggerNeverFires.code:
                reader.problem(f"{place}.{problem.field}" if problem.field else place, _in_manifest(problem))
    return ManagedSchedule(place=place, schedule_id=schedule_id, document=document)


def _in_manifest(problem: Problem) -> str:
    """What is wrong with a schedule; where a field is unknown, with the fields that manifests have."""
    if "." in problem.field or not problem.message.startswith(UNKNOWN_FIELD):
        return problem.message
    names = problem.message.removeprefix(UNKNOWN_FIELD).partition(SUGGESTION)[0].split(", ")
    return unknown_field(problem.field, {*names, *FIELDS}.difference(NOT_IN_MANIFESTS))


def _merged(given: object) -> dict[str, Any]:
    return dict(given) if isinstance(given, dict) else {}
