"""Every example runs and prints what its last lines say it prints; the demo draws what the design promises."""

import re
import sys

import pytest

from tests.cli.terminal import ROOT, in_pipe, in_terminal

DEMO = ROOT / "examples" / "dst_demo.py"
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path != DEMO)
FAILURES = {"alerts": 1, "dependencies": 1, "pipeline": 1}
"""How many runs of an example fail on purpose."""
FROM = "2026-07-01T00:00:00Z"

AUTUMN_2026 = """\
                                    first second
                        00:00 01:00 02:00 02:00 03:00
                        UTC+2 UTC+2 UTC+2 UTC+1 UTC+1
30 2 * * *               ·  ·  ·  ·  ·  ●  ·  ·  ·  ·   once, in the first pass
  gap skip, fold both    ·  ·  ·  ·  ·  ●  ·  ●  ·  ·   in both passes, as asked
0 2,3 * * *              ·  ·  ·  ·  ●  ·  ·  ·  ●  ·   once each, none twice
calendar: Sunday 02:00   ·  ·  ·  ·  ●  ·  ·  ·  ·  ·   once, in the first pass
0 * * * *                ●  ·  ●  ·  ●  ·  ●  ·  ●  ·   every real hour
*/30 * * * *             ●  ●  ●  ●  ●  ●  ●  ●  ●  ●   every real half hour
every 90 minutes         ·  ●  ·  ·  ●  ·  ·  ●  ·  ·   elapsed time, unaffected
"""
SPRING_2027 = """\
                        00:00 01:00┃03:00 04:00 05:00
                        UTC+1 UTC+1┃UTC+2 UTC+2 UTC+2
30 2 * * *               ·  ·  ·  ·┃ ●  ·  ·  ·  ·  ·   made up at 03:00
  gap skip, fold both    ·  ·  ·  ·┃ ·  ·  ·  ·  ·  ·   left out, as asked
0 2,3 * * *              ·  ·  ·  ·┃ ●  ·  ·  ·  ·  ·   02:00 and 03:00 are one
calendar: Sunday 02:00   ·  ·  ·  ·┃ ●  ·  ·  ·  ·  ·   made up at 03:00
0 * * * *                ●  ·  ●  ·┃ ●  ·  ●  ·  ●  ·   every real hour
*/30 * * * *             ●  ●  ●  ●┃ ●  ●  ●  ●  ●  ●   every real half hour
every 90 minutes         ·  ·  ●  ·┃ ·  ●  ·  ·  ●  ·   elapsed time, unaffected
"""


def promised(example):
    """The comment block at the end of an example."""
    _, block = example.read_text(encoding="utf-8").split("\n# Output:\n")
    return "".join(line[2:] for line in block.splitlines(keepends=True))


def lines(text):
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_it_promises(example):
    done = in_pipe(sys.executable, str(example))
    assert (done.returncode, done.stdout) == (0, promised(example))
    # A program that has not set up logging sees what failed for good, and nothing else.
    assert len(done.stderr.split("failed, attempt")) == 1 + FAILURES.get(example.stem, 0)
    assert bool(done.stderr) == (example.stem in FAILURES)


def test_the_demo_draws_both_nights():
    done = in_pipe(sys.executable, str(DEMO), FROM)
    assert (done.returncode, done.stderr) == (0, "")
    shown = lines(done.stdout)
    assert "Sunday 25 October 2026, Europe/Stockholm\n" in shown
    assert AUTUMN_2026 in shown
    assert "Sunday 28 March 2027, Europe/Stockholm\n" in shown
    assert SPRING_2027 in shown
    assert "! minute */25 does not mean every 25: the count starts again" in shown


def test_the_demo_from_today_is_plain_in_a_pipe():
    done = in_pipe(sys.executable, str(DEMO))
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_the_demo_has_colours_in_a_terminal_and_the_same_words():
    code, shown = in_terminal(sys.executable, str(DEMO), FROM)
    assert code == 0
    assert "\x1b[" in shown
    assert lines(re.sub(r"\x1b\[[\d;]*m", "", shown)) == lines(in_pipe(sys.executable, str(DEMO), FROM).stdout)


def test_the_demo_needs_no_unicode():
    done = in_pipe(sys.executable, str(DEMO), FROM, PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert lines(AUTUMN_2026.translate(str.maketrans("●·┃", "*.|"))) in lines(done.stdout)
