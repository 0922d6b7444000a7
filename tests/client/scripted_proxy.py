"""A proxy that fails as its script says, and both clients behind one interface."""

import asyncio
import json
import socket
import threading

from noonmark.client import AsyncClient, Client
from tests.embedded.waiting import SOON
from tests.server.live_server import read_answer

PASS, LOSE, DROP, HANG = "pass", "lose", "drop", "hang"


def canned(status, body=b"", content_type="application/json", **headers):
    """An answer that somebody else gives."""
    extra = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n{extra}"
    return f"{head}Connection: close\r\n\r\n".encode() + body


class ScriptedProxy:
    """Forwards requests to a server: each as its script says, and after that without trouble.

    `pass` carries both ways; `lose` lets the request arrive and loses the answer; `drop` hangs up before anything
    arrives; `hang` answers nothing until the test ends; bytes are answered instead of the server.
    """

    def __init__(self, port):
        self.port, self.script, self.requests = port, [], []
        self._ended = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._listen)]
        self._threads[0].start()

    def close(self):
        self._ended.set()
        # Wakes it; a listener that is closed under a thread that waits on it does not.
        socket.create_connection(self._listener.getsockname(), timeout=SOON).close()
        for thread in self._threads:
            thread.join(SOON)
        self._listener.close()

    def _listen(self):
        while True:
            caller, _ = self._listener.accept()
            if self._ended.is_set():
                caller.close()
                return
            thread = threading.Thread(target=self._serve, args=(caller,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, caller):
        with caller:
            caller.settimeout(SOON)
            if not (request := _read_request(caller)):
                return
            self.requests.append(request)
            what = self.script.pop(0) if self.script else PASS
            if what in (PASS, LOSE):
                answer = self._carry(request)
                if what == PASS:
                    caller.sendall(answer)
            elif what == HANG:
                self._ended.wait(SOON)
            elif isinstance(what, bytes):
                caller.sendall(what)

    def _carry(self, request):
        with socket.create_connection(("127.0.0.1", self.port), timeout=SOON) as server:
            server.sendall(request)
            status, headers, body = read_answer(server)
        return canned(f"{status} -", body, headers.get("content-type", ""))

    def headers(self, name):
        """That header of each request that came."""
        found = []
        for request in self.requests:
            lines = request.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")[1:]
            found += [line.partition(":")[2].strip() for line in lines if line.lower().startswith(f"{name}:")]
        return found

    def bodies(self):
        """The JSON of each request that came."""
        return [json.loads(request.partition(b"\r\n\r\n")[2]) for request in self.requests]


def _read_request(caller):
    data = b""
    while b"\r\n\r\n" not in data:
        if not (more := caller.recv(65_536)):
            return b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        (int(one.split(b":")[1]) for one in head.lower().split(b"\r\n") if one.startswith(b"content-length")), 0
    )
    while len(body) < length:
        more = caller.recv(65_536)
        data, body = data + more, body + more
    return data


class Awaited:
    """An AsyncClient whose methods are awaited, and whose lists are gone through, when they are called."""

    def __init__(self, *args, **settings):
        self._runner = asyncio.Runner()
        self._client = self._runner.run(_made(*args, **settings))

    def __getattr__(self, name):
        method = getattr(self._client, name)
        return lambda *args, **kwargs: self._runner.run(_outcome(method, args, kwargs))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
        self._runner.close()


async def _made(*args, **settings):
    return AsyncClient(*args, **settings)


async def _outcome(method, args, kwargs):
    given = method(*args, **kwargs)
    if hasattr(given, "__aiter__"):
        return iter([one async for one in given])
    return await given


CLIENTS = {"Client": Client, "AsyncClient": Awaited}
