"""One measurement in a process of its own: `python -m bench.ledger.child NAME '{"count": 100}'` prints JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]
Measurement = tuple[str, dict[str, str | float]]
"""The name of a measurement, and its settings."""
MEASUREMENTS = {
    "noonmark_burst": "bench.ledger.ours",
    "noonmark_steady": "bench.ledger.ours",
    "noonmark_stored": "bench.ledger.ours",
    "noonmark_create": "bench.ledger.ours",
    "noonmark_import": "bench.ledger.ours",
    "noonmark_emit": "bench.ledger.ours",
    "noonmark_journal": "bench.ledger.ours",
    "apscheduler_burst": "bench.ledger.theirs",
    "apscheduler_steady": "bench.ledger.theirs",
    "apscheduler_create": "bench.ledger.theirs",
    "raw_burst": "bench.ledger.raw",
    "server_burst": "bench.postgres.harness",
    "server_steady": "bench.postgres.harness",
    "raw_server_burst": "bench.postgres.raw",
    "raw_server_claim": "bench.postgres.raw",
    "noonmark_nodes": "bench.postgres.with_noonmark",
    "noonmark_server_claim": "bench.postgres.with_noonmark",
    "noonmark_wake": "bench.postgres.with_noonmark",
    "raw_notify": "bench.postgres.raw",
    "procrastinate_claim": "bench.postgres.with_procrastinate",
    "http_create": "bench.service.loads",
    "http_get": "bench.service.loads",
    "embedded_create": "bench.service.loads",
    "health_alone": "bench.service.loads",
    "health_beside_creates": "bench.service.loads",
    "health_beside_bursts": "bench.service.loads",
    "run_now": "bench.service.loads",
    "calls_bare": "bench.work.calls",
    "calls_of_target": "bench.work.calls",
    "calls_of_schedules": "bench.work.calls",
    "events_matched": "bench.work.events",
    "emit_to_start": "bench.work.events",
    "noonmark_chains": "bench.workflows.with_noonmark",
    "noonmark_fan_out": "bench.workflows.with_noonmark",
    "noonmark_many_runs": "bench.workflows.with_noonmark",
    "dbos_chains": "bench.workflows.with_dbos",
    "dbos_called": "bench.workflows.with_dbos",
    "noonmark_called": "bench.workflows.with_noonmark",
    "dbos_fan_out": "bench.workflows.with_dbos",
    "noonmark_engine": "bench.temporal.with_noonmark",
    "temporal_schedules": "bench.temporal.with_schedules",
}


def measure(name: str, **settings: str | float) -> dict[str, float]:
    """Run a measurement in a new process, and give what it found."""
    command = [sys.executable, "-m", "bench.ledger.child", name, json.dumps(settings)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 - our own code
    if done.returncode:
        raise RuntimeError(f"{name} failed:\n{done.stderr}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure_best(rounds: int, name: str, **settings: str | float) -> dict[str, float]:
    """The fastest of several rounds: other programs only ever slow one down."""
    return max((measure(name, **settings) for _ in range(rounds)), key=lambda found: found["rate"])


def measure_ratio(rounds: int, ours: Measurement, other: Measurement) -> tuple[float, float, float]:
    """The rates of two measurements, and the first in terms of the second; medians of rounds in which they alternate.

    What else the machine does slows both down, so the ratio of a round says more than two rates of different times.
    """
    pairs = [[measure(name, **settings)["rate"] for name, settings in (ours, other)] for _ in range(rounds)]
    first, second = zip(*pairs, strict=True)
    return median(first), median(second), median(one / two for one, two in pairs)


def main() -> None:
    """The other end of `measure`."""
    name, settings = sys.argv[1], json.loads(sys.argv[2])
    found = getattr(import_module(MEASUREMENTS[name]), name)(**settings)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
