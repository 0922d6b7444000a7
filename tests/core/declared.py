"""Documents as people write them, and as nobody should: shared by the tests of the document readers."""

import json
import math
import string
import unicodedata
from datetime import UTC, datetime
from itertools import product

from hypothesis import strategies as st

from tests.soak import SCALE

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)

PROMPT = {"type": "prompt", "prompt": "Run the daily follow-up."}

# One document for each shape a target can have, with every field that it knows.
FULL_TARGETS = {
    "function": {
        "target_kind": "function",
        "function": "reports:weekly",
        "args": [1, "two", [3.5, None]],
        "kwargs": {"deep": {"er": [True]}},
        "payload": {"topic": "tidy"},
        "executor": "process",
    },
    "http": {
        "target_kind": "http",
        "method": "PUT",
        "url": "https://example.com:8443/hook/{nominal_at}?x=%20#top",
        "headers": {"X-Trace": "a\tb", "Authorization": "Bearer {secret}"},
        "secret_headers": {"X-Api-Key": "vendor.api-key_1"},
        "body": {"hello": ["world", "{{payload.name}}"]},
        "expected_statuses": [200, "3xx"],
        "retry_statuses": [],
        "timeout_seconds": 2.5,
        "completion_timeout_seconds": 3600,
    },
    "command": {
        "target_kind": "command",
        "argv": ["sh", "-c", "echo one\necho two", ""],
        "secret_env": {"TOKEN": "hub"},
        "env": {"LANG": "C.UTF-8", "EMPTY": ""},
        "cwd": "/srv/app",
        "stdin": "one\ntwo\n",
        "payload": {"day": "monday"},
        "limits": {"memory_mb": 512, "cpu_seconds": 60, "nice": 10},
    },
    "workflow": {"target_kind": "workflow", "workflow_id": "etl", "version": 3, "inputs": {"day": "monday"}},
    "bundle": {"target_kind": "bundle", "bundle_id": "sha256:0f", "inputs": {"n": 1}},
    "bundle on labelled nodes": {
        "target_kind": "bundle",
        "digest": "0f" * 32,
        "labels": {"zone": "a", "gpu": "a100"},
        "resource_wait": {"retry_seconds": 5, "max_wait_seconds": 60},
    },
    "event": {"target_kind": "event", "event_type": "file_uploaded", "payload": {"path": "/tmp/x"}},  # noqa: S108
    "task": {"target_kind": "task", "query": "What changed?\nBe brief.", "context": {"role": "analyst"}},
    "exact session": {
        "target_kind": "session",
        "type": "exact_session",
        "session_id": "01936f8a-7b2c-7000-8000-000000000001",
        "action": PROMPT,
    },
    "resumable session": {
        "target_kind": "session",
        "type": "resumable_session",
        "session_id": "agent:7_a.b",
        "action": {
            "type": "event",
            "event_type": "deploy_complete",
            "payload": {"environment": "prod"},
            "render_metadata": {"style": "card"},
        },
    },
    "session on demand": {
        "target_kind": "session",
        "type": "materialize_on_demand_session",
        "create": {
            "model": "claude-sonnet-4-6",
            "system_prompt": "You are a health-check assistant.\nBe brief.",
            "max_tokens": 4096,
            "provider": "anthropic",
            "output_schema": {"type": "object"},
            "structured_output_retries": 2,
            "provider_params": {"temperature": 0.5},
            "comms_name": "checker",
            "peer_meta": {"team": "ops"},
            "labels": {"env": "prod"},
            "preload_skills": ["triage", {"source": "local", "name": "deploy"}],
            "additional_instructions": ["Be terse.", "Use\ttabs."],
            "realm_id": "r1",
            "instance_id": "i1",
            "backend": "sqlite",
            "config_generation": 9_000_000_000_000,
            "keep_alive": True,
            "enable_schedule": True,
            "app_context": [],
        },
        "action": {
            "type": "prompt",
            "prompt": [
                {"type": "text", "text": "Look at this."},
                {"type": "image", "media_type": "image/png", "source": "inline", "data": "aGk="},
                {"type": "image", "media_type": "image/png", "source": "blob", "blob_id": "b-1"},
                {
                    "type": "video",
                    "media_type": "video/mp4",
                    "source": "uri",
                    "uri": "https://example.com/v.mp4",
                    "duration_ms": 1500,
                },
            ],
            "system_prompt": "",
            "render_metadata": {"style": "card"},
            "skill_refs": ["triage", {"name": "deploy"}],
            "additional_instructions": ["Answer in one line."],
        },
        "bound_session_id": "s-1",
    },
    "mob member": {
        "target_kind": "mob",
        "type": "member",
        "mob_id": "release-triage",
        "member_id": "lead",
        "action": {
            "type": "send",
            "content": [{"type": "text", "text": "Good morning."}],
            "render_metadata": {"style": "plain"},
        },
    },
    "mob flow": {
        "target_kind": "mob",
        "type": "flow",
        "mob_id": "release-triage",
        "flow_id": "triage",
        "params": {"severity": "high"},
    },
    "mob spawn helper": {
        "target_kind": "mob",
        "type": "spawn_helper",
        "mob_id": "release-triage",
        "member_id": "helper-1",
        "prompt": "Summarise the queue.",
        "options": {
            "role_name": "scribe",
            "runtime_mode": "turn_driven",
            "backend": "external",
            "tool_access_policy": {"type": "allow_list", "value": ["read", "search"]},
        },
    },
    "mob fork helper": {
        "target_kind": "mob",
        "type": "fork_helper",
        "mob_id": "release-triage",
        "source_member_id": "lead",
        "member_id": "helper-2",
        "prompt": "Carry on.",
        "fork_context": {"type": "last_messages", "count": 12},
        "options": {"tool_access_policy": {"type": "inherit"}},
    },
}

