"""A site for each test."""

import pytest

from tests.frameworks.site import Site


@pytest.fixture
def site(tmp_path):
    """Whatever was done to its programs, none of them is left, and none had an accident."""
    site = Site(tmp_path)
    yield site
    site.close()
    assert site.may_complain or not site.complaints()
