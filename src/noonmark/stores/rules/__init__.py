"""The rules of a store, each once, over a unit of work that every store implements."""
