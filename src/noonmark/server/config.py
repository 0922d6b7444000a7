"""Settings of a server: from flags, then `NOONMARK_*` variables, then a TOML file, then defaults."""

from __future__ import annotations

import math
import re
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import field, fields
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from noonmark.core.api_key import EVERY_TENANT, tenant_or_all
from noonmark.core.budgets.prices import parse_price
from noonmark.core.errors import InvalidSchedule, Problem
from noonmark.core.frozen import frozen
from noonmark.core.instants import SECOND
from noonmark.core.policies.limits import MAX_CONCURRENCY
from noonmark.core.rate_limit import parse_rate
from noonmark.core.redaction import MASK, is_secret_name, redact
from noonmark.core.signatures import read_signing_key
from noonmark.core.targets.egress import open_place
from noonmark.core.targets.work import node_label
from noonmark.operations.diagnosis import Conflict
from noonmark.secret_cipher import read_keys
from noonmark.targets.agent.mcp_tools import check_mcp_server
from noonmark.targets.agent.settings import AgentSettings, parse_provider_limit
from noonmark.targets.bundle.resources import MAX_NODE_LABELS
from noonmark.targets.temporal.settings import ORPHAN_POLICIES, check_route, parse_engine
from noonmark.wiring import KNOWN_STORES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_AGENTS = AgentSettings()

MAX_TEXT = 2_000
STORES = ("memory://", "sqlite:///", "postgresql://", "postgres://", "redis://", "rediss://")
_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
_INTEGER = re.compile(r"\d{1,16}", re.ASCII)
_REFERENCE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_HOST = re.compile(r"[A-Za-z0-9_.-]{1,255}", re.ASCII)
_DESTINATION = re.compile(r"[A-Za-z0-9_.:/*\[\]-]{1,300}")
_COMMAND = re.compile(r"[^\s,\0]{1,200}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}|\*", re.ASCII)
_NETWORK = re.compile(r"[0-9a-fA-F.:/]{2,50}", re.ASCII)
_ANY_NAME = re.compile(r"[^,;\0]{1,500}")
_DURATION = re.compile(r"([0-9]{1,9})([smhd])", re.ASCII)
_LENGTHS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_API_KEY = re.compile(r"[!-~]{1,8192}", re.ASCII)
_FOLDER = re.compile(r"/[^,\0\n]{0,4095}")


def text(value: object) -> str:
    """Text on one line."""
    if isinstance(value, str) and 0 < len(value) <= MAX_TEXT and value.isprintable():
        return value
    raise ValueError(_message("text on one line", value))


