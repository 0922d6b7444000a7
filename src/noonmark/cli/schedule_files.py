"""Files that declare schedules and workflows, in YAML, JSON or TOML.

A file has `schedules`, `workflows` or both, and optionally `defaults` of its schedules and `managed_by`.

Texts may contain variables of the environment, `${NAME}` or `${NAME:-default}`; `$${` stands for `${`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noonmark.cli.inputs import MAX_BYTES, parse_json, read_bytes
from noonmark.core.changes import Desired, owner_name
from noonmark.core.documents import unknown_field
from noonmark.core.errors import InvalidSchedule, NotFound, Problem, refusal
from noonmark.core.json_values import key_path, shown
from noonmark.core.redaction import Redactor, is_secret_name, redact

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STANDARD_INPUT = "-"
SUFFIXES = (".yaml", ".yml", ".json", ".toml")
USUAL_OWNER = "apply"
"""The `managed_by` of files that name none."""
FIELDS = ("workflows", "schedules", "defaults", "managed_by")
KINDS = ("type", "target_kind")
"""Fields that say which kind of object something is."""
MAX_FILE = 16 * MAX_BYTES
Place = tuple[str, str, "Mapping[str, int]"]
"""A file, a path in it, and the lines of its values."""
_VARIABLE = re.compile(r"\$(\$\{)|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\$\{")


@dataclass
class ScheduleFiles:
    """What files declare, and where each document stands."""

    desired: list[Desired] = field(default_factory=list)
    owners: set[str | None] = field(default_factory=set)
    """The `managed_by` of each file."""
    secrets: set[str] = field(default_factory=set)
    """Values of variables with secret names; they are never printed."""
    workflows: list[dict[str, Any]] = field(default_factory=list)
    """Definitions of workflows."""
    _places: list[Place] = field(default_factory=list)
    _workflow_places: list[Place] = field(default_factory=list)

    def add(self, document: Mapping[str, Any], owner: str | None, place: Place) -> None:
        """Add the schedule at a place: a file, a path in it, and its lines."""
        self.desired.append(Desired(document, owner, f"{place[1]} in {place[0]}"))
        self._places.append(place)

    def add_workflow(self, definition: dict[str, Any], place: Place) -> None:
        """Add the workflow at a place."""
        self.workflows.append(definition)
        self._workflow_places.append(place)

    def locate(self, index: int, problem: Problem) -> Problem:
        """A problem of a document with its file, line and path, and without secrets."""
        return self._located(self._places[index], problem)

    def refuse(self, problems: Sequence[tuple[int, Problem]]) -> InvalidSchedule:
        """The error for problems of documents."""
        return refusal([self.locate(index, problem) for index, problem in problems])

    def locate_workflow(self, index: int, problem: Problem) -> Problem:
        """A problem of a workflow, likewise."""
        return self._located(self._workflow_places[index], problem)

    def refuse_workflows(self, problems: Sequence[tuple[int, Problem]]) -> InvalidSchedule:
        """The error for problems of workflows."""
        return refusal([self.locate_workflow(index, problem) for index, problem in problems])

    def _located(self, place: Place, problem: Problem) -> Problem:
        name, path, lines = place
        message = redact(problem.message)
        if Redactor(self.secrets).holds(message):
            message = "is not allowed; the value comes from a variable and is not shown"
        where = f"{path}.{problem.field}" if path and problem.field else path or problem.field
        return Problem(_place(name, where, lines), message, problem.code)


def read_files(
    names: Sequence[str],
    environment: Mapping[str, str],
    *,
    managed_by: str | None = None,
    are_workflows: bool = False,
) -> ScheduleFiles:
    """Read files, all files in folders and below, or standard input; the error lists what is wrong in all of them.

    Files of workflows may be a definition themselves, and have nothing else.
    """
    files, problems = ScheduleFiles(), list[Problem]()
    for name in [path for each in names for path in _paths(each)]:
        try:
            for number, (value, lines) in enumerate(_parse(name)):
                where = name if number == 0 else f"{name} (document {number + 1})"
                read = _read_workflow_file if are_workflows else partial(_read, managed_by=managed_by)
                problems += read(files, where, value, lines, environment)
        except InvalidSchedule as error:
            problems += [Problem(_place(name, problem.field, {}), problem.message) for problem in error.problems]
    if problems:
        raise refusal(problems)
    return files


def escape_variables(value: Any) -> Any:
    """A value as a file must have it, so that its texts are read as they are."""
    if isinstance(value, dict):
        return {name: escape_variables(each) for name, each in value.items()}
    if isinstance(value, list):
        return [escape_variables(each) for each in value]
    return value.replace("${", "$${") if isinstance(value, str) else value


def _paths(name: str) -> list[str]:
    folder = Path(name)
    if name == STANDARD_INPUT or not folder.is_dir():
        return [name]
    paths = sorted(
        str(path)
        for path in folder.rglob("*")
        if path.suffix in SUFFIXES and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    if not paths:
        raise NotFound(f"has no files with {', '.join(SUFFIXES)}", field=name)
    return paths


def read_one(name: str, what: str) -> dict[str, Any]:
    """Read the one object of a .yaml, .json or .toml file, or of standard input."""
    try:
        documents = [value for value, _ in _parse(name)]
    except InvalidSchedule as error:
        problems = [Problem(_place(name, problem.field, {}), problem.message) for problem in error.problems]
        raise refusal(problems) from None
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise InvalidSchedule(f"must have one document, with {what}", field=name)
    return documents[0]


def _parse(name: str) -> list[tuple[Any, Mapping[str, int]]]:
    """The documents of a file, with the lines of their values if they are known."""
    suffix = Path(name).suffix
    if name != STANDARD_INPUT and suffix not in SUFFIXES:
        raise InvalidSchedule(f"must have one of the suffixes {', '.join(SUFFIXES)}")
    raw = read_bytes(None if name == STANDARD_INPUT else name, MAX_FILE + 1, field=name)
    if len(raw) > MAX_FILE:
        raise InvalidSchedule(f"is larger than {MAX_FILE // 1_048_576} MiB")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidSchedule(f"is not UTF-8 text: byte {error.start + 1} is 0x{raw[error.start]:02x}") from None
    if suffix == ".json" or (name == STANDARD_INPUT and text.lstrip().startswith("{")):
        return [(parse_json(text), {})]
    if suffix == ".toml":
        return [(_parse_toml(text), {})]
    from noonmark.cli.yaml_documents import parse_yaml

    return [(value, lines) for value, lines in parse_yaml(text) if value is not None]


def _parse_toml(text: str) -> Any:
    import tomllib
    from datetime import date, time

    def plain(value: object) -> object:
        """Instants as text; TOML has a type for them."""
        if isinstance(value, dict):
            return {name: plain(each) for name, each in value.items()}
        if isinstance(value, list):
            return [plain(each) for each in value]
        return value.isoformat() if isinstance(value, date | time) else value

    try:
        return plain(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise InvalidSchedule(f"is not TOML: {error}") from None
    except RecursionError:
        raise InvalidSchedule("is nested too deeply") from None


def _read(
    files: ScheduleFiles,
    name: str,
    value: object,
    lines: Mapping[str, int],
    environment: Mapping[str, str],
    managed_by: str | None,
) -> list[Problem]:
    """Add the schedules and workflows of one document to the files; returns what is wrong with it."""
    if not isinstance(value, dict):
        return [Problem(name, f"must be an object with {', '.join(FIELDS)}, not {shown(value)}")]
    problems: list[tuple[str, str]] = [
        (key_path(each), unknown_field(each, FIELDS)) for each in value if each not in FIELDS
    ]
    variables = _Variables(environment)
    filled: dict[str, Any] = variables.fill(value, "")
    problems += variables.problems
    files.secrets |= variables.secrets
    schedules, defaults = filled.get("schedules"), filled.get("defaults")
    if "workflows" in filled:
        problems += _add_workflows(files, name, filled["workflows"], lines)
        schedules = filled.get("schedules", [])
    if not isinstance(schedules, list):
        given = "" if schedules is None else f", not {shown(schedules)}"
        problems.append(("schedules", f"must be an array of schedule documents{given}"))
        schedules = []
    if not isinstance(defaults, dict | None):
        problems.append(("defaults", f"must be an object, not {shown(defaults)}"))
        defaults = None
    owner = filled.get("managed_by", USUAL_OWNER) if managed_by is None else managed_by
    try:
        files.owners.add(None if owner is None else owner_name(owner))
    except ValueError as error:
        problems.append(("managed_by", str(error)))
    for index, document in enumerate(schedules):
        path = f"schedules[{index}]"
        if isinstance(document, dict):
            files.add(_with_defaults(defaults or {}, document), owner, (name, path, lines))
        else:
            problems.append((path, f"must be an object, not {shown(document)}"))
    return [Problem(_place(name, path, lines), message) for path, message in problems]


def _add_workflows(
    files: ScheduleFiles, name: str, workflows: object, lines: Mapping[str, int]
) -> list[tuple[str, str]]:
    """Add the definitions of one document; returns what is wrong with them."""
    if not isinstance(workflows, list):
        return [("workflows", f"must be an array of definitions, not {shown(workflows)}")]
    problems: list[tuple[str, str]] = []
    for index, definition in enumerate(workflows):
        path = f"workflows[{index}]"
        if isinstance(definition, dict):
            files.add_workflow(definition, (name, path, lines))
        else:
            problems.append((path, f"must be an object, not {shown(definition)}"))
    return problems


def _read_workflow_file(
    files: ScheduleFiles, name: str, value: object, lines: Mapping[str, int], environment: Mapping[str, str]
) -> list[Problem]:
    """Add the definition that a document is, or those that it has."""
    if not isinstance(value, dict):
        return [Problem(name, f"must be the definition of a workflow, not {shown(value)}")]
    variables = _Variables(environment)
    filled: dict[str, Any] = variables.fill(value, "")
    problems = variables.problems
    files.secrets |= variables.secrets
    if filled.keys() == {"workflows"}:
        problems += _add_workflows(files, name, filled["workflows"], lines)
    else:
        files.add_workflow(filled, (name, "", lines))
    return [Problem(_place(name, path, lines), message) for path, message in problems]


def _with_defaults(defaults: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """A schedule document with defaults; they complete a trigger, but give none to a schedule that follows others."""
    usual = defaults if "trigger" in document else {name: defaults[name] for name in defaults if name != "trigger"}
    return _merge(usual, document)


def _merge(defaults: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """A document with defaults: objects are merged, unless they are of different kinds; null removes a default."""
    merged = dict(defaults)
    for name, value in document.items():
        before = defaults.get(name)
        if isinstance(before, dict) and isinstance(value, dict) and not _differ_in_kind(before, value):
            merged[name] = _merge(before, value)
        else:
            merged[name] = value
    return {name: value for name, value in merged.items() if value is not None or name not in defaults}


def _differ_in_kind(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    return any(kind in before and kind in after and before[kind] != after[kind] for kind in KINDS)


class _Variables:
    """Puts the values of variables into texts; notes those that are not set, and values that are secret."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.problems: list[tuple[str, str]] = []
        self.secrets: set[str] = set()

    def fill(self, value: Any, path: str) -> Any:
        """The value with all variables in its texts replaced; names of fields stay as they are."""
        if isinstance(value, dict):
            inside = f"{path}." if path else ""
            return {name: self.fill(each, f"{inside}{key_path(name)}") for name, each in value.items()}
        if isinstance(value, list):
            return [self.fill(each, f"{path}[{index}]") for index, each in enumerate(value)]
        if not isinstance(value, str) or "${" not in value:
            return value
        return _VARIABLE.sub(lambda match: self._value(match, path), value)

    def _value(self, match: re.Match[str], path: str) -> str:
        if match[1]:
            return match[1]
        name: str | None = match[2]
        default: str | None = match[3]
        if name is None:
            self.problems.append((path, "has ${ without a variable; write ${NAME}, or $${ for the text ${"))
            return ""
        value = self._environment.get(name, default)
        if value is None:
            self.problems.append((path, f"the variable {name} is not set; set it, or write ${{{name}:-default}}"))
            return ""
        if is_secret_name(name):
            self.secrets.add(value)
        return value


def _place(name: str, path: str, lines: Mapping[str, int]) -> str:
    """A path in a file, with its line or that of the nearest value around it."""
    known, line = path, lines.get(path)
    while line is None and known:
        known = known[: max(known.rfind("."), known.rfind("["), 0)]
        line = lines.get(known)
    shown_name = "standard input" if name == STANDARD_INPUT else name
    where = shown_name if line is None else f"{shown_name}:{line}"
    return f"{where}: {path}" if path else where
