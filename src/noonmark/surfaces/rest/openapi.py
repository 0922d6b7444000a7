"""The OpenAPI document of everything that is served."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import models_json_schema

from noonmark.surfaces.rest.described import described
from noonmark.surfaces.rest.problems import PROBLEM
from noonmark.surfaces.rest.reading import Kind
from noonmark.wire import answers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic import BaseModel

    from noonmark.surfaces.rest.described import Described

REF = "#/components/schemas/{model}"
ID = {"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$"}
IN_PATHS: dict[str, dict[str, Any]] = {
    "name": {"type": "string", "pattern": "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,62}$"},
}
"""What stands in a path and is no such id."""
SCHEMAS: dict[Kind, dict[str, Any]] = {
    Kind.TEXT: {"type": "string", "minLength": 1},
    Kind.INTEGER: {"type": "integer"},
    Kind.BOOLEAN: {"type": "boolean"},
    Kind.INSTANT: {"type": "string", "format": "date-time"},
    Kind.SEVERAL: {"type": "array", "items": {"type": "string", "minLength": 1}},
}
BOUNDS: dict[str, dict[str, Any]] = {
    "limit": {"minimum": 1, "maximum": 2**31 - 1},
    "count": {"minimum": 1, "maximum": 1_000},
    "offset": {"minimum": 0, "maximum": 10_000},
    "version": {"minimum": 0, "maximum": 2**31 - 1},
}
REFUSALS = {
    400: "The body, a parameter or a header is wrong.",
    403: "Another host was meant, or the page of another site asks.",
    404: "There is no such thing.",
    405: "Not by this method.",
    408: "The body did not come in time.",
    409: "Not in the present state.",
    412: "If-Match names another revision.",
    413: "The body is too large, or the answer would be.",
    415: "The body is no JSON by its headers.",
    429: "A limit is reached.",
    500: "Something went wrong in the server.",
    503: "The store did not answer, or all connections are in use.",
}


def document(version: str) -> dict[str, Any]:
    """Every route with its parameters, bodies and answers."""
    routes = described()
    paths: dict[str, dict[str, Any]] = {}
    for one in routes:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Noonmark",
            "version": version,
            "description": "A durable scheduler: it says what it will do, does it, and can tell you why.",
        },
        "paths": paths,
        "components": {
            "schemas": _schemas(routes),
            "responses": {
                f"Refused{status}": {"description": words, "content": {PROBLEM: {"schema": _ref(answers.Problem)}}}
                for status, words in REFUSALS.items()
            },
        },
    }


def _schemas(routes: Iterable[Described]) -> dict[str, Any]:
    models = {model for one in routes for model in (*one.bodies, one.answer, answers.Problem) if model is not None}
    pairs = [(model, "validation") for model in sorted(models, key=lambda one: one.__name__)]
    _, found = models_json_schema(pairs, ref_template=REF)  # type: ignore[arg-type] # a literal in a list
    schemas: dict[str, Any] = found["$defs"]
    return schemas


def _ref(model: type[BaseModel]) -> dict[str, Any]:
    return {"$ref": REF.format(model=model.__name__)}


def _operation(one: Described) -> dict[str, Any]:
    responses: dict[str, Any] = {str(one.status): _answer(one)}
    if one.path == "/rpc":
        responses["204"] = {"description": "Nothing but notifications came."}
    for status in REFUSALS:
        responses.setdefault(str(status), {"$ref": f"#/components/responses/Refused{status}"})
    if one.path == "/health/ready":
        responses["503"] = _answer(one)
    found: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.summary,
        "tags": [one.tag],
        "parameters": _parameters(one),
        "responses": responses,
    }
    if one.bodies or one.content:
        found["requestBody"] = _body(one)
    return found


def _answer(one: Described) -> dict[str, Any]:
    if one.answer is None:
        return {"description": one.summary, "content": {one.media: {"schema": {"type": "string"}}}}
    said: dict[str, Any] = {
        "description": (one.answer.__doc__ or "").strip(),
        "content": {"application/json": {"schema": _ref(one.answer)}},
    }
    headers = {"X-Request-Id": _header("Under which the log has it.")}
    if one.answer is answers.Schedule:
        headers["ETag"] = _header("The revision of the schedule, and when it was last written.")
    if one.status == 201:
        headers["Location"] = _header("Where it is.")
    return {**said, "headers": headers}


def _header(words: str) -> dict[str, Any]:
    return {"description": words, "required": True, "schema": {"type": "string"}}


def _body(one: Described) -> dict[str, Any]:
    if one.content:
        return {
            "required": one.is_body_required,
            "content": {media: {"schema": schema} for media, schema in one.content.items()},
        }
    schemas = [_ref(model) for model in one.bodies]
    content: dict[str, Any] = {"schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas}}
    if one.examples:
        content["examples"] = {name: {"value": value} for name, value in one.examples.items()}
    return {"required": one.is_body_required, "content": {"application/json": content}}


def _parameters(one: Described) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": IN_PATHS.get(name, ID)}
        for name in re.findall(r"{(\w+)}", one.path)
    ]
    for name, kind in one.query.items():
        schema = {**SCHEMAS[kind], **BOUNDS.get(name, {})}
        found.append({"name": name, "in": "query", "required": name in one.required, "schema": schema})
    if one.longest_key:
        schema = {"type": "string", "minLength": 1, "maxLength": one.longest_key}
        found.append({"name": "Idempotency-Key", "in": "header", "required": False, "schema": schema})
    if one.is_conditional:
        schema = {"type": "string", "pattern": '^("[0-9]{1,9}(-[0-9A-Z.:-]{1,40})?"|[*])$'}
        found.append({"name": "If-Match", "in": "header", "required": False, "schema": schema})
    return found
