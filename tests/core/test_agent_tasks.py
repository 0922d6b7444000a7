"""Tasks: what the parts of a context mean, and what they may be."""

import pytest

from noonmark.core.agents.tasks import TaskPrompt, context_problem, remote_agent, task_prompt


class Texts:
    """Instructions as a dictionary."""

    def __init__(self, texts):
        self._texts = texts

    def names(self, part):
        return sorted(name for kind, name in self._texts if kind == part and name)

    def text(self, part, name=""):
        return self._texts.get((part, name))


TEXTS = Texts(
    {
        ("task", ""): "Work alone.",
        ("force_research", ""): "Research.",
        ("role", "writer"): "Write.",
        ("role", "mute"): "",
        ("cognitive_strategy", "react"): "Act.",
        ("research_strategy", "quick"): "Be quick.",
        ("template", "report"): "Report on {{query}} and {{ query }}.",
        ("template", "plain"): "Be plain.",
        ("template", "none"): "",
    }
)


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        ({}, TaskPrompt("Work alone.", "Why?", None)),
        ({"role": "writer", "model": "test"}, TaskPrompt("Work alone.\n\nWrite.", "Why?", "test")),
        ({"role": "mute", "force_research": False, "template": None}, TaskPrompt("Work alone.", "Why?", None)),
        (
            {"force_research": True, "research_strategy": "quick", "cognitive_strategy": "react", "role": "writer"},
            TaskPrompt("Work alone.\n\nWrite.\n\nAct.\n\nResearch.\n\nBe quick.", "Why?", None),
        ),
        ({"template": "report"}, TaskPrompt("Work alone.", "Report on Why? and Why?.", None)),
        ({"template": "plain"}, TaskPrompt("Work alone.", "Be plain.\n\nWhy?", None)),
        ({"template": "none"}, TaskPrompt("Work alone.", "Why?", None)),
        ({"team": "é", "role": None}, TaskPrompt("Work alone.", 'Why?\n\nContext:\n{\n  "team": "é"\n}', None)),
    ],
)
def test_a_context_becomes_instructions(context, expected):
    assert context_problem(context, TEXTS) is None
    assert task_prompt("Why?", context, TEXTS) == expected


def test_a_query_is_put_into_a_template_as_it_is():
    assert task_prompt(r"\1 {{ query }}", {"template": "report"}, TEXTS).prompt.startswith(
        r"Report on \1 {{ query }} and"
    )


@pytest.mark.parametrize(
    ("context", "part", "words"),
    [
        ({"role": "king"}, "role", 'must be one of mute, writer, not "king"'),
        ({"template": 3}, "template", "must be one of none, plain, report, not 3"),
        ({"force_research": "yes"}, "force_research", "must be true or false"),
        ({"model": ""}, "model", "1"),
        ({"execution_target": "moon"}, "execution_target", 'must be one of daemon, remote, not "moon"'),
        ({"execution_target": "daemon"}, "agent_name", "is required with execution_target"),
        ({"agent_name": "ops"}, "agent_name", "is for tasks with an execution_target"),
        ({"execution_target": "daemon", "agent_name": 7}, "agent_name", "7"),
    ],
)
def test_a_known_part_has_only_known_values(context, part, words):
    problem = context_problem(context, TEXTS)
    assert problem[0] == part
    assert words in problem[1]
    with pytest.raises(ValueError, match=rf"context\.{part} "):
        task_prompt("Why?", context, TEXTS)


def test_a_task_may_name_an_agent_of_the_remote_host():
    context = {"execution_target": "daemon", "agent_name": "ops"}
    assert context_problem(context, TEXTS) is None
    assert remote_agent(context) == "ops"
    assert remote_agent({}) is None
    assert task_prompt("Why?", context, TEXTS).prompt == "Why?"
