"""What whoever asked for one occurrence said of it: kept as it was said, and put before what its schedule says."""

import pytest

from noonmark.core.occurrence import Overrides, read_overrides
from noonmark.core.policies import overlap
from noonmark.core.policies.limits import Concurrency

TERMS = [
    (Overrides(overlap_policy=overlap.Allow()), {"overlap_policy": "allow"}),
    (Overrides(overlap_policy=overlap.Queue(queue_limit=7)), {"overlap_policy": {"type": "queue", "queue_limit": 7}}),
    (
        Overrides(concurrency=Concurrency(key="backfill:1", limit=3)),
        {"concurrency_key": "backfill:1", "concurrency_limit": 3},
    ),
    (Overrides(), {}),
]


@pytest.mark.parametrize(("terms", "document"), TERMS)
def test_they_are_read_as_they_were_written(terms, document):
    assert terms.to_document() == document
    assert read_overrides(document) == terms


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"overlap_policy": "perhaps"}, "must be one of"),
        ({"concurrency_key": "k", "concurrency_limit": 0}, "1"),
        ({"something": 1}, "unknown field"),
        ({"concurrency_limit": 2}, "needs a concurrency_key"),
    ],
)
def test_what_was_not_written_by_them_is_refused(document, why):
    with pytest.raises(ValueError, match=why):
        read_overrides(document)
