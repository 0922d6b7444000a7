"""From options to the terms of a schedule: names, labels and policies. What they leave open is as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.cli.times import read_duration
from noonmark.core.documents import present
from noonmark.core.errors import InvalidRequest
from noonmark.core.json_values import shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.cli.options import Terms

PARTLY_SAID = frozenset({"labels", "overlap_policy", "misfire_policy", "window", "retry_policy"})
"""What options may say a part of: the rest is what it was."""
SAME = {"none": "skip", "catchup_one": "catch_up_one", "catchup_all": "catch_up_all"}
"""The other names of misfire policies, as manifests have them."""
LIMITED = frozenset({"catch_up_all", "catch_up_within", "spread"})
"""The misfire policies that have a limit."""


def terms_document(terms: Terms, before: Mapping[str, Any], *, is_change: bool = False) -> dict[str, Any]:
    """What options say about names and policies, and nothing else; `before` has what they say a part of."""
    if terms.allow_overlap and terms.overlap is not None:
        raise InvalidRequest("cannot stand beside --allow-overlap", field="--overlap")
    window, timeout = read_duration(terms.window, "--window"), read_duration(terms.timeout, "--timeout")
    labels = [pair(one, "=", "--label") for one in terms.label]
    attempts = None if terms.retries is None else {"max_attempts": terms.retries + 1}
    return present(
        name=terms.name,
        description=terms.description,
        labels=merged_pairs(before.get("labels"), labels, is_change=is_change) if labels else None,
        overlap_policy="allow" if terms.allow_overlap else _overlap(terms.overlap, before.get("overlap_policy")),
        misfire_policy=_misfire(terms, before.get("misfire_policy")),
        window=None if window is None else _object(before.get("window")) | {"duration_seconds": window},
        timeout_seconds=timeout,
        retry_policy=None if attempts is None else _object(before.get("retry_policy")) | attempts,
        max_runs=terms.max_runs,
        depends_on=[{"schedule_id": one} for one in terms.depends_on] or None,
    )


def _overlap(said: str | None, before: object) -> str | dict[str, Any] | None:
    """The policy that is named; with its settings, where it is the one that there was."""
    settings = _object(before)
    return settings if said is not None and settings.get("type") == said else said


def _misfire(terms: Terms, before: object) -> dict[str, Any] | None:
    settings = _object(before)
    kind = SAME.get(terms.misfire, terms.misfire) if terms.misfire is not None else settings.get("type")
    if terms.misfire is None and (terms.catchup_limit is None or kind not in LIMITED):
        if terms.catchup_limit is not None:
            raise InvalidRequest("goes with --misfire catch_up_all", field="--catchup-limit")
        return None
    if kind != settings.get("type"):
        settings = {name: value for name, value in settings.items() if name == "grace_seconds"}
    # As in a manifest, where a limit may stand beside a policy that has none.
    limit = {} if terms.catchup_limit is None or kind in ("skip", "catch_up_one") else {"limit": terms.catchup_limit}
    return settings | {"type": kind} | limit


def _object(value: object) -> dict[str, Any]:
    """What is said already, where it is an object: of anything else, nothing can be kept."""
    return dict(value) if isinstance(value, dict) else {}


def merged_pairs(before: object, said: Sequence[tuple[str, str]], *, is_change: bool) -> dict[str, Any]:
    """Labels or headers with those that are said; where they are changed, an empty value takes one away."""
    merged = _object(before) | dict(said)
    return {name: value for name, value in merged.items() if value or not is_change or name not in dict(said)}


def pair(text: str, mark: str, field: str) -> tuple[str, str]:
    """The name and the value in `name: value` or `name=value`."""
    name, found, value = text.partition(mark)
    if not found:
        # What stands there instead of a header may be a secret.
        said = f", not {shown(text)}" if mark == "=" else ""
        raise InvalidRequest(f"must be a name, then {mark!r}, then a value{said}", field=field)
    return name.strip(), value.strip()
