"""Workflows, bundles and sessions with agents."""
