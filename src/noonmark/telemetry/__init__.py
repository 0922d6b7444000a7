"""Telemetry: what a node tells of its work, as numbers, as log lines and as an answer to whoever asks how it is."""
