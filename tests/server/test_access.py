"""Keys: who is let in, what each scope allows, and that tenants do not see each other. Generated from the table."""

import json
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import httpx2
import pytest

from noonmark.core.api_key import Scope
from noonmark.core.errors import StoreUnavailable
from noonmark.core.schedule import Owner
from noonmark.core.signatures import completion_token, token_keys
from noonmark.operations.models.fields import read_cursor, write_cursor
from noonmark.operations.service import LOCAL, BundleLimits
from noonmark.operations.table import OPERATIONS, perform
from noonmark.server.openapi import documented_routes
from noonmark.server.routes import ROUTES
from noonmark.stores.files import UploadFolder
from noonmark.telemetry.metrics import Metrics
from tests.cli.runner import call as command
from tests.embedded.waiting import SOON, eventually
from tests.server.live_server import GREET, NOON, Keyed, bearer, hosting, new_key, serving
from tests.server.packed import packed
from tests.server.parity import CARRIES, CHANGES, LOOKS, PAST, PINGED, SEALED, UPLOADS, YEARLY, Stage

TASK = {"target_kind": "task", "query": "what is new"}
EVENT = {"type": "event", "event_type": "seen"}
PUBLIC = {"/health", "/health/live", "/health/ready", "/ping/{token}", "/ping/{token}/{action}", "/ui/session"}
GUESS = "nm_live_000000_" + "0" * 43


def perform_for(service, tenant, operation, /, **arguments):
    """Perform an operation in this process, for a tenant."""
    caller = replace(LOCAL, owner=Owner(tenant=tenant, user="ada"))
    return perform(service, caller, operation, arguments)


class Tenant:
    """A tenant with a user, its keys and one of everything that has an id."""

    def __init__(self, served, name):
        self.name, self.service = name, served.service
        self.keys = {scope: new_key(served.service, tenant=name, user="ada", scopes=scope) for scope in Scope}
        self.everything = new_key(served.service, tenant=name, user="ada", scopes="read,write,run")
        self.http = Keyed(served.stranger, self.keys[Scope.ADMIN])
        self.secret, self.mark = f"secret-of-{name}", f"kept-by-{name}"
        self.ids = self._fill()

    def _do(self, method, path, status=None, **body):
        answer = self.http.request(method, path, **({"json": body} if body else {}))
        assert answer.status_code == status if status else answer.is_success, answer.text
        return answer.json()

    def _fill(self):
        def schedule(**fields):
            target = {"target_kind": "function", "function": self.mark}
            made = self._do("POST", "/schedules", **{"trigger": YEARLY, "target": target, **fields})
            return made["schedule_id"]

        plain = schedule(schedule_id=f"plain-of-{self.name}", name=self.mark, labels={"of": self.name})
        past = schedule(trigger=PAST)
        span = {"from": "2026-02-01T00:00:00Z", "to": "2026-02-03T00:00:00Z"}
        backfill = self._do("POST", f"/schedules/{past}/backfill", **span)["backfill_id"]
        self._do("POST", f"/schedules/{plain}/run", payload={"of": self.mark})
        stage = Stage(self.service)
        stage.do, stage.tenant = partial(perform_for, self.service, self.name), self.name
        occurrence = stage.accepted(labels={"of": self.mark})
        [run] = stage.do("occurrence/runs", occurrence_id=occurrence)["runs"]
        self._do("PUT", f"/secrets/{self.secret}", **{**SEALED, "value": f"Bearer {self.mark}"})
        self._do("POST", "/events", event_type="seen", payload={"of": self.mark}, event_id=f"event-of-{self.name}")
        upload = self.http.post(f"/uploads?filename={self.mark}", content=self.mark.encode()).json()
        workflow = stage.workflow(workflow_id=f"flow-of-{self.name}", description=self.mark)
        approval = stage.approval()
        [asked] = [one for one in stage.do("approval/list")["approvals"] if one["approval_id"] == approval]
        self._do("PUT", f"/budgets/schedule/{plain}", period="month", max_cost_usd=1)
        self._do("POST", "/usage", idempotency_key=f"usage-of-{self.name}", model=self.mark, schedule_id=plain)
        manifest = {"name": f"bundle-of-{self.name}", "command": [self.mark]}
        bundle = self.http.post("/bundles", content=packed(manifest)).json()
        return {
            "schedule_id": plain,
            "past_id": past,
            "task_id": schedule(target={**TASK, "query": self.mark}),
            "ping_id": schedule(target=PINGED, description=self.mark),
            "trigger_id": schedule(trigger=EVENT),
            "backfill_id": backfill,
            "occurrence_id": occurrence,
            "run_id": run["run_id"],
            "workflow_id": workflow,
            "workflow_run_id": asked["workflow_run_id"],
            "approval_id": approval,
            "session_id": stage.session(system_prompt=self.mark),
            "mob_id": stage.mob(members=[{"member_id": "writer", "model": "test", "system_prompt": self.mark}]),
            "name": self.secret,
            "upload_id": upload["upload_id"],
            "bundle_id": bundle["bundle_id"],
            "key_id": self.everything.rpartition("_")[0],
            "event_id": f"event-of-{self.name}",
        }


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    uploads = UploadFolder(tmp_path_factory.mktemp("uploads"), max_bytes=1_000, quota=100_000)
    with (
        serving(metrics=Metrics(), uploads=uploads, bundle_limits=BundleLimits(), keyed=True) as server,
        httpx2.Client(base_url=server.url, timeout=SOON) as server.stranger,
    ):
        yield server


