"""`noonmark temporal-worker` and `noonmark engine`: the engine that carries out some routes."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Annotated, Any

from noonmark.cli.commands.server import ServerOptions
from noonmark.cli.options import AsJson
from noonmark.cli.output import EXIT_FAILED, one_line, print_json, print_line
from noonmark.cli.parameters import Parameter
from noonmark.clocks import SystemClock
from noonmark.core.errors import InvalidRequest
from noonmark.extras import require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.ports.store import Store
    from noonmark.targets.temporal.settings import EngineAddress


def temporal_worker(
    *,
    routes: Annotated[
        list[str] | None,
        Parameter(
            negative=(),
            help="What this worker delivers: event, http, command, workflow, bundle, session, mob, task, function:NAME,"
            " or function for all of its functions; repeatable.",
        ),
    ] = None,
    options: ServerOptions = ServerOptions(),
) -> int:
    """Run a worker of the engine: deliver what nodes have handed over to Temporal.

    It has the settings of a server, and needs the same store as the nodes. Those about requests and clients have no
    effect.
    """
    require("server", "noonmark temporal-worker")
    loaded = options.load()
    from noonmark.server.temporal_worker import run_temporal_worker

    return run_temporal_worker(loaded, routes or [])


def check(
    *,
    engine: Annotated[str | None, Parameter(help="The engine; default: from the settings.")] = None,
    store: Annotated[str | None, Parameter(help="The store; default: from the settings.")] = None,
    config: Annotated[
        str | None, Parameter(help="A TOML file with settings; default: noonmark.toml, if it exists.")
    ] = None,
    end_orphans: Annotated[
        bool,
        Parameter(
            negative=(),
            show_default=False,
            help="End them: terminate workflows without an occurrence, and fail occurrences without a workflow.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Compare the ledger with the workflows of the engine, and list what only one of them has.

    The exit code is 1 if there are orphans that were not ended, if no worker delivers a route that has occurrences or
    is in the settings, or if the engine does not answer.
    """
    from noonmark.server.assembly import engine_address
    from noonmark.server.config import load
    from noonmark.targets.temporal.settings import served_routes
    from noonmark.wiring import make_store

    loaded = load({"engine": engine, "store": store}, os.environ, config)
    if loaded.settings.engine is None:
        raise InvalidRequest("is required: the URL of the engine, or a setting", field="engine")
    require("temporal", "noonmark engine check")
    address = engine_address(loaded, loaded.settings.engine)
    routes = served_routes(loaded.settings.engine_routes, loaded.settings.functions)
    opened = make_store(loaded.settings.store, SystemClock(), migrates=False)
    opened.open()
    try:
        report = asyncio.run(_compare(opened, address, routes, ends=end_orphans))
    finally:
        opened.close()
    if as_json:
        print_json(report)
    else:
        _show(report)
    is_well = report["problem"] is None and not report["orphans_left"] and not report["unserved_routes"]
    return 0 if is_well else EXIT_FAILED


async def _compare(store: Store, address: EngineAddress, routes: Sequence[str], *, ends: bool) -> dict[str, Any]:
    from noonmark.targets.temporal.client import EngineClient, EngineUnavailable
    from noonmark.targets.temporal.reconciliation import Comparison, Reconciler

    client = EngineClient(address)
    reconciler, comparison, workers = Reconciler(store, client), Comparison(), 0
    ended, problem, unserved = 0, None, {}
    try:
        workers = await client.workers()
        comparison = await reconciler.compare()
        lacking = await client.unserved({*routes, *comparison.routes})
        unserved = {route: comparison.routes[route] for route in sorted(lacking)}
        if ends:
            await reconciler.cancel_ended(comparison)
            ended = await reconciler.terminate_unknown(comparison) + await reconciler.fail_lost(comparison)
    except EngineUnavailable as error:
        problem = f"{error}: {error.details}"
    orphans = sum(comparison.counts().values())
    return {
        "engine": address.server,
        "namespace": address.namespace,
        "task_queue": address.task_queue,
        "problem": problem,
        "workers": workers,
        "unserved_routes": unserved,
        **comparison.to_document(),
        "orphans_ended": ended,
        "orphans_left": orphans - ended,
    }


def _show(report: dict[str, Any]) -> None:
    print_line(f"Engine {report['engine']}/{report['namespace']}, task queue {report['task_queue']}")
    if report["problem"] is not None:
        print_line(one_line(report["problem"]))
        return
    workers, running, awaiting = (report[name] for name in ("workers", "running_workflows", "awaiting_occurrences"))
    print_line(f"Workers: {workers}. Running workflows: {running}. Occurrences that await their end: {awaiting}.")
    for route, count in report["unserved_routes"].items():
        print_line(f"route {one_line(route)}: no worker delivers it; occurrences that wait for one: {count}")
    for name in report["ended_workflows"]:
        print_line(f"workflow {one_line(name)}: its occurrence has ended; the leader cancels it")
    for name in report["orphan_workflows"]:
        print_line(f"workflow {one_line(name)}: an orphan, no occurrence in this store")
    for lost in report["orphan_occurrences"]:
        print_line(f"occurrence {one_line(lost['occurrence_id'])}: an orphan, its workflow is gone")
    if report["orphans_ended"]:
        print_line(f"{report['orphans_ended']} orphans were ended.")
    elif not report["orphans_left"]:
        print_line("No orphans.")
