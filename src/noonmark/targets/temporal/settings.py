"""Settings of the engine: where it is, which routes it carries out, and what its nodes have counted."""

from __future__ import annotations

import logging
import re
from collections import Counter
from dataclasses import field, replace
from threading import Lock
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from noonmark.core.frozen import frozen
from noonmark.core.json_values import shown
from noonmark.core.redaction import redact
from noonmark.core.targets import TargetKind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

logger = logging.getLogger("noonmark.temporal")

SCHEME = "temporal"
DEFAULT_PORT = 7233
FUNCTION = "function"
DEFAULT_QUEUE = "noonmark"
DEFAULT_HEARTBEAT = 15
KINDS = tuple(str(kind) for kind in TargetKind if kind is not TargetKind.PING)
"""The kinds of routes that an engine can carry out. A ping has no work: it is opened in the store."""
WITH_NAMES = frozenset({FUNCTION, "bundle"})
"""The kinds whose routes may have a name behind a colon."""
REPORT, END = "report", "end"
ORPHAN_POLICIES = (REPORT, END)
"""What becomes of an occurrence whose workflow is gone: it is reported, or it ends and is retried by its policy."""
_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,200}", re.ASCII)
_EXAMPLE = "temporal://localhost:7233/default?task_queue=noonmark"
_TLS_OPTIONS = ("tls_cert", "tls_key", "tls_ca", "server_name")
_OPTIONS = ("task_queue", "heartbeat", "tls", *_TLS_OPTIONS)


