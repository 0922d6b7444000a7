"""Asking a server whether its store is sound."""

from __future__ import annotations

from functools import partial

from noonmark.client.asking import Request, ask, given
from noonmark.client.values import Diagnosis, read


def doctor(*, rows: int | None = None) -> Request[Diagnosis]:
    """Whether the store is sound, row by row, and whether clocks agree; changes nothing."""
    return ask("doctor", partial(read, Diagnosis), given(rows=rows))