def boolean(value: object) -> bool:
    """A boolean, also as a word."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _TRUE + _FALSE:
        return value.strip().lower() in _TRUE
    raise ValueError(_message("true or false", value))


def integer(low: int, high: int) -> Callable[[object], int]:
    """An integer within bounds."""

    def read(value: object) -> int:
        number = int(value) if isinstance(value, str) and _INTEGER.fullmatch(value.strip()) else value
        if isinstance(number, int) and not isinstance(number, bool) and low <= number <= high:
            return number
        raise ValueError(_message(f"an integer from {low:,} to {high:,}", value))

    return read


def number(low: float, high: float) -> Callable[[object], float]:
    """A number within bounds."""

    def read(value: object) -> float:
        try:
            parsed = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
        except (ValueError, OverflowError):
            parsed = math.nan
        if low <= parsed <= high:
            return parsed
        raise ValueError(_message(f"a number from {low:,g} to {high:,g}", value))

    return read


def one_of(*allowed: str) -> Callable[[object], str]:
    """One of these words, in any case."""

    def read(value: object) -> str:
        if isinstance(value, str) and value.strip().lower() in allowed:
            return value.strip().lower()
        raise ValueError(_message(" or ".join((", ".join(allowed[:-1]), allowed[-1])), value))

    return read


def store(value: object) -> str:
    """The URL of a store."""
    url = text(value)
    if url.startswith(STORES):
        return url
    raise ValueError(_message(KNOWN_STORES, value))


def url(value: object) -> str:
    """A web address without a query."""
    allowed = "a web address such as https://schedules.example.com, without user, query or fragment"
    try:
        parts = urlsplit(text(value))
        is_valid = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port)
    except ValueError:
        raise ValueError(_message(allowed, value)) from None
    if not is_valid or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError(_message(allowed, value))
    return text(value).rstrip("/")


def hosts(value: object) -> tuple[str, ...]:
    """Host names."""
    allowed = "host names without a port, such as schedules.example.com"
    return tuple(one.lower() for one in _list(value, _HOST, allowed))


def secret_keys(value: object) -> str:
    """Encryption keys, as text or a list; errors do not quote the value."""
    text = ",".join(str(one) for one in value) if isinstance(value, list | tuple) else value
    read_keys(text)
    return str(text)


def destinations(value: object) -> tuple[str, ...]:
    """Hosts, wildcard hosts, addresses and networks; all but networks may have a port."""
    allowed = (
        "host names, addresses or networks, such as hooks.example.com, *.example.com, 10.1.2.3:8080 or 10.1.0.0/16"
    )
    destinations = tuple(one.lower() for one in _list(value, _DESTINATION, allowed))
    for destination in destinations:
        if destination == "*":
            raise ValueError(f"{_message(allowed, destination)}: use --target-guard off to allow every address")
        try:
            open_place(destination)
        except ValueError:
            raise ValueError(_message(allowed, destination)) from None
    return destinations


def commands(value: object) -> tuple[str, ...]:
    """Program names, or a star for any."""
    return _list(value, _COMMAND, 'program names, or "*" for any')


def variables(value: object) -> tuple[str, ...]:
    """Variable names, or a star for any."""
    return _list(value, _VARIABLE, 'variable names, or "*" for any')


def folders(value: object) -> tuple[str, ...]:
    """Absolute paths of folders."""
    return _list(value, _FOLDER, "absolute paths of folders")


def file_path(value: object) -> str:
    """The path of a file."""
    return str(Path(text(value)).expanduser())


def networks(value: object) -> tuple[str, ...]:
    """Addresses and networks."""
    allowed = "addresses or networks, such as 10.1.2.3 or 10.1.0.0/16"
    parts = _list(value, _NETWORK, allowed)
    for part in parts:
        try:
            ip_network(part, strict=False)
        except ValueError:
            raise ValueError(_message(allowed, part)) from None
    return parts


def address(value: object) -> tuple[str, int]:
    """An address with its port."""
    host, _, port = text(value).rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not _INTEGER.fullmatch(port) or int(port) > 65_535:
        raise ValueError(_message("an address with a port, such as 127.0.0.1:9101 or [::1]:9101", value))
    return host, int(port)


def token_keys(value: object) -> str:
    """A file of keys, or a secret with its algorithm before it; errors do not quote the value."""
    if isinstance(value, str) and 0 < len(value) <= MAX_TEXT and value.isprintable():
        return value
    raise ValueError("must be the path of a JSON Web Key Set, or HS256: and a secret, on one line")


def names_by_tenant(value: object) -> dict[str, frozenset[str]]:
    """Names that each tenant may use: TENANT=NAME,NAME; several tenants separated by semicolons."""
    allowed = "names by tenant, as TENANT=NAME,NAME, with semicolons between tenants"
    if isinstance(value, str):
        value = dict(_names_of_tenant(part, allowed) for part in value.split(";") if part.strip())
    if not isinstance(value, Mapping):
        raise ValueError(_message(allowed, value))
    by_tenant = {}
    for tenant, names in value.items():
        try:
            by_tenant[tenant_or_all(tenant)] = frozenset(_list(names, _ANY_NAME, allowed))
        except ValueError:
            raise ValueError(_message(allowed, f"{tenant}={names}")) from None
    return by_tenant


def _names_of_tenant(part: str, allowed: str) -> tuple[str, str]:
    tenant, sign, names = part.partition("=")
    if not sign:
        raise ValueError(_message(allowed, part))
    return tenant.strip(), names


def counts_by_tenant(value: object) -> dict[str, int]:
    """An integer for every tenant, or by tenant: TENANT=N,TENANT=N."""
    allowed = "an integer, or numbers by tenant as TENANT=N, with commas between them; * is every other tenant"
    read = integer(0, 2**50)
    try:
        if isinstance(value, list | tuple):
            value = ",".join(str(one) for one in value)
        if isinstance(value, str) and "=" in value:
            value = {name.strip(): count for name, _, count in (part.partition("=") for part in value.split(","))}
        counts = value if isinstance(value, Mapping) else {EVERY_TENANT: value}
        return {tenant_or_all(tenant): read(count) for tenant, count in counts.items()}
    except ValueError:
        raise ValueError(_message(allowed, value)) from None


def places_by_tenant(value: object) -> dict[str, int]:
    """The same for a number of places: with none, nothing would ever start."""
    counts = counts_by_tenant(value)
    if not all(1 <= count <= MAX_CONCURRENCY for count in counts.values()):
        raise ValueError(_message(f"1 to {MAX_CONCURRENCY:,}, or such numbers by tenant as TENANT=N", value))
    return counts


def duration(value: object) -> int:
    """A length of time, in microseconds."""
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError(_message("a length of time such as 30s, 5m or 1h", value))
    return int(match[1]) * _LENGTHS[match[2]] * SECOND


def rate(value: object) -> str:
    """A rate, such as 100/s."""
    parse_rate(value)
    return str(value)


def named_functions(value: object) -> dict[str, str]:
    """Functions by the name under which they are offered."""
    allowed = "functions, each as NAME=module:function"
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, list | tuple):
        value = {name.strip(): reference.strip() for name, _, reference in (str(each).partition("=") for each in value)}
    if not isinstance(value, Mapping):
        raise ValueError(_message(allowed, value))
    for name, reference in value.items():
        is_valid_name = isinstance(name, str) and 0 < len(name) <= 500 and name.isprintable()
        if not is_valid_name or not isinstance(reference, str) or not _REFERENCE.fullmatch(reference):
            raise ValueError(_message(allowed, f"{name}={reference}" if reference else name))
    return dict(value)


def agent_host(value: object) -> str:
    """Where agents run: in this process, at a URL, in both or not at all."""
    allowed = "embedded, off, the web address of an agent host, or embedded and such an address with a comma between"
    if not isinstance(value, str):
        raise ValueError(_message(allowed, value))
    own, comma, remote = value.partition(",")
    if own.strip().lower() in ("embedded", "off") and not comma:
        return own.strip().lower()
    try:
        return url(value) if not comma else f"{one_of('embedded')(own.strip().lower())},{url(remote.strip())}"
    except ValueError:
        raise ValueError(_message(allowed, value)) from None


def engine_url(value: object) -> str:
    """The URL of an engine."""
    parse_engine(value)
    return str(value)


def api_key(value: object) -> str:
    """The key of a service; errors do not quote it."""
    if isinstance(value, str) and _API_KEY.fullmatch(value.strip()):
        return value.strip()
    raise ValueError("must be an API key: letters, digits and signs on one line, without spaces")


def engine_routes(value: object) -> tuple[str, ...]:
    """Routes that an engine can carry out."""
    return tuple(check_route(route) for route in _list(value, _ANY_NAME, "routes of targets, such as session,task"))


def model_prices(value: object) -> dict[str, str]:
    """Prices by model: MODEL=INPUT,OUTPUT; several models separated by semicolons."""
    return _checked(
        value,
        parse_price,
        "prices in dollars per million tokens, as MODEL=INPUT,OUTPUT or MODEL=INPUT,OUTPUT,CACHE_READ,CACHE_WRITE",
    )


def mcp_servers(value: object) -> dict[str, str]:
    """MCP servers by name: NAME=URL or NAME=COMMAND ARGUMENTS; several separated by semicolons."""
    allowed = "MCP servers, as NAME=URL or NAME=COMMAND ARGUMENTS; a name has up to 32 letters, digits, - and _"
    if isinstance(value, Mapping):  # a file may list the words of a command
        value = {name: shlex.join(map(str, one)) if isinstance(one, list) else one for name, one in value.items()}
    servers = dict(_pairs(value, allowed))
    for name, address in servers.items():
        try:
            check_mcp_server(name, address)
        except ValueError:
            raise ValueError(_message(allowed, name)) from None
    return servers


def multipliers(value: object) -> dict[str, str]:
    """Multipliers by user: USER=FACTOR; several separated by semicolons."""
    return _checked(value, number(0.01, 1_000), "numbers from 0.01 to 1,000, as USER=FACTOR")


def provider_limits(value: object) -> dict[str, str]:
    """Limits by provider: NAME=REQUESTS or NAME=REQUESTS,TOKENS per minute; several separated by semicolons."""
    return _checked(value, parse_provider_limit, "limits per minute, as PROVIDER=REQUESTS or PROVIDER=REQUESTS,TOKENS")


def _checked(value: object, check: Callable[[str], object], allowed: str) -> dict[str, str]:
    pairs = dict(_pairs(value, allowed))
    for name, given in pairs.items():
        try:
            check(given)
        except ValueError:
            raise ValueError(_message(allowed, f"{name}={given}")) from None
    return pairs


def _pairs(value: object, allowed: str) -> list[tuple[str, str]]:
    """Names with values that may have commas in them: text with semicolons between, or a table."""
    if isinstance(value, str):
        value = dict(part.strip().partition("=")[::2] for part in value.split(";") if part.strip())
    if not isinstance(value, Mapping):
        raise ValueError(_message(allowed, value))
    pairs = [(str(name).strip(), _joined(given)) for name, given in value.items()]
    if not all(name and given for name, given in pairs):
        raise ValueError(_message(allowed, value))
    return pairs


def _joined(given: object) -> str:
    return ",".join(str(one) for one in given) if isinstance(given, list | tuple) else str(given)


def node_labels(value: object) -> dict[str, str]:
    """Labels of a node: NAME=VALUE, separated by commas."""
    allowed = f"up to {MAX_NODE_LABELS} labels, each as NAME=VALUE"
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, list | tuple):
        value = {name: label for name, _, label in (str(each).partition("=") for each in value)}
    if not isinstance(value, Mapping) or len(value) > MAX_NODE_LABELS:
        raise ValueError(_message(allowed, value))
    for name, label in value.items():
        try:
            node_label(name)
            node_label(label)
        except ValueError:
            raise ValueError(_message(allowed, f"{name}={label}" if label else name)) from None
    return dict(value)


def _list(value: object, each: re.Pattern[str], allowed: str) -> tuple[str, ...]:
    """A list, or text separated by commas."""
    parts: Sequence[object] = ()
    if isinstance(value, str):
        parts = [part.strip() for part in value.split(",") if part.strip()]
    elif isinstance(value, list | tuple):
        parts = value
    else:
        raise ValueError(_message(allowed, value))
    for part in parts:
        if not isinstance(part, str) or not each.fullmatch(part):
            raise ValueError(_message(allowed, part))
    return tuple(str(part) for part in parts)


def _message(allowed: str, value: object) -> str:
    shown = redact(repr(value))
    return f"must be {allowed}, not {shown if len(shown) <= 200 else f'{shown[:200]}…'}"


PREFIX = "NOONMARK_"
LEVELS = ("debug", "info", "warning", "error", "critical")


@frozen(kw_only=True)
class Setting:
    """One setting: how it is parsed, what it is for, and which environment variables set it."""

    name: str = ""
    default: Any
    read: Callable[[object], Any]
    meaning: str
    also: tuple[str, ...] = ()
    switch: str = ""
    """Its flag, if that is not the name with dashes."""

    @property
    def flag(self) -> str:
        """Its flag on the command line."""
        return self.switch or f"--{self.name.replace('_', '-')}"

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that set it; the first one that is set counts."""
        return (PREFIX + self.name.upper(), *self.also)


