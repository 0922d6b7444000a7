"""What is stored and not due: millions of schedules and ended occurrences, and the ledger at work beside them."""
