"""The URL of an engine, its routes, and what a node says without the extra."""

import pytest

from noonmark.targets.temporal.settings import EngineAddress, check_route, parse_engine, served_routes


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("temporal://host", EngineAddress("host")),
        ("temporal://host:7000/jobs", EngineAddress("host", 7000, "jobs")),
        (
            "temporal://[::1]:7233/default?task_queue=mine&heartbeat=30&tls=yes",
            EngineAddress("::1", 7233, "default", "mine", 30, tls=True),
        ),
        (
            "temporal://host?tls_cert=/a&tls_key=/b&tls_ca=/c&server_name=name",
            EngineAddress("host", tls=True, tls_cert="/a", tls_key="/b", tls_ca="/c", server_name="name"),
        ),
    ],
)
def test_the_url_names_a_namespace_and_a_task_queue(url, expected):
    assert parse_engine(url) == expected


def test_an_address_is_written_as_the_library_reads_it():
    assert parse_engine("temporal://[::1]").server == "[::1]:7233"
    assert parse_engine("temporal://host/a?task_queue=q").queue("function:x") == "q/function:x"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://host", "must be the URL of a Temporal namespace"),
        ("temporal://", "must be the URL"),
        ("temporal://user@host", "must be the URL"),
        ("temporal://host:x", "must be the URL"),
        ("temporal://host/a/b", "must be the URL"),
        ("temporal://host#x", "must be the URL"),
        (7, "must be the URL"),
        (
            "temporal://host?queue=q",
            'unknown option "queue"; allowed are task_queue, .* and server_name',
        ),
        ("temporal://host?task_queue=a%20b", "needs a task_queue"),
        ("temporal://host?heartbeat=1", "needs a heartbeat of 2 to 3,600 seconds"),
        ("temporal://host?heartbeat=\u0663", "needs a heartbeat of 2 to 3,600 seconds"),
        ("temporal://host?task_queue=", 'needs a value for "task_queue"'),
        ("temporal://user:secret@host", r'not "temporal://user:\*\*\*@host"'),
        ("temporal://host?task_queue=a&task_queue=b", 'has the option "task_queue" more than once'),
        ("temporal://host?tls=1", "needs yes or no for tls"),
        ("temporal://host?broken", "must be the URL"),
    ],
)
def test_another_url_is_refused(url, words):
    with pytest.raises(ValueError, match=words):
        parse_engine(url)


@pytest.mark.parametrize("route", ["ping", "cron", "", "http:x", "function:", "session:a"])
def test_unknown_routes_are_refused(route):
    with pytest.raises(ValueError, match=r"must be routes of targets \(http, command, workflow, .*function:NAME\)"):
        check_route(route)


def test_function_alone_stands_for_all_functions_of_the_process():
    routes = [check_route(one) for one in ("function", "session", "function:other", "bundle:gpu=yes")]
    expected = ("function:a", "function:b", "session", "function:other", "bundle:gpu=yes")
    assert served_routes(routes, ["b", "a"]) == expected
