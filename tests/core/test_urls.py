"""URLs: what is read of one, and what is none. The text is read in one place, so a table says all of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonmark.core.urls import Url, parse_url


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://a", Url("http", "a", 80, "/")),
        ("HTTPS://A.Example.", Url("https", "a.example.", 443, "/")),
        ("http://a?x=1", Url("http", "a", 80, "/", "x=1")),
        ("http://a#part", Url("http", "a", 80, "/")),
        ("http://a/?#x\ud7ff", Url("http", "a", 80, "/", "")),
        ("http://a:8080/b/c?d=e?f#g", Url("http", "a", 8080, "/b/c", "d=e?f")),
        ("http://a:/", Url("http", "a", 80, "/")),
        ("https://a:00443/", Url("https", "a", 443, "/")),
        ("http://127.0.0.1:1/", Url("http", "127.0.0.1", 1, "/")),
        ("http://[::1]/", Url("http", "::1", 80, "/")),
        ("http://[0:0:0:0::1]:18394/", Url("http", "::1", 18394, "/")),
        ("http://my_service/", Url("http", "my_service", 80, "/")),
        ("https://Bücher.example/straße", Url("https", "bücher.example", 443, "/stra%C3%9Fe")),
        ("https://a/b@c:d", Url("https", "a", 443, "/b@c:d")),
        ("https://a/{{payload}}?q={{event}}", Url("https", "a", 443, "/%7B%7Bpayload%7D%7D", "q={{event}}")),
        ('https://a/"<>`?"<>`', Url("https", "a", 443, "/%22%3C%3E%60", "%22%3C%3E`")),
        ("https://a/%2f%2F%zz%", Url("https", "a", 443, "/%2f%2F%zz%")),
        ("https://a/../../b/./c/../d", Url("https", "a", 443, "/b/d")),
        ("https://a/b/..", Url("https", "a", 443, "/")),
        ("https://a/b/.", Url("https", "a", 443, "/b/")),
        ("https://a/b..c/.d", Url("https", "a", 443, "/b..c/.d")),
    ],
)
def test_what_is_read_of_a_url(text, url):
    assert parse_url(text) == url


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "must be an absolute"),
        ("a.example", "must be an absolute"),
        ("//a.example/", "must be an absolute"),
        ("http:/a.example", "must be an absolute"),
        ("http:a.example", "must be an absolute"),
        ("ftp://a.example", "must be an absolute"),
        (" http://a.example", "must be an absolute"),
        ("ht\ttp://a.example", "must be an absolute"),
        ("{{payload}}", "must not have a placeholder"),
        ("http://{{payload}}.example/", "must not have a placeholder"),
        ("http://a:{{payload}}/", "must not have a placeholder"),
        ("http://user@a.example/", "must not carry a user name"),
        ("http://user:s3cr3t@a.example/", "must not carry a user name"),
        ("http://a.example:80@127.0.0.1/", "must not carry a user name"),
        ("http://a.example\\@127.0.0.1/", "must not carry a user name"),
        ("http://a.example\\.b/", "must not contain blanks"),
        ("http://a.example/\\b", "must not contain blanks"),
        ("http://a.example/ b", "must not contain blanks"),
        ("http://a.example/\n", "must not contain blanks"),
        ("http://a.example#\r\n", "must not contain blanks"),
        ("http://a\t.example/", "must not contain blanks"),
        ("http://a.example/\x00", "must not contain blanks"),
        ("http://a.example/\x7f", "must not contain blanks"),
        ("http://a.example/\u2028", "must not contain blanks"),
        ("http://a.example/\x85", "must not contain blanks"),
        ("http:///path", "has no valid host"),
        ("http://:80/", "has no valid host"),
        ("http://?x", "has no valid host"),
        ("http://a..b/", "has no valid host"),
        ("http://.a/", "has no valid host"),
        ("http://-a/", "has no valid host"),
        ("http://a%2eb/", "has no valid host"),
        ("http://a,b/", "has no valid host"),
        ("http://*.a/", "has no valid host"),
        ("http://[::1]18394/", "has no valid host"),
        ("http://[::1].a.example/", "has no valid host"),
        ("http://[::1]a:80/", "has no valid host"),
        ("http://[::1]]:80/", "has no valid host"),
        ("http://[[::1]]/", "has no valid host"),
        ("http://[::1/", "has no valid host"),
        ("http://::1/", "has no valid host"),
        ("http://[]/", "has no valid host"),
        ("http://[::1%25lo]/", "has no valid host"),
        ("http://[v1.a]/", "has no valid host"),
        ("http://[127.0.0.1]/", "addresses are written as"),
        ("http://[1:2]/", "addresses are written as"),
        ("http://0177.0.0.1/", "addresses are written as"),
        ("http://256.0.0.1/", "addresses are written as"),
        ("http://a:0/", "from 1 to 65535"),
        ("http://a:65536/", "from 1 to 65535"),
        ("http://a:123456/", "has no valid host"),
        ("http://a:-1/", "has no valid host"),
        ("http://a:+80/", "has no valid host"),
        ("http://a:8_0/", "has no valid host"),
        ("http://a:\u0668\u0660/", "has no valid host"),
        ("http://a:80:81/", "has no valid host"),
    ],
)
def test_an_invalid_url_is_refused_and_not_repeated(text, why):
    with pytest.raises(ValueError, match=why) as refused:
        parse_url(text)
    message = str(refused.value)
    assert not any(part in message for part in ("s3cr3t", "a.example", "0.0.1", "18394"))


@pytest.mark.parametrize(
    ("text", "origin", "target"),
    [
        ("http://a:80/b?c", "http://a", "/b?c"),
        ("https://a:80", "https://a:80", "/"),
        ("https://[::1]:443/?", "https://[::1]", "/?"),
        ("http://[::1]:81/x", "http://[::1]:81", "/x"),
    ],
)
def test_what_a_url_is_made_of_again(text, origin, target):
    url = parse_url(text)
    assert (url.origin, url.target) == (origin, target)
    assert parse_url(url.origin + url.target) == url


def test_a_url_is_shown_without_what_may_be_its_password():
    assert "s3cr3t" not in repr(parse_url("https://a.example/s3cr3t?token=s3cr3t"))


@given(st.text(max_size=30), st.text(max_size=30))
def test_what_is_read_is_read_again_as_the_same(host, rest):
    try:
        url = parse_url(f"http://{host}/{rest}")
    except ValueError:
        return
    assert parse_url(url.origin + url.target) == url
