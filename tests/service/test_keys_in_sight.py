"""Keys and tokens on a real server at work: none is in a process list, a log, an error, a trace or an audit entry."""

import json
import subprocess
from base64 import urlsafe_b64encode
from pathlib import Path

import jwt
import pytest

from tests.cli.runner import call
from tests.cli.terminal import ENVIRONMENT, NOONMARK, PATIENCE
from tests.embedded.waiting import eventually
from tests.service.server import serving
from tests.service.test_traces import collecting

HOLD = """#!/bin/sh
echo "$$" > begun
while ! test -e go; do sleep 0.05; done
echo done
"""
JWT_SECRET = "hush-the-secret-of-tokens-0123456789"  # noqa: S105 - of this test
SIGNING_KEY = "hush-the-key-of-signatures"
SECRET_KEY = urlsafe_b64encode(bytes(range(32))).decode()
FAR = 4_000_000_000
"""Seconds since the epoch."""


def make_key(store, *words):
    return call("key", "create", "--store", store, "--json", *words).json["key"]


def make_token(expires=FAR):
    claims = {"sub": "eve", "tenant": "acme", "scope": "read write run", "aud": "noonmark", "exp": expires}
    return jwt.encode(claims, JWT_SECRET, "HS256")


def read(process, name):
    """A file of a process; empty if the process has ended."""
    try:
        return Path(f"/proc/{process}/{name}").read_bytes()
    except OSError:
        return b""


def processes():
    return [int(one.name) for one in Path("/proc").iterdir() if one.name.isdecimal()]


def descendants(ancestor):
    """The processes below one."""
    parents = {}
    for process in processes():
        status = read(process, "stat").rpartition(b")")[2].split()
        if status:
            parents[process] = int(status[1])
    found = {ancestor}
    while more := {one for one, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {ancestor}


def ask_wrongly(ask, key, token, bad):
    """Cause errors, with keys that are not good and keys in the wrong places."""
    for given in bad:
        assert ask("GET", "/schedules", given=given).status == 401
    assert ask("GET", f"/schedules?key={key}").status == 400
    assert ask("POST", "/schedules", {"key": key, "token": token}).status == 400
    assert ask("GET", f"/schedules/{key}").status == 404
    assert "error" in ask("POST", "/rpc", {"jsonrpc": "2.0", "id": 1, "method": key, "params": {}}).json


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="there is no /proc")
def test_no_key_or_token_is_seen_while_a_server_works(tmp_path):
    store = f"sqlite:///{tmp_path / 'noonmark.db'}"
    script = tmp_path / "hold"
    script.write_text(HOLD.replace("begun", f"{tmp_path}/begun").replace("go;", f"{tmp_path}/go;"))
    script.chmod(0o755)
    root = make_key(store, "--tenant", "*", "--scopes", "admin")
    key = make_key(store, "--tenant", "acme", "--user", "ada", "--scopes", "read,write,run,admin")
    revoked = make_key(store, "--tenant", "acme", "--user", "ada", "--scopes", "read")
    token, expired = make_token(), make_token(expires=1_000_000_000)
    keys = [one.rpartition("_")[2] for one in (root, key, revoked)]
    hidden = [*keys, token, expired, token.rpartition(".")[2], JWT_SECRET, SIGNING_KEY, SECRET_KEY]
    answers = []

    def ask(method, path, body=None, given=key, **headers):
        answer = server.ask(method, path, body, Authorization=f"Bearer {given}", **headers)
        answers.append(answer.text)
        return answer

    with collecting() as collector:
        environment = {
            "NOONMARK_JWT_KEYS": f"HS256:{JWT_SECRET}",
            "NOONMARK_SIGNING_KEY": SIGNING_KEY,
            "NOONMARK_SECRET_KEY": SECRET_KEY,
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        }
        options = ("--store", store, "--log-level", "debug", "--traces", "otlp", "--allow-commands", script)
        # Through another program: a server of the fork server has no command line of its own.
        with serving(tmp_path, *options, through=("env",), **environment) as server:
            target = {"target_kind": "command", "argv": [str(script)]}
            made = ask("POST", "/schedules", {"trigger": {"type": "cron", "expression": "@yearly"}, "target": target})
            schedule = made.json["schedule_id"]
            assert ask("GET", "/schedules", given=token).status == 200
            command = [*NOONMARK, "schedule", "run-now", schedule, "--wait", "--server", server.url]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": tmp_path}
            running = subprocess.Popen(command, env=ENVIRONMENT | {"NOONMARK_KEY": key}, **pipes)
            eventually((tmp_path / "begun").exists)
            below = descendants(server.process.pid)
            seen = b"".join(read(one, "cmdline") for one in processes())
            assert b"run-now" in seen
            assert b"serve" in seen
            assert int((tmp_path / "begun").read_text()) in below
            seen += b"".join(read(one, "environ") for one in below)
            assert b"NOONMARK_OCCURRENCE" in seen
            assert ask("POST", f"/keys/{revoked.rpartition('_')[0]}/revoke", {}).status == 200
            ask_wrongly(
                ask, key, token, [revoked, expired, key[:-1] + ("y" if key.endswith("x") else "x"), f"{token}x"]
            )
            failed = subprocess.run(
                [*NOONMARK, "schedule", "status", schedule, "--server", server.url],
                env=ENVIRONMENT | {"NOONMARK_KEY": revoked},
                capture_output=True,
                check=False,
                timeout=PATIENCE,
                cwd=tmp_path,
            )
            assert failed.returncode == 5
            (tmp_path / "go").touch()
            output, errors = running.communicate(timeout=PATIENCE)
            assert running.returncode == 0, errors
            for path in ("/audit", "/keys", "/whoami", "/limits", "/occurrences", f"/schedules/{schedule}/runs"):
                assert ask("GET", path).status == 200
            ask("GET", "/doctor", given=root)
            assert server.stop() == 0
            told = server.log + server.printed + "".join(answers)
        everything = {
            "processes": seen.decode(errors="replace"),
            "commands": (failed.stdout + failed.stderr + output + errors).decode(),
            "server": told,
            "traces": collector.raw.decode(errors="replace"),
        }
        assert "schedule/create" in everything["traces"]
        assert json.loads(server.log.splitlines()[0])
        for where, text in everything.items():
            for number, one in enumerate(hidden):
                assert one not in text, (where, number)
    stored = b"".join(file.read_bytes() for file in tmp_path.glob("noonmark.db*") if file.is_file())
    assert not [number for number, one in enumerate(hidden) if one.encode() in stored]
