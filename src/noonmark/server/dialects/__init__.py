"""Documents and routes of other schedulers, translated into our own and back. No rule is decided here."""
