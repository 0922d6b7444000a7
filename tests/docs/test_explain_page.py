"""The page on explanations lists every rule, in the order in which they are asked."""

import re
from pathlib import Path

from noonmark.core.explain import Rule
from noonmark.core.explain.explanation import DOES_NOT_APPLY, NOT_KNOWN, NOT_REACHED, NOT_YET

PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "explain.md").read_text("utf-8")
FIRST_CELL = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)


def test_the_tables_list_every_rule_in_order_and_what_any_of_them_may_say():
    assert FIRST_CELL.findall(PAGE) == [*Rule, DOES_NOT_APPLY, NOT_YET, NOT_REACHED, NOT_KNOWN]
