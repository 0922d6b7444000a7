"""Programs that use Noonmark are type-checked: it ships its types, and `make lint` checks a program with typos."""

import tomllib
from importlib.resources import files
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_package_says_that_it_has_types():
    assert files("noonmark").joinpath("py.typed").is_file()


def test_lint_checks_a_program_in_which_every_typo_must_be_an_error():
    mypy = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert "tests/public/typed_program.py" in mypy["files"]
    # An ignored error that is none is then an error itself.
    assert mypy["strict"]
