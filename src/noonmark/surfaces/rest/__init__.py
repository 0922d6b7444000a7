"""REST: the operations over HTTP."""

from noonmark.surfaces.rest.app import HttpSettings, make_app

__all__ = ["HttpSettings", "make_app"]
