"""The router: finds the route of a request by the shape of its path, instead of trying all routes in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import Match, Route, Router

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import Receive, Scope, Send

    Shape = tuple[str, int]


class ShapeRouter(Router):
    """Tries only the routes that a path can have, in their order.

    These are the ones that are that path, or else those with its first part, its number of parts and a variable part.
    """

    def __init__(self, routes: Sequence[Route]) -> None:
        super().__init__(routes, redirect_slashes=False)
        self._by_path: dict[str, list[Route]] = {}
        self._by_shape: dict[Shape, list[Route]] = {}
        for route in routes:
            if "{" in route.path:
                self._by_shape.setdefault(_shape(route.path), []).append(route)
            else:
                self._by_path.setdefault(route.path, []).append(route)

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the route that matches; what has another shape than its route is left to the base class."""
        match = self.find(scope) if scope["type"] == "http" else None
        if match is None:
            await super().app(scope, receive, send)
            return
        route, matched = match
        scope.update({"router": self, "route": route, **matched})
        await route.handle(scope, receive, send)

    def find(self, scope: Scope) -> tuple[Route, Scope] | None:
        """The route of a request, and what its path says."""
        path = scope["path"]
        for route in self._by_path.get(path) or self._by_shape.get(_shape(path)) or ():
            match, scope_changes = route.matches(scope)
            if match is Match.FULL:
                return route, scope_changes
        return None


def _shape(path: str) -> Shape:
    """The first part of a path, and the number of its slashes. No route begins with a variable part."""
    return path[1:].partition("/")[0], path.count("/")
