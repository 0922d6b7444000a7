"""What `noonmark mcp config` and `noonmark skill install` write."""

import json

import pytest

from noonmark.cli.commands.mcp import CLIENTS
from noonmark.targets.agent.skills import companion_skill, load_skills
from tests.cli.runner import call

KEY = "nm_live_000000_" + "0" * 43


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("place", [("--server", "https://noon.example.org/"), ("--store", "sqlite:///a b.db")])
def test_a_configuration_names_the_place_and_never_the_key(client, place, monkeypatch, tmp_path):
    monkeypatch.setenv("NOONMARK_KEY", KEY)
    monkeypatch.chdir(tmp_path)
    named = {"--server": "https://noon.example.org", "--store": f"sqlite:///{tmp_path}/a b.db"}[place[0]]
    done = call("mcp", "config", "--client", client, *place)
    assert done.code == 0
    assert KEY not in done.out
    is_http = "noon.example.org/mcp" in done.out
    assert is_http is (place[0] == "--server" and client != "claude-desktop")
    assert named in done.out  # clients start it in a folder of their own
    if client != "claude-code":
        [servers] = [value for name, value in json.loads(done.out).items() if name != "inputs"]
        server = servers["noonmark"]
        assert is_http or server["args"] == ["mcp", place[0], named]
    assert ("KEY" in done.out or "${input:" in done.out) is (place[0] == "--server")


def test_all_clients_are_shown_at_once():
    done = call("mcp", "config")
    assert all(title in done.out for title, _ in CLIENTS.values())
    assert set(json.loads(call("mcp", "config", "--json").out)) == set(CLIENTS)
    wrong = call("mcp", "config", "--client", "other")
    assert (wrong.code, "must be one of claude-desktop" in wrong.err) == (2, True)
    assert call("mcp", "config", "--store", "a", "--server", "b").code == 2


def test_a_skill_is_installed_once_and_never_replaces_another(tmp_path):
    done = call("skill", "install", str(tmp_path))
    file = tmp_path / "schedule-workflow" / "SKILL.md"
    assert (done.code, done.out.strip()) == (0, f"Wrote {file}.")
    assert file.read_text() == companion_skill("schedule-workflow")
    assert call("skill", "install", str(tmp_path)).code == 0
    assert load_skills(tmp_path, ["schedule-workflow"]) == load_skills(None, ["schedule-workflow"])
    file.write_text("my own")
    assert (call("skill", "install", str(tmp_path)).code, file.read_text()) == (4, "my own")
    assert load_skills(tmp_path, ["schedule-workflow"]) == ["# Skill: schedule-workflow\n\nmy own"]
