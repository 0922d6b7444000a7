"""A server that speaks OpenAI's protocol of chat completions on a loopback socket, with answers from a script."""

from __future__ import annotations

import json
import socket
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

KEY = "sk-test-4f1b9c7ad02e"


@dataclass
class Reply:
    """How the server treats one request."""

    text: str | None = None
    tool_calls: list[tuple[str, Any]] = field(default_factory=list)
    status: int = 200
    retry_after: float | None = None
    body: bytes | None = None
    """Sent instead of a completion."""
    hangs_up: bool = False
    """Close the connection without an answer."""
    waits_for: threading.Event | None = None
    """Answer once it is set."""
    tokens: tuple[int, int] | None = (100, 10)
    cached_tokens: int = 0


Respond = Callable[[dict[str, Any]], Reply]


class OpenAIServer:
    """Counts requests, and answers each with the next reply of its script, or else as `respond` says."""

    def __init__(self, *script: Reply, respond: Respond | None = None) -> None:
        self.script, self.respond = deque(script), respond or (lambda _: Reply("done"))
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.received = threading.Condition()
        self.busy = self.most_busy = 0
        self._number = 0
        server = self

        class Handler(_Handler):
            owner = server

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def wait_for(self, count: int, seconds: float = 60) -> None:
        """Wait until so many requests have come."""
        with self.received:
            assert self.received.wait_for(lambda: len(self.requests) >= count, seconds), len(self.requests)

    def take(self, request: dict[str, Any], key: str | None) -> Reply:
        with self.received:
            self.requests.append(request)
            self.keys.append(key)
            self.received.notify_all()
            return self.script.popleft() if self.script else self.respond(request)

    def completion(self, request: dict[str, Any], reply: Reply) -> dict[str, Any]:
        with self.received:
            self._number += 1
            number = self._number
        message: dict[str, Any] = {"role": "assistant", "content": reply.text}
        if reply.tool_calls:
            message["tool_calls"] = [
                {
                    "id": f"call_{number}_{index}",
                    "type": "function",
                    "function": {"name": name, "arguments": args if isinstance(args, str) else json.dumps(args)},
                }
                for index, (name, args) in enumerate(reply.tool_calls)
            ]
        reason = "tool_calls" if reply.tool_calls else "stop"
        document: dict[str, Any] = {
            "id": f"chatcmpl-{number}",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": request["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        }
        if reply.tokens is not None:
            sent, written = reply.tokens
            document["usage"] = {
                "prompt_tokens": sent,
                "completion_tokens": written,
                "total_tokens": sent + written,
                "prompt_tokens_details": {"cached_tokens": reply.cached_tokens},
            }
        return document


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: OpenAIServer

    def do_POST(self) -> None:
        server = self.owner
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        reply = server.take({"path": self.path} | request, self.headers.get("authorization"))
        with server.received:
            server.busy += 1
            server.most_busy = max(server.most_busy, server.busy)
        try:
            if reply.waits_for is not None:
                reply.waits_for.wait(60)
        finally:
            with server.received:
                server.busy -= 1
        if reply.hangs_up:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if reply.body is not None:
            body = reply.body
        elif reply.status != 200:
            body = json.dumps({"error": {"message": f"scripted {reply.status}", "type": "scripted"}}).encode()
        else:
            body = json.dumps(server.completion(request, reply)).encode()
        try:
            self.send_response(reply.status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            if reply.retry_after is not None:
                self.send_header("retry-after", str(reply.retry_after))
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            self.close_connection = True  # the client has gone

    def log_message(self, *_: object) -> None:
        """Say nothing on stderr."""
