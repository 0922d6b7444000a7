"""JSON-RPC 2.0: every operation under its own name, at one address."""
