"""The egress check and the connection see the same host and port, whatever the URL looks like."""

import itertools
import socket
from dataclasses import replace

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonmark.core.run import Outcome
from noonmark.core.targets.egress import Guard
from noonmark.core.targets.http import HttpTarget
from noonmark.core.urls import parse_url
from noonmark.targets.http.errors import EgressDenied
from noonmark.targets.http.pool import _to_httpcore
from noonmark.targets.http.request import Request
from tests.targets.http.internal_hosts import INSIDE, NEVER
from tests.targets.http.receiver import http_receiver, http_sender

ODD = [
    "{0}:18394",
    "{0}18394",
    "{0}:80:18394",
    "{0}:018394",
    "{0}:",
    "{0}@a.example",
    "a.example@{0}",
    "{0}#:1",
    "{0}?:1",
    "{0}\\:1",
    "{0};:1",
    "{0},a.example",
    "{0}%3A1",
    "{0}.:1",
    "[{0}]:1",
    "[{0}",
    "{0}]",
    "{0}\x0b:1",
    "{0}/:1",
    "a:{0}",
]


def dialled(text):
    """Return host and port as passed to the library, and as it parses the URL itself; None if refused."""
    try:
        url = parse_url(text)
        raw = _to_httpcore(Request(method="GET", url=url, headers={}, body=None))
    except (ValueError, EgressDenied):
        return None
    host, port = raw.url.origin.host.decode(), raw.url.origin.port
    if url.host.isascii():
        assert (host, port) == (url.host, url.port)
    again = httpx2.URL(f"{replace(url, host=host).origin}{url.target}")
    assert (again.raw_host.decode(), again.port or {"http": 80, "https": 443}[again.scheme]) == (host, port)
    assert again.raw_path == raw.url.target
    assert dict(raw.headers)[b"Host"] == again.netloc
    return host, port


@pytest.mark.parametrize("form", ODD)
def test_checked_host_is_the_one_connected_to(form):
    for host, scheme in itertools.product([*INSIDE, *NEVER, "bücher.example"], ("http", "https")):
        dialled(f"{scheme}://{form.format(host)}/path?query")


@given(st.text("abz019.:[]@/\\?#%-_ \t\nßé\u3002\uff11", max_size=24))
def test_no_url_is_parsed_in_two_ways(rest):
    dialled(f"http://{rest}")


def test_international_host_is_checked_in_its_ascii_form():
    assert dialled("http://bücher.example/") == ("xn--bcher-kva.example", 80)
    assert dialled("http://\u0e01\u0301\u0301-/") is None


@pytest.mark.parametrize("guard", list(Guard))
def test_text_after_brackets_does_not_change_the_port(guard):
    """A URL that was checked as port 80, and connected to at another."""
    if not socket.has_ipv6:
        pytest.skip("there is no IPv6 here")
    with http_receiver() as receiver, http_sender(guard=guard, allow_hosts=["[::1]:80", "127.0.0.1:80"]) as caller:
        for host in (f"[::1]{receiver.port}", f"127.0.0.1:80@127.0.0.1:{receiver.port}"):
            delivered = caller.call(HttpTarget(url=f"http://{host}/"), key=host)
            assert (delivered.outcome, delivered.is_final) == (Outcome.DELIVERY_FAILED, True)
        assert receiver.requests == []
        if guard is not Guard.STRICT:
            assert caller.call(f"{receiver.url}/", key="there").outcome is Outcome.COMPLETED
