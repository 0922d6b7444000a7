"""The client of a Temporal server: what a node asks of it. Answers are told apart by status, never by their words."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, DescribeTaskQueueRequest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.service import RPCError, RPCStatusCode, TLSConfig

from noonmark.core.engine import parse_workflow_id, workflow_id
from noonmark.core.frozen import frozen
from noonmark.core.redaction import redact
from noonmark.targets.temporal.documents import ATTACH, WORKFLOW

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from temporalio.client import WorkflowHandle

    from noonmark.targets.temporal.documents import Order
    from noonmark.targets.temporal.settings import EngineAddress

RPC_TIMEOUT = timedelta(seconds=5)
CONNECT_SECONDS = 10.0
"""How long a connection may take: the library itself waits for half a minute."""
_REFUSALS = frozenset(
    {
        RPCStatusCode.INVALID_ARGUMENT,
        RPCStatusCode.NOT_FOUND,
        RPCStatusCode.PERMISSION_DENIED,
        RPCStatusCode.UNAUTHENTICATED,
        RPCStatusCode.UNIMPLEMENTED,
        RPCStatusCode.FAILED_PRECONDITION,
    }
)
"""Answers that the same call would get again."""
_TIMEOUTS = frozenset({RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED})
"""How the library says that a call took too long."""


class EngineUnavailable(Exception):
    """The server does not answer, or refuses; `is_refusal` if it always would. `was_sent` if there was a connection."""

    def __init__(self, error: RPCError | RuntimeError, address: EngineAddress) -> None:
        status = error.status.name if isinstance(error, RPCError) else "UNAVAILABLE"
        self.details = redact(str(error))
        """In the words of the library: for operators, not for decisions."""
        self.was_sent = isinstance(error, RPCError)
        self.is_refusal = isinstance(error, RPCError) and error.status in _REFUSALS
        what = f"refused a call in the namespace {address.namespace!r}" if self.is_refusal else "did not answer"
        if isinstance(error, RPCError) and error.status in _TIMEOUTS:
            words = "did not answer in time"
        else:
            words = f"{what}: {status}"
        super().__init__(f"the engine at {address.server} {words}")


class Started(StrEnum):
    """What became of a start."""

    STARTED = "started"
    ATTACHED = "attached"
    """The workflow runs already: this start has passed its fence on."""


@frozen
class Closed:
    """The workflow of this attempt has ended before."""

    status: str
    """In the words of Temporal, such as completed or terminated."""
    result: dict[str, Any] | None = None


@frozen
class ListedWorkflow:
    """A workflow of the engine that runs."""

    workflow_id: str
    occurrence_id: str
    attempt: int


@cache
def _runtime() -> Runtime:
    """The threads of the library, which writes to standard output what it warns of: only errors, please."""
    quiet = LoggingConfig(filter=TelemetryFilter(core_level="ERROR", other_level="ERROR"))
    return Runtime(telemetry=TelemetryConfig(logging=quiet))


async def connect(address: EngineAddress, *, identity: str) -> Client:
    """Connect to a namespace; RuntimeError if the server does not answer, or a certificate cannot be read."""
    tls = await asyncio.to_thread(_tls, address) if address.tls else False
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await Client.connect(
                address.server,
                namespace=address.namespace,
                api_key=address.api_key,
                tls=tls,
                identity=identity,
                runtime=_runtime(),
            )
    except TimeoutError:
        raise RuntimeError(f"there was no connection within {CONNECT_SECONDS:g} s") from None


def _tls(address: EngineAddress) -> TLSConfig:
    """TLS with the files as they are now; RuntimeError if one cannot be read."""
    try:
        ca, certificate, key = (
            None if name is None else Path(name).read_bytes()
            for name in (address.tls_ca, address.tls_cert, address.tls_key)
        )
    except OSError as error:
        raise RuntimeError(f"{error.filename} cannot be read: {error.strerror}") from None
    return TLSConfig(
        server_root_ca_cert=ca, domain=address.server_name, client_cert=certificate, client_private_key=key
    )


class EngineClient:
    """One connection, made with the first call. All of it runs on one event loop."""

    def __init__(self, address: EngineAddress, identity: str = "noonmark") -> None:
        self.address, self._identity = address, identity
        self._client: Client | None = None

    async def check(self) -> Client:
        """The connection to the server, which answers and has the namespace; EngineUnavailable otherwise."""
        try:
            client = await self.connected()
            await client.workflow_service.describe_namespace(
                DescribeNamespaceRequest(namespace=self.address.namespace), timeout=RPC_TIMEOUT
            )
        except (RPCError, RuntimeError) as error:
            raise EngineUnavailable(error, self.address) from None
        return client

    async def start(self, order: Order) -> Started | Closed:
        """Start the workflow of an attempt, or attach to it; EngineUnavailable if that is not known."""
        name = workflow_id(order.occurrence_id, order.attempt)
        try:
            client = await self.connected()
            try:
                await client.start_workflow(
                    WORKFLOW,
                    order,
                    id=name,
                    task_queue=self.address.task_queue,
                    id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                    id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                    rpc_timeout=RPC_TIMEOUT,
                )
            except WorkflowAlreadyStartedError:
                return await self._attach(client.get_workflow_handle(name), order)
        except (RPCError, RuntimeError) as error:
            raise EngineUnavailable(error, self.address) from None
        return Started.STARTED

    async def _attach(self, handle: WorkflowHandle[Any, Any], order: Order) -> Started | Closed:
        """Pass the fence of this start on; a workflow that has ended takes none."""
        try:
            await handle.signal(ATTACH, order.fence, rpc_timeout=RPC_TIMEOUT)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
        else:
            return Started.ATTACHED
        description = await handle.describe(rpc_timeout=RPC_TIMEOUT)
        status = description.status
        result = None
        if status is WorkflowExecutionStatus.COMPLETED:
            try:
                result = await handle.result(rpc_timeout=RPC_TIMEOUT)
            except WorkflowFailureError:
                result = None
        return Closed("unknown" if status is None else status.name.lower(), result)

    async def is_running(self, name: str) -> bool:
        """Whether a workflow runs; by its record, not by the list, which is updated later."""
        try:
            client = await self.connected()
            description = await client.get_workflow_handle(name).describe(rpc_timeout=RPC_TIMEOUT)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            raise EngineUnavailable(error, self.address) from None
        except RuntimeError as error:
            raise EngineUnavailable(error, self.address) from None
        return description.status is WorkflowExecutionStatus.RUNNING

    async def cancel(self, name: str) -> bool:
        """Ask a workflow to end; False if it has ended."""
        return await self._end(name, terminates=False)

    async def terminate(self, name: str) -> bool:
        """End a workflow at once, without its activities; False if it has ended."""
        return await self._end(name, terminates=True)

    async def _end(self, name: str, *, terminates: bool) -> bool:
        try:
            handle = (await self.connected()).get_workflow_handle(name)
            if terminates:
                await handle.terminate(reason="it has no occurrence in the ledger", rpc_timeout=RPC_TIMEOUT)
            else:
                await handle.cancel(rpc_timeout=RPC_TIMEOUT)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            raise EngineUnavailable(error, self.address) from None
        except RuntimeError as error:
            raise EngineUnavailable(error, self.address) from None
        return True

    async def workers(self, route: str | None = None) -> int:
        """How many workers poll the task queue, or that of a route. One that ended minutes ago may count."""
        name = self.address.task_queue if route is None else self.address.queue(route)
        kind = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW if route is None else TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
        try:
            client = await self.connected()
            answer = await client.workflow_service.describe_task_queue(
                DescribeTaskQueueRequest(
                    namespace=self.address.namespace,
                    task_queue=TaskQueue(name=name),
                    task_queue_type=kind,
                ),
                timeout=RPC_TIMEOUT,
            )
        except (RPCError, RuntimeError) as error:
            raise EngineUnavailable(error, self.address) from None
        return len({poller.identity for poller in answer.pollers})

    async def unserved(self, routes: Iterable[str]) -> frozenset[str]:
        """The routes that no worker delivers."""
        return frozenset([route for route in routes if not await self.workers(route)])

    async def running(self) -> AsyncIterator[ListedWorkflow]:
        """The workflows of this task queue that run."""
        queue = self.address.task_queue.replace("'", "")
        query = f"WorkflowType = '{WORKFLOW}' AND ExecutionStatus = 'Running' AND TaskQueue = '{queue}'"
        try:
            client = await self.connected()
            async for workflow in client.list_workflows(query, rpc_timeout=RPC_TIMEOUT):
                if (parsed := parse_workflow_id(workflow.id)) is not None:
                    yield ListedWorkflow(workflow.id, *parsed)
        except (RPCError, RuntimeError) as error:
            raise EngineUnavailable(error, self.address) from None

    async def connected(self) -> Client:
        """The client; RuntimeError if there is no connection."""
        if self._client is None:
            self._client = await connect(self.address, identity=self._identity)
        return self._client
