"""Parity: every operation gives the same answers and errors over every transport."""

import inspect
import json
import re

import pytest

from noonmark.client import Client, requests
from noonmark.core.instants import DAY_SECONDS, SECOND, parse_instant
from noonmark.operations.service import BundleLimits
from noonmark.operations.table import OPERATIONS
from noonmark.stores.files import UploadFolder
from tests.client.scripted_proxy import Awaited
from tests.server.live_server import SEALING_KEY, serving
from tests.server.parity import CHANGES, IDENTITY, LOOKS, NOBODY, PINGED, UPLOADS, WORKER, WRONG, YEARLY, Row, Stage
from tests.server.transports import METHODS, CallError, ClientCall, ClientMethods, Command, InProcess, JsonRpc, Rest

ID = re.compile(r"\b(?:(sch|occ|run|upl|evt_upl|nm_live|halt)_[0-9A-Za-z_-]+|parity-\d+|t?fresh\d+-[0-9a-f]{40})\b")
INSTANT = re.compile(r"\b\d{4}-\d\d-\d\dT[\d:.]+Z")
NEAR = DAY_SECONDS * SECOND
BY_NAME = ("call --server", "call --store")
COMMANDS = ("command --server", "command --store")
ON_STORE = ("command --store", "call --store")
CLIENTS = ("Client", "AsyncClient")