def _setting(
    read: Callable[[object], Any],
    meaning: str,
    *,
    default: object,
    also: tuple[str, ...] = (),
    switch: str = "",
    is_secret: bool = False,
) -> Any:
    setting = {"default": default, "read": read, "meaning": meaning, "also": also, "switch": switch}
    return field(default_factory=lambda: default, metadata=setting, repr=not is_secret)


@frozen(kw_only=True)
class Settings:
    """The settings of a server."""

    host: str = _setting(
        text,
        "the address to listen on. Beyond loopback it needs a key in the store, and TLS or `behind_proxy`",
        also=("SCHEDULER_HOST",),
        default="127.0.0.1",
    )
    port: int = _setting(integer(0, 65_535), "the port; 0 picks a free one", also=("SCHEDULER_PORT",), default=8001)
    store: str = _setting(
        store,
        "the store: a SQLite file, a PostgreSQL or Redis database, or memory",
        default="sqlite:///noonmark.db",
    )
    worker: bool = _setting(
        boolean,
        "whether this server runs schedules, or only answers requests",
        switch="--no-worker",
        default=True,
    )
    ui: bool = _setting(
        boolean,
        "whether to serve the web page at `/ui`",
        switch="--no-ui",
        default=True,
    )
    max_streams: int = _setting(
        integer(0, 100_000),
        "maximum number of streams of changes that are open at once; each takes a connection",
        default=100,
    )
    migrate: bool = _setting(
        boolean,
        "whether to create or upgrade the schema in PostgreSQL; other stores are always upgraded",
        default=False,
    )
    tls_cert: str | None = _setting(
        file_path,
        "the certificate for https, with its chain, as a PEM file; read again when it changes",
        default=None,
    )
    tls_key: str | None = _setting(file_path, "the private key of the certificate, as a PEM file", default=None)
    behind_proxy: bool = _setting(
        boolean,
        "whether a proxy that speaks https stands between clients and this server, which may then listen beyond"
        " loopback without TLS",
        default=False,
    )
    trusted_proxies: tuple[str, ...] = _setting(
        networks,
        "addresses and networks of proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` headers are believed",
        default=(),
    )
    visibility: str = _setting(
        one_of("tenant", "owner"),
        "what a user sees who is not an administrator: all schedules of the `tenant`, or as `owner` the own ones only",
        default="tenant",
    )
    tenant_functions: Mapping[str, frozenset[str]] | None = _setting(
        names_by_tenant,
        "functions that each tenant may use, as TENANT=NAME,NAME; `*` as a tenant is every other one, as a name any."
        " By default every tenant may use all functions",
        default=None,
    )
    tenant_commands: Mapping[str, frozenset[str]] | None = _setting(
        names_by_tenant,
        "programs that each tenant may run, of those in `allow_commands`, in the same form; `bundle:NAME` is a bundle",
        default=None,
    )
    jwt_keys: str | None = _setting(
        token_keys,
        "accept signed tokens (JWT) too: a file with a JSON Web Key Set in which each key names its algorithm, or"
        " `HS256:` and a secret of at least 32 bytes. Set a secret in the environment or a file rather than by a flag",
        default=None,
        is_secret=True,
    )
    jwt_audience: str = _setting(text, "the audience (`aud`) that tokens must name", default="noonmark")
    jwt_issuer: str | None = _setting(text, "the issuer (`iss`) that tokens must name", default=None)
    jwt_tenant_claim: str = _setting(
        text, "the claim of a token that names the tenant; dots lead into objects", default="tenant"
    )
    jwt_user_claim: str = _setting(text, "the claim of a token that names the user", default="sub")
    jwt_scope_claim: str = _setting(
        text,
        "the claim of a token with its scopes, as a list or as text with blanks between; each may begin with"
        " `noonmark:`",
        default="scope",
    )
    metrics_listen: tuple[str, int] | None = _setting(
        address,
        "an address and port of its own for `/metrics`, such as 127.0.0.1:9101; it needs no key there",
        default=None,
    )
    public_url: str | None = _setting(
        url,
        "the URL of the server for its clients, if it runs behind a proxy",
        default=None,
    )
    allowed_hosts: tuple[str, ...] = _setting(
        hosts, "host names that clients may use, besides the server's own", default=()
    )
    functions: Mapping[str, str] = _setting(
        named_functions, "functions that this node offers, by name", switch="--function", default={}
    )
    target_guard: str = _setting(
        one_of("auto", "strict", "off"),
        "where HTTP targets may connect to: `strict` is public addresses only, `off` is everywhere; `auto` is strict,"
        " except that a server that only this machine can reach, without `public_url` and `allowed_hosts`, may also"
        " connect to this machine and private networks",
        default="auto",
    )
    allow_hosts: tuple[str, ...] = _setting(
        destinations,
        "hosts, addresses and networks that HTTP targets may always connect to; `*.example.com` is every host below"
        " that one, except metadata, link-local and multicast addresses; a host or an address may have a port, and"
        " then only that port is open",
        default=(),
    )
    signing_key: str | None = _setting(
        read_signing_key,
        "the key that signs requests, the same on every node; by default it is derived from a key in the store, and"
        " `noonmark secret signing-key` prints it. Set it in the environment or a file rather than by a flag, which"
        " every user of this machine can see",
        default=None,
        is_secret=True,
    )
    secret_key: str | None = _setting(
        secret_keys,
        "the key that encrypts secrets in the store, the same on every node: the output of `noonmark secret key`. Of"
        " several keys, separated by commas, the first encrypts and all decrypt. Set it in the environment or a file"
        " rather than by a flag",
        default=None,
        is_secret=True,
    )
    traces: str = _setting(
        one_of("off", "otlp"),
        "whether to record traces: `otlp` sends them to the collector that the `OTEL_*` variables of OpenTelemetry"
        " name, by default on this machine; needs `noonmark[otel]`",
        default="off",
    )
    allow_commands: tuple[str, ...] = _setting(
        commands,
        'programs that schedules may run on this node, by name or absolute path, or `"*"` for any',
        default=(),
    )
    allow_env: tuple[str, ...] = _setting(
        variables,
        "environment variables that clients may set for commands, besides `NOONMARK_*` names that Noonmark does not"
        ' use, or `"*"` for any',
        default=(),
    )
    allow_cwd: tuple[str, ...] = _setting(
        folders,
        "folders in and below which clients may run commands; by default each run has an empty folder of its own",
        default=(),
    )
    pin_commands: str = _setting(
        one_of("inode", "digest"),
        "how an allowed program is recognised as the one that was there when the server started: `inode` by its"
        " file, `digest` by its content",
        default="inode",
    )
    allow_bundles: bool = _setting(
        boolean,
        "whether clients may push bundles to this server, and this node runs them; a bundle is code, which may do"
        " whatever the server may",
        default=False,
    )
    labels: Mapping[str, str] = _setting(
        node_labels, "labels of this node, as NAME=VALUE; bundles may ask for them", default={}
    )
    slots: int = _setting(integer(0, 10_000), "how many slots this node has for bundles that ask for some", default=0)
    max_bundle_bytes: int = _setting(
        integer(1, 2**32), "maximum size of a bundle, as a zip file, in bytes", default=67_108_864
    )
    bundle_quota_bytes: int = _setting(
        integer(0, 2**50),
        "maximum size of all bundles of a tenant in the store, in bytes",
        default=1_073_741_824,
    )
    bundle_cache: str | None = _setting(
        file_path,
        "the folder in which this node unpacks bundles; by default in the cache folder of its user",
        default=None,
    )
    bundle_cache_bytes: int = _setting(
        integer(0, 2**50),
        "maximum size of unpacked bundles in that folder, in bytes; those not used for longest are removed",
        default=2_147_483_648,
    )
    agents: str | None = _setting(
        agent_host,
        "where agents run: `embedded` in this server, at the URL of another host, or `off`; with `embedded,URL` only"
        " tasks and helpers that ask for it go there. By default embedded, if `noonmark[agents]` is installed",
        default=None,
    )
    agent_model: str | None = _setting(
        text, "the model of tasks and sessions that name none, such as openai:gpt-5.2 or test", default=None
    )
    agent_tools: Mapping[str, str] = _setting(
        named_functions, "functions that agents may call, by name", switch="--agent-tool", default={}
    )
    agent_mcp: Mapping[str, str] = _setting(
        mcp_servers,
        "MCP servers whose tools agents may call, by name: the URL of each, or the command that starts it;"
        " several separated by semicolons",
        default={},
        is_secret=True,
    )
    agent_skills: str | None = _setting(
        file_path, "a folder with skills for agents: each is a folder with a file `SKILL.md`", default=None
    )
    agent_max_model_calls: int = _setting(
        integer(1, 1_000_000),
        "maximum number of model calls of an agent's run, unless its schedule has another limit",
        default=_AGENTS.max_model_calls,
    )
    agent_max_tool_calls: int = _setting(
        integer(0, 1_000_000), "the same for tool calls", default=_AGENTS.max_tool_calls
    )
    agent_max_tokens: int = _setting(
        integer(1, 10**12), "the same for tokens; not for schedules that limit the cost", default=_AGENTS.max_tokens
    )
    agent_max_output_tokens: int = _setting(
        integer(1, 10**9),
        "maximum number of tokens of an answer, unless the session has another limit",
        default=_AGENTS.max_output_tokens,
    )
    agent_max_history_tokens: int = _setting(
        integer(0, 10**9),
        "how many tokens of a session's earlier messages are sent with a call; older ones are left out",
        default=_AGENTS.max_history_tokens,
    )
    agent_timeout: float = _setting(
        number(0.1, 86_400),
        "seconds after which a run of an agent is stopped, unless its schedule has a timeout",
        default=_AGENTS.time_limit / SECOND,
    )
    agent_log_content: bool = _setting(
        boolean, "whether logs at debug level may show prompts and answers of agents", default=False
    )
    prices: Mapping[str, str] = _setting(
        model_prices,
        "prices of models in dollars per million tokens, as MODEL=INPUT,OUTPUT or"
        " MODEL=INPUT,OUTPUT,CACHE_READ,CACHE_WRITE; separated by semicolons. They come before the known ones",
        switch="--price",
        default={},
    )
    budget_multipliers: Mapping[str, str] = _setting(
        multipliers,
        "how many times the limits of a user's budgets count, as USER=FACTOR; separated by semicolons",
        switch="--budget-multiplier",
        default={},
    )
    provider_limits: Mapping[str, str] = _setting(
        provider_limits,
        "how much all nodes together may ask of a provider in a minute, as PROVIDER=REQUESTS or"
        " PROVIDER=REQUESTS,TOKENS; separated by semicolons",
        switch="--provider-limit",
        default={},
    )
    task_instructions: str | None = _setting(
        file_path,
        "a folder with instructions for tasks, which replace and add to those of the package: `task.md`,"
        " `role/NAME.md`, `template/NAME.md` and so on",
        default=None,
    )
    engine: str | None = _setting(
        engine_url,
        "a Temporal namespace that carries out the routes in `engine_routes`, as"
        " temporal://HOST:7233/NAMESPACE?task_queue=noonmark; `heartbeat` in it are the seconds after which a silent"
        " worker counts as lost (15), `tls` is yes or no. The files `tls_cert` and `tls_key` identify this process,"
        " `tls_ca` and `server_name` the server",
        default=None,
    )
    engine_api_key: str | None = _setting(
        api_key,
        "the API key for the namespace of the engine; the connection has TLS then. Set it in the environment or a file"
        " rather than by a flag, which other users of the machine can read",
        default=None,
        is_secret=True,
    )
    engine_routes: tuple[str, ...] = _setting(
        engine_routes,
        "the routes that the engine carries out: event, http, command, workflow, bundle, session, mob, task,"
        " function:NAME, or function for all functions of this node",
        default=(),
    )
    engine_orphans: str = _setting(
        one_of(*ORPHAN_POLICIES),
        "what becomes of an occurrence whose workflow is gone from the engine: `report` it, or `end` it as failed, so"
        " that its retry policy applies",
        default="report",
    )
    upload_dir: str | None = _setting(
        text,
        "the folder for uploaded files; by default next to the SQLite file. Without either, uploads are off",
        default=None,
    )
    max_upload_bytes: int = _setting(
        integer(1, 2**40), "maximum size of an uploaded file, in bytes", default=104_857_600
    )
    upload_quota_bytes: int = _setting(
        integer(0, 2**50),
        "maximum size of all uploaded files of a tenant, in bytes",
        default=1_073_741_824,
    )
    max_connections: int = _setting(
        integer(1, 100_000),
        "maximum number of open connections, plus a reserve of 16 in which only `/health` and `/metrics` are"
        " answered; never more than half of the file descriptors of the process",
        default=1_000,
    )
    max_connections_per_address: int = _setting(
        integer(0, 100_000),
        "maximum number of connections from one address; this machine counts as one. 0 means one half of all, or all"
        " if `public_url` is set, because then every client comes from the proxy",
        default=0,
    )
    request_timeout: float = _setting(
        number(0.1, 3_600),
        "seconds for the head of a request, and as many for its body; an uploaded file has more time, at 32 KiB per"
        " second",
        default=20.0,
    )
    send_timeout: float = _setting(
        number(0.1, 3_600),
        "seconds after which an answer is aborted if the client reads nothing of it, or, beyond that, reads less than"
        " 4 KiB per second",
        default=20.0,
    )
    max_unsent_bytes: int = _setting(
        integer(1_048_576, 2**40),
        "maximum number of unread bytes of all answers together; beyond that, the client that has read nothing for"
        " longest is disconnected",
        default=67_108_864,
    )
    lease: float = _setting(
        number(1, 3_600),
        "seconds after which other nodes take over the work of a dead node",
        default=15.0,
    )
    grace: float = _setting(
        number(0, 86_400),
        "seconds that runs have to finish when the worker stops, before they are released to other nodes",
        default=10.0,
    )
    max_threads: int = _setting(
        integer(1, 10_000), "maximum number of functions that run at the same time", default=256
    )
    keep_days: float = _setting(number(0.001, 36_500), "days for which history is kept", default=30.0)
    keep_messages_days: float = _setting(
        number(0.001, 36_500), "days for which the messages of agents' sessions are kept", default=90.0
    )
    max_session_bytes: int = _setting(
        integer(1, 2**40),
        "maximum size of the messages of a session, in bytes; the oldest are deleted",
        default=16_777_216,
    )
    log_level: str = _setting(one_of(*LEVELS), f"the minimum level that is logged: {', '.join(LEVELS)}", default="info")
    log_format: str = _setting(
        one_of("auto", "json", "text"),
        "the format of log lines: `json`, `text`, or `auto`, which is text on a terminal and JSON otherwise",
        default="auto",
    )
    limit_schedules: Mapping[str, int] = _setting(
        counts_by_tenant,
        "maximum number of schedules of each user that are active or paused; or by tenant, as TENANT=N,*=N. This limit"
        " and the following do not apply to keys of tenant `*`, nor on a server without keys",
        default={},
    )
    tenant_limit_schedules: Mapping[str, int] = _setting(
        counts_by_tenant, "the same for all users of a tenant together", default={}
    )
    limit_events: Mapping[str, int] = _setting(
        counts_by_tenant,
        "maximum number of events that each user emits in a minute; or by tenant, as TENANT=N,*=N",
        default={},
    )
    tenant_limit_events: Mapping[str, int] = _setting(
        counts_by_tenant, "the same for all users of a tenant together", default={}
    )
    limit_queued: Mapping[str, int] = _setting(
        counts_by_tenant,
        "maximum number of waiting occurrences of each user, beyond which runs, backfills, redrives and events are"
        " refused; or by tenant, as TENANT=N,*=N",
        default={},
    )
    tenant_limit_queued: Mapping[str, int] = _setting(
        counts_by_tenant, "the same for all users of a tenant together", default={}
    )
    limit_inflight: Mapping[str, int] = _setting(
        places_by_tenant,
        "maximum number of occurrences of each user that are in flight at once, on all nodes together; others wait. Or"
        " by tenant, as TENANT=N,*=N. It counts by the owner of the schedule, with and without keys",
        default={},
    )
    tenant_limit_inflight: Mapping[str, int] = _setting(
        places_by_tenant, "the same for all users of a tenant together", default={}
    )
    min_interval: int | None = _setting(
        duration,
        "minimum time between any two fires of a trigger, such as 60s, over its whole pattern",
        default=None,
    )
    agent_schedule_depth: int = _setting(
        integer(0, 100),
        "how deep agents may nest schedules: a schedule whose runs make schedules, whose runs make schedules",
        default=3,
    )
    agent_schedule_children: int = _setting(
        integer(0, 1_000_000),
        "maximum number of schedules, active or paused, that agents may make in the runs of one schedule",
        default=20,
    )
    agent_schedules_per_hour: int = _setting(
        integer(0, 1_000_000), "maximum number of schedules that an agent may create in an hour", default=30
    )
    agent_schedule_days: float = _setting(
        number(0, 36_500),
        "days after which a schedule ends that an agent created without an end; 0 means never",
        default=30.0,
    )
    proposal_days: float = _setting(
        number(0.001, 36_500), "days after which a proposal expires that nobody approved", default=7.0
    )
    limit_proposals: int = _setting(
        integer(0, 1_000_000), "maximum number of pending proposals of each user", default=100
    )
    limit_budget: float | None = _setting(
        number(0, 1_000_000), "maximum budget of a run (`max_cost_usd`) in US dollars", default=None
    )
    rate_limit: str | None = _setting(
        rate,
        "maximum rate of requests of each key, on all nodes together, such as 100/s or 600/m",
        default=None,
    )
    rate_limit_address: str | None = _setting(rate, "the same for each address", default=None)
    auth_failures: str = _setting(
        rate,
        "maximum rate of requests with a bad key from each address; beyond that, they are refused unseen",
        default="60/m",
    )
    max_per_user: int = _setting(
        integer(0, 1_000_000),
        "maximum number of schedules per user, under `/api/v1`",
        also=("SCHEDULE_MAX_PER_USER",),
        default=50,
    )
    min_interval_minutes: int = _setting(
        integer(0, 525_600),
        "minimum number of minutes between two fires, under `/api/v1`",
        also=("SCHEDULE_MIN_INTERVAL_MINS",),
        default=60,
    )
    max_budget_usd: float = _setting(
        number(0, 1_000_000),
        "maximum budget of a schedule in US dollars, under `/api/v1`",
        also=("SCHEDULE_MAX_BUDGET_USD",),
        default=10.0,
    )
    reload: bool = _setting(
        boolean,
        "whether to restart when a Python file in this folder or below changes, for development",
        also=("SCHEDULER_RELOAD",),
        default=False,
    )


