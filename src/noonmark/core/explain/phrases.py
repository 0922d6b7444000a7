"""Parts of sentences that several reasons share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.describe.words import duration_words, instant_words
from noonmark.core.instants import MIN_INSTANT
from noonmark.core.policies.catch_up import decide
from noonmark.core.policies.fires import Listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.explain.deciding_rule import Case
    from noonmark.core.reasons import Reason


def plain(reason: Reason) -> str:
    """A reason as a part of a sentence."""
    text = reason.sentence.removesuffix(".")
    return text[0].lower() + text[1:]


def shown(text: object) -> str:
    """An instant of a detail, as people read it."""
    return str(text).replace("T", " ").replace("Z", " UTC")


def fires(case: Case, what: str) -> str:
    """The fires that a row stands for, of which that is so."""
    row = case.occurrence
    if row.missed_count > 1 and row.missed_first is not None and row.missed_last is not None:
        stretch = f"from {instant_words(row.missed_first)} to {instant_words(row.missed_last)}"
        return f"{row.missed_count:,} fires {stretch} were {what}"
    return f"the fire of {instant_words(row.nominal)} was {what}"


def misfire_policy(case: Case) -> str:
    """The policy, by its name where that is the one that was asked."""
    return _policy("misfire policy", str(case.declaration.misfire_policy.kind), is_known=case.is_in_force)


def overlap_policy(case: Case) -> str:
    """Likewise."""
    return _policy("overlap policy", str(case.declaration.overlap_policy.kind), is_known=case.is_in_force)


def grace(case: Case) -> str:
    """How late a fire may be."""
    return duration_words(case.declaration.misfire_policy.grace)


def attempts(case: Case) -> str:
    """Which attempt it was, of how many."""
    of = f" of {case.declaration.retry_policy.max_attempts}" if case.is_in_force else ""
    return f"{case.occurrence.attempt}{of}"


def error(case: Case) -> str:
    """What went wrong in its last run."""
    said = case.runs[-1].summary if case.runs else None
    return "" if said is None else f", with `{said}`"


def node(name: str | None) -> str:
    """Who runs it."""
    return f"node `{name}`" if name else "a node"


def listed(names: Sequence[str]) -> str:
    """Names, one after another."""
    return ", ".join(f"`{name}`" for name in names)


def times(count: object) -> str:
    """How often."""
    return "once" if count == 1 else f"{count} times"


def may_be_caught_up(case: Case) -> bool:
    """Whether the misfire policy lets an overdue one run, if there are no others; that depends on the whole gap."""
    row = case.occurrence
    since_due = Listed((row.due if row.caught_up is None else max(row.due, row.caught_up),))
    policy = case.declaration.misfire_policy
    return bool(decide(policy, since_due, uid=case.schedule.uid, after=MIN_INSTANT, now=case.now).starts)


def _policy(what: str, name: str, *, is_known: bool) -> str:
    return f"the {what} `{name}`" if is_known else f"the {what} of that time"
