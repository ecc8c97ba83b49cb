"""What follows a bad step: the ledger, going back, leaving out, the report."""