@pytest.fixture(scope="module")
def tenants(served):
    return Tenant(served, "acme"), Tenant(served, "rival")


def alike(answer):
    """An answer without what no two requests share."""
    return answer.status_code, re.sub(r'"request_id":"[^"]*"', "", answer.text)


# What each operation is asked: the id in the path is replaced, the rest makes the request valid.
BODIES = {
    "schedule/create": {"trigger": YEARLY, "target": {"target_kind": "function", "function": "f"}},
    "schedule/upsert": {
        "schedule_id": "new",
        "trigger": YEARLY,
        "target": {"target_kind": "function", "function": "f"},
    },
    "schedule/update": {"description": "changed"},
    "schedule/propose": {"trigger": YEARLY, "target": {"target_kind": "function", "function": "f"}},
    "schedule/backfill": {"from": "2026-02-01T00:00:00Z", "to": "2026-02-03T00:00:00Z", "dry_run": True},
    "schedule/preview": {"trigger": YEARLY},
    "schedule/check": {"schedules": [{"trigger": YEARLY}]},
    "crontab/read": {"text": "@daily date"},
    "selection/pause": {"labels": {"of": "nobody"}},
    "selection/resume": {"labels": {"of": "nobody"}},
    "selection/delete": {"labels": {"of": "nobody"}},
    "selection/label": {"labels": {"of": "nobody"}, "set_labels": {"a": "b"}},
    "selection/run": {"labels": {"of": "nobody"}},
    "occurrence/redrive": {"phase": "failed"},
    "workflow/create": {"workflow_id": "new", "steps": [{"id": "ask", "approval": {}}]},
    "session/create": {"session_id": "new", "model": "test"},
    "session/send": {"prompt": "go"},
    "mob/create": {"mob_id": "new", "members": [{"member_id": "a", "model": "test"}]},
    "event/emit": {"event_type": "quiet"},
    "event/match": {"event_type": "quiet"},
    "secret/set": {**SEALED},
    "key/create": {"scopes": "read"},
    "halt/set": {"labels": {"of": "nobody"}},
    "halt/lift": {"labels": {"of": "nobody"}},
    "budget/set": {"period": "day", "max_tokens": 1},
    "usage/record": {"idempotency_key": "k", "tokens": 1},
    "schedule/call": {"name": "nothing"},
}
ID_OF = {"ping/url": "ping_id", "ping/rotate": "ping_id"}
"""The id that takes the place of a plain schedule."""
OF_ANOTHER = {"secret/set": "makes the caller's own secret of that name"}
"""Operations on a path with a name that need not exist."""


def path_of(operation, path, ids):
    """A path with the ids of a tenant."""
    ids = {**ids, "schedule_id": ids[ID_OF.get(operation, "schedule_id")], "token": "t", "action": "fail"}
    ids |= {"scope": "schedule", "id": ids["schedule_id"]}
    if "backfill_id" in path:
        ids["schedule_id"] = ids["past_id"]
    if path.startswith("/api/v1"):
        ids["schedule_id"] = ids["task_id"]
    return path.format(**ids)


