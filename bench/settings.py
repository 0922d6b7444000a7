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

    def __str__(self) -> str:
        """One line for the head of the report."""
        return (
            f"{self.fires} fires a round, best of {self.rounds} rounds; "
            f"cold: {self.cold_fires:,} fires in a new process, best of {self.cold_rounds}"
        )


FULL = Settings(fires=400, rounds=9, cold_fires=1_000, cold_rounds=3, hostile_size=1_000_000)
QUICK = Settings(fires=12, rounds=1, cold_fires=12, cold_rounds=1, hostile_size=10_000)
