"""The rows of a table are one test under workers: each that fails is named, and only those are tried again."""

import pytest

from tests.rows import run_rows


def test_every_row_that_fails_is_named_and_alone_is_tried_again():
    called, broken = [], {"b", "d"}

    def call(row, shared):
        called.append(row)
        assert row not in broken, shared

    rows = {row: lambda shared, row=row: call(row, shared) for row in "abcd"}
    with pytest.raises(ExceptionGroup, match="2 of 4 rows failed") as caught:
        run_rows(rows, "shared")
    assert called == ["a", "b", "c", "d"]
    assert [(error.__notes__, "shared" in str(error)) for error in caught.value.exceptions] == [
        (["in row [b]"], True),
        (["in row [d]"], True),
    ]
    broken.remove("b")
    with pytest.raises(ExceptionGroup, match="1 of 2 rows failed"):
        run_rows(rows, "shared")
    assert called[4:] == ["b", "d"]
    broken.clear()
    run_rows(rows, "shared")
    assert called[6:] == ["d"]


@pytest.mark.parametrize("number", [1, 2])
class TestRows:
    """Whether it is one test or two, each row has an instance of its own."""

    @pytest.mark.parametrize("text", ["a", "b"])
    def test_a_row_has_an_instance_of_its_own(self, number, text, tmp_path_factory):
        assert not hasattr(self, "used")
        self.used = f"{number}{text}"
        assert tmp_path_factory.getbasetemp().exists()
