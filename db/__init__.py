"""The journal and the ledger."""
