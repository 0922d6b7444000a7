"""The flags that set what a server goes by. Their values are read with the settings, so that all errors are alike."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Annotated

from cyclopts import Parameter

from noonmark.server.config import SETTINGS, Loaded, load


def _meaning(name: str) -> Parameter:
    """What the setting is for."""
    return Parameter(help=f"{_sentence(name)}.")


def _several(name: str) -> Parameter:
    """The same for a list, which has commas in it, or a flag for each."""
    return Parameter(negative=(), help=f"{_sentence(name)}; repeatable.")


def _sentence(name: str) -> str:
    meaning = SETTINGS[name].meaning
    return f"{meaning[0].upper()}{meaning[1:]}".replace("`", "")


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """What was given on the command line; None is for what was not."""

    config: Annotated[str | None, Parameter(help="A TOML file with settings; noonmark.toml, if it is there.")] = None
    host: Annotated[str | None, _meaning("host")] = None
    port: Annotated[str | None, _meaning("port")] = None
    store: Annotated[str | None, _meaning("store")] = None
    worker: Annotated[bool | None, _meaning("worker")] = None
    migrate: Annotated[bool | None, _meaning("migrate")] = None
    public_url: Annotated[str | None, _meaning("public_url")] = None
    allowed_hosts: Annotated[list[str] | None, _several("allowed_hosts")] = None
    functions: Annotated[
        list[str] | None,
        Parameter(name="--function", negative=(), help="A function of this node, as NAME=module:function; repeatable."),
    ] = None
    target_guard: Annotated[str | None, _meaning("target_guard")] = None
    allow_hosts: Annotated[list[str] | None, _several("allow_hosts")] = None
    signing_key: Annotated[str | None, _meaning("signing_key")] = None
    secret_key: Annotated[list[str] | None, _several("secret_key")] = None
    allow_commands: Annotated[list[str] | None, _several("allow_commands")] = None
    allow_env: Annotated[list[str] | None, _several("allow_env")] = None
    allow_cwd: Annotated[list[str] | None, _several("allow_cwd")] = None
    pin_commands: Annotated[str | None, _meaning("pin_commands")] = None
    upload_dir: Annotated[str | None, _meaning("upload_dir")] = None
    max_upload_bytes: Annotated[str | None, _meaning("max_upload_bytes")] = None
    upload_quota_bytes: Annotated[str | None, _meaning("upload_quota_bytes")] = None
    max_connections: Annotated[str | None, _meaning("max_connections")] = None
    max_connections_per_address: Annotated[str | None, _meaning("max_connections_per_address")] = None
    request_timeout: Annotated[str | None, _meaning("request_timeout")] = None
    send_timeout: Annotated[str | None, _meaning("send_timeout")] = None
    max_unsent_bytes: Annotated[str | None, _meaning("max_unsent_bytes")] = None
    lease: Annotated[str | None, _meaning("lease")] = None
    grace: Annotated[str | None, _meaning("grace")] = None
    max_threads: Annotated[str | None, _meaning("max_threads")] = None
    keep_days: Annotated[str | None, _meaning("keep_days")] = None
    log_level: Annotated[str | None, _meaning("log_level")] = None
    log_format: Annotated[str | None, _meaning("log_format")] = None
    max_per_user: Annotated[str | None, _meaning("max_per_user")] = None
    min_interval_minutes: Annotated[str | None, _meaning("min_interval_minutes")] = None
    max_budget_usd: Annotated[str | None, _meaning("max_budget_usd")] = None
    reload: Annotated[bool | None, _meaning("reload")] = None

    def load(self) -> Loaded:
        """The effective settings."""
        given = {one.name: _joined(getattr(self, one.name)) for one in fields(self) if one.name != "config"}
        return load(given, os.environ, self.config)


def _joined(given: object) -> object:
    """A flag that is repeated says the same as one with commas."""
    return ",".join(given) if isinstance(given, list) else given
