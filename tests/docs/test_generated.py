"""The generated pages say what the code says now."""

import pytest

from docs import generate


@pytest.mark.parametrize("name", sorted(generate.PAGES))
def test_the_page_is_up_to_date(name):
    written = (generate.REFERENCE / name).read_text("utf-8")
    assert written == generate.PAGES[name](), f"docs/reference/{name} is behind the code: run `make docs`"
