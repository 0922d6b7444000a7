"""Output for people: tables, details and times. Commands import it only when they print for people."""