FULL_SCHEDULE = {
    "schedule_id": "nightly-report",
    "name": "Nightly report",
    "description": "Adds up the day.\nSends it on.",
    "labels": {"team": "data", "empty": ""},
    "trigger": {"type": "cron", "expression": "0 3 * * *", "timezone": "Europe/Stockholm"},
    "target": FULL_TARGETS["command"],
    "overlap_policy": {"type": "queue", "queue_limit": 5},
    "misfire_policy": {"type": "spread", "grace_seconds": 90, "limit": 7, "window_seconds": 600},
    "missing_target_policy": "skip",
    "retry_policy": {"max_attempts": 4, "backoff_seconds": 2.5, "multiplier": 3, "max_backoff_seconds": 60},
    "timeout_seconds": 0.25,
    "window": {"duration_seconds": 7200, "end_action": "pause"},
    "delivery": "at_most_once",
    "pause_on_failure": 3,
    "runaway": {"max_fires_per_hour": 10, "max_spend_factor": 2.5, "max_identical_results": 3},
    "concurrency_key": "warehouse",
    "concurrency_limit": 2,
    "depends_on": [{"schedule_id": "load", "require_success": False}],
    "budget": {"max_cost_usd": 1.5, "max_tokens": 10_000, "max_model_calls": 20, "max_tool_calls": 60},
    "max_runs": 100,
    "accepts_payload": True,
    "planning_horizon_days": 7,
    "planning_horizon_occurrences": 12,
    "enabled": False,
}

MINIMAL_SCHEDULE = {
    "trigger": {"type": "cron", "expression": "@daily"},
    "target": {"target_kind": "function", "function": "tidy"},
}


def changed(document, path, value):
    """A deep copy with one place replaced; a path is a tuple of keys and indexes."""
    copy = json.loads(json.dumps(document))
    if not path:
        return value
    place = copy
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return copy


