"""What people do with the page: by keyboard, by clicks, and signed in with a key."""

import json
import re
import shlex
from contextlib import suppress

from tests.cli.terminal import NOONMARK, in_pipe
from tests.embedded.waiting import eventually
from tests.service.server import serving
from tests.web.browsing import PHONE, violations, visiting


def focused(page):
    return page.evaluate("document.activeElement.innerText || document.activeElement.getAttribute('aria-label')")


def heading(page, name, **options):
    page.get_by_role("heading", name=name, level=1, exact=True).wait_for(**options)


def go_by_keys(page, keys, name):
    """Type a sequence; again if the machine stood still between its keys, which is two keys by themselves then."""
    from playwright.sync_api import TimeoutError as NotSeen  # noqa: PLC0415 - after the fork of the worker

    for _ in range(3):
        page.keyboard.type(keys)
        with suppress(NotSeen):
            return heading(page, name, timeout=10_000)
    return heading(page, name)


def test_the_keyboard_reaches_everything(visit, server):
    page = visit.open("#/now")
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keyboard").wait_for()
    assert violations(page) == []
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    go_by_keys(page, "gs", "Schedules")
    page.keyboard.press("/")
    page.keyboard.type("prices")
    rows = page.get_by_label("Schedules", exact=True).locator("[data-id]")
    eventually(lambda: rows.count() == 2)
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowDown")
    first = focused(page)
    page.keyboard.press("ArrowDown")
    assert focused(page) != first
    page.keyboard.press("ArrowUp")
    assert focused(page) == first
    page.keyboard.press("p")
    page.get_by_role("dialog").get_by_label("Why").fill("by key")
    page.keyboard.press("Enter")
    page.get_by_text("paused: by key").wait_for()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Past and future").wait_for()
    go_by_keys(page, "gc", "Calendar")


def test_the_first_schedule_is_made_as_the_page_says(browser, tmp_path):
    with serving(tmp_path) as server, visiting(browser, server.url) as visit:
        page = visit.open()
        command = page.locator("main code", has_text="noonmark schedule create").inner_text()
        made = in_pipe(*NOONMARK, *shlex.split(command)[1:], NOONMARK_SERVER=server.url)
        assert made.returncode == 0, made.stderr
        page.get_by_label("Up next").get_by_text("tick").wait_for()


def test_a_schedule_is_created_and_run_by_clicks(visit, server):
    page = visit.open("#/schedules")
    page.get_by_role("link", name="New schedule").click()
    heading(page, "New schedule")
    page.get_by_label("Name", exact=True).fill("made-by-hand")
    page.get_by_label("Paste a line of a crontab").fill("30 2 * * 1-5 /bin/true")
    page.get_by_label("Preview").get_by_text("02:30").first.wait_for()
    page.get_by_label("Kind", exact=True).select_option("event")
    page.get_by_label("Event type").fill("hand.made")
    page.get_by_role("button", name="Create", exact=True).click()
    heading(page, "made-by-hand")
    [made] = server.ask("GET", "/schedules?name=made-by-hand").json["schedules"]
    assert made["trigger"]["expression"] == "30 2 * * 1-5"
    assert made["target"]["event_type"] == "hand.made"
    page.get_by_role("button", name="Run now").click()
    page.get_by_role("dialog").get_by_role("button", name="Run now").click()
    page.locator(".verdict").get_by_role("img", name="completed").wait_for()
    page.get_by_role("navigation").get_by_role("link", name="Events").click()
    page.get_by_text("hand.made").first.wait_for()


def test_an_edit_shows_what_it_changes_before_it_is_saved(visit, server):
    daily = {"type": "cron", "expression": "30 2 * * *", "timezone": "Europe/Stockholm"}
    document = {"trigger": daily, "target": {"target_kind": "event", "event_type": "x"}}
    answer = server.ask("POST", "/schedules", {**document, "max_runs": 50, "concurrency_key": "kept"})
    edited = answer.json["schedule_id"]
    page = visit.open(f"#/schedules/{edited}/edit")
    save, json_text = page.get_by_role("button", name="Save"), page.get_by_label("The schedule as JSON")
    assert save.is_disabled()
    expression = page.get_by_label("Expression")
    expression.fill("30 3 * * 88")
    page.get_by_text("88 is out of range").first.wait_for()
    assert expression.get_attribute("aria-invalid")
    expression.fill("30 3 * * *")
    page.get_by_text("12 move").wait_for()
    page.get_by_text("02:30 → ").first.wait_for()
    # The other way round, with a field that the form does not have.
    written = json.loads(json_text.input_value())
    assert (written["trigger"]["expression"], written["concurrency_key"]) == ("30 3 * * *", "kept")
    written |= {"max_runs": 7, "planning_horizon_days": 9}
    json_text.fill(json.dumps(written))
    page.get_by_text("12 move").wait_for(state="detached")
    page.locator("summary", has_text="Policies").click()
    assert page.get_by_label("End after runs").input_value() == "7"
    # Somebody else is quicker.
    assert server.ask("PATCH", f"/schedules/{edited}", {"description": "by another"}).status == 200
    page.get_by_text("It was changed meanwhile").wait_for()
    visit.forgive("409")
    page.keyboard.press("Control+Enter")  # refused: it has been changed since it was read
    page.get_by_role("button", name="Take this in").click()
    visit.settle()
    # Leaving asks first.
    page.get_by_role("navigation").get_by_role("link", name="Events").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    page.wait_for_url(f"**/{edited}/edit")  # `page.url` alone would not change: it hears of nothing while Python sleeps
    page.keyboard.press("Control+Enter")
    page.get_by_text("Saved.").wait_for()
    saved = server.ask("GET", f"/schedules/{edited}").json
    assert saved["trigger"]["expression"] == "30 3 * * *"
    assert (saved["max_runs"], saved["planning_horizon_days"]) == (7, 9)
    assert (saved["description"], saved["concurrency_key"]) == ("by another", "kept")


