"""The answers of all operations are checked against their models."""

import pytest

from tests.operations.answers import checked_answers


@pytest.fixture(scope="session", autouse=True)
def _checked_answers():
    with checked_answers():
        yield
