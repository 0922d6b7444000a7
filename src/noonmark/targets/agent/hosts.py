"""The hosts of a node: this process, the remote host, or both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.agents.turns import asks_for_remote

if TYPE_CHECKING:
    from noonmark.core.settlement import Accepted
    from noonmark.core.targets import Target
    from noonmark.ports.agent_host import AgentHost, AgentTurn, Probe, TurnResult


class TwoHosts:
    """Sends turns that ask for the remote host there, and carries out all others in this process."""

    def __init__(self, own: AgentHost, remote: AgentHost) -> None:
        self._own, self._remote = own, remote

    async def deliver(self, turn: AgentTurn) -> TurnResult | Accepted:
        """Deliver a turn to its host."""
        return await self._host(turn.target).deliver(turn)

    def probe(self, tenant: str, target: Target) -> Probe:
        """Ask the host of a target."""
        return self._host(target).probe(tenant, target)

    async def cancel(self, turn: AgentTurn) -> None:
        """Stop a turn at its host."""
        await self._host(turn.target).cancel(turn)

    async def close(self) -> None:
        """Close both."""
        await self._own.close()
        await self._remote.close()

    def _host(self, target: Target) -> AgentHost:
        return self._remote if asks_for_remote(target) else self._own