@frozen
class EngineAddress:
    """A namespace of a Temporal server, and the task queue in it."""

    host: str
    port: int = DEFAULT_PORT
    namespace: str = "default"
    task_queue: str = DEFAULT_QUEUE
    heartbeat: int = DEFAULT_HEARTBEAT
    """Seconds without a sign of life after which a worker counts as lost."""
    tls: bool = False
    tls_cert: str | None = None
    """The file of the certificate with which a node or worker identifies itself."""
    tls_key: str | None = None
    tls_ca: str | None = None
    """The file of the certificates that the server is checked against; None for those of the system."""
    server_name: str | None = None
    """The name in the certificate of the server, if that is not the host."""
    api_key: str | None = field(default=None, repr=False)

    @property
    def server(self) -> str:
        """The host and the port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def queue(self, route: str) -> str:
        """The task queue of the workers that deliver a route."""
        return f"{self.task_queue}/{route}"


def parse_engine(url: object, api_key: str | None = None) -> EngineAddress:
    """Read the URL of an engine; ValueError says what it must be. With an API key, the connection has TLS."""
    allowed = f"must be the URL of a Temporal namespace, such as {_EXAMPLE}, not {shown(redact(str(url)))}"
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        port, given = (
            parts.port,
            parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True) if parts.query else [],
        )
    except ValueError:
        raise ValueError(allowed) from None
    namespace = unquote(parts.path.removeprefix("/")) or "default"
    is_plain = parts.scheme == SCHEME and parts.hostname and "@" not in parts.netloc and not parts.fragment
    if not is_plain or not parts.hostname or not _NAME.fullmatch(namespace) or "/" in namespace:
        raise ValueError(allowed)
    options = dict(given)
    if len(options) < len(given):
        repeated = next(name for name, count in Counter(name for name, _ in given).items() if count > 1)
        raise ValueError(f"has the option {shown(repeated)} more than once")
    if blank := next((name for name, value in given if not value), None):
        raise ValueError(f"needs a value for {shown(blank)}")
    if unknown := sorted(options.keys() - {*_OPTIONS}):
        option_names = f"{', '.join(_OPTIONS[:-1])} and {_OPTIONS[-1]}"
        raise ValueError(f"has an unknown option {shown(unknown[0])}; allowed are {option_names}")
    queue = options.get("task_queue", DEFAULT_QUEUE)
    if not _NAME.fullmatch(queue):
        raise ValueError(f"needs a task_queue of up to 200 letters, digits and _.:/-, not {shown(queue)}")
    heartbeat = options.get("heartbeat", str(DEFAULT_HEARTBEAT))
    if not (heartbeat.isascii() and heartbeat.isdecimal()) or not 2 <= int(heartbeat) <= 3_600:
        raise ValueError(f"needs a heartbeat of 2 to 3,600 seconds, not {shown(heartbeat)}")
    place = EngineAddress(parts.hostname, port or DEFAULT_PORT, namespace, queue, int(heartbeat))
    return _secured(place, options, api_key)


def _secured(address: EngineAddress, options: Mapping[str, str], api_key: str | None) -> EngineAddress:
    """The address with what the options say of TLS, and with the key."""
    of_tls = {name: options[name] for name in _TLS_OPTIONS if name in options}
    tls = options.get("tls", "yes" if of_tls or api_key is not None else "no")
    if tls not in ("yes", "no"):
        raise ValueError(f"needs yes or no for tls, not {shown(tls)}")
    if tls == "no" and of_tls:
        raise ValueError(f"has {next(iter(of_tls))}, which needs tls=yes")
    if tls == "no" and api_key is not None:
        raise ValueError("has tls=no, but an API key is only sent with TLS")
    for given, missing in (("tls_cert", "tls_key"), ("tls_key", "tls_cert")):
        if given in of_tls and missing not in of_tls:
            raise ValueError(f"needs {missing} beside {given}")
    cert, key, ca, name = map(of_tls.get, _TLS_OPTIONS)
    return replace(address, tls=tls == "yes", tls_cert=cert, tls_key=key, tls_ca=ca, server_name=name, api_key=api_key)


def check_route(route: str) -> str:
    """A route that an engine can carry out; ValueError names those that there are."""
    kind, colon, name = route.partition(":")
    if kind in KINDS and (not colon or (name and kind in WITH_NAMES)):
        return route
    kinds = ", ".join(one for one in KINDS if one != FUNCTION)
    raise ValueError(f"must be routes of targets ({kinds}, function, function:NAME), not {shown(route)}")


def served_routes(wanted: Iterable[str], functions: Collection[str] = ()) -> tuple[str, ...]:
    """Exact routes: `function` alone stands for all functions that the process has."""
    named = {f"{FUNCTION}:{name}" for name in functions}
    return tuple(dict.fromkeys(one for route in wanted for one in (sorted(named) if route == FUNCTION else [route])))


class EngineCounts:
    """What a node or a worker has seen of its engine. Any thread may read and write it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.starts: Counter[str] = Counter()
        """Workflows that were `started`, that this node `attached` to, and starts that `failed`."""
        self.orphans: dict[str, int] = {}
        """Of the last comparison, by kind; empty before the first one, or on a node that does not lead."""
        self.unserved: frozenset[str] = frozenset()
        """Routes of the node that no worker delivered when it looked last."""
        self.problem: str | None = None
        """Why the server does not answer, as of the last call; None while it does."""
        self.cancelled = 0
        """Workflows that were asked to end because their occurrences had ended."""

    def count_start(self, how: str) -> None:
        """Count a start."""
        with self._lock:
            self.starts[how] += 1

    def note_problem(self, problem: str | None, details: str = "") -> None:
        """Take whether the server has answered; log it, if that is news."""
        if problem is not None and self.problem is None:
            logger.warning("%s; trying again%s", problem, f" ({details})" if details else "")
        elif problem is None and self.problem is not None:
            logger.info("the engine answers again")
        self.problem = problem

    def note_unserved(self, routes: frozenset[str]) -> None:
        """Take which routes no worker delivers; log it, if that is news."""
        if lost := sorted(routes - self.unserved):
            logger.warning("no worker of the engine delivers %s; what is due waits for one", ", ".join(lost))
        if found := sorted(self.unserved - routes):
            logger.info("workers of the engine deliver %s again", ", ".join(found))
        self.unserved = routes


@frozen(kw_only=True)
class EngineSettings:
    """How a node uses its engine."""

    address: EngineAddress
    routes: tuple[str, ...]
    """Exact routes."""
    orphans: str = REPORT
    counts: EngineCounts = field(default_factory=EngineCounts)
