"""Sign in to the page with a key: the cookie, what it is good for, what it is not, and how it ends."""

from contextlib import ExitStack
from http.cookies import SimpleCookie

import httpx2
import pytest

from noonmark.core.api_key import digest_of
from noonmark.core.instants import SECOND
from noonmark.core.rate_limit import parse_rate
from noonmark.server.rate_limits import RateLimiter, RateLimits
from tests.embedded.waiting import CLOCK, SOON
from tests.server.event_stream import streaming
from tests.server.live_server import bearer, new_key, serving
from tests.server.test_routes import problem

HOUR = 3_600 * SECOND
NEW = {"trigger": {"type": "cron", "expression": "@yearly"}, "target": {"target_kind": "function", "function": "greet"}}


@pytest.fixture(scope="module")
def served():
    with serving(keyed=True) as server:
        yield server


class Browser(httpx2.Client):
    """A browser with the page of a server: it keeps cookies, and sends what the page sends."""

    def __init__(self, url):
        page = {"Noonmark-Page": "1", "Origin": url, "Sec-Fetch-Site": "same-origin"}
        super().__init__(base_url=url, timeout=SOON, headers=page)

    def sign_in(self, key):
        return self.post("/ui/session", json={"key": key})

    @property
    def token(self):
        return self.cookies["noonmark_session"]


@pytest.fixture
def browser(served):
    with Browser(served.url) as client:
        yield client


def cookie_of(answer):
    [given] = answer.headers.get_list("set-cookie")
    return SimpleCookie(given)["noonmark_session"]


def test_a_cookie_is_as_good_as_its_key(served, browser):
    key = new_key(served.service, tenant="acme", user="ada", scopes="read,write")
    assert browser.get("/schedules").status_code == 401
    answer = browser.sign_in(key)
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    assert (answer.json()["tenant"], answer.json()["user"]) == ("acme", "ada")
    assert answer.json()["scopes"] == ["read", "write"]
    assert key not in answer.text
    assert browser.post("/schedules", json=NEW).status_code == 201
    assert browser.get("/whoami").json()["key_id"] == key.rpartition("_")[0]
    problem(browser.post("/keys", json={"tenant": "acme", "scopes": "read"}), 403, "missing_scope")
    entries = browser.get("/audit?limit=2").json()["entries"]
    assert [one["operation"] for one in entries] == ["schedule/create", "page/sign_in"]
    assert {one["key_id"] for one in entries} == {key.rpartition("_")[0]}


def test_no_script_and_no_other_site_gets_the_cookie(served, browser):
    cookie = cookie_of(browser.sign_in(served.key))
    assert cookie["httponly"]
    assert (cookie["samesite"], cookie["path"], cookie["secure"]) == ("strict", "/", "")
    assert len(cookie.value) == 43
    assert cookie["max-age"] == str(7 * 24 * 3_600)
    with serving(keyed=True, public_url="https://time.example.org") as server, Browser(server.url) as other:
        assert cookie_of(other.sign_in(server.key))["secure"]
    with serving(keyed=True, trusted_proxies=("127.0.0.1",)) as server, Browser(server.url) as other:
        other.headers |= {"X-Forwarded-Proto": "https", "Origin": server.url}
        assert cookie_of(other.sign_in(server.key))["secure"]


def test_the_store_has_neither_the_token_nor_the_key(served, browser):
    browser.sign_in(served.key)
    store = served.service.store
    assert store.find_page_session(browser.token) is None
    assert store.find_page_session(digest_of(browser.token)).key_id == served.key.rpartition("_")[0]


