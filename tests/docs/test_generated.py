"""The generated pages say what the code says now."""

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
generate = importlib.util.module_from_spec(spec)
spec.loader.exec_module(generate)


@pytest.mark.parametrize("name", sorted(generate.PAGES))
def test_the_page_is_up_to_date(name):
    written = (DOCS / "reference" / name).read_text("utf-8")
    assert written == generate.PAGES[name](), f"docs/reference/{name} is behind the code: run `make docs`"
