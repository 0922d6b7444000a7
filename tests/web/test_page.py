"""The page in a real browser."""

from tests.web.browsing import violations


def test_the_page_has_a_navigation_in_which_axe_finds_no_violation(visit):
    visit.forgive("404")
    visit.page.goto(f"{visit.url}/ui")
    visit.page.get_by_role("navigation", name="Main").get_by_role("link", name="Schedules").wait_for()
    assert violations(visit.page) == []
