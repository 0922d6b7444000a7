"""Every error has its HTTP status, JSON-RPC code and exit code in one table."""

import pytest

from noonmark.core import errors
from noonmark.core.errors import InvalidSchedule, NoonmarkError, Problem
from noonmark.operations.errors import STATUS, error_document, error_of


def kinds(of=NoonmarkError):
    return {of, *(one for kind in of.__subclasses__() for one in kinds(kind))}


OURS = sorted((kind for kind in kinds() if kind.__module__ == errors.__name__), key=lambda kind: kind.code)


def test_every_code_has_a_row_and_every_row_an_error():
    assert {kind.code for kind in OURS} == set(STATUS)


TOLD = [kind for kind in OURS if kind.code not in ("pipeline_failed", "unreachable")]
"""What a server tells; the others come about on this side of it."""


@pytest.mark.parametrize("kind", TOLD, ids=lambda kind: kind.code)
def test_an_error_that_was_told_is_raised_again_as_what_it_was(kind):
    again = error_of(kind.code, "why", field="where")
    assert (type(again), again.code, again.message, again.field) == (kind, kind.code, "why", "where")


def test_an_unknown_code_is_an_error_anyway():
    assert type(error_of("from_the_future", "why")) is NoonmarkError


def test_all_problems_are_reported():
    problems = [Problem("name", "is empty"), Problem("trigger", "is required", "invalid_trigger")]
    assert error_document(InvalidSchedule("is empty (and 1 more)", field="name", problems=problems)) == {
        "code": "invalid_schedule",
        "detail": "is empty (and 1 more)",
        "field": "name",
        "problems": [
            {"field": "name", "code": "invalid_schedule", "detail": "is empty"},
            {"field": "trigger", "code": "invalid_trigger", "detail": "is required"},
        ],
    }


def test_what_has_no_field_names_none():
    assert error_document(errors.NotFound("there is none")) == {"code": "not_found", "detail": "there is none"}
