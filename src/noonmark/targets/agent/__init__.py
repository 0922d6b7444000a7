"""Agents: turns of sessions, mobs and tasks, carried out by a host in this process or at another service."""
