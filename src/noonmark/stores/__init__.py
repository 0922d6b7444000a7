"""Stores behind `noonmark.ports.store`: one package for each kind, and the rules that they share."""
