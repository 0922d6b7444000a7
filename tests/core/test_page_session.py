"""Sessions of the web page: how long they last."""

import pytest

from noonmark.core.instants import SECOND
from noonmark.core.page_session import TOKEN_BYTES, PageSession, is_token, write_token

HOUR = 3_600 * SECOND
DAY = 24 * HOUR


def session(*, created=0, used=0):
    return PageSession(digest="d", key_id="k", created=created, used=used)


@pytest.mark.parametrize(
    ("used", "expires"),
    [(0, 12 * HOUR), (HOUR, 13 * HOUR), (6 * DAY, 6 * DAY + 12 * HOUR), (7 * DAY - HOUR, 7 * DAY)],
)
def test_use_prolongs_a_session_up_to_a_week(used, expires):
    assert session(used=used).expires == expires


@pytest.mark.parametrize(("passed", "is_due"), [(0, False), (299 * SECOND, False), (300 * SECOND, True)])
def test_use_is_written_now_and_then(passed, is_due):
    assert session(used=HOUR).is_use_due(HOUR + passed) is is_due


def test_a_token_has_all_bits_and_is_recognised():
    written = write_token(bytes(range(TOKEN_BYTES)))
    assert written == "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
    assert is_token(written)


@pytest.mark.parametrize("text", ["", "A" * 42, "A" * 44, "A" * 42 + "=", "A" * 42 + "\n", "Ä" * 43])
def test_what_is_no_token_is_not(text):
    assert not is_token(text)
