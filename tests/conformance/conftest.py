"""The suite ships in the package; pytest explains its assertions only when it is told to."""

import pytest

pytest.register_assert_rewrite("noonmark.testing.conformance")
