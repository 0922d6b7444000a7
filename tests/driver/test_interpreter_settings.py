"""Settings of the interpreter are different while a driver runs; what the program has set is left alone."""

import asyncio
import gc
import subprocess
import sys

import pytest

from noonmark.driver import interpreter_settings
from noonmark.driver.interpreter_settings import NEW_OBJECTS, SWITCH_INTERVAL, driver_settings
from tests.driver.test_loop import Place

BOTH = pytest.mark.parametrize(
    ("setting", "own"), [(SWITCH_INTERVAL, 0.02), (NEW_OBJECTS, 5_000)], ids=["switch", "new"]
)


@pytest.fixture(autouse=True)
def _defaults(monkeypatch):
    monkeypatch.setattr(interpreter_settings, "_users", 0)
    monkeypatch.setattr(interpreter_settings, "_changed", [])
    before = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(SWITCH_INTERVAL.default)
    gc.set_threshold(int(NEW_OBJECTS.default))
    yield
    sys.setswitchinterval(before[0])
    gc.set_threshold(*before[1])


def settings():
    return round(sys.getswitchinterval(), 6), gc.get_threshold()


def test_they_are_changed_as_long_as_a_loop_runs():
    of_program = settings()
    of_drivers = (SWITCH_INTERVAL.value, (NEW_OBJECTS.value, *of_program[1][1:]))

    async def story():
        async with Place().running():
            assert settings() == of_drivers
            async with Place().running():
                assert settings() == of_drivers
            assert settings() == of_drivers
        assert settings() == of_program

    asyncio.run(story())


@BOTH
def test_what_the_program_has_set_stays(setting, own):
    setting.write(own)
    with driver_settings():
        assert setting.read() == pytest.approx(own)
    assert setting.read() == pytest.approx(own)


@BOTH
def test_what_the_program_has_set_to_the_same_stays(setting, own):
    setting.write(setting.value)
    with driver_settings():
        pass
    assert setting.read() == pytest.approx(setting.value)


@BOTH
def test_what_the_program_sets_meanwhile_stays(setting, own):
    with driver_settings():
        setting.write(own)
    assert setting.read() == pytest.approx(own)


FORK = """
import gc, os, sys
from noonmark.driver.interpreter_settings import NEW_OBJECTS, driver_settings

gc.set_threshold(int(NEW_OBJECTS.default))
with driver_settings():
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    print(f"{sys.getswitchinterval():.5f}", gc.get_threshold()[0], flush=True)
    os._exit(0)
"""


def test_a_forked_process_begins_with_the_defaults():
    ran = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == [f"0.00500 {NEW_OBJECTS.default}", f"0.00007 {NEW_OBJECTS.value}"]
