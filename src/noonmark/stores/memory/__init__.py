"""A store in memory: dictionaries, nothing durable."""

from noonmark.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
