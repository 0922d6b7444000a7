"""Temporal as an engine: occurrences of some routes are carried out by Temporal workflows, on distributed workers.

The node starts one workflow for each attempt, and no more: Noonmark is the clock and the ledger, and retries. What a
node imports before its first start does not load the library of Temporal, which takes most of a second.
"""
