"""Written: work that a program declares by a target document, as a schedule document has it, instead of a function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.documents import present
from noonmark.core.errors import InvalidSchedule
from noonmark.core.targets import TargetKind
from noonmark.embedded.declaring import HttpOptions, WorkOptions, check_options, document_of, plain
from noonmark.embedded.references import check_name
from noonmark.targets.functions import ROUTE

if TYPE_CHECKING:
    from collections.abc import Mapping

OF_FUNCTIONS = ("args", "kwargs", "function_name", "executor")
"""Options of `schedule` that a target document says itself, where its kind has them at all."""


def target_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """The target that a program has written; the parser judges it."""
    return {name: plain(value) for name, value in document.items()}


def options_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """What is said beside a target document; what only a function has a use for is refused."""
    for option in OF_FUNCTIONS:
        if options.get(option):
            message = "is for functions; a target document says itself what its work is given"
            raise InvalidSchedule(message, field=option)
    return {
        option: value
        for option, value in options.items()
        if option not in OF_FUNCTIONS and not (option == "payload" and value is None)
    }


def document_of_work(target: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The schedule document of work that is no function of this program."""
    kind = HttpOptions if target.get("target_kind") == TargetKind.HTTP else WorkOptions
    check_options(options, known=kind.__optional_keys__)
    if options.get("name") is not None:
        check_name("name", options["name"])
    terms = {option: value for option, value in options.items() if option != "payload"}
    return document_of(target | present(payload=options.get("payload")), terms)


def route_of(target: Mapping[str, Any]) -> str:
    """The route that a node must serve to deliver a target that was found to be sound."""
    kind = str(target["target_kind"])
    return f"{ROUTE}{target['function']}" if kind == TargetKind.FUNCTION else kind
