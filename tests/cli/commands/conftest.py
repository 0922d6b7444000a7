"""A store for the commands of one module, and a scheduler that runs what they start."""

import pytest

from noonmark import Scheduler
from tests.cli.runner import Cli


def report(context):
    """Return the payload, or raise the error that it names."""
    if isinstance(context.payload, dict) and "raise" in context.payload:
        raise ValueError(context.payload["raise"])
    return context.payload


@pytest.fixture(scope="module")
def cli(tmp_path_factory):
    return Cli("--store", f"sqlite:///{tmp_path_factory.mktemp('store') / 'noonmark.db'}")


@pytest.fixture(scope="module")
def node(cli):
    """A scheduler that runs what is due."""
    scheduler = Scheduler(cli.connection[1])
    scheduler.register_function("report", report)  # its first heartbeat names it
    with scheduler:
        yield scheduler
    scheduler.close()
