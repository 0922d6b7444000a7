"""Dialects: documents of other schedulers, translated into our own and back. Nothing here decides anything."""
