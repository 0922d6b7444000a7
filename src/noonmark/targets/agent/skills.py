"""Skills: instructions that a team keeps in a folder, one folder with a `SKILL.md` per skill."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noonmark.core.json_values import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

FILE = "SKILL.md"
MAX_BYTES = 65_536
COMPANIONS = Path(__file__).with_name("companion_skills")
"""The skills of the package; a folder of skills may replace them."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def load_skills(folder: Path | None, references: Iterable[Any]) -> list[str]:
    """The texts of skills, each once; ValueError names one that there is not."""
    texts = {}
    for reference in references:
        name = _name_of(reference)
        if name not in texts:
            texts[name] = f"# Skill: {name}\n\n{_read(folder, name)}"
    return list(texts.values())


def _name_of(reference: object) -> str:
    name = reference.get("name", reference.get("id")) if isinstance(reference, dict) else reference
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"a skill is named by up to 64 letters, digits, ., - and _, or by an object with such a `name`,"
            f" not {shown(reference)}"
        )
    return name


def companion_skill(name: str) -> str:
    """The text of a skill of the package."""
    return (COMPANIONS / name / FILE).read_text("utf-8")


def _read(folder: Path | None, name: str) -> str:
    if not (folder is not None and (folder / name / FILE).is_file()) and (COMPANIONS / name / FILE).is_file():
        folder = COMPANIONS
    if folder is None:
        raise ValueError(f"the skill {name} cannot be loaded: this node has no folder of skills; set agent_skills")
    file = folder / name / FILE
    if not file.is_file() or not file.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"there is no skill {name}: no {name}/{FILE} in the folder of skills")
    with file.open("rb") as stream:
        raw = stream.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise ValueError(f"the skill {name} is longer than {MAX_BYTES:,} bytes")
    return raw.decode("utf-8", "replace").strip()
