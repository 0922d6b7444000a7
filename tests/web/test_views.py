"""Every view in a real browser: it shows its data, axe finds no violation in either theme, and it fits a phone."""

import pytest

from noonmark.server.web.files import FOLDER
from tests.web.browsing import DESKTOP, PHONE, violations, visiting
from tests.web.views import VIEWS


@pytest.fixture(scope="module")
def tab(browser, server):
    """One tab for all views: a fresh one for each would load the page and axe as often."""
    with visiting(browser, server.url) as visit:
        yield visit


@pytest.mark.parametrize("name", VIEWS)
def test_every_view_shows_its_data_to_everybody(tab, server, name):
    view = VIEWS[name]
    tab.page.emulate_media(color_scheme="light")
    tab.page.set_viewport_size(DESKTOP)
    page = tab.move(view.at(server.ids))
    assert view.heading in page.locator("main h1").inner_text()
    text = tab.text()
    assert [word for word in view.words if word not in text] == []
    assert violations(page) == []
    page.emulate_media(color_scheme="dark")
    assert violations(page, "color-contrast") == []
    page.set_viewport_size(PHONE)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert tab.complaints == []


def test_no_view_is_left_out():
    assert {view.module for view in VIEWS.values()} == {path.stem for path in (FOLDER / "views").glob("*.js")}
