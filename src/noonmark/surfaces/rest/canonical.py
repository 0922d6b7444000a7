"""Handlers of the canonical routes: path, parameters, headers and body become the arguments of one operation."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from noonmark.core.errors import InvalidRequest, RevisionConflict
from noonmark.operations.registry import SETS_SECRET
from noonmark.surfaces.rest.asked import Answer
from noonmark.surfaces.rest.problems import Refused
from noonmark.surfaces.rest.reading import read_match
from noonmark.surfaces.rest.routes import ROUTES, Body

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.surfaces.rest.asked import Asked, Handler
    from noonmark.surfaces.rest.routes import Route


def handlers() -> dict[tuple[str, str], Handler]:
    """The handler of every canonical route, by its method and path."""
    return {(route.method, route.path): partial(handle, route) for route in ROUTES}


def handle(route: Route, asked: Asked) -> Answer:
    """Do what a canonical route asks for."""
    return answered(route, asked, arguments_of(route, asked))


def arguments_of(route: Route, asked: Asked) -> dict[str, Any]:
    """Everything a request says, under the names of the operation."""
    said = _translated(asked.query(route.query))
    if route.body is not Body.NONE:
        document = asked.document(required=route.body is Body.REQUIRED, repeats=route.operation != SETS_SECRET)
        if twice := [name for name in document if name in said]:
            raise InvalidRequest("is given as a parameter, too", field=twice[0])
        said |= document
    _take_key(said, route, asked)
    if inside := [name for name in asked.path if name in said]:
        raise InvalidRequest("stands in the path: leave it out", field=inside[0])
    return said | dict(asked.path)


def answered(route: Route, asked: Asked, arguments: Mapping[str, Any]) -> Answer:
    """Perform the operation of a route, on the conditions of its headers; the answer has its status and headers."""
    expected = read_match(asked.headers.get("if-match")) if route.is_conditional else None
    if expected is None:
        return told(route, asked.perform(route.operation, arguments))
    present = asked.perform("schedule/get", dict(asked.path))
    revision, tag = present["revision"], _tag(present)
    # Who names the revision alone does not mind what people read of it, which keeps the revision.
    if tag not in expected and str(revision) not in expected:
        raise _failed(f'the schedule is now "{tag}", which is not what If-Match names')
    if arguments.get("expected_revision", revision) != revision:
        raise InvalidRequest("is not the revision that If-Match names", field="expected_revision")
    read = {"expected_revision": revision}
    if tag in expected:
        read["expected_updated_at_utc"] = present["updated_at_utc"]
    try:
        document = asked.perform(route.operation, {**arguments, **read})
    except RevisionConflict as error:
        raise _failed(error.message) from None
    return told(route, document)


def told(route: Route, document: dict[str, Any]) -> Answer:
    """An operation's document as the answer of a route."""
    headers: dict[str, str] = {}
    if route.is_schedule:
        headers["ETag"] = f'"{_tag(document)}"'
    if route.status == 201:
        headers["Location"] = f"/schedules/{document['schedule_id']}"
    return Answer(document=document, status=route.status, headers=headers)


def _tag(schedule: Mapping[str, Any]) -> str:
    """What tells this state of a schedule from every other."""
    return f"{schedule['revision']}-{schedule['updated_at_utc']}"


def _failed(message: str) -> Refused:
    return Refused(412, RevisionConflict.code, message, field="If-Match")


def _take_key(said: dict[str, Any], route: Route, asked: Asked) -> None:
    """Put the key of a request among its arguments."""
    if route.key is None or (key := asked.headers.get("idempotency-key")) is None:
        return
    if said.setdefault(route.key, key) != key:
        raise InvalidRequest("is not the key in the Idempotency-Key header", field=route.key)


def _translated(query: dict[str, Any]) -> dict[str, Any]:
    """The parameters of lists that have another name or form as arguments."""
    if (labels := query.pop("label", None)) is not None:
        parted = [one.partition("=") for one in labels]
        query["labels"] = {name: value for name, _, value in parted}
    if (user := query.pop("user_id", None)) is not None and query.setdefault("owner", user) != user:
        raise InvalidRequest("is another one than owner", field="user_id")
    return query
