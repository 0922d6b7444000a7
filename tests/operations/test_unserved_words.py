"""What is said of a target that no live node serves."""

import pytest

from noonmark.operations.target_policy import refused_program_words, unserved_words

SERVED = ("event", "function:nightly", "function:weekly", "function:yearly")


@pytest.mark.parametrize(
    ("route", "served", "hint"),
    [
        ("function:nigthly", SERVED, "did you mean `function:nightly`?"),
        ("function:x", SERVED, "they serve `function:nightly`, `function:weekly`, `function:yearly`"),
        (
            "function:x",
            [f"function:no{n}" for n in range(6)],
            "they serve `function:no0`, `function:no1`, `function:no2`, `function:no3`, `function:no4`, ..",
        ),
        ("function:x", ("event",), "a process on this store has to register it"),
        ("command", SERVED, "a server runs commands with --allow-commands"),
        ("mob", SERVED, "a server runs agents with --agents embedded, which needs noonmark[agents]"),
        ("other", SERVED, "none of them delivers this kind of target"),
    ],
)
def test_it_says_what_would_help(route, served, hint):
    assert unserved_words(route, served) == f"no live node serves `{route}`; {hint}"


def test_a_program_that_is_not_allowed_is_named():
    assert refused_program_words("curl") == "this server does not run `curl`: it is not among its --allow-commands"
