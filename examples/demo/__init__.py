"""The demo: a handful of interesting schedules on one file, shown live. Run by `make demo`."""
