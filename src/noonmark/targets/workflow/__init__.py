"""Workflows: the runs that this node holds, step by step."""
