"""The HTTP target: requests, sent from a thread with its own event loop."""