IN_PATH = [route for route in ROUTES if "{" in route.path and route.operation not in OF_ANOTHER]


@pytest.mark.parametrize("route", IN_PATH, ids=lambda one: f"{one.method} {one.path}")
def test_the_id_of_another_tenant_is_as_unknown_as_one_that_does_not_exist(tenants, route):
    ours, theirs = tenants
    unknown = {name: re.sub(r"[0-9a-z](?=[^0-9a-z]*$)", "~", one).replace("~", "q") for name, one in theirs.ids.items()}
    body = {} if route.method in ("GET", "DELETE") else {"json": BODIES.get(route.operation, {})}
    foreign, missing = (
        ours.http.request(route.method, path_of(route.operation, route.path, ids), **body)
        for ids in (theirs.ids, unknown)
    )
    assert foreign.status_code == 404, foreign.text
    told = [alike(foreign)[1], alike(missing)[1]]
    for ids, number in ((theirs.ids, 0), (unknown, 1)):
        for one in sorted(ids.values(), key=len, reverse=True):
            told[number] = told[number].replace(one, "ID")
    assert missing.status_code == 404
    assert told[0] == told[1]


OTHER_DOORS = [
    ("GET", "/runs/{run_id}/output", None),
    ("GET", "/uploads/{upload_id}", None),
    ("GET", "/api/v1/schedules/{schedule_id}", None),
    ("PUT", "/api/v1/schedules/{schedule_id}", {"name": "mine"}),
    ("DELETE", "/api/v1/schedules/{schedule_id}", None),
    ("POST", "/api/v1/schedules/{schedule_id}/pause", {}),
    ("POST", "/api/v1/schedules/{schedule_id}/resume", {}),
    ("GET", "/api/v1/schedules/{schedule_id}/runs", None),
]
NO_IDS = {
    "/run-launcher/start",
    "/rpc",
    "/mcp",
    "/stream",
    "/metrics",
    "/uploads",
    "/bundles",
    "/api/v1/schedules",
    *PUBLIC,
}


def test_every_route_with_an_id_is_tried():
    canonical = {(route.method, route.path) for route in ROUTES}
    others = {(one.method, one.path) for one in documented_routes()} - canonical
    assert {(method, path) for method, path, _ in OTHER_DOORS} == {one for one in others if one[1] not in NO_IDS}


@pytest.mark.parametrize(("method", "path", "body"), OTHER_DOORS)
def test_other_doors_do_not_lead_to_another_tenant_either(tenants, method, path, body):
    ours, theirs = tenants
    answer = ours.http.request(method, path_of("", path, theirs.ids), **({} if body is None else {"json": body}))
    assert answer.status_code == 404, answer.text
    assert theirs.mark not in answer.text


@pytest.fixture(scope="module")
def intruder(served):
    """The administrator of a third tenant, which has nothing."""
    key = new_key(served.service, tenant="intruder", user="eve", scopes="admin")
    return Keyed(served.stranger, key)


def test_no_operation_reads_or_changes_what_another_tenant_has(served, tenants):
    """Over JSON-RPC, each operation with every id of the other tenant among its arguments.

    The caller is of a tenant of its own, because some of the operations create what they name.
    """
    _, theirs = tenants
    imitator = Keyed(served.stranger, new_key(served.service, tenant="imitator", scopes="admin"))
    before = state(theirs)
    for operation in OPERATIONS.values():
        body = {name: one for name, one in BODIES.get(operation.name, {}).items() if name not in theirs.ids}
        named = {name: theirs.ids[name] for name in operation.parameters if name in theirs.ids}
        if operation.name.startswith("backfill/"):
            named["schedule_id"] = theirs.ids["past_id"]
        if operation.name in ("event/match", "schedule/preview"):
            body = {}
        call = {"jsonrpc": "2.0", "id": 1, "method": operation.name, "params": {**body, **named}}
        answer = imitator.post("/rpc", json=call)
        assert answer.status_code == 200, operation.name
        assert theirs.mark not in answer.text, operation.name
    assert state(theirs) == before


