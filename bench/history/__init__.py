"""What a long history costs: PostgreSQL with millions of ended occurrences, and the ledger at work beside them."""
