"""The steps of the driver. Each one reads, decides and commits once."""
