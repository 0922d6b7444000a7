"""Keys on the command line: create, list, revoke, rotate; and how a command finds the key of a server."""

import json
import stat

import pytest

from noonmark.core.quotas import Limits, Resource
from tests.cli.runner import Cli, call
from tests.server.live_server import bearer, new_key, serving

LIMITS = Limits(per_user={Resource.SCHEDULES: {"*": 2_000}}, per_tenant={}, max_budget_usd=5)


@pytest.fixture(scope="module")
def server():
    with serving(keyed=True, server_limits=LIMITS) as server:
        yield server


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch, tmp_path):
    monkeypatch.delenv("NOONMARK_KEY", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def stored(tmp_path):
    return tmp_path / "config" / "noonmark" / "keys.json"


def test_the_first_key_is_made_on_the_store(tmp_path):
    cli = Cli("--store", f"sqlite:///{tmp_path / 'noonmark.db'}")
    (line,) = cli.refused(2, "key", "create", "--scopes", "read")
    assert "the first key of a store" in line
    answer = cli.json("key", "create", "--tenant", "*", "--scopes", "admin")
    assert {"key_id", "key", "tenant", "user", "scopes", "expires_at_utc"} <= answer.keys()
    done = cli("key", "create", "--tenant", "acme", "--user", "ada", "--scopes", "read,run", "--expires", "90d",
               "--name", "laptop", "--agent")  # fmt: skip
    first, key = done.splitlines()
    assert first.startswith(f"Created key {key.rpartition('_')[0]} for ada of tenant acme: read, run, until ")
    listed = cli("key", "list")
    assert "laptop (agent)" in listed
    assert key not in listed
    assert answer["key"] not in listed
    assert [one["tenant"] for one in cli.json("key", "list", "--tenant", "acme")["keys"]] == ["acme"]
    secret = key.rpartition("_")[2].encode()
    assert all(secret not in file.read_bytes() for file in tmp_path.glob("noonmark.db*"))


def test_a_key_is_rotated_and_revoked(tmp_path):
    cli = Cli("--store", f"sqlite:///{tmp_path / 'noonmark.db'}")
    answer = cli.json("key", "create", "--tenant", "*", "--scopes", "admin")
    new = cli.json("key", "rotate", answer["key_id"], "--grace", "1h", "--expires", "2h")
    assert new["key"] != answer["key"]
    assert cli("key", "revoke", new["key_id"]) == f"Revoked key {new['key_id']} of local of tenant *.\n"
    assert cli.problem(3, "key", "revoke", "nm_live_000000")["field"] == "key_id"
    (line,) = cli.refused(2, "key", "revoke", answer["key"])
    assert answer["key"] not in line


def test_a_key_is_found_in_the_options_a_file_or_the_environment(server, tmp_path, monkeypatch):
    there = ("--server", server.url, "--json")
    refused = call("whoami", *there)
    assert (refused.code, refused.problem["code"]) == (5, "unauthenticated")
    assert "noonmark login" in refused.problem["detail"]
    file = tmp_path / "key"
    file.write_text(f"{server.key}\n")
    for option in (("--key", server.key), ("--api-key", server.key), ("--key-file", file)):
        assert call("whoami", *there, *option).json["all_tenants"]
    monkeypatch.setenv("NOONMARK_KEY", server.key)
    assert call("whoami", *there).json["all_tenants"]
    assert call("whoami", *there, "--key", "wrong").code == 5
    assert call("whoami", *there, "--key", "a", "--key-file", file).problem["field"] == "--key-file"
    assert call("whoami", *there, "--key", "two words").problem["field"] == "--key"
    assert call("schedule", "list", "--store", "sqlite:///x.db", "--key", "a", "--json").problem["field"] == "--store"


def test_limits_are_shown_one_in_a_line(server):
    key = new_key(server.service, opens_store=True, tenant="acme", user="ada")
    asked = ("limits", "--server", server.url, "--key")
    assert call(*asked, key).out.splitlines() == ["schedules per user: 2,000, 0 used", "max_budget_usd per schedule: 5"]
    assert len(call(*asked, key, "--json").json["limits"]) == 2
    assert call(*asked, server.key).out == "There are no limits.\n"


def test_a_key_of_all_tenants_acts_for_one(server, monkeypatch):
    monkeypatch.setenv("NOONMARK_KEY", server.key)
    there = ("--server", server.url, "--json")
    answer = call("schedule", "create", "--every", "1h", "--function", "f", "--as-tenant", "acme", *there).json
    assert answer["owner"]["tenant"] == "acme"
    assert call("schedule", "status", answer["schedule_id"], *there).code == 3
    assert call("schedule", "list", "--as-tenant", "a b", *there).problem["field"] == "--as-tenant"
    monkeypatch.setenv("NOONMARK_KEY", new_key(server.service, tenant="other", scopes="read"))
    assert call("schedule", "list", "--as-tenant", "acme", *there).code == 5


def test_an_idempotency_key_and_a_key_of_the_server_are_two_options(server):
    schedule_id = server.create()["schedule_id"]
    asked = (
        "schedule",
        "run-now",
        schedule_id,
        "--key",
        "once",
        "--api-key",
        server.key,
        "--server",
        server.url,
        "--json",
    )
    assert call(*asked).json["occurrence_id"] == call(*asked).json["occurrence_id"]


def test_a_login_is_stored_for_one_server_and_one_user(server, tmp_path):
    there = ("--server", server.url)
    done = call("login", *there, stdin=f"{server.key}\n".encode())
    assert done.out.startswith(f"Logged in to {server.url} as local of tenant default; the key is in ")
    file = stored(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert json.loads(file.read_text()) == {server.url: server.key}
    assert call("whoami", "--server", f"{server.url}/").code == 0
    other = server.url.replace("127.0.0.1", "localhost")
    assert call("whoami", "--server", other).code == 5
    assert call("logout", *there).out == f"Removed the key of {server.url}.\n"
    assert call("logout", *there, "--json").json["removed"] is False
    assert call("whoami", *there).code == 5


def test_a_key_that_is_not_good_is_not_stored(server, tmp_path):
    refused = call("login", "--server", server.url, stdin=b"nm_live_guess")
    assert refused.code == 5
    assert "nm_live_guess" not in refused.err
    assert call("login", "--server", server.url, stdin=b"").code == 2
    assert call("login", "--store", "sqlite:///x.db", stdin=b"k").code == 2
    assert not stored(tmp_path).exists()


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        ("{}", 0o644, "other users can read"),
        ("nonsense", 0o600, "unexpected content"),
        ("[]", 0o600, "unexpected content"),
    ],
)
def test_a_file_of_keys_that_cannot_be_trusted_is_refused(server, tmp_path, content, mode, said):
    file = stored(tmp_path)
    file.parent.mkdir(parents=True)
    file.write_text(content)
    file.chmod(mode)
    (line,) = call("whoami", "--server", server.url).errors
    assert said in line


def test_a_command_says_which_scope_is_missing(server, monkeypatch):
    monkeypatch.setenv("NOONMARK_KEY", new_key(server.service, tenant="acme", scopes="read"))
    refused = call("schedule", "create", "--every", "1h", "--function", "f", "--server", server.url, "--json")
    assert (refused.code, refused.problem["code"]) == (5, "missing_scope")
    assert server.client.get("/whoami", headers=bearer("x")).status_code == 401
