"""Assembly: the parts of a process, as its settings say. Servers and workers of an engine share them."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple

from noonmark.core.budgets.prices import parse_price
from noonmark.core.instants import DAY_SECONDS, SECOND
from noonmark.core.json_values import shown
from noonmark.core.lineage import AgentLimits
from noonmark.core.quotas import EVERY_OTHER, Limits, Resource
from noonmark.core.signatures import KeySettings
from noonmark.core.targets.command import CommandRules
from noonmark.core.targets.egress import Guard, egress_policy
from noonmark.core.targets.permissions import TargetPermissions
from noonmark.embedded.references import check_callable
from noonmark.extras import is_installed, require
from noonmark.operations.service import BundleLimits, Service
from noonmark.ports.runtime import Timing
from noonmark.server.config import CA_VARIABLE, FILE_VARIABLE, KEY_VARIABLE, SERVER_VARIABLE, SETTINGS, Settings
from noonmark.server.transport.tls import Certificate, check_authorities
from noonmark.targets.agent.settings import EMBEDDED, OFF, AgentSettings, parse_provider_limit
from noonmark.targets.agent.tools import ToolRegistry
from noonmark.targets.bundle.resources import NodeOffer, NodeResources
from noonmark.targets.bundle.settings import BundleSettings
from noonmark.targets.command.programs import Pin, ProgramPolicy
from noonmark.targets.function.registry import FunctionRegistry, import_function
from noonmark.targets.http.settings import HttpTargetSettings
from noonmark.targets.temporal.settings import FUNCTION, EngineAddress, EngineSettings, parse_engine, served_routes
from noonmark.wiring import (
    MEMORY,
    disk_space,
    fresh_id,
    make_instructions,
    make_model_check,
    make_seal,
    make_uploads,
    upload_folder,
    zone_data_version,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from noonmark.clocks import SystemClock
    from noonmark.core.targets.egress import EgressPolicy
    from noonmark.operations.session_tools import SessionTools
    from noonmark.ports.runtime import Seal
    from noonmark.ports.store import Store
    from noonmark.server.config import LoadedSettings

logger = logging.getLogger("noonmark.serve")
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - nothing listens here


class DeliveryParts(NamedTuple):
    """What a process delivers with."""

    programs: ProgramPolicy
    outbound: HttpTargetSettings
    seal: Seal | None
    permissions: TargetPermissions | None
    bundles: BundleSettings | None
    agents: AgentSettings | None


def delivery_parts(loaded: LoadedSettings, session_tools: SessionTools) -> DeliveryParts:
    """What the settings let a process deliver, and how."""
    settings = loaded.settings
    programs = ProgramPolicy(
        settings.allow_commands,
        rules=command_rules(settings),
        uploads=upload_folder(settings.upload_dir, settings.store),
        pin=Pin(settings.pin_commands),
    )
    for name in programs.not_found:
        logger.warning(
            "--allow-commands names %s, which was not found or cannot be read or run; commands that name it fail until"
            " the server is restarted with the program in place",
            shown(name),
        )
    outbound = HttpTargetSettings(
        egress=egress(settings),
        keys=signing_keys(settings),
        public_url=settings.public_url,
    )
    return DeliveryParts(
        programs,
        outbound,
        make_seal(settings.secret_key),
        permissions(settings),
        bundle_settings(settings),
        agent_settings(loaded, session_tools),
    )


def make_service(
    settings: Settings,
    store: Store,
    clock: SystemClock,
    **more: Any,
) -> Service:
    """What performs operations, with the limits and rules of the settings."""
    engine_functions = {route.partition(":")[2] for route in settings.engine_routes if route.startswith(f"{FUNCTION}:")}
    return Service(
        store=store,
        lookahead=Timing().lookahead,
        fresh_id=lambda: fresh_id(clock),
        machine_clock=clock.micros,
        zone_data=zone_data_version(),
        disks=lambda: disk_space(settings.store, upload_folder(settings.upload_dir, settings.store)),
        keys=signing_keys(settings),
        seal=make_seal(settings.secret_key),
        egress=egress(settings),
        commands=command_rules(settings),
        permissions=permissions(settings),
        base_url=base_url(settings),
        reach=server_option(settings),
        offered=frozenset({*settings.functions, *settings.functions.values(), *engine_functions}),
        limits=limits(settings),
        agent_limits=agent_limits(settings),
        task_limits=Limits(
            per_user={Resource.TASKS: {EVERY_OTHER: settings.max_per_user}},
            per_tenant={},
            min_interval=settings.min_interval_minutes * 60 * SECOND,
            max_budget_usd=settings.max_budget_usd,
        ),
        bundle_limits=bundle_limits(settings),
        instructions=make_instructions(settings.task_instructions),
        has_agent_model=settings.agent_model is not None or settings.agents not in (None, EMBEDDED),
        agent_model=settings.agent_model,
        model_problem=make_model_check(*agent_hosts(settings)),
        uploads=make_uploads(
            settings.upload_dir,
            settings.store,
            max_bytes=settings.max_upload_bytes,
            quota=settings.upload_quota_bytes,
        ),
        **more,
    )


def engine_settings(loaded: LoadedSettings) -> EngineSettings | None:
    """The engine of this node; None if it has none."""
    settings = loaded.settings
    if settings.engine is None:
        if settings.engine_routes:
            raise loaded.error("engine_routes", "requires --engine, the URL of the engine")
        return None
    if not (routes := served_routes(settings.engine_routes, settings.functions)):
        raise loaded.error("engine", "requires --engine-routes, such as session,task,workflow")
    require("temporal", "an engine (--engine)")
    return EngineSettings(
        address=engine_address(loaded, settings.engine), routes=routes, orphans=settings.engine_orphans
    )


def engine_address(loaded: LoadedSettings, url: str) -> EngineAddress:
    """Where the engine is, and what this process identifies itself with; its files are read to see that they fit."""
    if loaded.settings.store == MEMORY:
        raise loaded.error("store", f"must be one that nodes and workers of the engine share, not {MEMORY}")
    try:
        address = parse_engine(url, loaded.settings.engine_api_key)
        if address.tls_cert is not None and address.tls_key is not None:
            Certificate(address.tls_cert, address.tls_key)
        if address.tls_ca is not None:
            check_authorities(address.tls_ca)
    except ValueError as error:
        raise loaded.error("engine", str(error)) from None
    return address


def bundle_settings(settings: Settings) -> BundleSettings | None:
    """How this node runs bundles; None if it does not."""
    if not settings.allow_bundles:
        return None
    return BundleSettings(
        resources=NodeResources(NodeOffer(labels=settings.labels, slots=settings.slots)),
        cache=None if settings.bundle_cache is None else Path(settings.bundle_cache).expanduser().absolute(),
        max_cache_bytes=settings.bundle_cache_bytes,
    )


def agent_settings(loaded: LoadedSettings, session_tools: SessionTools) -> AgentSettings | None:
    """How this node delivers to agents; None if it does not."""
    settings = loaded.settings
    host, remote = agent_hosts(settings)
    if host == OFF:
        return None
    if host == EMBEDDED:
        require("agents", "running agents in this server (--agents embedded)")
        if settings.agent_mcp:
            require("mcp", "calling tools of MCP servers (--agent-mcp)")
    model = settings.agent_model
    if model is not None and (problem := make_model_check(host, remote)(model, None)) is not None:
        raise loaded.error("agent_model", problem)
    return AgentSettings(
        host=host,
        remote=remote,
        instructions=make_instructions(settings.task_instructions),
        model=model,
        tools=_import_tools(loaded),
        schedule_tools=session_tools,
        mcp_servers=settings.agent_mcp,
        skills=None if settings.agent_skills is None else Path(settings.agent_skills).absolute(),
        prices={model: parse_price(price) for model, price in settings.prices.items()},
        multipliers={user: float(factor) for user, factor in settings.budget_multipliers.items()},
        provider_limits={name: parse_provider_limit(limit) for name, limit in settings.provider_limits.items()},
        max_model_calls=settings.agent_max_model_calls,
        max_tool_calls=settings.agent_max_tool_calls,
        max_tokens=settings.agent_max_tokens,
        max_output_tokens=settings.agent_max_output_tokens,
        max_history_tokens=settings.agent_max_history_tokens,
        time_limit=int(settings.agent_timeout * SECOND),
        logs_content=settings.agent_log_content,
    )


def agent_hosts(settings: Settings) -> tuple[str, str | None]:
    """The host of agents, and the one of those that ask for another."""
    host, _, remote = (settings.agents or (EMBEDDED if is_installed("agents") else OFF)).partition(",")
    return host, remote or None


def _import_tools(loaded: LoadedSettings) -> ToolRegistry:
    """Import the functions that agents may call."""
    tools = ToolRegistry()
    for name, function in _imported(loaded, "agent_tools", loaded.settings.agent_tools):
        try:
            tools.register(function, name)
        except ValueError as error:
            raise loaded.error("agent_tools", str(error)) from None
    return tools


def egress(settings: Settings) -> EgressPolicy:
    """The addresses that HTTP targets may connect to."""
    return egress_policy(Guard(settings.target_guard), settings.allow_hosts)


def command_rules(settings: Settings) -> CommandRules:
    """What clients may set for commands."""
    setting_variables = {variable for setting in SETTINGS.values() for variable in setting.variables}
    names = settings.allow_commands
    starts_programs = settings.worker and "command" not in settings.engine_routes  # otherwise others may allow more
    return CommandRules(
        programs=None if "*" in names or not (names or starts_programs) else frozenset(names),
        env=frozenset(settings.allow_env),
        folders=settings.allow_cwd,
        reserved=frozenset({*setting_variables, FILE_VARIABLE, SERVER_VARIABLE, KEY_VARIABLE, CA_VARIABLE}),
    )


def check_folders(loaded: LoadedSettings) -> None:
    """Reject an allowed working folder inside the upload folder: no command may run there."""
    uploads = upload_folder(loaded.settings.upload_dir, loaded.settings.store)
    for folder in loaded.settings.allow_cwd:
        if uploads is not None and Path(folder).resolve().is_relative_to(uploads.resolve()):
            message = f"{folder} is the upload folder or inside it, and commands may not run there"
            raise loaded.error("allow_cwd", message)


def signing_keys(settings: Settings) -> KeySettings:
    """The keys that sign requests and tokens."""
    return KeySettings(signing_key=settings.signing_key, secret_key=settings.secret_key)


def import_functions(loaded: LoadedSettings) -> FunctionRegistry:
    """Import the functions that this node offers; the current folder is on the module path."""
    functions = FunctionRegistry()
    for name, function in _imported(loaded, "functions", loaded.settings.functions):
        functions.register(name, function)
        functions.offer(name)
    return functions


def _imported(
    loaded: LoadedSettings, setting: str, references: Mapping[str, str]
) -> Iterator[tuple[str, Callable[..., Any]]]:
    if references and "" not in sys.path:
        sys.path.insert(0, "")
    for name, reference in references.items():
        try:
            function = import_function(reference)
            check_callable(function)
        except (Exception, SystemExit) as error:  # a module may raise anything when it is imported
            raise loaded.error(setting, f"{name}={reference} cannot be used: {error}") from error
        yield name, function


def permissions(settings: Settings) -> TargetPermissions | None:
    """Which functions and commands each tenant may use; None: all of them."""
    if settings.tenant_functions is None and settings.tenant_commands is None:
        return None
    return TargetPermissions(functions=settings.tenant_functions, commands=settings.tenant_commands)


def agent_limits(settings: Settings) -> AgentLimits:
    """How many schedules agents may make, and for how long."""
    days = DAY_SECONDS * SECOND
    return AgentLimits(
        max_depth=settings.agent_schedule_depth,
        max_children=settings.agent_schedule_children,
        per_hour=settings.agent_schedules_per_hour,
        lifetime=int(settings.agent_schedule_days * days) or None,
        proposal_lifetime=int(settings.proposal_days * days),
        max_proposals=settings.limit_proposals,
    )


def limits(settings: Settings) -> Limits:
    """The limits of callers whose key is of one tenant."""
    return Limits(
        per_user={
            Resource.SCHEDULES: settings.limit_schedules,
            Resource.EVENTS: settings.limit_events,
            Resource.QUEUED: settings.limit_queued,
            Resource.IN_FLIGHT: settings.limit_inflight,
        },
        per_tenant={
            Resource.SCHEDULES: settings.tenant_limit_schedules,
            Resource.EVENTS: settings.tenant_limit_events,
            Resource.QUEUED: settings.tenant_limit_queued,
            Resource.IN_FLIGHT: settings.tenant_limit_inflight,
        },
        min_interval=settings.min_interval,
        max_budget_usd=settings.limit_budget,
    )


def bundle_limits(settings: Settings) -> BundleLimits | None:
    """How large the bundles of clients may be; None if they may push none."""
    if not settings.allow_bundles:
        return None
    return BundleLimits(max_bytes=settings.max_bundle_bytes, quota_bytes=settings.bundle_quota_bytes)


def server_option(settings: Settings) -> str:
    """The option by which a command in a log line finds this server; empty if it does without."""
    here = _LOOPBACK.get(settings.host, settings.host)  # of a server that listens on all addresses
    address = base_url(replace(settings, host=here))
    return "" if address == base_url(Settings()) else f"--server {quote(address)}"


def base_url(settings: Settings) -> str:
    """Where clients reach the server; empty if the system chooses its port."""
    if settings.public_url is not None:
        return settings.public_url.rstrip("/")
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    scheme = "http" if settings.tls_cert is None else "https"
    return f"{scheme}://{host}:{settings.port}" if settings.port else ""
