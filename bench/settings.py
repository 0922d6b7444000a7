"""How long to measure: enough to trust the ratios, or just enough to see that everything runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How many fires are asked for at a time, of how many rounds the best counts, and how large hostile input is."""

    fires: int
    rounds: int
    cold_fires: int
    cold_rounds: int
    hostile_size: int
    burst: int
    ledger_rounds: int
    creates: int
    steady: int
    steady_seconds: int
    stored: tuple[int, ...]
    peer_burst: int
    server_rounds: int
    wakes: int
    history_schedules: tuple[int, ...]
    history: tuple[int, ...]
    requests: int
    listed: int
    probed_burst: int
    probed_bursts: int
    calls: int
    triggers: int
    emits: int
    chain: int
    chains: int
    fan_out: int
    workflow_runs: int
    turns: int
    engine_runs: int
    page_loads: int

    def __str__(self) -> str:
        """One line for the head of the report."""
        return (
            f"{self.fires} fires a round, best of {self.rounds} rounds; "
            f"cold: {self.cold_fires:,} fires in a new process, best of {self.cold_rounds}"
        )


FULL = Settings(
    fires=400,
    rounds=9,
    cold_fires=1_000,
    cold_rounds=3,
    hostile_size=1_000_000,
    burst=20_000,
    ledger_rounds=5,
    creates=2_000,
    steady=1_000,
    steady_seconds=10,
    stored=(1_000, 100_000, 1_000_000),
    peer_burst=5_000,
    server_rounds=3,
    wakes=1_000,
    history_schedules=(1_000, 100_000),
    history=(10_000, 1_000_000),
    requests=500,
    listed=10_000,
    probed_burst=5_000,
    probed_bursts=4,
    calls=2_000,
    triggers=100_000,
    emits=1_000,
    chain=200,
    chains=200,
    fan_out=1_000,
    workflow_runs=1_000,
    turns=300,
    engine_runs=100,
    page_loads=15,
)
QUICK = Settings(
    fires=12,
    rounds=1,
    cold_fires=12,
    cold_rounds=1,
    hostile_size=10_000,
    burst=200,
    ledger_rounds=1,
    creates=20,
    steady=20,
    steady_seconds=1,
    stored=(10, 100),
    peer_burst=20,
    server_rounds=1,
    wakes=20,
    history_schedules=(400, 500),
    history=(10_000, 11_000),
    requests=40,
    listed=100,
    probed_burst=50,
    probed_bursts=1,
    calls=40,
    triggers=400,
    emits=20,
    chain=5,
    chains=3,
    fan_out=10,
    workflow_runs=10,
    turns=5,
    engine_runs=3,
    page_loads=1,
)
