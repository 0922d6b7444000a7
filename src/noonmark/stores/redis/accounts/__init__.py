"""What belongs to callers: keys, secrets, sessions of the page, the audit log, proposals and budgets."""
