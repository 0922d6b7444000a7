"""A server without a configured key signs requests and callbacks with a key derived from its store."""

import pytest

from noonmark.client import verify
from noonmark.core.errors import NotAllowed
from tests.cli.runner import call
from tests.embedded.waiting import eventually
from tests.service.server import serving
from tests.targets.http.receiver import arrived, http_receiver

NEVER = {"type": "cron", "expression": "0 0 1 1 *"}
OPTIONS = ("--store", "sqlite:///keys.db", "--public-url", "http://schedules.example.com", "--log-level", "debug")
OPTIONS += ("--allow-hosts", "127.0.0.1")


def in_phase(server, one, *phases):
    return eventually(lambda: (found := server.get(f"/occurrences/{one}").json)["phase"] in phases and found["phase"])


def run(server, made):
    return server.ask("POST", f"/schedules/{made['schedule_id']}/run").json["occurrence_id"]


def test_a_server_without_settings_signs_and_accepts_asynchronous_work(tmp_path):
    with http_receiver() as receiver:
        with serving(tmp_path, *OPTIONS) as server:
            target = {"target_kind": "http", "url": f"{receiver.url}/take_over", "body": "pay"}
            answer = server.ask("POST", "/schedules", {"trigger": NEVER, "target": target}).json
            occurrence = run(server, answer)
            assert in_phase(server, occurrence, "awaiting_completion", "completed") == "awaiting_completion"
            ((_, _, headers, body),) = receiver.requests
            key = server.get("/signing-key").json["signing_key"]
            assert verify(headers, body, key) == occurrence
            with pytest.raises(NotAllowed):
                verify(headers, b"pay more", key)
            assert call("secret", "signing-key", "--server", server.url).out == f"{key}\n"
            assert headers["Noonmark-Callback"] == f"http://schedules.example.com/occurrences/{occurrence}"
            token, shown = headers["Noonmark-Callback-Token"], call("config", "--json").out
            told = server.log + server.printed + shown + server.get("/worker/status").text + server.get("/audit").text
            assert (key in told, token in told, "keys.db" in server.printed) == (False, False, True)
        # Another process on the same store has the same keys.
        with serving(tmp_path, *OPTIONS) as server:
            assert server.get("/signing-key").json == {"signing_key": key}
            where = f"/occurrences/{occurrence}/complete"
            assert [server.ask("POST", where, {"token": text}).status for text in (key, token, token)] == [
                403,
                200,
                409,
            ]
            server.ask("POST", f"/schedules/{answer['schedule_id']}/run")
            arrived(receiver, 2)
            _, _, headers, body = receiver.requests[-1]
            assert verify(headers, body, key) != occurrence
