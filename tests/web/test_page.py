"""The page in a real browser."""

from tests.web.browsing import violations


def test_the_page_opens_and_axe_finds_no_violation(visit):
    visit.forgive("favicon.ico")
    page = visit.open(until="main")
    assert page.title() == "Noonmark"
    assert violations(page) == []
