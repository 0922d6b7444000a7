"""Which functions and commands a tenant may use, of those that nodes offer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.api_key import EVERY_TENANT
from noonmark.core.frozen import frozen
from noonmark.core.targets.command import CommandTarget
from noonmark.core.targets.work import BundleTarget, FunctionTarget

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.targets import Target

ANY_NAME = "*"

if TYPE_CHECKING:
    Names = Mapping[str, frozenset[str]]


@frozen(kw_only=True)
class TargetPermissions:
    """Names by tenant; None allows every tenant everything.

    The entry of `*` is for tenants that have none of their own. Without it, they may use nothing. The name `*` is any.
    """

    functions: Names | None = None
    commands: Names | None = None

    def problem(self, tenant: str, target: Target) -> tuple[str, str] | None:
        """The field that the tenant may not declare like this, and why; None if it may."""
        if isinstance(target, FunctionTarget) and not _allows(self.functions, tenant, target.function):
            return "target.function", f"the tenant {tenant!r} may not use this function (see --tenant-functions)"
        if isinstance(target, CommandTarget) and not _allows(self.commands, tenant, target.argv[0]):
            return "target.argv", f"the tenant {tenant!r} may not run this program (see --tenant-commands)"
        if isinstance(target, BundleTarget):
            return self.bundle_problem(tenant, target.bundle_id or target.digest or "")
        return None

    def bundle_problem(self, tenant: str, bundle_id: str) -> tuple[str, str] | None:
        """The same for a bundle, which is a program too."""
        if _allows(self.commands, tenant, f"bundle:{bundle_id}"):
            return None
        return "target.bundle_id", f"the tenant {tenant!r} may not run this bundle (see --tenant-commands)"

    def shows(self, tenant: str, route: str) -> bool:
        """Whether the tenant may learn that a node serves a route."""
        kind, _, name = route.partition(":")
        return kind != FunctionTarget.kind or _allows(self.functions, tenant, name)


def _allows(names: Names | None, tenant: str, name: str) -> bool:
    if names is None:
        return True
    allowed = names.get(tenant, names.get(EVERY_TENANT, frozenset()))
    return name in allowed or ANY_NAME in allowed
