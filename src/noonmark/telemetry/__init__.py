"""Telemetry: metrics, logs and health checks of a node."""
