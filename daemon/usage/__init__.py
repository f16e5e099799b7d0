"""The ledger of what requests cost, a file per day."""
