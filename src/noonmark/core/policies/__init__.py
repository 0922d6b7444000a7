"""Policies as values, and the rules that need only them and the time.

The alternatives of overlap and misfire share names (`overlap.Skip`, `misfire.Skip`), so they stay in their modules;
so do the rules: `jitter.due_at`, `catch_up.decide`, `misfire.judge`, `retry.next_attempt`, `window.judge`. Every rule
answers with a value that carries its `reason`, and tells the numbers behind it with `facts()`, in the words of a
document: seconds, and instants as text.
"""

from noonmark.core.policies.delivery import Delivery, MissingTargetPolicy, read_delivery, read_missing_target
from noonmark.core.policies.jitter import Fires
from noonmark.core.policies.limits import (
    Budget,
    Concurrency,
    Dependency,
    Horizon,
    read_budget,
    read_concurrency,
    read_dependencies,
    read_horizon,
)
from noonmark.core.policies.misfire import MisfireKind, MisfirePolicy, read_misfire
from noonmark.core.policies.overlap import OverlapKind, OverlapPolicy, read_overlap
from noonmark.core.policies.retry import RetryPolicy, read_retry
from noonmark.core.policies.window import EndAction, Window, read_window

__all__ = [
    "Budget",
    "Concurrency",
    "Delivery",
    "Dependency",
    "EndAction",
    "Fires",
    "Horizon",
    "MisfireKind",
    "MisfirePolicy",
    "MissingTargetPolicy",
    "OverlapKind",
    "OverlapPolicy",
    "RetryPolicy",
    "Window",
    "read_budget",
    "read_concurrency",
    "read_delivery",
    "read_dependencies",
    "read_horizon",
    "read_misfire",
    "read_missing_target",
    "read_overlap",
    "read_retry",
    "read_window",
]
