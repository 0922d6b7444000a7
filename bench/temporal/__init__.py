"""Occurrences through the Temporal engine, beside Temporal Schedules on the same server."""