LISTS = (
    "/schedules",
    "/occurrences",
    "/workflows",
    "/workflow-runs",
    "/approvals",
    "/proposals",
    "/budgets",
    "/halts",
    "/usage?by=schedule&to=2036-01-01T00:00:00Z",
    "/sessions",
    "/mobs",
    "/events",
    "/secrets",
    "/uploads",
    "/bundles",
    "/triggers",
    "/keys?limit=1000",
    "/audit",
)


def state(tenant):
    """What a tenant has, as it sees it itself."""
    found = [tenant.http.get(path).json() for path in LISTS]
    for key in found[LISTS.index("/keys?limit=1000")]["keys"]:
        del key["last_used_at_utc"]
    return found


def test_lists_have_only_what_is_the_tenants_own(tenants, intruder):
    ours, theirs = tenants
    for path in LISTS:
        for one, other in (tenants, tenants[::-1]):
            found = one.http.get(path).text
            assert other.mark not in found, path
            assert other.secret not in found, path
            assert f'"tenant":"{other.name}"' not in found, path
        assert theirs.mark not in intruder.get(path).text
    assert ours.http.get("/signing-key").json() != theirs.http.get("/signing-key").json()
    for query in ("label=of%3Drival", "text=rival", f"name={theirs.mark}", f"owner=ada&text={theirs.mark}"):
        assert ours.http.get(f"/schedules?{query}").json()["schedules"] == [], query
    for path in ("/schedules?limit=1", "/occurrences?limit=1", "/events?limit=1", "/audit?limit=1"):
        cursor = theirs.http.get(path).json()["next_cursor"]
        assert theirs.mark not in ours.http.get(f"{path}00&cursor={cursor}").text, path


WITH_IDS = [row for row in (*LOOKS, *CHANGES, *UPLOADS) if row.command is not None]


@pytest.fixture(scope="module")
def victim(served, tenants):
    """What the commands of the parity tests work on, in the tenant of others."""
    _, theirs = tenants
    stage = Stage(served.service)
    stage.do, stage.tenant = partial(perform_for, served.service, theirs.name), theirs.name
    stage.ids = (theirs.ids["schedule_id"], theirs.ids["occurrence_id"], theirs.ids["run_id"])
    stage.pinged, stage.trigger = theirs.ids["ping_id"], theirs.ids["trigger_id"]
    stage.upload = lambda: theirs.ids["upload_id"]
    stage.bundle, stage.kept_bundle = lambda: theirs.ids["bundle_id"], theirs.ids["bundle_id"]
    return stage


@pytest.mark.parametrize("row", WITH_IDS, ids=lambda row: row.operation)
def test_no_command_reaches_what_another_tenant_has(served, intruder, victim, row, monkeypatch):
    arguments = row.arguments(victim)
    named = [name for name in arguments if name.endswith("_id") or row.operation == "secret/delete"]
    monkeypatch.setenv("NOONMARK_KEY", intruder.key)
    done = command(*row.command(arguments), "--server", served.url, "--json")
    assert "kept-by-rival" not in done.out + done.err
    is_own = row.operation in ("event/emit", "audit/list") or row.operation.endswith(("/create", "/upsert"))
    if named and not is_own:
        assert (done.code, done.problem["code"]) == (3, "not_found"), done
        assert intruder.key not in done.err


def test_names_are_taken_per_tenant_only(tenants):
    ours, theirs = tenants
    body = {"trigger": YEARLY, "target": {"target_kind": "function", "function": "f"}}
    for one in (ours, theirs):
        made = one.http.post("/schedules", json={**body, "schedule_id": "same"}, headers={"Idempotency-Key": "same"})
        assert made.status_code == 201, made.text
        assert made.json()["owner"] == {"tenant": one.name, "user": "ada"}
    event = {"event_type": "quiet", "event_id": "same", "payload": 1}
    assert [one.http.post("/events", json=event).json() for one in tenants] == [{"event_id": "same"}] * 2
    refused = ours.http.post("/schedules", json={**body, "depends_on": [{"schedule_id": theirs.ids["schedule_id"]}]})
    assert (refused.status_code, refused.json()["field"]) == (400, "depends_on[0].schedule_id")
    carries = {**CARRIES, "secret_headers": {"Authorization": theirs.secret}}
    assert ours.http.post("/schedules", json={**body, "target": carries}).status_code == 400


