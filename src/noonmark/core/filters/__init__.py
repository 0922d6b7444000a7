"""Event filters: matching an event, and the index that finds triggers by their filters."""
