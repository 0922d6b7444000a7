"""The driver: what happens by itself. Each duty reads, decides and commits once; the loop only calls them in time."""