SETTINGS: Mapping[str, Setting] = {one.name: Setting(name=one.name, **one.metadata) for one in fields(Settings)}


def setting_conflicts(settings: Settings, *, max_connections: int) -> list[Conflict]:
    """Settings that contradict each other, or have no effect beside each other.

    `max_connections` is what the process can really have open.
    """
    conflicts = {
        f"max_upload_bytes ({settings.max_upload_bytes:,}) is larger than upload_quota_bytes"
        f" ({settings.upload_quota_bytes:,}), so no file of that size fits": (
            settings.max_upload_bytes > settings.upload_quota_bytes,
            "Raise upload_quota_bytes, or lower max_upload_bytes",
        ),
        f"max_connections is {settings.max_connections:,}, but the process may open only {max_connections:,}": (
            max_connections < settings.max_connections,
            "Raise the limit of open files (ulimit -n, LimitNOFILE), or lower max_connections",
        ),
        f"max_connections_per_address ({settings.max_connections_per_address:,}) is larger than all connections"
        f" together ({max_connections:,}), so one client can use all of them": (
            settings.max_connections_per_address > max_connections,
            "Lower max_connections_per_address",
        ),
        "public_url is set for a server behind a proxy, but max_connections_per_address limits the proxy itself": (
            settings.public_url is not None and 0 < settings.max_connections_per_address < max_connections,
            "Leave max_connections_per_address out, and limit clients in the proxy",
        ),
        "allow_env or allow_cwd is set, but allow_commands allows no program": (
            bool(settings.allow_env or settings.allow_cwd) and not settings.allow_commands,
            "Set allow_commands, or leave allow_env and allow_cwd out",
        ),
        "allow_hosts has no effect, because target_guard is off": (
            bool(settings.allow_hosts) and settings.target_guard == "off",
            "Set target_guard to strict, or leave allow_hosts out",
        ),
        "labels or slots are set, but allow_bundles is off, and only bundles ask for them": (
            bool(settings.labels or settings.slots) and not settings.allow_bundles,
            "Set allow_bundles, or leave labels and slots out",
        ),
        "functions or allow_commands are set, but the worker is off, so this server runs none of them": (
            bool(settings.functions or settings.allow_commands) and not settings.worker,
            "Start the worker, or leave them out",
        ),
        "reload is on, for development, although public_url says that others use this server": (
            settings.reload and settings.public_url is not None,
            "Turn reload off",
        ),
    }
    return [Conflict(sentence=sentence, advice=advice) for sentence, (holds, advice) in conflicts.items() if holds]


