"""The scheduler in your own process: one import, no server."""
