"""Output for people: tables, details and times. Loads rich, so commands import it only when they need it."""
