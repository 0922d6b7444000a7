"""Programs that read the file of their own scheduler: no completed run is lost, however they end."""

import json
import sqlite3
from contextlib import closing

import pytest

from tests.soak import SCALE

RUNS = 10 * SCALE
CODES = {"stops": 0, "killed": -9, "leaves": 0, "keeps": 0}


def assert_all_is_on_record(fleet, figure):
    told = [tuple(line["told"]) for line in fleet.journal.of("completed")]
    with closing(sqlite3.connect(fleet.path)) as connection:
        [sound] = connection.execute("PRAGMA integrity_check").fetchone()
        recorded = connection.execute("SELECT result FROM runs WHERE outcome = 'completed'").fetchall()
    kept = {tuple(json.loads(result)) for (result,) in recorded}
    lost = set(told) - kept
    figure(f"sqlite readers: {len(told)} runs completed, {len(lost)} lost, integrity {sound}")
    assert sound == "ok"
    assert not lost
    assert len(told) == len(set(told))


@pytest.mark.parametrize("ends", ["killed"] if SCALE == 1 else CODES)
def test_a_program_that_reads_its_own_file_loses_nothing(fleet, figure, ends):
    program = fleet.start("sqlite_reader", ready=None, runs=RUNS, ends=ends)
    assert program.wait(60 * SCALE) == CODES[ends], fleet.complaints()
    assert len(fleet.journal.of("completed")) == RUNS
    assert_all_is_on_record(fleet, figure)


def test_several_programs_that_read_the_file_they_share_lose_nothing(fleet, figure):
    ends = list(CODES)
    programs = [fleet.start("sqlite_reader", ready=None, runs=RUNS // 2, ends=one) for one in ends]
    for how, program in zip(ends, programs, strict=True):
        assert program.wait(120 * SCALE) == CODES[how], fleet.complaints()
    assert len(fleet.journal.of("completed")) == RUNS // 2 * len(ends)
    assert_all_is_on_record(fleet, figure)
