"""The public face: every promised name is there, and asking for one loads no more than it needs."""

import subprocess
import sys
from importlib.metadata import version

import pytest

import noonmark
from noonmark.core.errors import NoonmarkError, Problem, refusal

PROMISED = [
    "OnceTrigger",
    "IntervalTrigger",
    "CronTrigger",
    "CalendarTrigger",
    "EventTrigger",
    "Trigger",
    "fires",
    "parse_trigger",
    "matches",
    "describe",
    "Description",
    "NoonmarkError",
    "InvalidTrigger",
    "TriggerNeverFires",
    "InvalidSchedule",
    "NotFound",
    "Conflict",
    "OverlapConflict",
    "RevisionConflict",
    "QuotaExceeded",
    "StoreUnavailable",
    "Terminate",
    "Scheduler",
    "Occurrence",
    "Run",
    "Client",
    "AsyncClient",
    "Skip",
    "Queue",
    "QueueOne",
    "Allow",
    "CancelRunning",
    "SkipMissed",
    "CatchUpOne",
    "CatchUpAll",
    "CatchUpWithin",
    "Spread",
    "Retry",
    "Window",
    "Delivery",
    "Concurrency",
    "Dependency",
]

CODES = {
    "InvalidTrigger": ("invalid_trigger", ValueError),
    "TriggerNeverFires": ("trigger_never_fires", ValueError),
    "InvalidSchedule": ("invalid_schedule", ValueError),
    "NotFound": ("not_found", LookupError),
    "Conflict": ("conflict", NoonmarkError),
    "OverlapConflict": ("overlap", NoonmarkError),
    "RevisionConflict": ("revision_conflict", NoonmarkError),
    "QuotaExceeded": ("quota_exceeded", NoonmarkError),
    "StoreUnavailable": ("store_unavailable", NoonmarkError),
    "InvalidRequest": ("invalid_request", ValueError),
    "InvalidWorkflow": ("invalid_workflow", ValueError),
    "KeyReused": ("idempotency_key_reused", NoonmarkError),
    "MethodNotFound": ("method_not_found", LookupError),
    "NotAllowed": ("not_allowed", NoonmarkError),
    "MissingScope": ("missing_scope", NoonmarkError),
    "Unauthenticated": ("unauthenticated", NoonmarkError),
    "PayloadTooLarge": ("payload_too_large", NoonmarkError),
    "AnswerTooLarge": ("answer_too_large", NoonmarkError),
    "Unreachable": ("unreachable", NoonmarkError),
}


@pytest.mark.parametrize("name", PROMISED)
def test_every_promised_name_is_importable(name):
    assert getattr(noonmark, name).__name__ == name


def test_all_lists_what_can_be_loaded():
    for name in noonmark.__all__:
        assert getattr(noonmark, name) is not None
    assert set(PROMISED) <= set(noonmark.__all__)
    assert set(noonmark.__all__) <= set(dir(noonmark))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Sundial'"):
        noonmark.Sundial  # noqa: B018 - the access is the test


def test_the_version_is_that_of_the_package():
    assert noonmark.__version__ == version("noonmark")


@pytest.mark.parametrize(("name", "code", "kind"), [(name, *rest) for name, rest in CODES.items()])
def test_errors_have_stable_codes_and_python_kinds(name, code, kind):
    error = getattr(noonmark, name)("something is wrong", field="trigger.expression")
    assert (error.code, error.message, error.field) == (code, "something is wrong", "trigger.expression")
    assert isinstance(error, kind)
    assert isinstance(error, NoonmarkError)
    assert str(error) == "trigger.expression: something is wrong"


def test_error_families():
    assert issubclass(noonmark.TriggerNeverFires, noonmark.InvalidTrigger)
    assert issubclass(noonmark.OverlapConflict, noonmark.Conflict)
    assert issubclass(noonmark.RevisionConflict, noonmark.Conflict)
    assert str(noonmark.NotFound("there is no such schedule")) == "there is no such schedule"


@pytest.mark.parametrize(
    ("codes", "kind"),
    [
        (["trigger_never_fires"], "TriggerNeverFires"),
        (["trigger_never_fires", "invalid_trigger"], "InvalidTrigger"),
        (["invalid_workflow", "invalid_workflow"], "InvalidWorkflow"),
        (["invalid_trigger", "invalid_schedule"], "InvalidSchedule"),
    ],
)
def test_a_refusal_is_as_narrow_as_its_problems(codes, kind):
    problems = [Problem(f"field{n}", f"sentence {n}", code) for n, code in enumerate(codes)]
    error = refusal(problems)
    assert type(error).__name__ == kind
    assert error.problems == tuple(problems)
    assert error.field == "field0"
    assert error.message == ("sentence 0" if len(codes) == 1 else f"sentence 0 (and {len(codes) - 1} more)")
    assert str(problems[0]) == "field0: sentence 0"
    assert str(Problem("", "alone")) == "alone"


def test_importing_a_trigger_loads_nothing_heavy():
    script = "import sys; from noonmark import CronTrigger; print(' '.join(sorted(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert "noonmark.core.triggers" in loaded
    for heavy in ("pydantic", "sqlalchemy", "click", "cron_descriptor", "asyncio", "noonmark.core.describe"):
        assert heavy not in loaded


def test_importing_the_scheduler_loads_what_it_needs_and_no_more():
    script = "import sys; from noonmark import Scheduler; print(' '.join(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    heavy = {
        "asyncio",
        "click",
        "cryptography",
        "h11",
        "httpcore2",
        "httpx2",
        "json",
        "multiprocessing",
        "opentelemetry",
        "prometheus_client",
        "psycopg",
        "pydantic",
        "pydantic_ai",
        "pydantic_core",
        "redis",
        "sqlalchemy",
        "sqlite3",
        "starlette",
        "structlog",
        "temporalio",
        "uvicorn",
        "yaml",
    }
    assert not loaded & heavy
    unneeded = {
        "noonmark.core.schedule",
        "noonmark.operations.schedules",
        "noonmark.driver.loop",
        "noonmark.stores.sqlite",
        "noonmark.core.targets.session",
        "noonmark.targets.function.runner",
    }
    assert not loaded & unneeded
