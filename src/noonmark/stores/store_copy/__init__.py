"""Copies of whole stores: `noonmark store copy`. The ends of a copy are in the package of each kind of store."""
