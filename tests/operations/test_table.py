"""The table of operations: every row is complete, and its models are what the operation takes."""

import re

import pytest

from noonmark.core.errors import InvalidSchedule, MethodNotFound
from noonmark.operations.models.arguments import NewSchedule, ScheduleFields, ScheduleUpdate
from noonmark.operations.models.schemas import SchemaRegistry
from noonmark.operations.table import OPERATIONS, SMALL_PAGE, Quick, Scope
from tests.operations.answers import check_answer
from tests.operations.harness import EVERY_MINUTE, REPORT, Harness


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda one: one.name)
def test_a_row_is_complete(operation):
    assert operation.call
    assert re.fullmatch(r"(GET|POST|PUT|PATCH|DELETE) /[a-z/{}_-]+", operation.route)
    assert set(re.findall(r"{(\w+)}", operation.route)) <= set(operation.parameters)
    assert operation.key is None or operation.key in operation.parameters
    # Who may change a schedule may see the URL of its pings.
    assert operation.is_change or operation.scope in (Scope.READ, Scope.ADMIN, None) or operation.name == "ping/url"
    schemas = SchemaRegistry()
    schemas.reference(operation.arguments)
    schemas.reference(operation.answer)
    assert all(schema["description"].endswith(".") for schema in schemas.schemas.values())


def test_routes_are_unique():
    routes = [route for one in OPERATIONS.values() for route in (one.route, one.other_route) if route is not None]
    assert len(set(routes)) == len(routes)


@pytest.mark.parametrize("operation", [one for one in OPERATIONS.values() if one.quick], ids=lambda one: one.name)
def test_quick_calls_read_one_record_or_a_small_page(operation):
    assert operation.route.startswith("GET ")
    assert operation.quick is Quick.PAGE or operation.route.endswith("_id}")
    if operation.quick is Quick.PAGE:
        assert {"limit", "cursor"} < set(operation.parameters)
        assert operation.arguments.fields()["limit"].default > SMALL_PAGE, "a page without a limit is not small"


DOCUMENTS = {
    "schedule/create": {"trigger": EVERY_MINUTE, "target": REPORT},
    "schedule/propose": {"trigger": EVERY_MINUTE, "target": REPORT},
    "schedule/upsert": {"trigger": EVERY_MINUTE, "target": REPORT, "schedule_id": "s"},
    "schedule/update": {"schedule_id": "s"},
    "workflow/create": {"workflow_id": "w", "steps": [{"id": "a", "target": REPORT}]},
    "session/create": {"model": "test"},
    "session/send": {"session_id": "s", "prompt": "go"},
    "mob/create": {"mob_id": "m", "members": [{"member_id": "a", "model": "test"}]},
    "event/emit": {"event_type": "e"},
    "secret/set": {"name": "n", "value": "0123456789", "hosts": ["example.com"]},
    "secret/delete": {"name": "n"},
}
"""The operations whose arguments the core reads."""
READ_BEFORE = {
    "schedule/create": {"user_id", "idempotency_key"},
    "schedule/propose": {"user_id", "idempotency_key"},
    "schedule/upsert": {"user_id", "idempotency_key"},
    "schedule/update": {"schedule_id", "expected_revision", "expected_updated_at_utc"},
}


def test_what_the_core_reads_is_known():
    assert {name for name, one in OPERATIONS.items() if one.arguments.is_document} == set(DOCUMENTS)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_model_has_the_fields_that_the_core_reads(name):
    with pytest.raises(InvalidSchedule) as refused:
        Harness()(name, **DOCUMENTS[name], surprise=1)
    [allowed] = re.findall(r"allowed are ([\w, ]+)", refused.value.message)
    assert {*allowed.split(", "), *READ_BEFORE.get(name, ())} == set(OPERATIONS[name].parameters)


def test_a_model_may_require_a_field_that_its_base_does_not():
    assert NewSchedule.fields()["target"].is_required
    assert not ScheduleUpdate.fields()["target"].is_required


def test_a_new_schedule_and_an_update_have_the_same_fields():
    assert ScheduleFields.fields().keys() == NewSchedule.fields().keys() & ScheduleUpdate.fields().keys() - {
        "schedule_id"
    }


def test_an_answer_that_is_not_its_model_is_noticed():
    harness = Harness().create()
    model = OPERATIONS["schedule/create"].answer
    check_answer(model, harness)
    for wrong in (
        {**harness, "surprise": 1},
        {**harness, "revision": "1"},
        {**harness, "created_at_utc": None},
        {**harness, "counters": {}},
        {name: value for name, value in harness.items() if name != "phase"},
    ):
        with pytest.raises(AssertionError):
            check_answer(model, wrong)


@pytest.mark.parametrize(("name", "route"), [("bundle/push", "POST /bundles"), ("upload/create", "POST /uploads")])
def test_what_takes_a_file_is_no_operation_and_names_its_route(name, route):
    with pytest.raises(MethodNotFound, match=f"files are not JSON; send it to {route}"):
        Harness()(name)
