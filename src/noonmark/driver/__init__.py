"""The driver. Each step reads, decides and commits once; the loop only calls the steps in time."""