def places(document, path=()):
    """The path of every value in a document, the document itself included."""
    yield path
    if isinstance(document, dict | list):
        for key in document if isinstance(document, dict) else range(len(document)):
            yield from places(document[key], (*path, key))


def nested(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


def entangled():
    """A few lists that are worth 2^60 entries when written out."""
    value = ["x"]
    for _ in range(60):
        value = [value, value]
    return value


def endless():
    value = {}
    value["self"] = [value]
    return value


HOSTILE = {
    "null": None,
    "true": True,
    "zero": 0,
    "minus one": -1,
    "a float": 0.5,
    "NaN": math.nan,
    "infinity": math.inf,
    "a huge integer": 10**400,
    "an unprintable integer": 1 << 20_000,
    "a huge float": 1e308,
    "no text": "",
    "NUL": "a\0b",
    "a line break": "a\r\nb",
    "a lone surrogate": "\ud800",
    "bytes": b"abc",
    "a megabyte of text": "a" * 1_000_000,
    "a megabyte of brackets": "[" * 1_000_000,
    "a set": {1},
    "an object": object(),
    "a class": dict,
    "a moment": NOW,
    "an empty array": [],
    "an empty object": {},
    "a tuple": ("a", ("b",)),
    "a long array": [0] * 5_000,
    "a wide object": {f"k{index}": 1 for index in range(5_000)},
    "keys that are no text": {1: 1, None: 2, ("a",): 3, 1.5: 4, b"k": 5},
    "texts under keys that are no text": {1: "1", None: "2", ("a",): "3"},
    "hostile keys": {"\ud800": 1, "a\0": 2, "k" * 100_000: 3, "": 4, "a\nb": "5"},
    "deep arrays": nested(100_000),
    "an object inside itself": endless(),
}


def hostile_pairs(document):
    """Places of a document and hostile values: in `make test` a third of the pairs, with every place and value."""
    for (number, path), (other, kind) in product(enumerate(places(document)), enumerate(HOSTILE)):
        if SCALE > 1 or (number + other) % 3 == 0:
            yield path, kind


def assert_fit_for_a_log(error):
    """What an error says is bounded, is Unicode text, and stays on its line."""
    assert error.problems
    for line in [str(error), *(str(problem) for problem in error.problems)]:
        assert not {unicodedata.category(character) for character in line} & {"Cc", "Cs", "Zl", "Zp"}
        assert len(line) < 2_000


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(string.ascii_letters), inner, max_size=4),
    max_leaves=12,
)
json_objects = st.dictionaries(st.text(string.ascii_letters, max_size=5), json_values, max_size=4)

junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary()
    | st.sampled_from([object(), dict, NOW, 10**4_000, {1}]),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(st.characters()) | st.integers() | st.none() | st.binary(), inner)
        | st.dictionaries(st.sampled_from(["type", "target_kind", "action", "target", "trigger", "name"]), inner)
    ),
    max_leaves=15,
)

_words = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "Zs"]), min_size=1, max_size=30)
_prose = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=60)
_ids = st.text(string.ascii_letters + string.digits + "-_.:", min_size=1, max_size=128)
_labels = st.dictionaries(_words, st.just("") | _words, max_size=3)


def _objects(required, **optional):
    return st.fixed_dictionaries(required, optional=optional)


def _kind(name, **required):
    return {"target_kind": st.just(name), **required}