def test_many_schedules_are_paused_after_a_preview(visit, server):
    page = visit.open("#/schedules?label=team%3Ddata")
    page.get_by_role("button", name="Pause", exact=True).click()
    dialog = page.get_by_role("dialog", name="Pause 3 schedules?")
    for name in ("nightly-report", "vacuum", "morning-brief"):
        assert name in dialog.inner_text()
    assert violations(page) == []
    dialog.get_by_label("Why").fill("all at once")
    dialog.get_by_role("button", name="Pause", exact=True).click()
    eventually(lambda: page.get_by_text("paused: all at once").count() == 3)
    paused = server.ask("GET", "/schedules?phase=paused&label=team%3Ddata").json["schedules"]
    assert {one["paused"]["reason"] for one in paused} == {"all at once"}


def test_an_approval_lets_a_workflow_go_on_before_your_eyes(visit, server):
    page = visit.open(f"#/workflow-runs/{server.ids['workflow_run']}")
    page.get_by_role("link", name="decide").click()
    page.get_by_role("button", name="Approve").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Comment").fill("as agreed")
    dialog.get_by_role("button", name="Approve", exact=True).click()
    page.get_by_label("Decided").get_by_text("as agreed").wait_for()
    page.go_back()
    page.locator(".verdict", has_text="completed").wait_for()


def test_the_switch_has_one_button_where_the_zone_of_the_browser_is_utc(browser, server):
    with visiting(browser, server.url, timezone_id="UTC") as visit:
        buttons = visit.open("#/now").get_by_label("Zone of times").get_by_role("button")
        assert buttons.all_inner_texts() == ["UTC", "Schedule’s"]
        buttons.last.click()
        eventually(lambda: buttons.last.get_attribute("aria-pressed") == "true")
        assert buttons.all_inner_texts() == ["UTC", "Schedule’s"]


def test_a_long_id_is_not_drawn_over_the_time_beside_it(browser, tmp_path):
    with serving(tmp_path) as server, visiting(browser, server.url) as visit:
        soon = {"type": "interval", "every_seconds": 60}
        document = {"schedule_id": "x" * 128, "trigger": soon, "target": {"target_kind": "event", "event_type": "e"}}
        assert server.ask("POST", "/schedules", document).status == 201
        name = visit.open("#/now").get_by_label("Up next").locator(".row > span", has_text="xxx").first
        name.wait_for()
        assert name.evaluate("span => span.scrollWidth <= span.clientWidth")


def test_fires_within_a_minute_are_told_apart(visit, server):
    often = {"type": "interval", "every_seconds": 2, "start_at_utc": "2999-01-01T00:00:00Z"}
    answer = server.ask("POST", "/schedules", {"trigger": often, "target": {"target_kind": "event", "event_type": "x"}})
    page = visit.open(f"#/schedules/{answer.json['schedule_id']}")
    fires = page.locator("ol.fires li").all_inner_texts()
    assert [re.search(r"\d\d:\d\d:(\d\d)", one)[1] for one in fires] == ["00", "02", "04", "06", "08"]


def test_a_length_of_time_is_shown_as_it_was_declared(browser, tmp_path):
    with serving(tmp_path) as server, visiting(browser, server.url) as visit:
        for name, seconds in (("two", 2), ("longer", 3_601), ("part", 1.25)):
            trigger = {"type": "interval", "every_seconds": seconds, "start_at_utc": "2999-01-01T00:00:00Z"}
            document = {"schedule_id": name, "trigger": trigger, "target": {"target_kind": "event", "event_type": "x"}}
            assert server.ask("POST", "/schedules", document).status == 201
        visit.open("#/schedules")
        assert [one for one in ("every 2 s", "every 1 h 1 s", "every 1.25 s") if one not in visit.text()] == []


