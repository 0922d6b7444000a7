"""What the ledger and the driver can do, beside a raw SQLite loop and APScheduler 3. Each measurement has a process."""
