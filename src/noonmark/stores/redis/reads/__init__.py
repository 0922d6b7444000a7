"""What callers read across schedules: timelines, searches, workload, damage and recent changes."""
