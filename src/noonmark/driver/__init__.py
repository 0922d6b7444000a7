"""The driver: what happens by itself. Each duty reads, decides and commits once; the loop only calls them in time."""

from noonmark.driver.duties import Driver

__all__ = ["Driver"]