def test_owner_and_tenant_come_from_the_key(served, tenants):
    ours, _ = tenants
    body = {"trigger": YEARLY, "target": {"target_kind": "function", "function": "f"}}
    refused = ours.http.post("/schedules", json={**body, "user_id": "eve"})
    assert (refused.status_code, refused.json()["code"], refused.json()["field"]) == (403, "not_allowed", "user_id")
    assert ours.http.post("/schedules", json={**body, "user_id": "ada"}).status_code == 201
    for header in ("rival", "*", ""):
        assert ours.http.get("/whoami", headers={"Noonmark-Tenant": header}).status_code in (400, 403)
    assert ours.http.get("/whoami", headers={"Noonmark-Tenant": "acme"}).json()["tenant"] == "acme"
    for other in ("rival", "*"):
        refused = ours.http.post("/keys", json={"scopes": "read", "tenant": other})
        assert (refused.status_code, refused.json()["field"]) == (403, "tenant")
    answer = served.client.post("/schedules", json={**body, "user_id": "eve"}, headers={"Noonmark-Tenant": "acme"})
    assert answer.json()["owner"] == {"tenant": "acme", "user": "eve"}


GLOBAL = {"worker/start", "worker/stop", "worker/confirm-time", "worker/status", "node/list", "doctor"}


def test_only_a_key_of_all_tenants_rules_nodes_and_workers(served, tenants):
    assert {name for name, one in OPERATIONS.items() if one.is_global} == GLOBAL
    ours, _ = tenants
    for name in GLOBAL:
        method, _, path = OPERATIONS[name].route.partition(" ")
        refused = ours.http.request(method, path)
        assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed"), name
    assert ours.http.get("/metrics").status_code == 403
    assert served.client.get("/metrics").status_code == 200
    assert served.client.get("/nodes").status_code == 200


@pytest.mark.parametrize("one", documented_routes(), ids=lambda one: f"{one.method} {one.path}")
def test_each_route_needs_the_scope_that_it_declares(served, tenants, one):
    ours, _ = tenants
    path = path_of(one.name.replace("_", "/", 1), one.path, ours.ids)
    body = BODIES.get(one.name.replace("_", "/", 1), {})
    more = {} if one.method in ("GET", "DELETE") or one.content else {"json": body}
    if one.path == "/rpc" or one.is_public:
        return
    nobody = served.stranger.request(one.method, path, **more)
    assert nobody.status_code == 401, nobody.text
    assert nobody.headers["www-authenticate"] == 'Bearer realm="noonmark"'
    for scope, key in ours.keys.items():
        if scope in (one.scope, Scope.ADMIN) or one.scope is None:
            continue
        operation = OPERATIONS.get(one.name.replace("_", "/", 1))
        if scope is Scope.PROPOSE and operation is not None and operation.proposed is not None:
            continue
        refused = served.stranger.request(one.method, path, headers=bearer(key), **more)
        assert (refused.status_code, refused.json()["code"]) == (403, "missing_scope"), scope
        assert f"needs the scope {one.scope}; this key has {scope}" in refused.json()["detail"]


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda one: one.name)
def test_each_operation_needs_its_scope_over_json_rpc_too(served, tenants, operation):
    ours, _ = tenants
    call = {"jsonrpc": "2.0", "id": 1, "method": operation.name, "params": BODIES.get(operation.name, {})}
    assert served.stranger.post("/rpc", json=call).status_code == 401
    for scope, key in ours.keys.items():
        answer = served.stranger.post("/rpc", json=call, headers=bearer(key)).json()
        is_refused = answer.get("error", {}).get("data", {}).get("code") == "missing_scope"
        may_propose = scope is Scope.PROPOSE and operation.proposed is not None
        allowed = operation.scope in (scope, None) or scope is Scope.ADMIN or may_propose
        assert is_refused is not allowed, (scope, answer)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Basic YTpi",
        f"Bearer {GUESS}",
        f"Bearer {GUESS} {GUESS}",
        "Bearer KEY-1",
        "Bearer KEY+x",
        "Bearer KEY-case",
        "Token KEY",
        "KEY",
        "Bearer a.b.c",
        "Bearer é",
    ],
)
def test_what_is_not_a_good_key_is_refused_and_never_repeated(served, tenants, header, caplog):
    key = tenants[0].everything
    cut, longer, other = key[:-1], f"{key}x", key[:15] + key[15:].swapcase()
    text = header.replace("KEY-1", cut).replace("KEY+x", longer).replace("KEY-case", other).replace("KEY", key)
    with caplog.at_level(logging.DEBUG):
        answer = served.stranger.get("/schedules", headers={"Authorization": text.encode()})
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    assert answer.headers["www-authenticate"] == 'Bearer realm="noonmark", error="invalid_token"'
    secret = text.rpartition("_")[2]
    assert len(secret) < 20 or (secret not in answer.text and secret not in caplog.text)


