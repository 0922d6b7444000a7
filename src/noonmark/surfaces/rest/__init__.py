"""REST: every operation by HTTP, with strict JSON in and problem documents out."""
