"""The tables of the store, with their indexes."""
