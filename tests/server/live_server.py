"""A real server on its own socket, over any store, with a driver that can be started."""

import socket
import threading
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count

import httpx2
import uvicorn

from noonmark import Scheduler
from noonmark.clocks import SystemClock
from noonmark.core.instants import SECOND
from noonmark.core.quotas import UNLIMITED
from noonmark.operations.service import LOCAL, Service
from noonmark.operations.table import perform
from noonmark.server.app import create_app
from noonmark.server.requests import HttpSettings
from noonmark.wiring import make_seal, zone_data_version
from tests.embedded.waiting import SOON, eventually

NOON = {"type": "cron", "expression": "0 12 * * *", "timezone": "Europe/Stockholm"}
SEALING_KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
GREET = {"target_kind": "function", "function": "greet"}


class Driver:
    """The driver of this process, as the service controls it."""

    def __init__(self, scheduler):
        self.scheduler, self.running, self.clock_ahead = scheduler, False, None

    def confirm_time(self):
        self.clock_ahead = None

    def start(self):
        self.scheduler.start()
        self.running = True

    def stop(self):
        self.scheduler.stop()
        self.running = False

    def status(self):
        return {"running": self.running}


class Served:
    """A running server: its client, address and service."""

    def __init__(self, service, app, port, key=None):
        self.service, self.app, self.port, self.key = service, app, port, key
        self.url = f"http://127.0.0.1:{port}"
        self.client = httpx2.Client(base_url=self.url, timeout=SOON, headers={} if key is None else bearer(key))

    def create(self, **fields):
        """Create a schedule and return its document."""
        answer = self.client.post("/schedules", json={"trigger": NOON, "target": GREET, **fields})
        assert answer.status_code == 201, answer.text
        return answer.json()

    def connect(self):
        """A bare connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=SOON)

    def send(self, data):
        """The status and body of the answer to raw bytes."""
        with self.connect() as line:
            line.sendall(data)
            return read_answer(line)


def read_answer(line):
    """The status, the headers and the body that a server sends before it closes or the body ends."""
    data = b""
    while b"\r\n\r\n" not in data and (more := line.recv(65_536)):
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in lines[1:])}
    while len(body) < int(headers.get("content-length", 0)) and (more := line.recv(65_536)):
        body += more
    return int(lines[0].split()[1]), headers, body


@contextmanager
def serving(
    store="memory://",
    *,
    limits=None,
    server_limits=UNLIMITED,
    begins=False,
    health=None,
    metrics=None,
    clock=None,
    uploads=None,
    bundle_limits=None,
    keyed=False,
    tokens=None,
    rates=None,
    agents=None,
    instructions=None,
    **settings,
):
    """Serve until the block ends. If it is `keyed`, the client has a key that rules everything."""
    clock = clock or SystemClock()
    scheduler = Scheduler(store, clock=clock, agents=agents)
    scheduler.register_function("greet", greet)
    driver, numbers = Driver(scheduler), count(1)
    if begins:
        driver.start()
    service = Service(
        zone_data=zone_data_version(),
        store=scheduler._store,
        lookahead=2 * SECOND,
        fresh_id=lambda: f"fresh{next(numbers):06}",
        node="node-1",
        wake=lambda _: scheduler._runners.wake(),
        check_stop_requests=scheduler._runners.check_stop_requests,
        worker=driver,
        limits=server_limits,
        task_limits=limits or UNLIMITED,
        uploads=uploads,
        bundle_limits=bundle_limits,
        instructions=instructions,
        seal=make_seal(SEALING_KEY),
        reach="--server http://127.0.0.1:8002",
    )
    try:
        key = new_key(service, opens_store=True) if keyed else None
        with hosting(
            service, health=health, metrics=metrics, key=key, tokens=tokens, rates=rates, **settings
        ) as served:
            yield served
    finally:
        scheduler.close()


def new_key(service, *, opens_store=False, tenant="*", scopes="admin", **terms):
    """Create a key in the store of a service, and return it."""
    caller = replace(LOCAL, opens_store=opens_store)
    return perform(service, caller, "key/create", {"tenant": tenant, "scopes": scopes, **terms})["key"]


def bearer(key):
    """The header that sends a key."""
    return {"Authorization": f"Bearer {key}"}


class Keyed:
    """A client that sends a key, over the connections of another."""

    def __init__(self, http, key):
        self.http, self.key = http, key

    def request(self, method, path, headers=None, **more):
        """Send a request."""
        return self.http.request(method, path, headers={**bearer(self.key), **(headers or {})}, **more)

    def __getattr__(self, method):
        return partial(self.request, method.upper())


@contextmanager
def hosting(service, *, health=None, metrics=None, key=None, tokens=None, rates=None, **settings):
    """Serve a service that has its own driver, or none."""
    limits = None if rates is None else rates(service.store)
    app = create_app(service, HttpSettings(**settings), metrics, health=health, tokens=tokens, rates=limits)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        eventually(lambda: server.started or not thread.is_alive())
        served = Served(service, app, server.servers[0].sockets[0].getsockname()[1], key)
        with served.client:
            yield served
    finally:
        server.should_exit = True
        thread.join(SOON)


def greet(context):
    """What most schedules of these tests run."""
    return f"hello {context.payload}"
