"""The OpenAPI document: it covers every route, its examples work, and answers match it."""

import re
import subprocess
import sys

import pytest

from noonmark.operations.service import BundleLimits
from noonmark.server.openapi import documented_routes
from noonmark.stores.files import UploadFolder
from noonmark.telemetry.metrics import Metrics
from tests.server.live_server import GREET, new_key, serving
from tests.soak import SCALE

CONFIG = """
[generation]
deterministic = true
database = "none"

[checks]
# What a trigger, a target or a policy may say is more than a schema can tell: the core refuses the rest with 400.
positive_data_acceptance.expected-statuses = ["2xx", "400", "404", "409", "412", "429"]
# A condition in a header is judged before the body.
negative_data_rejection.expected-statuses = ["400", "404", "405", "409", "412", "415", "429"]

# One never ends, and one refuses all keys but those that there are.
[[operations]]
include-operation-id = ["stream", "page_sign_in"]
enabled = false
"""
SAMPLE = """
[[operations]]
exclude-operation-id = ["schedule_create", "schedule_list", "selection_pause", "event_emit"]
phases.coverage.enabled = false
"""
"""One of each kind: a large document, parameters, a selection, an event. `make soak` covers every operation."""
THEIR_OWN = {"/openapi.json", "/", "/ui", "/ui/{path:path}"}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    uploads = UploadFolder(tmp_path_factory.mktemp("uploads"), max_bytes=10_000, quota=1_000_000)
    with serving(metrics=Metrics(), uploads=uploads, bundle_limits=BundleLimits(), keyed=True) as server:
        yield server


def test_every_route_that_is_served_is_described(served):
    document = served.client.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert document["info"]["version"][0].isdigit()
    served_paths = {route.path for route in served.app.router.routes}
    assert served_paths - THEIR_OWN == set(document["paths"])
    for path, operations in document["paths"].items():
        answer = served.client.request("TRACE", re.sub(r"{\w+}", "x", path))
        methods = {one.lower() for one in answer.headers["allow"].split(", ")} - {"head"}
        assert methods == set(operations), path


def test_every_operation_is_named_once_and_has_a_summary(served):
    document = served.client.get("/openapi.json").json()
    operations = [one for path in document["paths"].values() for one in path.values()]
    assert len({one["operationId"] for one in operations}) == len(operations)
    for one in operations:
        assert one["summary"].endswith(".")
        assert {"400", "401", "403", "404", "500", "503"} <= one["responses"].keys()
        assert one["description"].startswith("Needs ")
        assert (one["security"] == []) is (one["description"] == "Needs no key.")


def test_every_reference_leads_somewhere(served):
    text = served.client.get("/openapi.json").text
    document = served.client.get("/openapi.json").json()
    for kind, name in set(re.findall(r'"#/components/(\w+)/(\w+)"', text)):
        assert name in document["components"][kind]


EXAMPLES = [(one, name) for one in documented_routes() for name in one.examples]


@pytest.mark.parametrize(("one", "name"), EXAMPLES, ids=lambda value: getattr(value, "name", value))
def test_every_example_is_answered_as_described(served, one, name):
    tasks = {"name": "t", "cron_expression": "0 9 * * *", "task_query": "q"}
    if one.path.startswith("/api"):
        schedule_id = served.client.post("/api/v1/schedules", json=tasks).json()["schedule_id"]
    else:
        schedule_id = served.create(target=GREET)["schedule_id"]
    occurrence = served.client.post(f"/schedules/{schedule_id}/run").json()["occurrence_id"]
    key_id = new_key(served.service).rpartition("_")[0]
    owner = {"scope": "schedule", "id": schedule_id}
    path = one.path.format(schedule_id=schedule_id, occurrence_id=occurrence, name="token", key_id=key_id, **owner)
    answer = served.client.request(one.method, path, json=one.examples[name])
    # Nothing awaits its completion here: only the state is wrong.
    is_early = one.path.endswith(("/complete", "/fail"))
    assert answer.status_code == (409 if is_early else one.status), answer.text


def test_answers_match_the_description(served, tmp_path):
    (tmp_path / "schemathesis.toml").write_text(CONFIG + SAMPLE if SCALE == 1 else CONFIG)
    served.create(schedule_id="nightly-report")
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(tmp_path / "schemathesis.toml"), "run"]
    asked = [
        "--checks",
        "all",
        "--phases",
        "examples,coverage" if SCALE == 1 else "examples,coverage,fuzzing",
        "--max-examples",
        str(2 * SCALE),
        "--no-color",
        "--request-timeout",
        "60",
        "--header",
        f"Authorization: Bearer {served.key}",
    ]
    tried = subprocess.run(  # noqa: PLW1510 - its output says why
        [*command, f"{served.url}/openapi.json", *asked], capture_output=True, text=True, cwd=tmp_path
    )
    assert tried.returncode == 0, tried.stdout[-8_000:] + tried.stderr[-2_000:]
    assert "passed" in tried.stdout
