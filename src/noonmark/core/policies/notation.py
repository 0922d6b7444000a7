"""How a policy may be written: a bare name, or an object with a `type` and the settings of that type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from noonmark.core.documents import Reader

if TYPE_CHECKING:
    from collections.abc import Mapping
    from enum import StrEnum

K = TypeVar("K", bound="StrEnum")


@dataclass(frozen=True, slots=True, kw_only=True)
class Notation(Generic[K]):
    """A policy as the document gives it: the name it uses, the canonical kind, and a reader of its settings."""

    name: str
    kind: K
    settings: Reader


def read_notation(
    reader: Reader, field: str, names: Mapping[str, K], settings: Mapping[K, tuple[str, ...]]
) -> Notation[K] | None:
    """What stands in the field; nothing when it is absent, or when its problem has been noted.

    `names` leads from every accepted name to its kind; `settings` says which settings each kind takes.
    """
    value = reader.raw(field)
    if value is None:
        return None
    if not isinstance(value, dict):
        kind = reader.choice(field, names, None)
        nothing = Reader({}, path=reader.at(field), code=reader.code, problems=reader.problems)
        return None if kind is None else Notation(name=value, kind=kind, settings=nothing)
    fields = reader.child(field)
    kind = fields.choice("type", names, None)
    if fields.raw("type") is None:
        fields.problem("type", "is required")
    known = dict.fromkeys(setting for takes in settings.values() for setting in takes)
    given = [setting for setting in known if fields.raw(setting) is not None]
    fields.close()
    if kind is None:
        # Which settings fit cannot be said of an unknown type.
        return None
    for setting in given:
        if setting not in settings[kind]:
            takes = ", ".join(settings[kind]) or "no settings"
            fields.problem(setting, f"does not belong to {kind}, which takes {takes}")
    return Notation(name=value["type"], kind=kind, settings=fields)
