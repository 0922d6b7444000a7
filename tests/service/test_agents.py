"""Agents of a real server: its flags, its key, and what a run shows of a turn."""

from tests.embedded.waiting import eventually
from tests.servers.openai_server import KEY, OpenAIServer, Reply
from tests.service.server import launch, serving
from tests.service.test_alerts import NEVER, create, run

TOOLS = "def weather(city: str) -> str:\n    '''The weather.'''\n    return f'sunny in {city}'\n"


def prompt(model, words="How is the weather?"):
    return {
        "target_kind": "session",
        "type": "materialize_on_demand_session",
        "create": {"model": model},
        "action": {"type": "prompt", "prompt": words},
    }


def ended(server, occurrence_id):
    return eventually(
        lambda: (
            (found := server.get(f"/occurrences/{occurrence_id}").json)["phase"] in ("completed", "failed", "skipped")
            and found
        )
    )


def last_run(server, schedule_id):
    return server.get(f"/schedules/{schedule_id}/runs").json["runs"][0]


def test_a_server_delivers_to_agents_with_its_flags(tmp_path):
    (tmp_path / "gadgets.py").write_text(TOOLS)
    script = [Reply(tool_calls=[("weather", {"city": "Rome"})]), Reply("sunny")]
    script += [Reply(tool_calls=[("noonmark_schedule_list", {})]), Reply("listed")]
    with OpenAIServer(*script) as provider:
        flags = ("--agent-tool", "weather=gadgets:weather", "--price", "openai:mine=1,2", "--price", "other=1,2,3,4")
        more = ("--provider-limit", "openai=1000,10000000", "--agent-model", "test", "--log-level", "debug")
        more += ("--budget-multiplier", "local=100", "--budget-multiplier", "ada=0.5")
        environment = {"OPENAI_BASE_URL": provider.url, "OPENAI_API_KEY": KEY}
        with serving(tmp_path, *flags, *more, **environment) as server:
            # Less than what the first call needs, if it counted once.
            assert server.ask("PUT", "/budgets/user/local", {"max_cost_usd": 0.001, "period": "day"}).status == 200
            create(server, "ask", NEVER, prompt("openai:mine"))
            assert ended(server, run(server, "ask"))["phase"] == "completed"
            shown = last_run(server, "ask")
            assert shown["result"]["text"] == "sunny"
            assert shown["usage"] == {
                "model": "openai:mine",
                "provider": "openai",
                "input_tokens": 200,
                "output_tokens": 20,
                "cache_read_tokens": 0,
                "cache_write_tokens": 0,
                "total_tokens": 220,
                "model_calls": 2,
                "tool_calls": 1,
                "cost_usd": 0.00024,
            }
            target = prompt("openai:mine")
            create(server, "clock", NEVER, {**target, "create": {**target["create"], "enable_schedule": True}})
            assert ended(server, run(server, "clock"))["phase"] == "completed"
            answer = server.get(f"/sessions/{last_run(server, 'clock')['result']['session_id']}/messages").text
            assert "2 schedules:" in answer
            create(server, "task", NEVER, {"target_kind": "task", "query": "Why?"})
            assert ended(server, run(server, "task"))["phase"] == "completed"
            assert server.ask("POST", "/sessions", {"session_id": "plain"}).json["model"] == "test"
            assert provider.keys == [f"Bearer {KEY}"] * 4
            log = server.log
        assert not {word for word in (KEY, "How is the weather", "sunny in", "Why?") if word in log}


def test_a_server_without_agents_says_so(tmp_path):
    with serving(tmp_path, "--agents", "off") as server:
        answer = server.ask("POST", "/schedules", {"name": "x", "trigger": NEVER, "target": prompt("test")})
        assert answer.status == 201
        assert "no live node serves `session`; a server runs agents with --agents embedded" in answer.text
        nameless = server.ask("POST", "/sessions", {})
        assert (nameless.status, nameless.json["field"]) == (400, "model")
    refused = launch(tmp_path, "--price", "mine=cheap", name="refused")
    assert refused.process.wait(60) != 0
    assert "must be prices in dollars per million tokens" in refused.log
