"""Which addresses HTTP targets of a server may reach, depending on how clients reach the server."""

import socket

import pytest

from noonmark.server.config import Settings
from noonmark.server.host import _resolve_guard
from tests.embedded.waiting import FINAL, eventually
from tests.service.server import serving

NEVER = {"type": "cron", "expression": "0 0 1 1 *"}


def create(server):
    target = {"target_kind": "http", "url": f"{server.url}/signing-key", "method": "GET"}
    document = {"schedule_id": "spy", "trigger": NEVER, "target": target}
    return server.ask("POST", "/schedules", document)


def end_of(server):
    occurrence_id = server.ask("POST", "/schedules/spy/run", {}).json["occurrence_id"]
    eventually(lambda: server.get(f"/occurrences/{occurrence_id}").json["phase"] in FINAL)
    return server.get(f"/occurrences/{occurrence_id}/runs").json["runs"][0]


def test_clients_behind_a_proxy_cannot_reach_local_services(tmp_path):
    with serving(tmp_path, name="alone") as alone:
        assert create(alone).status == 201
        port = str(alone.port)
        assert end_of(alone)["result"]["status"] == 200
    # The same store and the same port, so it would be the server's own key; only now others may ask for it.
    with serving(tmp_path, "--public-url", "https://schedules.example.com", name="proxied", port=port) as proxied:
        told = end_of(proxied)
        assert (told["outcome"], told["result"]) == ("delivery_failed", None)
        assert "is a loopback address" in told["error"]
        proxied.ask("DELETE", "/schedules/spy")
        refused = create(proxied)
        assert (refused.status, refused.json["field"]) == (400, "target.url")
        assert "is a loopback address" in refused.json["detail"]


@pytest.mark.parametrize(
    ("address", "settings", "guard"),
    [
        ("127.0.0.1", {}, "local"),
        ("127.0.0.1", {"public_url": "https://schedules.example.com"}, "strict"),
        ("127.0.0.1", {"allowed_hosts": ("schedules.example.com",)}, "strict"),
        ("0.0.0.0", {}, "strict"),  # noqa: S104 - nobody listens
        ("127.0.0.1", {"target_guard": "strict"}, "strict"),
        ("127.0.0.1", {"target_guard": "off", "public_url": "https://schedules.example.com"}, "off"),
    ],
)
def test_auto_allows_local_addresses_only_for_local_clients(address, settings, guard):
    with socket.socket() as listener:
        listener.bind((address, 0))
        assert _resolve_guard(Settings(**settings), listener) == guard
