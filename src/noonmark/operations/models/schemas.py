"""JSON Schemas of the models, with the docstrings of models and fields as descriptions."""

from __future__ import annotations

import ast
import inspect
import types
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from noonmark.operations.models.fields import OBJECT, Arguments, Kind

if TYPE_CHECKING:
    from collections.abc import Collection

Schema = dict[str, Any]
REF = "#/components/schemas/{}"
_PLAIN: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    datetime: {"type": "string", "format": "date-time", "examples": ["2030-01-01T00:00:00Z"]},
    Any: {},
}


class SchemaRegistry:
    """Collects the schemas of models, each under its name."""

    def __init__(self) -> None:
        self.schemas: dict[str, Schema] = {}

    def reference(self, model: type, *, without: Collection[str] = ()) -> Schema:
        """Refer to the schema of a model, without the fields that the path of a route gives."""
        if model.__name__ not in self.schemas:
            self.schemas[model.__name__] = {}  # a model may contain itself
            self.schemas[model.__name__] = self._of_model(model, without)
        return {"$ref": REF.format(model.__name__)}

    def _of_model(self, model: type, without: Collection[str]) -> Schema:
        about = {"title": model.__name__, "description": inspect.cleandoc(model.__doc__ or "")}
        is_argument = issubclass(model, Arguments)
        if not is_argument and not is_dataclass(model):  # any JSON
            return about
        described = _field_docstrings(model)
        properties: dict[str, Schema] = {}
        required: list[str] = []
        for name, schema, is_required in self._arguments(model) if is_argument else self._fields(model):
            if name in without:
                continue
            properties[name] = schema | ({"description": described[name]} if name in described else {})
            required += [name] if is_required else []
        return {
            "type": "object",
            **about,
            "properties": properties,
            **({"required": required} if required else {}),
            # An answer may say more in a later version.
            "additionalProperties": not is_argument,
        }

    def _arguments(self, model: type[Arguments]) -> list[tuple[str, Schema, bool]]:
        required = []
        for name, field in model.fields().items():
            schema = dict(field.kind.schema) if isinstance(field.kind, Kind) else self.reference(field.kind)
            if schema and not field.is_required:  # null counts as absent
                schema = {"anyOf": [*schema.get("anyOf", [schema]), {"type": "null"}]}
            required.append((name, schema, field.is_required))
        return required

    def _fields(self, model: type) -> list[tuple[str, Schema, bool]]:
        hints = get_type_hints(model)
        return [
            (field.name, self._of_hint(hints[field.name]), field.default is MISSING)
            for field in fields(model)
            if not field.metadata.get("is_whole")
        ]

    def _of_hint(self, hint: Any) -> Schema:
        origin, parts = get_origin(hint), get_args(hint)
        if origin in (Union, types.UnionType):
            return {"anyOf": [self._of_hint(part) for part in parts]}
        if origin is Literal:
            return {"type": "string", "enum": list(parts)}
        if origin is list:
            return {"type": "array", "items": self._of_hint(parts[0])}
        if origin is dict:
            return OBJECT if parts[1] is Any else {"type": "object", "additionalProperties": self._of_hint(parts[1])}
        return self.reference(hint) if isinstance(hint, type) and is_dataclass(hint) else dict(_PLAIN[hint])


def _field_docstrings(model: type) -> dict[str, str]:
    """The docstrings below the fields of a model and of its bases."""
    docstrings: dict[str, str] = {}
    for base in reversed(model.__mro__[:-1]):
        docstrings |= _docstrings_by_class(base.__module__).get(base.__qualname__, {})
    return docstrings


@cache
def _docstrings_by_class(module: str) -> dict[str, dict[str, str]]:
    """The docstrings below the fields of each class of a module, whose source is read once."""
    tree = ast.parse(inspect.getsource(import_module(module)))
    return {one.name: _docstrings(one) for one in tree.body if isinstance(one, ast.ClassDef)}


def _docstrings(definition: ast.ClassDef) -> dict[str, str]:
    docstrings: dict[str, str] = {}
    for field, below in pairwise(definition.body):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            docstrings[field.target.id.rstrip("_")] = " ".join(str(below.value.value).split())
    return docstrings
