"""The pure rules of Noonmark: what a schedule means. No I/O, no clock, no randomness, no async, no logging."""