def test_a_key_in_two_headers_or_in_the_query_is_refused(served, tenants):
    key = tenants[0].everything
    twice = served.stranger.get("/whoami", headers=[("Authorization", f"Bearer {key}")] * 2)
    assert twice.status_code == 401
    assert served.stranger.get(f"/whoami?key={key}").status_code == 401
    for path in ("/whoami/", "//whoami", "/WHOAMI", "/%77hoami"):
        assert served.stranger.get(f"{path}").status_code in (401, 404), path
    headers = {**bearer(tenants[0].keys[Scope.READ]), "X-HTTP-Method-Override": "GET"}
    overridden = served.stranger.post("/schedules", headers=headers, json=BODIES["schedule/create"])
    assert overridden.status_code == 403


def test_a_key_in_the_wrong_place_is_not_repeated(served, tenants):
    key, http = tenants[0].everything, tenants[0].http
    call = {"jsonrpc": "2.0", "id": 1, "method": "schedule/get", "params": {"schedule_id": key}}
    answers = [
        http.get(f"/schedules/{key}"),
        http.get(f"/whoami?{key}=1"),
        http.post("/schedules", json={key: 1, "name": 7}),
        http.post("/rpc", json=call),
    ]
    for answer in answers:
        assert key.rpartition("_")[0] in answer.text
        assert key not in answer.text


def test_health_and_pings_need_no_key(served):
    for path in ("/health", "/health/live", "/health/ready"):
        assert served.stranger.get(f"{path}").status_code == 200
    assert served.stranger.get("/ping/unknown").status_code == 404
    assert served.stranger.get("/openapi.json").status_code == 401


def test_a_revoked_key_is_refused_at_once_while_requests_run(served):
    key = new_key(served.service, tenant="acme", scopes="read")
    key_id, statuses = key.rpartition("_")[0], []

    def ask(_):
        with httpx2.Client(base_url=served.url, headers=bearer(key)) as client:
            while (status := client.get("/schedules").status_code) == 200:
                statuses.append(status)
            return status

    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(ask, number) for number in range(3)]
        eventually(lambda: len(statuses) > 10)
        assert served.client.post(f"/keys/{key_id}/revoke").json()["status"] == "revoked"
        after = served.stranger.get("/schedules", headers=bearer(key))
        assert (after.status_code, after.json()["detail"]) == (401, "the key is revoked")
        assert [one.result(SOON) for one in asked] == [401] * 3


def test_another_node_refuses_a_revoked_key_within_seconds(served):
    key = new_key(served.service, tenant="acme", scopes="read")

    def status():
        return served.stranger.get("/schedules", headers=bearer(key)).status_code

    assert status() == 200
    # Directly in the store, as another node does it: nothing tells this one.
    served.service.store.revoke_api_key(key.rpartition("_")[0], at=served.service.store.clock())
    eventually(lambda: status() == 401)


def test_an_expired_key_is_refused(served):
    key = new_key(served.service, tenant="acme", scopes="read", expires_in_seconds=1)
    eventually(lambda: served.stranger.get("/whoami", headers=bearer(key)).status_code == 401)
    answer = served.stranger.get("/whoami", headers=bearer(key))
    assert answer.json()["detail"] == "the key is expired"


