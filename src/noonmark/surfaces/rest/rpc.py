"""JSON-RPC over HTTP: one path for every call."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.surfaces.jsonrpc.dispatch import answer
from noonmark.surfaces.rest.asked import JSON, Answer

if TYPE_CHECKING:
    from noonmark.surfaces.rest.asked import Asked, Handler

PATH = "/rpc"


def handlers() -> dict[tuple[str, str], Handler]:
    """The handler of the one path."""
    return {("POST", PATH): _call}


def _call(asked: Asked) -> Answer:
    """Answer a call or a batch; of notifications alone, nobody is told anything."""
    asked.query({})
    said = answer(asked.service, replace(asked.caller, source="jsonrpc"), asked.body)
    return Answer(status=204, raw=(b"", JSON)) if said is None else Answer(raw=(said, JSON))
