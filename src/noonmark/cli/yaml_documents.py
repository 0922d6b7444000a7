"""YAML documents, by the rules of YAML 1.2: `on` and `12:30` are text, and a key must not occur twice.

Importing this module loads PyYAML, so commands import it only when they need it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from noonmark.core.errors import InvalidSchedule
from noonmark.core.json_values import key_path, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_VALUES = 200_000
"""How many values a file may have, each use of an alias counted."""
MAX_DEPTH = 64
_TAG = "tag:yaml.org,2002:"
_SCALARS = {
    f"{_TAG}null": (re.compile(r"~|null|Null|NULL|"), ["~", "n", "N", ""]),
    f"{_TAG}bool": (re.compile(r"(true|True|TRUE)|false|False|FALSE"), list("tTfF")),
    f"{_TAG}int": (re.compile(r"[-+]?[0-9]{1,20}|0o[0-7]{1,22}|0x[0-9a-fA-F]{1,16}"), list("-+0123456789")),
    f"{_TAG}float": (
        re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"),
        list("-+.0123456789"),
    ),
}
"""The plain scalars that are not text, in the order in which they are tried, and how they begin."""
_BASES = {"0o": 8, "0x": 16}


class Parsed(NamedTuple):
    """A document and the line of each of its values, by path: `schedules[0].trigger`."""

    value: Any
    lines: Mapping[str, int]


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # it has no types
    """Composes nodes; its tags are those of YAML 1.2."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - filled below, as PyYAML wants it


class _Dumper(yaml.SafeDumper):  # type: ignore[misc] # as above
    """Quotes every text that YAML 1.1 or 1.2 would read as something else."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - as PyYAML calls it
        """Write equal values out, each time."""
        return True


for _tag, (_pattern, _first) in _SCALARS.items():
    for _kind in (_Loader, _Dumper):
        _kind.add_implicit_resolver(_tag, re.compile(f"(?:{_pattern.pattern})$"), _first)


def parse_yaml(text: str) -> list[Parsed]:
    """Parse the documents of a text; InvalidSchedule has the line and column of the first mistake."""
    try:
        loader = _Loader(text)
        try:
            documents = []
            while loader.check_node():
                walk = _Walk()
                documents.append(Parsed(walk.value(loader.get_node(), "", 1), walk.lines))
            return documents
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        problem = " ".join(filter(None, (error.context, error.problem)))
        raise InvalidSchedule(f"is not YAML: {problem}{_position(error.problem_mark)}") from None
    except yaml.YAMLError as error:
        raise InvalidSchedule(f"is not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise InvalidSchedule("is nested too deeply") from None


def format_yaml(document: Mapping[str, Any]) -> str:
    """A document as YAML, fields in their order."""
    text: str = yaml.dump(
        dict(document), Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=120
    )
    return text


class _Walk:
    """Makes values of nodes, and notes their lines."""

    def __init__(self) -> None:
        self.lines: dict[str, int] = {}
        self._count = 0

    def value(self, node: Any, path: str, depth: int) -> Any:
        """The value of a node at a path."""
        self._count += 1
        if self._count > MAX_VALUES or depth > MAX_DEPTH:
            limit = f"{MAX_DEPTH} levels" if depth > MAX_DEPTH else f"{MAX_VALUES:,} values"
            raise InvalidSchedule(f"has more than {limit}{_position(node.start_mark)}")
        self.lines[path] = node.start_mark.line + 1
        if node.tag == f"{_TAG}map" and isinstance(node, yaml.MappingNode):
            return self._object(node, path, depth)
        if node.tag == f"{_TAG}seq" and isinstance(node, yaml.SequenceNode):
            return [self.value(each, f"{path}[{index}]", depth + 1) for index, each in enumerate(node.value)]
        return _scalar(node)

    def _object(self, node: Any, path: str, depth: int) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is None:
                raise InvalidSchedule(f"has a key that is not text{_position(key_node.start_mark)}")
            if key in fields:
                position = _position(key_node.start_mark)
                raise InvalidSchedule(f"gives the key {shown(key)} twice in one object{position}")
            inside = f"{path}.{key_path(key)}" if path else key_path(key)
            value = self.value(value_node, inside, depth + 1)
            self.lines[inside] = key_node.start_mark.line + 1
            if key != "<<":
                fields[key] = value
                continue
            for each in reversed(value if isinstance(value, list) else [value]):
                if not isinstance(each, dict):
                    raise InvalidSchedule(f"<< must name objects{_position(key_node.start_mark)}")
                merged |= each
        return merged | fields


def _scalar(node: Any) -> Any:
    tag, text = node.tag, str(node.value)
    is_scalar = isinstance(node, yaml.ScalarNode)
    if is_scalar and tag == f"{_TAG}str":
        return text
    pattern, _ = _SCALARS.get(tag, (None, None))
    if not is_scalar or pattern is None or (match := pattern.fullmatch(text)) is None:
        raise InvalidSchedule(f"has a value that is not JSON, of the tag {shown(tag)}{_position(node.start_mark)}")
    if tag == f"{_TAG}null":
        return None
    if tag == f"{_TAG}bool":
        return match[1] is not None
    return float(text) if tag == f"{_TAG}float" else int(text, _BASES.get(text[:2], 10))


def _position(mark: Any) -> str:
    return "" if mark is None else f" (line {mark.line + 1}, column {mark.column + 1})"
