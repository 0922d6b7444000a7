"""The memory store passes the conformance suite; it is the reference."""

import pytest

from noonmark.stores.memory import MemoryStore
from noonmark.testing.conformance import CASES, try_case


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_memory_store(case):
    try_case(case, MemoryStore)
