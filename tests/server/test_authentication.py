"""Requests that come together and show the same credential share one look-up of the store."""

import asyncio
import threading
from dataclasses import replace

import pytest
from starlette.requests import Request

from noonmark.core.errors import StoreUnavailable
from noonmark.operations.key_cache import KeyCache
from noonmark.operations.service import LOCAL
from noonmark.server.authentication import Authenticator
from noonmark.server.problems import HttpError
from tests.operations.harness import Harness

SHARED = 16
SOON = 60
"""Only a failure waits as long."""


class SlowStore:
    """A store whose first answer to one question is held back; it counts what it is asked."""

    def __init__(self, store):
        self.store, self.asked, self.held_back = store, [], "has_api_keys"
        self.is_asked, self.may_answer = threading.Event(), threading.Event()
        self.error = None

    def __getattr__(self, name):
        def ask(*args):
            self.asked.append(name)
            answer = getattr(self.store, name)(*args)
            if name == self.held_back and self.asked.count(name) == 1:
                self.is_asked.set()
                assert self.may_answer.wait(SOON)
            if self.error is not None:
                raise self.error
            return answer

        return ask


@pytest.fixture
def harness():
    harness = Harness()
    harness.spy = SlowStore(harness.service.store)
    harness.keys = KeyCache(harness.spy, lambda: 0)
    harness.authenticator = Authenticator(harness.service, harness.keys)
    return harness


def with_key(harness, name="boss"):
    """A key of a store in which there is one."""
    operator = replace(LOCAL, opens_store=True)
    return harness("key/create", operator, tenant="*", scopes="admin", name=name)


def request(key=None):
    headers = [] if key is None else [(b"authorization", f"Bearer {key}".encode())]
    return Request({"type": "http", "method": "GET", "path": "/schedules", "headers": headers, "query_string": b""})


async def authenticated(harness, keys, *, meanwhile=None):
    """What each request gets; all of them wait before the first look-up is answered."""
    tasks = [asyncio.ensure_future(harness.authenticator.authenticate(request(key))) for key in keys]
    assert await asyncio.to_thread(harness.spy.is_asked.wait, SOON)
    if meanwhile is not None:
        tasks += await meanwhile(tasks)
    harness.spy.may_answer.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


def test_requests_without_a_key_share_the_question_whether_one_is_needed(harness):
    callers = asyncio.run(authenticated(harness, [None] * SHARED))
    assert callers == [LOCAL] * SHARED
    assert harness.spy.asked == ["has_api_keys"]


def test_requests_with_one_key_share_its_look_up_and_those_with_others_do_not(harness):
    first = with_key(harness)
    second = harness("key/create", scopes="read", tenant="acme", user="ada")
    callers = asyncio.run(authenticated(harness, [first["key"], first["key"], second["key"], second["key"]]))
    assert [caller.owner.tenant for caller in callers] == ["default", "default", "acme", "acme"]
    assert harness.spy.asked.count("find_api_key") == 2


def test_each_request_gets_the_refusal(harness):
    with_key(harness)
    answers = asyncio.run(authenticated(harness, [None] * SHARED))
    assert [(type(answer), answer.status) for answer in answers] == [(HttpError, 401)] * SHARED
    assert harness.spy.asked == ["has_api_keys"]


def test_a_store_that_fails_fails_all_of_them_once(harness):
    harness.spy.error = StoreUnavailable("the disk is gone")
    answers = asyncio.run(authenticated(harness, [None] * SHARED))
    assert {type(answer) for answer in answers} == {StoreUnavailable}
    assert harness.spy.asked == ["has_api_keys"]
    harness.spy.error = None
    assert asyncio.run(harness.authenticator.authenticate(request())) == LOCAL


def test_one_that_is_cancelled_does_not_cancel_the_others(harness):
    async def cancel_first(tasks):
        tasks[0].cancel()
        return []

    first, *others = asyncio.run(authenticated(harness, [None] * 3, meanwhile=cancel_first))
    assert isinstance(first, asyncio.CancelledError)
    assert others == [LOCAL] * 2


def test_a_request_after_a_key_was_revoked_does_not_share_an_earlier_look_up(harness):
    key = with_key(harness)
    harness.spy.held_back = "find_api_key"

    async def revoke(_):
        harness("key/revoke", key_id=key["key_id"])
        harness.keys.forget(key["key_id"])
        return [asyncio.ensure_future(harness.authenticator.authenticate(request(key["key"])))]

    early, late = asyncio.run(authenticated(harness, [key["key"]], meanwhile=revoke))
    assert early.key_id == key["key_id"]
    assert isinstance(late, HttpError)
    assert late.status == 401
