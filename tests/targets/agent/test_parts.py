"""The parts of the agent host: names and prices of models, skills, tools, limits of providers."""

import asyncio

import pytest

from noonmark import AgentSettings, Scheduler
from noonmark.core.agents.session import Message, Role
from noonmark.core.budgets.prices import parse_price
from noonmark.core.budgets.spend import Usage
from noonmark.core.errors import InvalidSchedule
from noonmark.core.targets.session import Provider, SessionSpec
from noonmark.targets.agent.model_names import model_name, session_model
from noonmark.targets.agent.prices import PriceList
from noonmark.targets.agent.settings import ProviderLimit, parse_provider_limit
from noonmark.targets.agent.skills import load_skills
from noonmark.targets.agent.tools import MAX_RESULT, Toolbox, ToolRegistry, make_tools
from noonmark.targets.agent.transcript import to_model


@pytest.mark.parametrize(
    ("named", "provider", "full", "of"),
    [
        ("openai:gpt-5.2", None, "openai:gpt-5.2", "openai"),
        ("openai-chat:llama", None, "openai-chat:llama", "openai"),
        ("gpt-4o", None, "openai:gpt-4o", "openai"),
        ("claude-sonnet-4-5", None, "anthropic:claude-sonnet-4-5", "anthropic"),
        ("mine", Provider.GEMINI, "google:mine", "google"),
        ("test", Provider.OPENAI, "test", "test"),
    ],
)
def test_the_provider_of_a_model(named, provider, full, of):
    found = model_name(named, provider)
    assert (found.full, found.provider) == (full, of)


def test_a_session_without_a_model_has_the_one_of_the_node():
    assert session_model(SessionSpec(model=""), "test").name == "test"
    with pytest.raises(ValueError, match="set agent_model, or name a model"):
        session_model(SessionSpec(model=""), None)
    with pytest.raises(ValueError, match="write it as provider:model"):
        session_model(SessionSpec(model="mine", provider=Provider.OTHER), None)


def test_prices_come_from_the_table_then_from_the_list_and_are_unknown_otherwise():
    prices = PriceList({"openai:gpt-4o-mini": parse_price("1,2"), "mine": parse_price("3,4,0.5,6")})
    used = Usage(input_tokens=10, output_tokens=1, cache_read_tokens=100)
    assert prices.cost(model_name("openai:gpt-4o-mini"), used) == 112_000
    assert prices.cost(model_name("ollama:mine"), used) == 84_000
    assert prices.most(model_name("ollama:mine"), 10, 1) == 64_000
    sonnet = model_name("anthropic:claude-sonnet-4-5")
    assert prices.cost(sonnet, used) == 10 * 3_000 + 100 * 300 + 15_000
    assert prices.most(sonnet, 10, 1) == 10 * 3_750 + 15_000  # all of it may be written to a cache
    assert prices.cost(model_name("openai:nobody"), used) is prices.most(model_name("openai:nobody"), 1, 1) is None
    assert prices.cost(model_name("test"), used) == prices.most(model_name("test"), 1, 1) == 0
    rehearsal = PriceList({"test": parse_price("1000,2000")})
    assert (rehearsal.cost(model_name("test"), used), rehearsal.most(model_name("test"), 1, 1)) == (
        112_000_000,
        3_000_000,
    )


def test_skills_are_read_from_their_folder_and_from_nowhere_else(tmp_path):
    folder = tmp_path / "skills"
    for name, text in (("polite", " Say please. "), ("long", "x" * 70_000)):
        (folder / name).mkdir(parents=True)
        (folder / name / "SKILL.md").write_text(text)
    (tmp_path / "SKILL.md").write_text("secret")
    (folder / "link").symlink_to(tmp_path)
    assert load_skills(folder, ["polite", {"name": "polite"}]) == ["# Skill: polite\n\nSay please."]
    for reference in ("..", "../skills/polite", "/polite", "po/lite", "", 7, {"name": ".."}, {}):
        with pytest.raises(ValueError, match="a skill is named by"):
            load_skills(folder, [reference])
    for name, why in (
        ("link", "there is no skill link"),
        ("rude", "there is no skill rude"),
        ("long", "is longer than"),
    ):
        with pytest.raises(ValueError, match=why):
            load_skills(folder, [name])


def test_tools_answer_with_what_went_wrong():
    def pick(items: list[str], /, at: int = 0, *more: str, **others: int) -> object:
        """Pick one."""
        return {"item": items[at], "more": more, "others": others}

    registry = ToolRegistry()
    assert registry.register(pick) == "pick"
    registry.register(lambda: "y" * (MAX_RESULT + 1), "long")
    with pytest.raises(ValueError, match="another tool with the name 'pick'"):
        registry.register(print, "pick")
    with pytest.raises(ValueError, match="a tool is named by"):
        registry.register(lambda: None)
    toolbox = Toolbox(make_tools(registry), None)

    def call(name, arguments):
        output = asyncio.run(toolbox.call(name, arguments))
        return output.is_error, output.content

    assert call("pick", {"items": ["a", "b"], "at": 1, "more": ["c"]}) == (
        False,
        {"item": "b", "more": ["c"], "others": {}},
    )
    assert call("pick", {"items": ["a"], "at": "x"})[0]
    assert call("pick", "{not json")[1].startswith("invalid arguments")
    assert call("pick", {"items": [], "at": 0, "more": []}) == (True, "IndexError: list index out of range")
    assert call("nothing", None) == (True, "there is no tool 'nothing'; available: pick, long")
    assert call("long", None)[1].endswith("[cut off: 65,537 characters]")


@pytest.mark.parametrize("text", ["", "0", "1,0", "1,2,3", "x", "1.5", "-1"])
def test_limits_of_a_provider_are_counts(text):
    assert parse_provider_limit("60,1000") == ProviderLimit(requests=60, tokens=1_000)
    with pytest.raises(ValueError, match=r"must be|invalid literal"):
        parse_provider_limit(text)


def test_tool_calls_that_were_left_open_get_a_result_before_the_next_prompt():
    call = {"type": "tool_call", "id": "1", "name": "look", "arguments": {"at": 1}}
    messages = [
        Message(role=Role.USER, parts=({"type": "text", "text": "Look."},)),
        Message(role=Role.ASSISTANT, parts=(call,), data={"pydantic_ai": {"parts": "of an earlier release"}}),
        Message(role=Role.EVENT, parts=({"type": "text", "text": "Event woken"},)),
    ]
    sent = to_model(messages)
    assert [part.part_kind for message in sent for part in message.parts] == [
        "user-prompt",
        "tool-call",
        "tool-return",
        "user-prompt",
    ]


def test_agents_are_given_as_settings():
    with pytest.raises(InvalidSchedule, match="has no effect without agents"):
        Scheduler(agent_model="test")
    with pytest.raises(InvalidSchedule, match="must be embedded, the URL of an agent host"):
        Scheduler(agents="on")
    with pytest.raises(InvalidSchedule, match='needs a scheduler with agents="embedded"'):
        Scheduler().agent_tool(print)
    scheduler = Scheduler(agents=AgentSettings(max_tokens=5), agent_model="test")

    @scheduler.agent_tool(name="say")
    def speak() -> None:
        """Say it."""

    with pytest.raises(InvalidSchedule, match="another tool"):
        scheduler.agent_tool(print, name="say")
