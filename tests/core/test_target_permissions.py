"""Which functions and commands a tenant may use."""

import pytest

from noonmark.core.targets import CommandTarget, FunctionTarget
from noonmark.core.targets.permissions import TargetPermissions
from noonmark.core.targets.work import BundleTarget, EventTarget

NAMES = {"acme": frozenset({"a", "b"}), "free": frozenset({"*"}), "*": frozenset({"c"})}


@pytest.mark.parametrize(
    ("names", "tenant", "name", "is_allowed"),
    [
        (None, "acme", "x", True),
        (NAMES, "acme", "a", True),
        (NAMES, "acme", "c", False),
        (NAMES, "free", "x", True),
        (NAMES, "other", "c", True),
        (NAMES, "other", "a", False),
        ({}, "other", "a", False),
        ({"acme": frozenset({"a"})}, "other", "a", False),
    ],
)
def test_a_tenant_uses_what_it_is_given(names, tenant, name, is_allowed):
    function, command = FunctionTarget(function=name), CommandTarget(argv=(name, "x"))
    functions, commands = TargetPermissions(functions=names), TargetPermissions(commands=names)
    assert (functions.problem(tenant, function) is None) is is_allowed
    assert (commands.problem(tenant, command) is None) is is_allowed
    assert functions.shows(tenant, f"function:{name}") is is_allowed
    assert functions.shows(tenant, "command")
    assert functions.problem(tenant, command) is None
    assert commands.problem(tenant, function) is None


def test_a_refusal_names_the_field_and_the_setting():
    nothing = TargetPermissions(functions={}, commands={})
    assert nothing.problem("acme", FunctionTarget(function="f"))[0] == "target.function"
    field, words = nothing.problem("acme", CommandTarget(argv=("ls",)))
    assert field == "target.argv"
    assert "--tenant-commands" in words
    assert nothing.problem("acme", EventTarget(event_type="e")) is None


def test_a_bundle_is_a_program_too():
    commands = {"acme": frozenset({"sh", "bundle:eval"}), "free": frozenset({"*"})}
    permissions = TargetPermissions(commands=commands)
    for bundle in (BundleTarget(bundle_id="eval"), BundleTarget(bundle_id="other"), BundleTarget(digest="0f" * 32)):
        assert (permissions.problem("acme", bundle) is None) is (bundle.bundle_id == "eval")
        assert permissions.problem("free", bundle) is None
        field, words = permissions.problem("other", bundle)
        assert (field, "--tenant-commands" in words) == ("target.bundle_id", True)
