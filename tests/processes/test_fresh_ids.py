"""Ids that are drawn many at a time: never the same twice, in no thread and in no process."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from noonmark.wiring import fresh_id

COUNT = 600
"""More than are drawn at a time."""


class StoppedClock:
    """All ids are of one moment, so that only their random parts differ."""

    def micros(self):
        return 1


def test_threads_never_get_the_same_id():
    with ThreadPoolExecutor(8) as threads:
        ids = list(threads.map(lambda _: fresh_id(StoppedClock()), range(8 * COUNT)))
    assert len(set(ids)) == len(ids)
    assert {len(one) for one in ids} == {26}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_does_not_go_on_with_the_ids_of_its_parent():
    fresh_id(StoppedClock())  # some are drawn, and left
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, "".join(fresh_id(StoppedClock()) for _ in range(100)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        text = stream.read()
    assert os.waitpid(child, 0)[1] == 0
    theirs = {text[at : at + 26] for at in range(0, len(text), 26)}
    ours = {fresh_id(StoppedClock()) for _ in range(COUNT)}
    assert len(theirs) == 100
    assert not theirs & ours