@pytest.fixture(scope="module")
def _key():
    """The sealing key for commands that work on the store directly."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("NOONMARK_SECRET_KEY", SEALING_KEY)
        yield environment


@pytest.fixture(scope="module")
def stage(tmp_path_factory, _key):
    """One server with data, and every transport to it."""
    store = f"sqlite:///{tmp_path_factory.mktemp('parity') / 'parity.db'}"
    uploads = UploadFolder(tmp_path_factory.mktemp("uploads"), max_bytes=1_000, quota=100_000)
    with (
        serving(store, uploads=uploads, bundle_limits=BundleLimits(), keyed=True) as served,
        Client(served.url, key=served.key) as client,
        Awaited(served.url, key=served.key) as awaited,
    ):
        _key.setenv("NOONMARK_KEY", served.key)
        stage = Stage(served.service)
        there, beside = ("--server", served.url), ("--store", store)
        stage.in_process = InProcess(served.service)
        stage.transports = {
            "REST": Rest(served.client),
            "JSON-RPC": JsonRpc(served.client),
            "JSON-RPC, in order": JsonRpc(served.client, in_order=True),
            "Client": ClientMethods(client),
            "AsyncClient": ClientMethods(awaited),
            "Client.call": ClientCall(client),
            "AsyncClient.call": ClientCall(awaited),
            "command --server": Command(*there, source="jsonrpc"),
            "command --store": Command(*beside, source="cli"),
            "call --server": Command(*there, source="jsonrpc", by_name=True),
            "call --store": Command(*beside, source="cli", by_name=True),
        }
        stage.ids = stage.completed()
        stage.do("event/emit", event_type="seen", payload=[1, None])
        stage.secret()
        stage.do("event/emit", event_type="seen", payload={"n": 2})
        stage.pinged = stage.schedule(target=PINGED)
        stage.trigger = stage.schedule(
            trigger={"type": "event", "event_type": "seen", "filters": {"n": 2}}, labels={"of": "triggers"}
        )
        yield stage


def named(row):
    return row.operation


def transports_for(stage, row):
    """The transports that can express a row."""
    return {
        name: transport
        for name, transport in stage.transports.items()
        if (row.command is not None or name not in COMMANDS) and (getattr(row, "is_typed", True) or name not in CLIENTS)
    }


def alike(document, stage, source):
    """A document without what no two requests share: ids, the present, and the transport that it came by."""
    now = stage.service.store.clock()

    def instant(match):
        return "now" if abs(parse_instant(match[0]) - now) < NEAR else match[0]

    seen = json.loads(INSTANT.sub(instant, ID.sub("id", json.dumps(document))))
    if "source" in seen:
        assert seen["source"] in (source, InProcess.source)
        seen["source"] = "a transport"
    if proposal := seen.get("proposal"):
        assert proposal["proposal_id"].startswith("prp_")
        seen["proposal"] |= {"proposal_id": "id", "expires_at_utc": "in a week"}
    return seen


def history(stage, asked, answer):
    """What the audit log says of the schedule that was spoken of."""
    whose = answer.get("schedule_id") or asked.get("schedule_id")
    entries = stage.do("audit/list", schedule_id=whose)["entries"]
    told = ("caller", "operation", "revision_before", "revision_after", "reason")
    return [[entry[name] for name in told] for entry in entries]


def comparable(answer):
    """The answer without what not every process knows, or what changes by itself.

    Of the doctor's checks, these are the free disk space, and sizes and times in the details. Of the limits, those of
    uploads and bundles. Of a timeline, the present.
    """
    answer = {name: value for name, value in answer.items() if name != "now_utc"}
    if "limits" in answer:
        return {"limits": [one for one in answer["limits"] if not one["name"].startswith(("upload", "bundle"))]}
    if not all("advice" in check for check in answer.get("checks", [{}])):
        return answer
    return answer | {"checks": [(one["check"], one["status"]) for one in answer["checks"] if one["check"] != "disk"]}


@pytest.mark.parametrize("row", LOOKS, ids=named)
def test_reads_give_the_same_answer(stage, row):
    arguments = row.arguments(stage)
    seen = comparable(stage.in_process.call(row, arguments))
    for name, transport in transports_for(stage, row).items():
        assert row.arguments(stage) == arguments
        answer = comparable(transport.call(row, arguments))
        if answer != seen:  # something may be late by now
            seen = comparable(stage.in_process.call(row, arguments))
        assert answer == seen, name


@pytest.mark.parametrize("row", CHANGES, ids=named)
def test_changes_give_the_same_answer_and_audit_entries(stage, row):
    def change(transport):
        arguments = row.arguments(stage)
        answer = transport.call(row, arguments)
        told = alike(answer, stage, transport.source)
        if not row.audited:
            return told, None
        entries = history(stage, arguments, answer)
        assert (len(entries), entries[0][1]) == (row.audited, row.operation)
        return told, entries

    expected = change(stage.in_process)
    for name, transport in transports_for(stage, row).items():
        assert change(transport) == expected, name


@pytest.mark.parametrize("row", WORKER, ids=named)
def test_worker_operations_control_the_same_worker(stage, row):
    worker = stage.service.worker
    try:
        for is_running in (False, True):
            (worker.start if is_running else worker.stop)()
            seen = stage.in_process.call(row, {})
            for name, transport in transports_for(stage, row).items():
                (worker.start if is_running else worker.stop)()
                if name in ON_STORE:
                    with pytest.raises(CallError, match=r"conflict"):
                        transport.call(row, {})
                    continue
                assert transport.call(row, {}) == seen, name
                assert worker.running is (seen["status"] == "running")
    finally:
        worker.stop()


@pytest.mark.parametrize("row", IDENTITY, ids=named)
def test_the_caller_is_the_same_but_for_its_key(stage, row):
    expected = stage.in_process.call(row, {})
    assert expected["key_id"] is None
    for name, transport in transports_for(stage, row).items():
        found = transport.call(row, {})
        assert (found["key_id"] is None) is (name in ON_STORE), name
        assert {**found, "key_id": None} == expected, name


@pytest.mark.parametrize("row", UPLOADS, ids=named)
def test_uploads_are_the_same_except_without_a_server(stage, row):
    stage.upload()
    expected = alike(stage.in_process.call(row, row.arguments(stage)), stage, "")
    for name, transport in transports_for(stage, row).items():
        if name in ON_STORE:
            with pytest.raises(CallError, match=r"conflict"):
                transport.call(row, row.arguments(stage))
        else:
            assert alike(transport.call(row, row.arguments(stage)), stage, "") == expected, name


@pytest.mark.parametrize("row", WRONG, ids=lambda row: f"{row.operation}-{row.code}-{row.field}")
def test_errors_are_the_same(stage, row):
    for name, transport in {"here": stage.in_process, **transports_for(stage, row)}.items():
        if name == "JSON-RPC, in order" and not row.is_typed:
            continue
        with pytest.raises(CallError) as refused:
            transport.call(row, row.arguments(stage))
        assert refused.value.args == (row.code, row.field), name


def test_an_idempotency_key_is_shared_by_all_transports(stage):
    request = {"trigger": YEARLY, "target": NOBODY, "idempotency_key": "by-all-transports"}
    row = Row("schedule/create", lambda _: request)
    first = stage.in_process.call(row, request)
    for name, transport in transports_for(stage, row).items():
        assert transport.call(row, request) == first, name
        with pytest.raises(CallError) as refused:
            transport.call(row, {**request, "name": "another"})
        assert refused.value.args == ("idempotency_key_reused", "idempotency_key"), name


@pytest.mark.parametrize("operation", ["schedule/list", "schedule/occurrences", "event/list", "audit/list"])
def test_a_cursor_works_over_every_transport(stage, operation):
    schedule = stage.schedule(labels={"of": "pages"})
    for number in range(14):
        stage.schedule(labels={"of": "pages"})
        stage.do("schedule/run", schedule_id=schedule, key=f"{number}")
        stage.do("event/emit", event_type="paged")
    asked = {
        "schedule/list": {"labels": {"of": "pages"}},
        "schedule/occurrences": {"schedule_id": schedule},
        "event/list": {"event_type": "paged"},
        "audit/list": {"schedule_id": schedule},
    }[operation]
    row = Row(operation)
    [entries, _] = everything = stage.in_process.call(row, asked)
    found, page = [], {"next_cursor": None}
    for name, transport in transports_for(stage, row).items():
        if name not in CLIENTS:
            turned = {} if page["next_cursor"] is None else {"cursor": page["next_cursor"]}
            page = transport.call(row, {**asked, **turned, "limit": 1})
            found += page[entries]
    assert len(found) > 5
    assert found == everything[entries][: len(found)]


def test_an_unknown_operation_is_rejected_by_name(stage):
    row = Row("schedule/dance")
    for name in ("JSON-RPC", "Client.call", "AsyncClient.call", *BY_NAME):
        with pytest.raises(CallError) as refused:
            stage.transports[name].call(row, {})
        assert refused.value.args == ("method_not_found", "method"), name


SPELLED = {
    "from": "first",
    "to": "last",
    "limit": "page_size",
    "label": "labels",
    "trigger": "what",
}
"""What a method of a client calls another name, since lists are walked and documents are values."""
WALKED = {"cursor", "offset"}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda one: one.name)
def test_a_method_takes_every_argument_of_its_operation(operation):
    method = getattr(requests, {"list": "list_schedules"}.get(name := METHODS[operation.name].name, name))
    taken = set()
    for one in inspect.signature(method).parameters.values():
        named = one.annotation.removeprefix("Unpack[").rstrip("]")
        taken |= set(getattr(requests, named).__annotations__) if one.kind is one.VAR_KEYWORD else {one.name}
    assert inspect.getdoc(method).partition("\n")[0] == operation.summary
    missing = {one for one in operation.parameters if not {one, SPELLED.get(one, one)} & taken} - WALKED
    assert missing == NOT_TAKEN.get(operation.name, set())


NOT_TAKEN = {
    "schedule/upsert": {"idempotency_key"},  # the same one again changes nothing anyway
    "schedule/preview": {"schedule_id"},  # what is previewed comes first, by its id or as a trigger
}


def test_every_operation_has_rows_that_succeed_and_fail():
    assert {row.operation for row in (*LOOKS, *CHANGES, *IDENTITY, *UPLOADS, *WORKER)} == set(OPERATIONS)
    assert {row.operation for row in WRONG} == set(OPERATIONS)
    assert set(METHODS) == set(OPERATIONS)
    assert {row.operation for row in CHANGES} | {
        row.operation for row in UPLOADS + WORKER if OPERATIONS[row.operation].is_change
    } == {name for name, operation in OPERATIONS.items() if operation.is_change}


def test_the_output_of_a_run_is_plain_text(stage):
    rest = stage.transports["REST"].http
    answer = rest.get(f"/runs/{stage.ids[2]}/output")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert answer.text == "hello you"
    assert rest.get("/runs/run_0/output").status_code == 404
