"""The key that requests are signed with, told to whoever gives it to the receivers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.errors import NotAllowed
from noonmark.core.signatures import given_key, tenant_key
from noonmark.operations.arguments import Arguments

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.operations.service import Caller, Service


def signing_key(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The key that requests are signed with, for the receivers that check them; who read it is written down."""
    Arguments(arguments).done()
    if not caller.is_admin:
        raise NotAllowed("only an administrator may read the key that requests are signed with")
    tenant = caller.owner.tenant
    key = given_key(service.keys, tenant) or tenant_key(service.keys, service.store.own_key(), tenant)
    service.store.note(tenant, [caller.signed()(None, None, now=service.store.clock())])
    return {"signing_key": key}
