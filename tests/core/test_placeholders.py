"""Placeholders: which there are, and what becomes of them."""

import pytest

from noonmark.core.targets import parse_target
from noonmark.core.targets.placeholders import MAX_FILLED, Filling, has_placeholder

FACTS = {
    "schedule_id": "sch_1",
    "schedule_name": "Täglich",
    "occurrence_id": "occ_1",
    "nominal_at": "2026-03-01T12:00:00Z",
    "due_at": "2026-03-01T12:00:01Z",
    "attempt": 2,
    "payload": {"user": {"id": 7, "tags": ["a", "b"]}, "none": None, "is": True, "ü-1": "x"}
    | {"a.b": "dotted", "a": {"b": "inner too", "c": "inner"}, "deep": [{"x.y": 3}]},
    "event": None,
}


@pytest.mark.parametrize(
    ("value", "has_one"),
    [
        ("{{schedule_id}}", True),
        (["a", {"b": ["c {{ payload.user }}"]}], True),
        ("open {{", True),
        ("{ }", False),
        ([None, 1, {"{{name}}": True}], False),
        (None, False),
    ],
)
def test_json_without_two_braces_has_nothing_to_fill_in(value, has_one):
    assert has_placeholder(value) is has_one
    assert has_one or filled(value) == value


def filled(value, **facts):
    return Filling(FACTS | facts).json(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("nothing", "nothing"),
        ("{{schedule_id}}", "sch_1"),
        ("{{ schedule_name }}!", "Täglich!"),
        ("{{occurrence_id}}/{{attempt}}", "occ_1/2"),
        ("{{attempt}}", 2),
        ("at {{nominal_at}} or {{due_at}}", "at 2026-03-01T12:00:00Z or 2026-03-01T12:00:01Z"),
        ("{{payload.user}}", {"id": 7, "tags": ["a", "b"]}),
        ("<{{payload.user}}>", '<{"id":7,"tags":["a","b"]}>'),
        ("{{payload.user.tags.1}}", "b"),
        ("{{payload.none}}", None),
        ("{{payload.none}}{{payload.is}}", "nulltrue"),
        ("{{payload.ü-1}}", "x"),
        ("{{schedule.id}} {{ schedule.name }} {{occurrence.id}}", "sch_1 Täglich occ_1"),
        ("{{nominal_time}} {{due_time}}", "2026-03-01T12:00:00Z 2026-03-01T12:00:01Z"),
        ("{{payload.a.b}}", "dotted"),
        ("{{payload.a.c}}", "inner"),
        ("{{payload.deep.0.x.y}}", 3),
        ("{{ not closed", "{{ not closed"),
        ("{single} {{{attempt}}}", "{single} {2}"),
    ],
)
def test_a_placeholder_alone_is_its_value_and_among_others_it_is_text(text, value):
    assert filled(text) == value


def test_json_is_filled_at_any_depth_but_not_in_its_names():
    body = {"{{attempt}}": [{"n": "{{attempt}}"}, 1, None, True, "{{payload.user.id}}"]}
    assert filled(body) == {"{{attempt}}": [{"n": 2}, 1, None, True, 7]}


def test_what_is_filled_in_is_not_filled_again():
    assert filled("<{{payload}}>", payload="{{attempt}}") == "<{{attempt}}>"


def test_an_event_is_there_with_all_that_it_tells():
    event = {"event_id": "e1", "payload": {"path": "/a"}}
    assert filled("{{event.event_id}} {{event.payload.path}}", event=event) == "e1 /a"


