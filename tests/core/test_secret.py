"""Secrets: what they are called, what they may be, and which hosts may see them."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonmark.core.instants import from_micros
from noonmark.core.secret import (
    Secret,
    bound_host,
    bound_hosts,
    bound_program,
    header_problems,
    secret_name,
    secret_value,
    variable_problems,
)
from noonmark.core.urls import parse_url
from noonmark.testing.factories import NOW

MARK = "s3cr3t-mark-0123456789"


def bound_to(*hosts):
    return Secret(name="token", hosts=hosts, sealed=MARK, created=NOW, updated=NOW)


@pytest.mark.parametrize("name", ["a", "A-1_b.c", "...", "9", "x" * 63])
def test_names(name):
    assert secret_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 64, "a b", "a/b", "é", "a\n", None, 7, f"Bearer {MARK}", [MARK]])
def test_an_invalid_name_is_not_repeated(name):
    with pytest.raises(ValueError, match="must be the name of a secret: 1 to 63 letters") as refused:
        secret_name(name)
    assert MARK not in str(refused.value)


@pytest.mark.parametrize("value", ["1234", f"Bearer {MARK}", "x" * 8192, "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"])
def test_values(value):
    assert secret_value(value) == value


@pytest.mark.parametrize(
    "value", ["", "123", "x" * 8193, f"{MARK}\n", f"{MARK}\r\nX: y", f" {MARK}", f"{MARK} ", f"{MARK}é", None, 7]
)
def test_an_invalid_value_is_not_repeated(value):
    with pytest.raises(ValueError, match="must be 4 to 8,192 printable ASCII characters") as refused:
        secret_value(value)
    assert MARK not in str(refused.value)


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("api.example.com", "api.example.com"),
        ("API.Example.COM.", "api.example.com"),
        ("api.example.com:8443", "api.example.com:8443"),
        ("api.example.com.:0443", "api.example.com:443"),
        ("*.example.com", "*.example.com"),
        ("*.Example.com:8443", "*.example.com:8443"),
        ("localhost", "localhost"),
        ("some_host", "some_host"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("127.0.0.1:80", "127.0.0.1:80"),
        ("[::1]", "[::1]"),
        ("[2001:DB8:0::1]:65535", "[2001:db8::1]:65535"),
        ("https://API.example.com:8443", "api.example.com:8443"),
        ("HTTP://API.example.com", "http://api.example.com"),
        ("http://*.example.com:8080", "http://*.example.com:8080"),
        ("http://[0:0::1]:81", "http://[::1]:81"),
    ],
)
def test_hosts_have_one_form(written, kept):
    assert bound_host(written) == kept
    assert bound_host(kept) == kept


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("", "such as api.example.com"),
        (None, "such as api.example.com"),
        (7, "such as api.example.com"),
        ("a" * 261, "such as api.example.com"),
        ("ftp://api.example.com", "such as api.example.com"),
        ("http:/api.example.com", "such as api.example.com"),
        ("api.example.com/path", "such as api.example.com"),
        ("user@api.example.com", "such as api.example.com"),
        ("api..example.com", "such as api.example.com"),
        ("-api.example.com", "such as api.example.com"),
        ("api.example.com:", "such as api.example.com"),
        ("api.example.com:0", "such as api.example.com"),
        ("api.example.com:65536", "such as api.example.com"),
        ("*", "such as api.example.com"),
        ("*.", "such as api.example.com"),
        ("api.*.example.com", "such as api.example.com"),
        ("*.*.example.com", "such as api.example.com"),
        ("::1", "such as api.example.com"),
        ("bücher.example", "xn--"),
        ("１２７.0.0.1", "xn--"),
        ("2130706433", "unusual form"),
        ("0x7f.1", "unusual form"),
        ("127.1", "unusual form"),
        ("0177.0.0.1", "unusual form"),
        ("[::1::]", "unusual form"),
        ("[127.0.0.1]", "unusual form"),
        ("*.127.0.0.1", "leave the star out"),
        ("*.[::1]", "leave the star out"),
    ],
)
def test_hosts_that_are_refused(written, why):
    with pytest.raises(ValueError, match=re.escape(why)):
        bound_host(written)


def test_each_host_once_and_at_least_one():
    assert bound_hosts(["b", "a", "b"]) == ("b", "a")
    with pytest.raises(ValueError, match="at least one host"):
        bound_hosts([])


@pytest.mark.parametrize(
    ("bound", "url", "may"),
    [
        ("api.example.com", "https://api.example.com/x?y#z", True),
        ("api.example.com", "https://API.example.COM./", True),
        ("api.example.com", "https://api.example.com:8080", True),
        ("api.example.com", "http://api.example.com:8080", False),
        ("api.example.com", "http://api.example.com", False),
        ("http://api.example.com", "http://api.example.com:8080", True),
        ("http://api.example.com", "https://api.example.com", False),
        ("http://api.example.com:8080", "http://api.example.com", False),
        ("http://*.example.com", "http://api.example.com", True),
        ("api.example.com", "https://example.com", False),
        ("api.example.com", "https://v1.api.example.com", False),
        ("api.example.com", "https://api.example.com.evil.example", False),
        ("api.example.com", "https://evil.example/api.example.com", False),
        ("api.example.com", "https://apixexample.com", False),
        ("api.example.com:8443", "https://api.example.com:8443/", True),
        ("api.example.com:8443", "https://api.example.com/", False),
        ("api.example.com:443", "https://api.example.com/", True),
        ("http://api.example.com:80", "http://api.example.com/", True),
        ("api.example.com:80", "https://api.example.com/", False),
        ("*.example.com", "https://api.example.com", True),
        ("*.example.com", "https://a.b.example.com:81", True),
        ("*.example.com", "https://example.com", False),
        ("*.example.com", "https://evilexample.com", False),
        ("*.example.com:8443", "https://api.example.com:8443", True),
        ("*.example.com:8443", "https://api.example.com", False),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/x", True),
        ("http://127.0.0.1", "http://127.0.0.2", False),
        ("http://[::1]", "http://[0:0:0:0:0:0:0:1]/", True),
        ("http://[::1]:81", "http://[::1]:81/", True),
        ("http://[::1]:81", "http://[::1]/", False),
        ("xn--bcher-kva.example", "https://bücher.example", False),
        ("fass.de", "https://faß.de", False),
    ],
)
def test_where_a_secret_may_go(bound, url, may):
    assert bound_host(bound) == bound
    assert bound_to("other.example", bound).is_bound_to(parse_url(url)) is may


labels = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)


@given(st.lists(labels, min_size=1, max_size=4), st.lists(labels, min_size=1, max_size=4))
def test_a_name_is_bound_to_itself_alone(mine, theirs):
    mine, theirs = (".".join([*one, "example"]) for one in (mine, theirs))
    assert bound_to(bound_host(mine)).is_bound_to(parse_url(f"https://{theirs}/")) is (mine == theirs)


def test_what_is_wrong_with_the_headers_of_a_request():
    known = {"token": bound_to("api.example.com"), "other": replace(bound_to("b.example"), name="other")}
    url = parse_url("https://api.example.com/hook")
    assert header_problems({"Authorization": "token"}, url, known) == []
    assert [str(one) for one in header_problems({"A": "token", "B": "other", "C": "gone"}, url, known)] == [
        "target.secret_headers.B: other is bound to b.example, not to this host",
        "target.secret_headers.C: there is no secret of that name",
    ]
    [plain] = header_problems({"A": "token"}, parse_url("http://api.example.com/hook"), known)
    assert plain.message == (
        "token is bound to api.example.com over https only; for plain http, set it again with the host"
        " http://api.example.com"
    )


def test_what_may_be_no_name_of_a_header_is_shown_by_its_number():
    problems = header_problems({"A": "gone", MARK: "gone", "X-Ok": "gone"}, parse_url("https://a.example/"), {})
    assert [one.field for one in problems] == [
        "target.secret_headers.A",
        "target.secret_headers[1]",
        "target.secret_headers.X-Ok",
    ]


def test_what_is_sealed_is_not_shown():
    kept = bound_to("api.example.com")
    assert MARK not in repr(kept)
    assert kept.created_at == kept.updated_at == from_micros(NOW)


def test_a_secret_may_be_bound_to_programs():
    secret = replace(bound_to("api.example.com"), programs=("curl", "bundle:eval"))
    assert secret.program_misfit("bundle:eval") is None
    misfit = secret.program_misfit("sh")
    assert misfit == (
        "is bound to api.example.com, curl, bundle:eval; to give it to this program, set it again with --program sh"
    )
    wanted = {"A": "token", "B": "other"}
    assert variable_problems({"A": "token"}, "curl", {"token": secret}) == []
    assert [(one.field, one.message) for one in variable_problems(wanted, "sh", {"token": secret})] == [
        ("target.secret_env.A", f"token {misfit}"),
        ("target.secret_env.B", "there is no secret of that name"),
    ]


def test_what_a_secret_is_bound_to():
    assert bound_hosts([], ["curl"]) == ()
    for program in ("curl", "/usr/bin/env", "bundle:eval", "python3.11"):
        assert bound_program(program) == program
    for program in ("", "a b", "./x", "x" * 256, 1, "a/b"):
        with pytest.raises(ValueError, match="name of a program"):
            bound_program(program)
