"""Workflows: graphs of steps that an occurrence runs."""