EVENT = {
    "event_id": "e1",
    "event_type": "file",
    "source": "shop",
    "payload": {"path": "/a", "id": 9, "source": {"region": "eu"}, "user.name": "ada", "tags": ["x"]},
    "emitted_at": "2026-03-01T12:00:00Z",
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("event.id", "e1"),
        ("event.event_id", "e1"),
        ("event.type", "file"),
        ("event.event_type", "file"),
        ("event.source", "shop"),
        ("event.emitted_at", "2026-03-01T12:00:00Z"),
        ("event.payload.id", 9),
        ("event.path", "/a"),
        ("event.source.region", "eu"),
        ("event.user.name", "ada"),
        ("event.payload.user.name", "ada"),
        ("event.tags.0", "x"),
        ("event", EVENT),
    ],
)
def test_what_an_event_does_not_have_itself_is_in_its_payload(name, value):
    assert filled("{{" + name + "}}", event=EVENT) == value


@pytest.mark.parametrize(
    ("name", "part"), [("event.nobody", "nobody"), ("event.payload.nobody", "nobody"), ("event.path.x", "x")]
)
def test_what_neither_has_is_an_error(name, part):
    with pytest.raises(ValueError, match=f'asks for {{{{{name}}}}}, and there is no "{part}"'):
        filled("{{" + name + "}}", event=EVENT)


@pytest.mark.parametrize(
    "name",
    ["payload.nobody", "payload.user.id.x", "payload.user.tags.2", "payload.user.tags.-1", "payload.user.tags.١"],
)
def test_a_field_that_is_not_there_is_an_error_and_not_nothing(name):
    with pytest.raises(ValueError, match="and there is no"):
        filled("{{" + name + "}}")


def test_without_an_event_there_is_nothing_to_ask_it():
    with pytest.raises(ValueError, match="no event triggered this occurrence"):
        filled("{{event.payload.x}}")


def test_text_is_written_as_the_place_asks():
    assert Filling(FACTS).text("/{{schedule_name}}/{{attempt}}", str.upper) == "/TÄGLICH/2"


@pytest.mark.parametrize("value", [["{{payload}}"] * 100, "{{payload}}" * 100])
def test_what_would_be_too_much_is_refused_before_it_is_made(value):
    with pytest.raises(ValueError, match=f"larger than {MAX_FILLED:,} characters"):
        filled(value, payload="x" * (MAX_FILLED // 50))


def test_a_request_keeps_its_placeholders_without_blanks():
    document = {
        "target_kind": "http",
        "method": "PUT",
        "url": "https://example.com/{{ payload.user.id }}?at={{due_at}}",
        "headers": {"X-Name": "{{ schedule_name }}"},
        "body": {"all": ["{{ payload }}", {"event": "{{event.payload.x}}"}], "n": 1, "no": None},
    }
    target = parse_target(document)
    assert target.url == "https://example.com/{{payload.user.id}}?at={{due_at}}"
    assert target.headers == {"X-Name": "{{schedule_name}}"}
    assert parse_target(target.to_document()) == target


@pytest.mark.parametrize(
    ("fields", "expected", "retried"),
    [
        ({}, {200, 204, 299}, {408, 425, 429, 500, 503}),
        ({"expected_statuses": [404, "3xx"], "retry_statuses": []}, {404, 302}, set()),
        ({"expected_statuses": ["2xx"], "retry_statuses": [409]}, {200, 204, 299}, {409}),
    ],
)
def test_which_answers_are_good_and_which_are_tried_again(fields, expected, retried):
    target = parse_target({"target_kind": "http", "url": "https://example.com/", **fields})
    statuses = {200, 204, 299, 302, 400, 404, 408, 409, 425, 429, 500, 503}
    assert {one for one in statuses if target.expects(one)} == expected
    assert {one for one in statuses if target.retries(one) and not target.expects(one)} == retried
    assert target.to_document().items() >= fields.items()


def test_words_keep_braces_that_are_no_facts():
    filling = Filling({"schedule_id": "report", "payload": {"n": 1}, "event": None})
    words = "Of {{ schedule_id }}: {{payload}}; {{ user }}, {{steps.a}} and {{ open"
    assert filling.prose(words) == 'Of report: {"n":1}; {{ user }}, {{steps.a}} and {{ open'
