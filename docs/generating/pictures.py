"""Pictures of the terminal: what the guides show and tests execute, drawn as SVG."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parent.parent.parent
GUIDE = ROOT / "docs" / "guides" / "mcp.md"
EXAMPLE = ROOT / "examples" / "agent_with_a_clock.py"
WIDTH = 110
FORMAT = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: "Fira Code", Menlo, Consolas, monospace; font-size: {char_height}px; \
line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: arial, sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""As the library has it, without fonts of other hosts."""


def agent_picture() -> str:
    """An agent that wakes itself: the example, with what it prints."""
    printed = EXAMPLE.read_text("utf-8").partition("# Output:\n")[2]
    lines = [line.removeprefix("#").removeprefix(" ") for line in printed.splitlines()]
    return _draw("An agent with a clock", [f"$ python {EXAMPLE.relative_to(ROOT)}", *lines])


def proposal_picture() -> str:
    """A proposal of an agent, and the approval of a person: the block of the guide."""
    [block] = re.findall(r"^```shellsession proposal\n(.*?)^```$", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return _draw("A proposal", block.splitlines())


def _draw(title: str, lines: list[str]) -> str:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for line in lines:
        is_typed = line.startswith("$ ")
        text = Text.assemble(("$ ", "bold green"), (line[2:], "bold")) if is_typed else Text(line)
        console.print(text, soft_wrap=False, highlight=False)
    drawn: str = console.export_svg(title=title, code_format=FORMAT, unique_id="terminal")
    return "\n".join(line.rstrip() for line in drawn.splitlines()) + "\n"