def test_every_call_needs_a_key_from_the_first_one_on_and_after_the_last():
    with serving() as server:
        assert server.client.get("/whoami").json()["all_tenants"]
        refused = server.client.post("/keys", json={"tenant": "*", "scopes": "admin"})
        assert refused.status_code == 403
        assert "noonmark key create --store" in refused.json()["detail"]
        key = new_key(server.service, opens_store=True)
        eventually(lambda: server.client.get("/whoami").status_code == 401)
        revoked = server.client.post(f"/keys/{key.rpartition('_')[0]}/revoke", headers=bearer(key))
        assert revoked.status_code == 200
        assert server.client.get("/whoami").status_code == 401
        assert server.client.get("/whoami", headers=bearer(key)).status_code == 401


def test_a_user_sees_the_own_schedules_only_if_that_is_the_setting():
    with serving(keyed=True, visibility="owner") as server:
        users = {
            user: Keyed(server.client, new_key(server.service, tenant="acme", user=user, scopes=scopes))
            for user, scopes in (("ada", "read,write,run"), ("bob", "read,write,run"), ("chief", "admin"))
        }
        made = users["ada"].post("/schedules", json={**BODIES["schedule/create"], "schedule_id": "hers"}).json()
        occurrence_id = users["ada"].post("/schedules/hers/run").json()["occurrence_id"]
        for user, sees in (("ada", True), ("bob", False), ("chief", True)):
            http = users[user]
            assert (http.get("/schedules/hers").status_code == 200) is sees
            assert bool(http.get("/schedules").json()["schedules"]) is sees
            assert (http.get("/schedules/count").json()["count"] == 1) is sees
            assert bool(http.get("/occurrences").json()["occurrences"]) is sees
            assert (http.get(f"/occurrences/{occurrence_id}").status_code == 200) is sees
            assert bool(http.get("/audit?schedule_id=hers").json()["entries"]) is sees
            assert (http.get("/audit").status_code == 200) is (user == "chief")
        bob = users["bob"]
        assert bob.get("/schedules?owner=ada").status_code == 403
        assert bob.post("/selections/pause", json={"phase": "active"}).json()["count"] == 0
        assert bob.delete("/schedules/hers").status_code == 404
        depends = {**BODIES["schedule/create"], "depends_on": [{"schedule_id": made["schedule_id"]}]}
        assert bob.post("/schedules", json=depends).json()["field"] == "depends_on[0].schedule_id"


def test_a_receiver_ends_its_work_with_the_token_of_the_delivery(served):
    """Without a key: the token is all that a receiver has."""
    stage = Stage(served.service)
    stage.do = partial(perform_for, served.service, "receivers")
    occurrence_id = stage.accepted()
    path = f"/occurrences/{occurrence_id}/complete"
    for body in ({}, {"token": "a guess"}, {"token": 7}, []):
        assert served.stranger.post(path, json=body).status_code == 401
    store = served.service.store
    own = token_keys(served.service.keys, store.own_key())[0]
    token = completion_token(own, occurrence_id=occurrence_id, fence=store.occurrence(occurrence_id).fence)
    other = stage.accepted()
    assert served.stranger.post(f"/occurrences/{other}/complete", json={"token": token}).status_code == 401
    assert served.stranger.post(f"/occurrences/{occurrence_id}/cancel", json={"token": token}).status_code == 401
    assert served.stranger.post(path, json={"token": token, "result": 1}).json()["phase"] == "completed"


def test_the_use_of_a_key_is_recorded_and_audited(served, tenants):
    ours, _ = tenants
    entry = ours.http.get(f"/audit?schedule_id={ours.ids['schedule_id']}").json()["entries"][-1]
    assert (entry["caller"], entry["key_id"]) == ("ada", ours.keys[Scope.ADMIN].rpartition("_")[0])
    listed = {one["key_id"]: one for one in served.client.get("/keys?limit=1000").json()["keys"]}
    assert any(one["last_used_at_utc"] is not None for one in listed.values())
    text = json.dumps(listed) + served.client.get("/audit").text + ours.http.get("/audit").text
    assert not re.search(r"nm_live_\w{6}_", text)


class Fragile:
    """A store that can fail, with its address in the error: in all its methods, or in some."""

    def __init__(self, store, failing=()):
        self.store, self.is_down, self.failing = store, False, failing

    def __getattr__(self, name):
        if self.is_down:
            self.fail()
        return self.fail if name in self.failing else getattr(self.store, name)

    def fail(self, *_):
        raise StoreUnavailable("cannot connect to the database postgresql://10.0.0.1/db")