@pytest.mark.parametrize(
    "headers",
    [
        {"Noonmark-Page": None},
        {"Noonmark-Page": "0"},
        {"Origin": None},
        {"Origin": "https://evil.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_change_that_the_page_did_not_ask_for_is_refused(served, browser, headers):
    browser.sign_in(served.key)
    for name, value in headers.items():
        del browser.headers[name]
        if value is not None:
            browser.headers[name] = value
    problem(browser.post("/schedules", json=NEW), 403, "not_allowed")
    problem(browser.post("/rpc", json={"jsonrpc": "2.0", "id": 1, "method": "schedule/list"}), 403, "not_allowed")
    problem(browser.delete("/ui/session"), 403, "not_allowed")
    assert served.client.get("/whoami", headers={"Cookie": f"noonmark_session={browser.token}"}).status_code == 200


def test_a_key_in_a_header_counts_more_than_a_cookie(served, browser):
    browser.sign_in(served.key)
    key = new_key(served.service, tenant="acme", scopes="read")
    assert browser.get("/whoami", headers=bearer(key)).json()["tenant"] == "acme"
    assert browser.get("/whoami", headers=bearer(key[:-1] + "x")).status_code == 401
    del browser.headers["Noonmark-Page"]
    assert browser.post("/schedules", json=NEW, headers=bearer(served.key)).status_code == 201


@pytest.mark.parametrize("cookie", ["", "x", "A" * 43, "A" * 42 + "%"])
def test_a_cookie_that_is_none_of_ours_is_refused(served, cookie):
    answer = httpx2.get(f"{served.url}/schedules", headers={"Cookie": f"noonmark_session={cookie}"}, timeout=SOON)
    problem(answer, 401, "unauthenticated")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"key": ""},
        {"key": 1},
        {"key": "nm_live_secret", "more": 1},
        {"key": "nm_live_secret" * 20},
        ["nm_live_secret"],
    ],
)
def test_a_body_that_is_not_a_key_is_refused_and_not_quoted(served, browser, body):
    answer = browser.post("/ui/session", json=body)
    assert answer.status_code == 400
    assert "secret" not in answer.text
    assert "set-cookie" not in answer.headers


def test_a_wrong_key_is_refused(served, browser):
    for key in ("nm_live_secret", served.key[:-1] + "x", "a.b.c", f"{served.key} {served.key}"):
        answer = browser.sign_in(key)
        problem(answer, 401, "unauthenticated")
        assert key not in answer.text
        assert "set-cookie" not in answer.headers


def test_guessing_is_slowed_down():
    def rates(store):
        return RateLimits(limiter=RateLimiter(store, CLOCK.monotonic), failures=parse_rate("3/h", burst=None))

    with serving(keyed=True, rates=rates) as server, Browser(server.url) as browser:
        statuses = [browser.sign_in("nm_live_secret").status_code for _ in range(5)]
        assert statuses == [401, 401, 401, 429, 429]


def test_signing_out_ends_the_session_and_takes_the_cookie(served, browser):
    browser.sign_in(served.key)
    token = browser.token
    answer = browser.delete("/ui/session")
    assert (answer.status_code, answer.content) == (204, b"")
    assert (cookie_of(answer).value, cookie_of(answer)["max-age"]) == ("", "0")
    assert served.service.store.find_page_session(digest_of(token)) is None
    assert browser.delete("/ui/session").status_code == 204


def test_signing_in_again_replaces_the_session(served, browser):
    browser.sign_in(served.key)
    former = browser.token
    browser.sign_in(served.key)
    assert served.service.store.find_page_session(digest_of(former)) is None
    assert browser.get("/whoami").status_code == 200


def test_a_session_ends_with_its_key(served, browser):
    key = new_key(served.service, tenant="acme")
    browser.sign_in(key)
    assert browser.get("/schedules").status_code == 200
    served.client.post(f"/keys/{key.rpartition('_')[0]}/revoke")
    problem(browser.get("/schedules"), 401, "unauthenticated")
    assert browser.sign_in(key).status_code == 401


