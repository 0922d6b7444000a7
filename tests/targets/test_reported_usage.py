"""Usage that runs report: functions in threads, on the loop and in processes, commands, and receivers of requests."""

import json
import sys

import pytest

from noonmark.core.budgets.spend import Usage
from noonmark.core.run import Outcome
from noonmark.core.secret import Secret
from noonmark.core.targets import Executor
from noonmark.stores.memory import MemoryStore
from noonmark.targets.secrets import SecretResolver
from tests.targets.assignments import now
from tests.targets.bundle.harness import Plain
from tests.targets.command.harness import command_assignment, command_runner
from tests.targets.function.harness import run_scenario
from tests.targets.function.worker_functions import reports_usage
from tests.targets.http.receiver import http_receiver, http_sender

MILLI = 1_000_000
"""A thousandth of a dollar."""
SMALL = Usage(model="small", provider="acme", input_tokens=11, output_tokens=5, model_calls=2, cost=3 * MILLI)
LARGE = Usage(model="large", model_calls=1, cost=None)
WRITES = "import os, sys; open(os.environ['NOONMARK_USAGE_FILE'], 'w').write(sys.argv[1])"


async def reports_on_the_loop(context):
    return reports_usage(context)


@pytest.mark.parametrize(
    ("function", "executor"),
    [(reports_usage, Executor.THREAD), (reports_on_the_loop, Executor.THREAD), (reports_usage, Executor.PROCESS)],
)
def test_a_function_reports_what_it_has_used(function, executor):
    async def scenario(harness):
        assignment = await harness.deliver(function, executor=executor)
        return assignment, await harness.end_of(assignment)

    assignment, delivered = run_scenario(scenario)
    assert delivered.result == "input_tokens must be an integer from 0 to 1,000,000,000,000, not -1"
    assert assignment.usage.all == (SMALL, LARGE)


def test_what_a_function_used_before_it_failed_is_known():
    def fails(context):
        context.report_usage(model="large")
        raise RuntimeError("no more")

    async def scenario(harness):
        assignment = await harness.deliver(fails)
        return assignment, await harness.end_of(assignment)

    assignment, delivered = run_scenario(scenario)
    assert (delivered.outcome, assignment.usage.all) == (Outcome.FAILED, (LARGE,))


@pytest.fixture(scope="module")
def runner():
    store = MemoryStore(now)
    held = Secret(name="token", hosts=(), programs=(sys.executable,), sealed="s3cr3t/mark", created=1, updated=1)
    assert store.put_secret("acme", held, most=9)
    with command_runner(sys.executable, secrets=SecretResolver(store, Plain())) as made:
        yield made


@pytest.mark.parametrize(
    ("content", "usage", "note"),
    [
        ({"model": "large"}, (LARGE,), None),
        ([{"model": "a", "cost_usd": 1}, {"model": "a", "tokens": 2, "cost_usd": 0}],
         (Usage(model="a", input_tokens=2, model_calls=2, cost=1_000 * MILLI),), None),
        ({"modle": "large"}, None, "modle unknown field; allowed are "),
        ("{", None, "it is not JSON"),
        ("[" * 70_000, None, "it has more than 65,536 bytes"),
        ("[" * 60_000, None, "it is not JSON"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("source", ["embedded", "rest"])
def test_a_command_reports_in_a_file(runner, source, content, usage, note):
    text = content if isinstance(content, str) else json.dumps(content)
    assignment = runner.start(command_assignment(sys.executable, "-c", WRITES, text, source=source))
    delivered = runner.end_of(assignment)
    assert (delivered.outcome, delivered.result["exit_code"]) == (Outcome.COMPLETED, 0)
    assert (assignment.usage and assignment.usage.all) == usage
    said = delivered.result.get("usage_note")
    assert said is None if note is None else said.startswith(f"its usage was not recorded: {note}")


@pytest.mark.parametrize(
    ("makes", "note"),
    [
        ("os.mkfifo(path)", "it is not a file"),
        ("os.symlink('/dev/zero', path)", "Too many levels of symbolic links"),
        ("os.mkdir(path)", "Is a directory"),
        ("sys.exit(3)", None),
    ],
)
def test_what_a_command_leaves_instead_of_a_file_is_not_followed(runner, makes, note):
    program = f"import os, sys; path = os.environ['NOONMARK_USAGE_FILE']; {makes}"
    assignment = runner.start(command_assignment(sys.executable, "-c", program))
    said = runner.end_of(assignment).result.get("usage_note")
    assert said == (None if note is None else f"its usage was not recorded: {note}")
    assert assignment.usage is None


def test_secrets_are_masked_in_what_a_command_reports(runner):
    writes = "import json, os; file = open(os.environ['NOONMARK_USAGE_FILE'], 'w'); "
    writes += "json.dump({'model': os.environ['T']}, file)"
    fields = {"secret_env": {"T": "token"}}
    assignment = runner.start(command_assignment(sys.executable, "-c", writes, fields=fields))
    runner.end_of(assignment)
    assert assignment.usage.all == (Usage(model="***", model_calls=1, cost=None),)


@pytest.mark.parametrize(
    ("header", "usage", "note"),
    [
        (json.dumps({"model": "large"}), (LARGE,), None),
        ("{", None, "it is not JSON"),
        ('{"cost_usd": "much"}', None, 'cost_usd must be a number, not "much"'),
    ],
)
def test_a_receiver_reports_in_a_header(header, usage, note):
    with http_receiver() as receiver, http_sender() as sender:
        receiver.answers.append((200, b"", {"Noonmark_Usage": header}))
        assignment = sender.deliver(f"{receiver.url}/next")
        _, delivered = sender.report()
    assert (delivered.outcome, assignment.usage and assignment.usage.all) == (Outcome.COMPLETED, usage)
    said = None if note is None else f"its usage was not recorded: {note}"
    assert delivered.result.get("usage_note") == said
