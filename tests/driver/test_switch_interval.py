"""The switch interval is short while a driver runs; one that the program has set is left alone."""

import asyncio
import subprocess
import sys

import pytest

from noonmark.driver import switch_interval
from noonmark.driver.switch_interval import DEFAULT, SHORT, short_switch_interval
from tests.driver.test_loop import Place


@pytest.fixture(autouse=True)
def _default(monkeypatch):
    monkeypatch.setattr(switch_interval, "_users", 0)
    before = sys.getswitchinterval()
    sys.setswitchinterval(DEFAULT)
    yield
    sys.setswitchinterval(before)


def interval():
    return round(sys.getswitchinterval(), 6)


def test_it_is_short_as_long_as_a_loop_runs():
    async def story():
        async with Place().running():
            assert interval() == SHORT
            async with Place().running():
                assert interval() == SHORT
            assert interval() == SHORT
        assert interval() == DEFAULT

    asyncio.run(story())


def test_an_interval_that_the_program_has_set_stays():
    sys.setswitchinterval(0.02)
    with short_switch_interval():
        assert interval() == 0.02
    assert interval() == 0.02


def test_an_interval_that_the_program_sets_meanwhile_stays():
    with short_switch_interval():
        sys.setswitchinterval(0.02)
    assert interval() == 0.02


FORK = """
import os, sys
from noonmark.driver.switch_interval import short_switch_interval

with short_switch_interval():
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    print(f"{sys.getswitchinterval():.3f}", flush=True)
    os._exit(0)
"""


def test_a_forked_process_begins_with_the_default():
    ran = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [f"{DEFAULT:.3f}", f"{SHORT:.3f}"]