def test_a_session_ends_when_it_is_not_used_and_after_a_week(served, browser):
    browser.sign_in(served.key)
    store, digest = served.service.store, digest_of(browser.token)
    begun = store.find_page_session(digest)

    def moved(**fields):
        store.delete_page_session(digest)
        store.add_page_session(changed(begun, **fields), most=1_000, used_since=0, created_since=0)
        return browser.get("/whoami").status_code

    assert moved(used=begun.used - 11 * HOUR) == 200
    assert store.find_page_session(digest).used >= begun.used  # it was prolonged
    assert moved(used=begun.used - 13 * HOUR) == 401
    assert moved(created=begun.created - 167 * HOUR) == 200
    assert moved(created=begun.created - 169 * HOUR) == 401


def changed(session, **fields):
    return type(session)(
        **{name: fields.get(name, getattr(session, name)) for name in ("digest", "key_id", "created", "used")}
    )


def test_a_stream_ends_with_its_session(served, browser):
    browser.sign_in(served.key)
    with streaming(served.url, Cookie=f"noonmark_session={browser.token}") as events:
        browser.delete("/ui/session")
        while (one := events.next()) is not None:
            assert one.topics == {"keys"}


def signed_out_everywhere(store):
    """All servers of a store know a session, also one that starts later, and none knows it after a sign-out."""
    with ExitStack() as stack:
        first = stack.enter_context(serving(store, keyed=True))
        key = new_key(first.service, tenant="acme")
        other_key = new_key(first.service, tenant="acme")
        browsers = [stack.enter_context(Browser(first.url)) for _ in range(3)]
        for browser, used in zip(browsers, (key, key, other_key), strict=True):
            browser.sign_in(used)
        second = stack.enter_context(serving(store))

        def statuses():
            return [
                [
                    httpx2.get(f"{server.url}/whoami", headers=cookie, timeout=SOON).status_code
                    for server in (first, second)
                ]
                for cookie in ({"Cookie": f"noonmark_session={token}"} for token in tokens)
            ]

        tokens = [browser.token for browser in browsers]
        assert statuses() == [[200, 200]] * 3
        with Browser(second.url) as elsewhere:
            elsewhere.cookies.set("noonmark_session", tokens[0])
            assert elsewhere.delete("/ui/session?everywhere=true").status_code == 204
        assert statuses() == [[401, 401], [401, 401], [200, 200]]
        assert httpx2.delete(f"{first.url}/ui/session?everywhere=true", headers=bearer(other_key)).status_code == 204
        assert statuses() == [[401, 401]] * 3


def test_signing_out_everywhere_holds_on_all_servers_of_a_file(tmp_path):
    signed_out_everywhere(f"sqlite:///{tmp_path / 'one.db'}")


def test_signing_out_everywhere_holds_on_all_servers_of_a_database(database):
    signed_out_everywhere(database.url)


def test_nobody_signs_in_where_there_are_no_keys_or_no_page():
    with serving() as server, Browser(server.url) as browser:
        problem(browser.sign_in("nm_live_secret"), 400, "invalid_request", "key")
    with serving(keyed=True) as server, serving(keyed=True, has_page=False) as bare, Browser(server.url) as browser:
        assert browser.sign_in(server.key).status_code == 200
        assert bare.client.post("/ui/session", json={"key": bare.key}).status_code == 404
        session = server.service.store.find_page_session(digest_of(browser.token))
        bare.service.store.add_page_session(
            changed(session, key_id=bare.key.rpartition("_")[0]), most=1_000, used_since=0, created_since=0
        )
        cookie = {"Cookie": f"noonmark_session={browser.token}"}
        assert httpx2.get(f"{bare.url}/whoami", headers=cookie, timeout=SOON).status_code == 401


def test_the_page_may_report_the_end_of_work(served, browser):
    """A request without a key may be a receiver's; the one of the page is not."""
    browser.sign_in(served.key)
    problem(browser.post("/occurrences/nowhere/complete", json={}), 404, "not_found", "occurrence_id")
    del browser.headers["Noonmark-Page"]
    problem(browser.post("/occurrences/nowhere/complete", json={}), 403, "not_allowed")
