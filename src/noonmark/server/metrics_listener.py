"""Metrics on an address of their own, without a key: for a network that only the monitoring can reach."""

from __future__ import annotations

import logging
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from threading import Thread
from typing import TYPE_CHECKING

from noonmark.server.health import METRICS_TYPE

if TYPE_CHECKING:
    from contextlib import ExitStack

    from noonmark.server.config import LoadedSettings
    from noonmark.server.health import Metrics

logger = logging.getLogger("noonmark.serve")
PATH = "/metrics"
TIMEOUT = 10


def listen_for_metrics(loaded: LoadedSettings, metrics: Metrics, cleanup: ExitStack) -> None:
    """Serve the metrics on an address of their own, if the settings name one."""
    if loaded.settings.metrics_listen is None:
        return
    host, port = loaded.settings.metrics_listen
    try:
        listener = MetricsListener(host, port, metrics)
    except OSError as error:
        raise loaded.error("metrics_listen", f"cannot listen on {host} port {port}: {error.strerror}") from None
    cleanup.callback(listener.close)
    listener.start()
    logger.info("metrics on http://%s:%d/metrics, without a key", host, listener.port)


class MetricsListener:
    """A small server that answers `GET /metrics` and nothing else."""

    def __init__(self, host: str, port: int, metrics: Metrics) -> None:
        """An OSError says why it cannot listen."""
        family = AF_INET6 if ":" in host else AF_INET
        server_class = type("_Server", (ThreadingHTTPServer,), {"address_family": family, "daemon_threads": True})
        handler = type("_Handler", (_Handler,), {"metrics": metrics})
        self._server: ThreadingHTTPServer = server_class((host, port), handler)
        self.port: int = self._server.server_address[1]
        self._thread = Thread(target=self._server.serve_forever, name="noonmark-metrics", daemon=True)

    def start(self) -> None:
        """Answer requests, in threads of its own."""
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    metrics: Metrics
    timeout = TIMEOUT
    server_version, sys_version = "noonmark", ""

    def do_GET(self) -> None:
        """Answer with the metrics."""
        if self.path.partition("?")[0] != PATH:
            self.send_error(404)
            return
        content = self.metrics.render()
        self.send_response(200)
        self.send_header("Content-Type", METRICS_TYPE)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Log nothing of the requests."""
