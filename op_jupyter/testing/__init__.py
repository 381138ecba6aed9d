"""Fakes and contracts for users' tests; nothing that runs for users imports this."""