DEFAULT_FILE = "noonmark.toml"
FILE_VARIABLE = f"{PREFIX}CONFIG"
SERVER_VARIABLE = f"{PREFIX}SERVER"
"""Names the server that commands call; not a setting of the server itself."""
KEY_VARIABLE = f"{PREFIX}KEY"
"""The key with which commands call it: a schedule that has one would show it to all who see the schedule."""
CA_VARIABLE = f"{PREFIX}CA_FILE"
"""The certificates that commands check it against."""
MAX_FILE = 1 << 20


@frozen(kw_only=True)
class LoadedSettings:
    """The settings, and the source of each."""

    settings: Settings
    sources: Mapping[str, str]
    """By name: `flag --port`, `environment NOONMARK_PORT`, `file noonmark.toml` or `default`."""
    file: str | None
    """The file that was read, if any."""

    def to_document(self) -> dict[str, dict[str, Any]]:
        """Each value with its source; secrets are masked."""
        return {
            name: {"value": _display_value(name, getattr(self.settings, name)), "source": self.sources[name]}
            for name in SETTINGS
        }

    def error(self, name: str, message: str) -> InvalidSchedule:
        """The error for a setting that turns out to be invalid when it is used."""
        source = self.sources[name]
        origin = "" if source == "default" else f" (from {_origin(source)})"
        return InvalidSchedule(f"{message}{origin}", field=name)


