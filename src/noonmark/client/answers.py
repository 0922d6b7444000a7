"""Answers: when to ask once more, and what an answer becomes, a value or the error that the server tells of."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

import httpx2

from noonmark.core.errors import InvalidSchedule, NoonmarkError, Problem, Unreachable
from noonmark.operations.errors import error_of

if TYPE_CHECKING:
    from noonmark.client.asking import Request

T = TypeVar("T")
Outcome = httpx2.Response | httpx2.TransportError

MAX_TRIES = 3
FIRST_WAIT = 0.2
"""Seconds before the second try; each further one waits four times as long."""
MAX_WAIT = 30.0
"""A server that asks for more patience than this is taken at its word: the error is told at once."""
NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
"""Nothing has reached the server, whatever was asked."""
BUSY, GONE = 429, (502, 503, 504)


def again_in(request: Request[Any], outcome: Outcome, tries: int) -> float | None:
    """In how many seconds to try again; None if this outcome stands."""
    if tries >= MAX_TRIES or not _is_passing(request, outcome):
        return None
    wait = FIRST_WAIT * 4 ** (tries - 1)
    if isinstance(outcome, httpx2.Response):
        asked = outcome.headers.get("retry-after", "")
        wait = max(wait, float(asked)) if asked.isdecimal() else wait
    return wait if wait <= MAX_WAIT else None


def _is_passing(request: Request[Any], outcome: Outcome) -> bool:
    """Whether it may be different the next time, and nothing would be done twice."""
    if isinstance(outcome, httpx2.TransportError):
        return isinstance(outcome, NOT_SENT) or request.is_repeatable
    if outcome.status_code == BUSY:
        # Refused before anything was done. Without a time, it is a limit that does not pass by itself.
        return "retry-after" in outcome.headers
    return request.is_repeatable and outcome.status_code in GONE


def conclude(request: Request[T], outcome: Outcome) -> T:
    """The value that was asked for, or the error."""
    if isinstance(outcome, httpx2.TransportError):
        raise _unreachable(request, outcome) from outcome
    document = _document(outcome)
    if not outcome.is_success:
        raise _refused(outcome, document)
    try:
        return request.read(document)
    except NoonmarkError:  # some of them are ValueErrors too
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise NoonmarkError(f"{outcome.url} did not answer as Noonmark does; is it another program?") from error


def read_result(answer: dict[str, Any]) -> dict[str, Any]:
    """The result of a JSON-RPC response, or its error raised."""
    if "error" in answer:
        raise told_error(_of_arguments(answer["error"]["data"]))
    result: dict[str, Any] = answer["result"]
    return result


def _of_arguments(told: dict[str, Any]) -> dict[str, Any]:
    """The error, with the names that its arguments have for whoever asked: a call by name sends them as `params`."""
    plain = told | ({"problems": [_of_arguments(one) for one in told["problems"]]} if "problems" in told else {})
    return plain | ({"field": told["field"].removeprefix("params.")} if "field" in told else {})


def told_error(told: dict[str, Any]) -> NoonmarkError:
    """The error that a server tells of, as the operation raised it there."""
    error = error_of(told["code"], told["detail"], field=told.get("field", ""))
    if isinstance(error, InvalidSchedule) and "problems" in told:
        error.problems = tuple(Problem(one["field"], one["detail"], one["code"]) for one in told["problems"])
    if request_id := told.get("request_id"):
        error.add_note(f"The server knows this as request {request_id}.")
    return error


def _document(response: httpx2.Response) -> Any:  # noqa: ANN401 - whatever came
    """The JSON of an answer; None if it is none."""
    try:
        return json.loads(response.content)
    except (ValueError, RecursionError):
        return None


def _refused(response: httpx2.Response, document: object) -> NoonmarkError:
    if isinstance(document, dict) and isinstance(document.get("code"), str) and "detail" in document:
        return told_error(document)
    what = f"{response.url} answered {response.status_code} {response.reason_phrase}, and not as Noonmark does"
    return Unreachable(what) if response.status_code in GONE else NoonmarkError(what)


def _unreachable(request: Request[Any], error: httpx2.TransportError) -> Unreachable:
    where = f"{error.request.url.scheme}://{error.request.url.netloc.decode('ascii')}"
    if isinstance(error, NOT_SENT):
        return Unreachable(f"there is no server at {where} ({type(error).__name__}: {error}); is `noonmark serve` up?")
    known = "" if request.http.method == "GET" else "; it may have done what it was asked for, or not"
    return Unreachable(f"{where} did not answer ({type(error).__name__}: {error}){known}")
