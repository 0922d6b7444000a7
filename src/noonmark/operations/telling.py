"""Telling the service something: that an event happened, that its worker is to start or to stop."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core.errors import Conflict, StoreUnavailable
from noonmark.core.event import parse_event
from noonmark.core.instants import from_micros
from noonmark.operations import events
from noonmark.operations.arguments import Arguments
from noonmark.operations.causes import behind_event

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.operations.service import Caller, Service, Worker

logger = logging.getLogger("noonmark.operations")


def emit(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Keep an event; the schedules that it sets off follow by themselves."""
    document = {"source": caller.source, **arguments}
    event = parse_event(document, now=from_micros(service.store.clock()))
    event = replace(event, behind=behind_event(service, caller, event))
    told = events.keep(service.store, caller.owner.tenant, event, fresh_id=f"evt_{service.fresh_id()}")
    service.wake(None)
    return {"event_id": told.event_id} | ({"duplicate": True} if told.is_other else {})


def start_worker(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Let the driver of this node work; one that does already goes on."""
    worker = _worker(service, arguments)
    _write_down(service, caller)
    worker.start()
    return _status(worker)


def stop_worker(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Let the driver of this node begin nothing more; what runs goes on, and so do other nodes."""
    worker = _worker(service, arguments)
    _write_down(service, caller)
    worker.stop()
    return _status(worker)


def confirm_time(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Tell the driver of this node that the store's time is right, although it leapt ahead."""
    worker = _worker(service, arguments)
    worker.confirm_time()
    _write_down(service, caller)
    return _status(worker)


def worker_status(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG001 - as every operation
    """What the driver of this node does."""
    return _status(_worker(service, arguments))


def _write_down(service: Service, caller: Caller) -> None:
    """Note who asked. A worker can be stopped also while its store is away: that is when somebody wants to."""
    try:
        note = caller.signed(f"node {service.node}")(None, None, now=service.store.clock())
        service.store.note(caller.owner.tenant, [note])
    except StoreUnavailable as error:
        logger.warning("%s by %s could not be noted: %s", caller.operation, caller.name, error)


def _worker(service: Service, arguments: Mapping[str, Any]) -> Worker:
    Arguments(arguments).done()
    if service.worker is None:
        raise Conflict("there is no driver in this process that could be started; `noonmark serve` has one")
    return service.worker


def _status(worker: Worker) -> dict[str, Any]:
    status = worker.status()
    return {"status": "running" if status["running"] else "stopped", "worker_status": status}