def load(flags: Mapping[str, object], environment: Mapping[str, str], file: str | None = None) -> LoadedSettings:
    """Read all settings; one error reports every problem.

    `flags` are the values of the command line, by name of the setting. A file that is named must exist; the default
    file need not.
    """
    path, is_named = _file(file, environment)
    problems: list[Problem] = []
    file_values = _read_file(path, problems) if is_named or path.is_file() else None
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for setting in SETTINGS.values():
        sources[setting.name] = "default"
        for value, source in _candidates(setting, flags, environment, file_values or {}, path):
            sources[setting.name] = source
            try:
                values[setting.name] = setting.read(value)
            except ValueError as error:
                problems.append(Problem(setting.name, f"{error} (from {_origin(source)})"))
            break
    if problems:
        raise InvalidSchedule(problems[0].message, field=problems[0].field, problems=problems)
    return LoadedSettings(settings=Settings(**values), sources=sources, file=None if file_values is None else str(path))


def _file(file: str | None, environment: Mapping[str, str]) -> tuple[Path, bool]:
    named = file or environment.get(FILE_VARIABLE)
    return Path(named or DEFAULT_FILE), bool(named)


def _candidates(
    setting: Setting,
    flags: Mapping[str, object],
    environment: Mapping[str, str],
    file_values: Mapping[str, Any],
    path: Path,
) -> Iterator[tuple[object, str]]:
    """The values of the sources, by precedence. An empty variable counts as unset."""
    given = flags.get(setting.name)
    if isinstance(given, bool):
        yield given, f"flag --{'' if given else 'no-'}{setting.name.replace('_', '-')}"
    elif given is not None:
        yield given, f"flag {setting.flag}"
    for variable in setting.variables:
        if environment.get(variable, "").strip():
            yield environment[variable], f"environment {variable}"
    if setting.name in file_values:
        yield file_values[setting.name], f"file {path}"