_block = st.one_of(
    _objects({"type": st.just("text"), "text": _prose}),
    _objects(
        {"type": st.sampled_from(["image", "video"]), "media_type": _words, "data": _words}, source=st.just("inline")
    ),
    _objects(
        {"type": st.just("video"), "media_type": _words, "source": st.just("uri"), "uri": _words},
        duration_ms=st.integers(1, 10**6),
    ),
)
_content = _prose | st.lists(_block, min_size=1, max_size=3)
_skills = st.lists(_words | json_objects, max_size=3)
_action = st.one_of(
    _objects(
        {"type": st.just("prompt"), "prompt": _content},
        system_prompt=_prose,
        render_metadata=json_objects,
        skill_refs=_skills,
        additional_instructions=st.lists(_prose, max_size=3),
    ),
    _objects(
        {"type": st.just("event"), "event_type": _ids}, payload=json_values, render_metadata=st.none() | json_objects
    ),
)
_create = _objects(
    {"model": _words},
    system_prompt=_prose,
    max_tokens=st.integers(1, 10**6),
    provider=st.sampled_from(["anthropic", "openai", "gemini", "other"]),
    output_schema=json_objects,
    structured_output_retries=st.integers(0, 100),
    provider_params=json_objects,
    comms_name=_words,
    peer_meta=json_objects,
    labels=_labels,
    preload_skills=_skills,
    additional_instructions=st.lists(_prose, max_size=3),
    realm_id=_words,
    instance_id=_words,
    backend=_words,
    config_generation=st.integers(0, 2**63 - 1),
    keep_alive=st.booleans(),
    enable_schedule=st.booleans(),
    app_context=json_values,
)
_access = st.one_of(
    _objects({"type": st.just("inherit")}),
    _objects({"type": st.sampled_from(["allow_list", "deny_list"])}, value=st.lists(_words, max_size=3)),
)
_options = _objects(
    {},
    role_name=_words,
    runtime_mode=st.sampled_from(["autonomous_host", "turn_driven"]),
    backend=st.sampled_from(["session", "external"]),
    tool_access_policy=_access,
)
_fork_context = st.just({"type": "full_history"}) | _objects(
    {"type": st.just("last_messages"), "count": st.integers(1, 1_000)}
)
_header_names = st.text(string.ascii_letters + string.digits + "!#$%&'*+-.^_`|~", min_size=1, max_size=20)

target_documents = st.one_of(
    _objects(_kind("function", function=_words), args=st.lists(json_values, max_size=3), kwargs=json_objects),
    _objects(
        _kind("http", url=st.sampled_from(["http://a", "https://[::1]:80/x", "https://b.example./?q={x}"])),
        method=st.sampled_from(["get", "POST", "DELETE"]),
        headers=st.dictionaries(_header_names, _words, max_size=3).filter(
            lambda headers: len({name.lower() for name in headers}) == len(headers)
        ),
        body=json_values,
    ),
    _objects(
        _kind("command", argv=st.lists(_prose, min_size=1, max_size=4)),
        env=st.dictionaries(st.text(string.ascii_uppercase, min_size=1), _prose, max_size=3),
        cwd=_words,
    ),
    _objects(_kind("workflow", workflow_id=_ids), version=st.integers(1, 10**6), inputs=json_objects),
    _objects(_kind("bundle", bundle_id=_words), inputs=json_objects),
    _objects(_kind("event", event_type=_ids), payload=json_values),
    _objects(_kind("task", query=_prose), context=json_objects),
    _objects(
        _kind(
            "session",
            type=st.sampled_from(["exact_session", "resumable_session"]),
            session_id=_ids,
            action=_action,
        )
    ),
    _objects(
        _kind("session", type=st.just("materialize_on_demand_session"), create=_create, action=_action),
        bound_session_id=_ids,
    ),
    _objects(
        _kind(
            "mob",
            type=st.just("member"),
            mob_id=_words,
            member_id=_words,
            action=_objects({"type": st.just("send"), "content": _content}, render_metadata=json_objects),
        )
    ),
    _objects(_kind("mob", type=st.just("flow"), mob_id=_words, flow_id=_words), params=json_values),
    _objects(
        _kind("mob", type=st.just("spawn_helper"), mob_id=_words, member_id=_words, prompt=_prose), options=_options
    ),
    _objects(
        _kind(
            "mob",
            type=st.just("fork_helper"),
            mob_id=_words,
            source_member_id=_words,
            member_id=_words,
            prompt=_prose,
        ),
        fork_context=_fork_context,
        options=_options,
    ),
)
