"""The instructions of tasks: files of the package, and a folder that comes before them."""

from dataclasses import replace

import pytest

from noonmark.core.agents.tasks import BASE, CHOICES, RESEARCH, context_problem, task_prompt
from noonmark.core.errors import InvalidSchedule
from noonmark.targets.agent.task_instructions import PACKAGE, InstructionFiles
from tests.operations.harness import Harness


def test_the_package_has_instructions_for_each_value():
    files = InstructionFiles()
    assert files.names("research_strategy") == ["academic", "deep", "quick", "standard"]
    for part in CHOICES:
        assert files.names(part)
        assert all(files.text(part, name) for name in files.names(part))
    assert files.text(BASE)
    assert files.text(RESEARCH)
    listed = {file.relative_to(PACKAGE).parts[0] for file in PACKAGE.rglob("*.md")}
    assert listed == {*CHOICES, f"{BASE}.md", f"{RESEARCH}.md"}


def test_a_folder_replaces_and_adds(tmp_path):
    (tmp_path / "role").mkdir()
    (tmp_path / "role" / "pirate.md").write_text("Say arr.\n")
    (tmp_path / "role" / "writer.md").write_text("Write less.")
    (tmp_path / "task.md").write_text("")
    (tmp_path / "secret.md").write_text("not a role")
    files = InstructionFiles(tmp_path)
    assert "pirate" in files.names("role")
    assert "critic" in files.names("role")
    assert task_prompt("Go.", {"role": "pirate"}, files).system_prompt == "Say arr."
    assert task_prompt("Go.", {"role": "writer"}, files).system_prompt == "Write less."
    (tmp_path / "role" / "writer.md").write_text("Write more.")
    assert files.text("role", "writer") == "Write more."
    for name in ("../secret", "a/b", "", ".", ".hidden"):
        assert context_problem({"role": name}, files)[0] == "role"
    assert files.text("role", "../secret") is None


def test_a_create_refuses_values_that_no_file_has():
    harness = Harness()
    harness.service = replace(harness.service, instructions=InstructionFiles())
    target = {"target_kind": "task", "query": "Summarise the news."}
    with pytest.raises(InvalidSchedule, match="must be one of academic, deep, quick, standard") as caught:
        harness.create(target={**target, "context": {"research_strategy": "lazy"}})
    assert caught.value.field == "target.context.research_strategy"
    context = {"research_strategy": "quick", "force_research": True, "team": {"any": ["thing"]}}
    assert harness.create(target={**target, "context": context})["target"]["context"] == context