def test_an_unknown_schedule_is_named_in_a_plain_sentence(visit):
    visit.forgive("status of 404")
    visit.page.goto(f"{visit.url}/ui#/schedules/nope")
    visit.page.get_by_role("alert").get_by_text("There is no schedule 'nope'.", exact=True).wait_for()


def test_one_switch_chooses_the_zone_of_all_times(browser, server):
    with visiting(browser, server.url, timezone_id="America/New_York") as visit:
        daily = {"type": "cron", "expression": "30 2 * * *", "timezone": "Asia/Kolkata"}
        document = {"trigger": daily, "target": {"target_kind": "event", "event_type": "x"}}
        zoned = server.ask("POST", "/schedules", document).json["schedule_id"]
        page = visit.open(f"#/schedules/{zoned}")
        for zone, clock in (("UTC", "21:00"), ("New York", "16:00|17:00"), ("Schedule’s", "02:30")):
            page.get_by_label("Zone of times").get_by_role("button", name=zone).click()
            page.locator("ol.fires li", has_text=re.compile(clock)).first.wait_for()


def create_key(folder, tenant, scopes):
    store = f"sqlite:///{folder / 'noonmark.db'}"
    words = ("key", "create", "--store", store, "--tenant", tenant, "--user", f"ada-of-{tenant}", "--scopes", scopes)
    made = in_pipe(*NOONMARK, *words, "--json")
    assert made.returncode == 0, made.stderr
    return json.loads(made.stdout)["key"]


def sign_in(visit, key):
    visit.page.goto(f"{visit.url}/ui")
    visit.page.get_by_label("Key").fill(key)
    visit.page.get_by_role("button", name="Sign in").click()


def test_tenants_see_their_own_and_keys_do_what_they_may(browser, tmp_path):
    create_key(tmp_path, "*", "admin")  # the first key of a store
    keys = {tenant: create_key(tmp_path, tenant, "read,write,run") for tenant in ("acme", "umbrella")}
    reader = create_key(tmp_path, "acme", "read")
    trigger, target = {"type": "interval", "every_seconds": 3_600}, {"target_kind": "event", "event_type": "x"}
    with serving(tmp_path) as server:
        for tenant, key in keys.items():
            document = {"name": f"job-of-{tenant}", "trigger": trigger, "target": target}
            assert server.ask("POST", "/schedules", document, Authorization=f"Bearer {key}").status == 201
        with visiting(browser, server.url) as acme, visiting(browser, server.url) as umbrella:
            for visit in (acme, umbrella):
                visit.forgive("401")
            acme.page.goto(f"{acme.url}/ui")
            acme.page.get_by_label("Key").wait_for()
            assert violations(acme.page) == []
            sign_in(acme, "nm_live_wrong")
            acme.page.get_by_role("alert").filter(has_text="key").wait_for()
            for tenant, visit in (("acme", acme), ("umbrella", umbrella)):
                sign_in(visit, keys[tenant])
                visit.page.get_by_label("Up next").get_by_text(f"job-of-{tenant}").wait_for()
                assert visit.page.get_by_text("job-of-").count() == visit.page.get_by_text(f"job-of-{tenant}").count()
                assert visit.page.evaluate("document.cookie") == ""
            document = {"name": "job-of-acme-2", "trigger": trigger, "target": target}
            assert server.ask("POST", "/schedules", document, Authorization=f"Bearer {keys['acme']}").status == 201
            acme.page.get_by_label("Up next").get_by_text("job-of-acme-2").wait_for()
            assert umbrella.page.get_by_text("job-of-acme").count() == 0
            assert umbrella.page.get_by_text("1 node up").is_visible()
            umbrella.page.get_by_role("navigation").get_by_role("link", name="Nodes").click()
            umbrella.page.get_by_text("Nothing is halted.").wait_for()
            umbrella.page.get_by_role("button", name="Sign out", exact=True).click()
            umbrella.page.get_by_label("Key").wait_for()
            sign_in(umbrella, reader)
            umbrella.page.get_by_label("Up next").get_by_text("job-of-acme-2").wait_for()
            assert umbrella.page.get_by_role("link", name="New schedule").count() == 0


def test_a_phone_has_the_navigation_at_the_bottom(browser, server):
    with visiting(browser, server.url, viewport=PHONE, is_mobile=True, has_touch=True) as visit:
        page = visit.open("#/now")
        box = page.get_by_role("navigation", name="Main").bounding_box()
        assert box["y"] + box["height"] == PHONE["height"]
        page.get_by_role("navigation").get_by_role("link", name="Calendar").tap()
        heading(page, "Calendar")
