"""The reference store: plain dictionaries, nothing durable, every rule of the port."""

from noonmark.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
