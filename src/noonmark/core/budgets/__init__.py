"""Budgets: what work may spend, and what it has spent."""
