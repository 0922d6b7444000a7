"""`noonmark serve` and `noonmark config`: a server and its settings."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Annotated

from noonmark.cli.options import AsJson
from noonmark.cli.output import print_errors, print_json, printable
from noonmark.cli.parameters import Parameter
from noonmark.core.errors import NoonmarkError
from noonmark.core.frozen import frozen
from noonmark.extras import require
from noonmark.server.config import SETTINGS, LoadedSettings, load

if TYPE_CHECKING:
    import socket


def _option(name: str) -> Parameter:
    """An option for a setting. The settings check its value, so that all sources give the same errors."""
    return Parameter(help=f"{_sentence(name)}.{_default(name)}")


def _list_option(name: str) -> Parameter:
    """An option for a list, separated by commas or repeated."""
    return Parameter(negative=(), help=f"{_sentence(name)}; repeatable.{_default(name)}")


def _sentence(name: str) -> str:
    meaning = SETTINGS[name].meaning
    return f"{meaning[0].upper()}{meaning[1:]}".replace("`", "")


def _default(name: str) -> str:
    """The default of a setting, if it is one value."""
    default = SETTINGS[name].default
    if default in (None, (), {}):
        return ""
    return f" Default: {('no', 'yes')[default] if isinstance(default, bool) else default}."


@frozen(kw_only=True)
class ServerOptions:
    """The settings given on the command line; None for the others."""

    config: Annotated[
        str | None, Parameter(help="A TOML file with settings; default: noonmark.toml, if it exists.")
    ] = None
    host: Annotated[str | None, _option("host")] = None
    port: Annotated[str | None, _option("port")] = None
    store: Annotated[str | None, _option("store")] = None
    worker: Annotated[bool | None, _option("worker")] = None
    ui: Annotated[bool | None, _option("ui")] = None
    max_streams: Annotated[str | None, _option("max_streams")] = None
    migrate: Annotated[bool | None, _option("migrate")] = None
    tls_cert: Annotated[str | None, _option("tls_cert")] = None
    tls_key: Annotated[str | None, _option("tls_key")] = None
    behind_proxy: Annotated[bool | None, _option("behind_proxy")] = None
    trusted_proxies: Annotated[list[str] | None, _list_option("trusted_proxies")] = None
    visibility: Annotated[str | None, _option("visibility")] = None
    tenant_functions: Annotated[list[str] | None, _list_option("tenant_functions")] = None
    tenant_commands: Annotated[list[str] | None, _list_option("tenant_commands")] = None
    jwt_keys: Annotated[str | None, _option("jwt_keys")] = None
    jwt_audience: Annotated[str | None, _option("jwt_audience")] = None
    jwt_issuer: Annotated[str | None, _option("jwt_issuer")] = None
    jwt_tenant_claim: Annotated[str | None, _option("jwt_tenant_claim")] = None
    jwt_user_claim: Annotated[str | None, _option("jwt_user_claim")] = None
    jwt_scope_claim: Annotated[str | None, _option("jwt_scope_claim")] = None
    metrics_listen: Annotated[str | None, _option("metrics_listen")] = None
    public_url: Annotated[str | None, _option("public_url")] = None
    allowed_hosts: Annotated[list[str] | None, _list_option("allowed_hosts")] = None
    functions: Annotated[
        list[str] | None,
        Parameter(
            name="--function",
            negative=(),
            value="NAME=MODULE:FUNCTION",
            help="A function of this node, by its name; repeatable.",
        ),
    ] = None
    target_guard: Annotated[str | None, _option("target_guard")] = None
    allow_hosts: Annotated[list[str] | None, _list_option("allow_hosts")] = None
    signing_key: Annotated[str | None, _option("signing_key")] = None
    secret_key: Annotated[list[str] | None, _list_option("secret_key")] = None
    traces: Annotated[str | None, _option("traces")] = None
    allow_commands: Annotated[list[str] | None, _list_option("allow_commands")] = None
    allow_env: Annotated[list[str] | None, _list_option("allow_env")] = None
    allow_cwd: Annotated[list[str] | None, _list_option("allow_cwd")] = None
    pin_commands: Annotated[str | None, _option("pin_commands")] = None
    allow_bundles: Annotated[bool | None, _option("allow_bundles")] = None
    labels: Annotated[list[str] | None, _list_option("labels")] = None
    slots: Annotated[str | None, _option("slots")] = None
    max_bundle_bytes: Annotated[str | None, _option("max_bundle_bytes")] = None
    bundle_quota_bytes: Annotated[str | None, _option("bundle_quota_bytes")] = None
    bundle_cache: Annotated[str | None, _option("bundle_cache")] = None
    bundle_cache_bytes: Annotated[str | None, _option("bundle_cache_bytes")] = None
    agents: Annotated[str | None, _option("agents")] = None
    agent_model: Annotated[str | None, _option("agent_model")] = None
    agent_tools: Annotated[
        list[str] | None,
        Parameter(
            name="--agent-tool",
            negative=(),
            value="NAME=MODULE:FUNCTION",
            help="A function that agents may call, by its name; repeatable.",
        ),
    ] = None
    agent_mcp: Annotated[
        list[str] | None,
        Parameter(
            name="--agent-mcp",
            negative=(),
            value="NAME=URL",
            help="An MCP server whose tools agents may call: its URL, or the command that starts it; repeatable.",
        ),
    ] = None
    agent_skills: Annotated[str | None, _option("agent_skills")] = None
    agent_max_model_calls: Annotated[str | None, _option("agent_max_model_calls")] = None
    agent_max_tool_calls: Annotated[str | None, _option("agent_max_tool_calls")] = None
    agent_max_tokens: Annotated[str | None, _option("agent_max_tokens")] = None
    agent_max_output_tokens: Annotated[str | None, _option("agent_max_output_tokens")] = None
    agent_max_history_tokens: Annotated[str | None, _option("agent_max_history_tokens")] = None
    agent_timeout: Annotated[str | None, _option("agent_timeout")] = None
    agent_log_content: Annotated[bool | None, _option("agent_log_content")] = None
    prices: Annotated[
        list[str] | None,
        Parameter(
            name="--price",
            negative=(),
            value="MODEL=INPUT,OUTPUT",
            help="The price of a model in dollars per million tokens, perhaps with CACHE_READ,CACHE_WRITE; repeatable.",
        ),
    ] = None
    budget_multipliers: Annotated[
        list[str] | None,
        Parameter(
            name="--budget-multiplier",
            negative=(),
            value="USER=FACTOR",
            help="How many times the limits of a user's budgets count; repeatable.",
        ),
    ] = None
    provider_limits: Annotated[
        list[str] | None,
        Parameter(
            name="--provider-limit",
            negative=(),
            value="PROVIDER=REQUESTS,TOKENS",
            help="How much all nodes together may ask of a provider in a minute; repeatable.",
        ),
    ] = None
    task_instructions: Annotated[str | None, _option("task_instructions")] = None
    engine: Annotated[str | None, _option("engine")] = None
    engine_api_key: Annotated[str | None, _option("engine_api_key")] = None
    engine_routes: Annotated[list[str] | None, _list_option("engine_routes")] = None
    engine_orphans: Annotated[str | None, _option("engine_orphans")] = None
    upload_dir: Annotated[str | None, _option("upload_dir")] = None
    max_upload_bytes: Annotated[str | None, _option("max_upload_bytes")] = None
    upload_quota_bytes: Annotated[str | None, _option("upload_quota_bytes")] = None
    max_connections: Annotated[str | None, _option("max_connections")] = None
    max_connections_per_address: Annotated[str | None, _option("max_connections_per_address")] = None
    request_timeout: Annotated[str | None, _option("request_timeout")] = None
    send_timeout: Annotated[str | None, _option("send_timeout")] = None
    max_unsent_bytes: Annotated[str | None, _option("max_unsent_bytes")] = None
    lease: Annotated[str | None, _option("lease")] = None
    grace: Annotated[str | None, _option("grace")] = None
    max_threads: Annotated[str | None, _option("max_threads")] = None
    keep_days: Annotated[str | None, _option("keep_days")] = None
    keep_messages_days: Annotated[str | None, _option("keep_messages_days")] = None
    max_session_bytes: Annotated[str | None, _option("max_session_bytes")] = None
    log_level: Annotated[str | None, _option("log_level")] = None
    log_format: Annotated[str | None, _option("log_format")] = None
    limit_schedules: Annotated[list[str] | None, _list_option("limit_schedules")] = None
    tenant_limit_schedules: Annotated[list[str] | None, _list_option("tenant_limit_schedules")] = None
    limit_events: Annotated[list[str] | None, _list_option("limit_events")] = None
    tenant_limit_events: Annotated[list[str] | None, _list_option("tenant_limit_events")] = None
    limit_queued: Annotated[list[str] | None, _list_option("limit_queued")] = None
    tenant_limit_queued: Annotated[list[str] | None, _list_option("tenant_limit_queued")] = None
    limit_inflight: Annotated[list[str] | None, _list_option("limit_inflight")] = None
    tenant_limit_inflight: Annotated[list[str] | None, _list_option("tenant_limit_inflight")] = None
    min_interval: Annotated[str | None, _option("min_interval")] = None
    agent_schedule_depth: Annotated[str | None, _option("agent_schedule_depth")] = None
    agent_schedule_children: Annotated[str | None, _option("agent_schedule_children")] = None
    agent_schedules_per_hour: Annotated[str | None, _option("agent_schedules_per_hour")] = None
    agent_schedule_days: Annotated[str | None, _option("agent_schedule_days")] = None
    proposal_days: Annotated[str | None, _option("proposal_days")] = None
    limit_proposals: Annotated[str | None, _option("limit_proposals")] = None
    limit_budget: Annotated[str | None, _option("limit_budget")] = None
    rate_limit: Annotated[str | None, _option("rate_limit")] = None
    rate_limit_address: Annotated[str | None, _option("rate_limit_address")] = None
    auth_failures: Annotated[str | None, _option("auth_failures")] = None
    max_per_user: Annotated[str | None, _option("max_per_user")] = None
    min_interval_minutes: Annotated[str | None, _option("min_interval_minutes")] = None
    max_budget_usd: Annotated[str | None, _option("max_budget_usd")] = None
    reload: Annotated[bool | None, _option("reload")] = None

    def load(self) -> LoadedSettings:
        """The effective settings."""
        given = {
            field.name: _join(getattr(self, field.name), _separator(field.name))
            for field in fields(self)
            if field.name != "config"
        }
        return load(given, os.environ, self.config)


def _separator(name: str) -> str:
    """What stands between the values of a repeated option; those of some have commas in them."""
    return (
        ";"
        if name.startswith("tenant_") or name in ("agent_mcp", "prices", "provider_limits", "budget_multipliers")
        else ","
    )


def _join(given: object, separator: str) -> object:
    """A repeated option means the same as one with separators."""
    return separator.join(given) if isinstance(given, list) else given


def serve(*, options: ServerOptions = ServerOptions()) -> int:
    """Run a server: answer requests and run schedules."""
    from noonmark.server.transport.listener import listen

    require("server", "noonmark serve")
    loaded = options.load()
    listener = listen(loaded)  # first, so that a second server on the port does not become a second node
    if loaded.settings.reload:
        return _reload(loaded, listener)
    from noonmark.server.host import host

    return host(loaded, listener)


def _reload(loaded: LoadedSettings, listener: socket.socket) -> int:
    """Serve in another process, and restart it when a file changes."""
    from uvicorn import Config
    from uvicorn.supervisors import ChangeReload

    from noonmark.telemetry import logs

    logs.configure(level=loaded.settings.log_level, form=loaded.settings.log_format)
    config = Config("noonmark", log_config=None, reload=True)
    ChangeReload(config, partial(host_reloaded, loaded), [listener]).run()
    return 0


def host_reloaded(loaded: LoadedSettings, sockets: list[socket.socket]) -> None:
    """Run a server in a process that is restarted when a file changes; an error is printed, and the process exits."""
    from noonmark.server.host import host

    try:
        host(loaded, sockets[0])
    except NoonmarkError as error:
        print_errors([error])
        sys.exit(1)


def config(*, options: ServerOptions = ServerOptions(), as_json: AsJson = False) -> int:
    """Show the effective settings and their sources; secrets are masked."""
    loaded = options.load()
    if as_json:
        print_json({"settings": loaded.to_document(), "file": loaded.file})
        return 0
    from noonmark.cli.render.tables import show_settings

    show_settings(
        {
            name: (_value(setting["value"]), printable(setting["source"]))
            for name, setting in loaded.to_document().items()
        }
    )
    return 0


def _value(value: object) -> str:
    """The value as a file would have it; a dash for none."""
    if value in (None, [], {}):
        return "-"
    return printable(value if isinstance(value, str) else json.dumps(value))