def _read_file(path: Path, problems: list[Problem]) -> dict[str, Any]:
    try:
        file_values = tomllib.loads(_content(path))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        problems.append(Problem("config", f"the file {path} cannot be read: {reason}"))
        return {}
    for name in file_values.keys() - SETTINGS.keys():
        setting_names = ", ".join(SETTINGS)
        problems.append(Problem(name, f"unknown setting (from the file {path}); known settings are {setting_names}"))
    return file_values


def _content(path: Path) -> str:
    with path.open("rb") as stream:
        raw = stream.read(MAX_FILE + 1)
    if len(raw) > MAX_FILE:
        raise ValueError(f"it has more than {MAX_FILE:,} bytes")
    return raw.decode("utf-8")


def _origin(source: str) -> str:
    """The source as part of a sentence."""
    kind, _, name = source.partition(" ")
    article = {"flag": "the flag", "environment": "the variable", "file": "the file"}
    return f"{article[kind]} {name}" if kind in article else kind


def _display_value(name: str, value: object) -> Any:
    if is_secret_name(name) and value:
        return MASK
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, tuple) and any(isinstance(one, int) for one in value):
        return ":".join(str(one) for one in value)
    if isinstance(value, dict):
        shown = {key: sorted(one) if isinstance(one, frozenset) else one for key, one in value.items()}
        return {key: redact(one) if isinstance(one, str) else one for key, one in shown.items()}
    return list(value) if isinstance(value, tuple) else value
