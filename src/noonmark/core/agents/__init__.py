"""Agents: sessions, their messages, and groups of them."""