def test_who_has_no_good_key_does_not_learn_where_the_store_is(served, caplog):
    store = Fragile(served.service.store)
    with hosting(replace(served.service, store=store)) as server:
        assert server.client.get("/whoami").status_code == 401
        store.is_down = True
        requests = (
            ("GET", "/whoami", {"headers": bearer(GUESS)}),
            ("GET", "/ping/token-1", {}),
            ("POST", "/occurrences/occ_1/complete", {"json": {"token": "a guess"}}),
        )
        for method, path, more in requests:
            caplog.clear()
            refused = server.client.request(method, path, **more)
            assert (refused.status_code, refused.json()["code"]) == (503, "store_unavailable")
            assert "10.0.0.1" not in refused.text
            assert "10.0.0.1" in caplog.text


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "fragile"}], ids=["with others", "alone"])
def test_a_caller_of_one_tenant_does_not_learn_why_a_create_failed(served, tenants, caplog, headers):
    store = Fragile(served.service.store, failing=("create", "create_each"))
    with hosting(replace(served.service, store=store)) as server:
        headers = {**bearer(tenants[0].keys[Scope.ADMIN]), **headers}
        refused = server.client.post("/schedules", json={"trigger": NOON, "target": GREET}, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (503, "store_unavailable")
    assert "10.0.0.1" not in refused.text
    assert "10.0.0.1" in caplog.text


def test_a_caller_of_one_tenant_does_not_learn_where_the_store_is(served, tenants, caplog):
    store = Fragile(served.service.store)
    key, root = tenants[0].keys[Scope.ADMIN], new_key(served.service, tenant="*", scopes="admin")
    call = {"jsonrpc": "2.0", "id": 1, "method": "schedule/list", "params": {}}
    requests = (
        ("GET", "/schedules", {}),
        ("POST", "/rpc", {"json": call}),
        ("POST", "/uploads?filename=a", {"content": b"a"}),
        ("GET", "/uploads/upl_1", {}),
        ("GET", "/api/v1/schedules", {}),
    )
    with hosting(replace(served.service, store=store)) as server:
        for one in (key, root):
            assert server.client.get("/whoami", headers=bearer(one)).status_code == 200
        store.is_down = True
        for method, path, more in requests:
            caplog.clear()
            answer = server.client.request(method, path, headers=bearer(key), **more)
            assert "10.0.0.1" not in answer.text
            if answer.status_code == 503 or "error" in answer.json():
                assert "10.0.0.1" in caplog.text
        assert server.client.get("/schedules", headers=bearer(key)).status_code == 503
        assert "10.0.0.1" in server.client.get("/schedules", headers=bearer(root)).text


def test_the_audit_log_does_not_show_how_much_other_tenants_do(tenants):
    ours, theirs = tenants
    first = ours.http.get("/audit?limit=1").json()
    assert [one["entry"] for one in first["entries"]] == [None]
    [position] = read_cursor(first["next_cursor"], str)
    numbers = [one.key for one in ours.service.store.audit_entries("acme", 1_000)]
    assert not any(position == str(number) for number in numbers)
    rest = ours.http.get(f"/audit?limit=1000&cursor={first['next_cursor']}").json()["entries"]
    assert len(rest) == len(numbers) - 1
    for cursor in (first["next_cursor"], write_cursor(str(numbers[0])), write_cursor(numbers[0])):
        assert theirs.http.get(f"/audit?cursor={cursor}").status_code == 400


class Unwell:
    """The health of a process whose store fails."""

    def ready(self):
        return False, {"status": "not_ready", "problems": {"store": "cannot connect to 10.0.0.1"}}


@pytest.mark.parametrize("keyed", [True, False])
def test_a_health_check_without_a_key_does_not_say_where_the_store_is(keyed):
    with serving(keyed=keyed, health=Unwell()) as server, httpx2.Client(base_url=server.url) as stranger:
        answer = stranger.get("/health/ready")
        assert (answer.status_code, list(answer.json()["problems"])) == (503, ["store"])
        assert ("10.0.0.1" in answer.text) is not keyed
