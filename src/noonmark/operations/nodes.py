"""Nodes: list them, start and stop the worker of this one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from noonmark.core.errors import Conflict, StoreUnavailable
from noonmark.operations.serializers import node_document
from noonmark.operations.service import record_audit_entry

if TYPE_CHECKING:
    from noonmark.operations.models.arguments import NoArguments
    from noonmark.operations.service import Caller, Service, Worker

logger = logging.getLogger("noonmark.operations")


def list_nodes(service: Service, caller: Caller, arguments: NoArguments) -> dict[str, Any]:  # noqa: ARG001 - a handler
    """List the nodes seen within the last day."""
    return {"nodes": [node_document(node) for node in service.store.nodes()]}


def start_worker(service: Service, caller: Caller, arguments: NoArguments) -> dict[str, Any]:  # noqa: ARG001 - a handler
    """Start the worker of the node that answers; a running one goes on."""
    worker = _worker(service)
    _record(service, caller)
    worker.start()
    return _status(worker)


def stop_worker(service: Service, caller: Caller, arguments: NoArguments) -> dict[str, Any]:  # noqa: ARG001 - a handler
    """Stop the worker of the node that answers; running work is finished, and other nodes go on."""
    worker = _worker(service)
    _record(service, caller)
    worker.stop()
    return _status(worker)


def confirm_time(service: Service, caller: Caller, arguments: NoArguments) -> dict[str, Any]:  # noqa: ARG001 - a handler
    """Confirm to the node that answers that the store's time is right although it leapt ahead."""
    worker = _worker(service)
    worker.confirm_time()
    _record(service, caller)
    return _status(worker)


def get_worker_status(service: Service, caller: Caller, arguments: NoArguments) -> dict[str, Any]:  # noqa: ARG001 - a handler
    """Get the status of the worker of the node that answers."""
    return _status(_worker(service))


def _record(service: Service, caller: Caller) -> None:
    """Record who asked, if the store answers: a worker is often stopped because the store is down."""
    try:
        record_audit_entry(service, caller, f"node {service.node}")
    except StoreUnavailable as error:
        logger.warning("%s by %s could not be recorded: %s", caller.operation, caller.name, error)


def _worker(service: Service) -> Worker:
    if service.worker is None:
        raise Conflict("this process has no worker; `noonmark serve` has one")
    return service.worker


def _status(worker: Worker) -> dict[str, Any]:
    status = worker.status()
    return {"status": "running" if status["running"] else "stopped", "worker_status": status}
