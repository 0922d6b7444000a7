"""Where the ledger is kept; one package for each kind of store, all behind `noonmark.ports.store`."""
