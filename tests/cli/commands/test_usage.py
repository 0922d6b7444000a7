"""`noonmark budget` and `noonmark usage`, on a store; and bars."""

import json

import pytest

from noonmark.cli.render.tables import dollars
from noonmark.cli.render.usage import bar, tokens_words
from tests.cli.runner import call

CALLS = [("gpt-5", 0.75, 60_000), ("gpt-5-mini", 0.25, 9_000), ("llama", None, 500)]


@pytest.fixture(scope="module")
def spent(cli):
    """The id of a schedule with usage."""
    answer = cli.json("schedule", "create", "--name", "digest", "--function", "report", "--every", "1h")
    for model, cost, tokens in CALLS:
        call = {"idempotency_key": model, "schedule_id": answer["schedule_id"], "model": model, "tokens": tokens}
        call |= {} if cost is None else {"cost_usd": cost}
        cli("call", "usage/record", "--arguments-json", json.dumps(call))
    return answer["schedule_id"]


def test_usage_is_shown_with_bars(cli, spent):
    lines = cli("usage", "report", "--by", "model").splitlines()
    assert lines[0].split() == ["Model", "Cost", "Tokens", "Calls"]
    assert [" ".join(line.split()) for line in lines[1:4]] == [
        f"gpt-5 {'█' * 24} $0.75 60 k 1",
        f"gpt-5-mini {'█' * 8} $0.25 9,000 1",
        "llama unknown 500 1",
    ]
    assert lines[5].startswith("$1.00 + 1 unpriced for 69.5 k tokens in 3 calls, ")
    assert f"digest ({spent})" in cli("usage", "--by=schedule", "--since", "1d")
    assert cli("usage", "report", "--user", "nobody").startswith("$0.00 for 0 tokens in 0 calls, ")
    assert cli.json("usage", "report")["total"]["cost_usd"] == 1


def test_a_budget_is_set_topped_up_listed_and_deleted(cli, spent):
    done = cli("budget", "set", "schedule", spent, "--max-cost", "2", "--when-exhausted", "pause_until_next_period")
    assert done == f"Set the budget of schedule {spent}, a month: $1.00 of $2.00 spent.\n"
    assert "$1.00 of $4.00 spent" in cli("budget", "set", "schedule", spent, "--max-cost", "4")
    cli("budget", "set", "user", "local", "--max-tokens", "1000000", "--period", "total", "--require-approval")
    cli("budget", "set", "tenant", "default", "--max-tokens", "0", "--period", "day", "--soft")
    lines = [" ".join(line.split()) for line in cli("budget", "list").splitlines()]
    assert lines[1].startswith(f"schedule {spent} month {'█' * 6} $1.00 of $4.00 hard skip in ")
    assert lines[2].startswith(f"tenant default day {'█' * 24} 69.5 k of 0 tokens soft warn in ")
    assert lines[3] == f"user local total {'█'}▋ 69.5 k of 1 M tokens soft ask -"
    assert cli("budget", "delete", "user", "local") == "Deleted the budget of user local: total.\n"
    for wrong in ("much", "nan", "inf"):
        assert cli.refused(2, "budget", "set", "user", "ada", "--max-cost", wrong) == [
            f'--max-cost: must be a number such as 0.5, not "{wrong}"'
        ]


def test_a_forecast_without_usage_names_no_figures(tmp_path):
    store = f"sqlite:///{tmp_path / 'new.db'}"
    assert call("migrate", "--store", store).code == 0
    done = call("usage", "forecast", "--store", store)
    assert done.out == "No schedule has used a model within the last 31 days; name one to see its forecast.\n"


def test_a_forecast_says_what_is_unknown(cli, spent):
    lines = [" ".join(line.split()) for line in cli("usage", "forecast").splitlines()]
    assert lines[1].startswith(f"digest ({spent}) {'█' * 24} $1.00 ")
    assert lines[1].endswith(" unknown unknown it has not run yet")
    assert lines[3] == "$1.00 spent this month; what it will be is unknown"
    agent = '{"trigger": {"type": "interval", "every_seconds": 3600}, "target": {"target_kind": "task", "query": "q"}}'
    answer = cli("schedule", "create", "--schedule-json", agent)
    assert "This month's cost is unknown: it has not run yet." in answer


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (None, "unknown"),
        (0, "$0.00"),
        (0.000000001, "$0.000000001"),
        (0.05, "$0.05"),
        (0.1, "$0.10"),
        (1234.5, "$1,234.50"),
    ],
)
def test_small_amounts_have_more_decimals(amount, shown):
    assert dollars(amount) == shown


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0"), (9_999, "9,999"), (10_000, "10 k"), (1_250_000, "1.2 M"), (3_000_000_000, "3 G")]
)
def test_many_tokens_are_shortened(count, shown):
    assert tokens_words(count) == shown


@pytest.mark.parametrize(
    ("part", "whole", "shown"),
    [(0, 1, ""), (1, 0, ""), (1e-9, 1, "▏"), (1, 2, "██"), (5, 4, "████"), (0.9, 1, "███▋")],
)
def test_bars_show_a_part_of_a_whole(part, whole, shown):
    assert bar(part, whole, 4) == shown
