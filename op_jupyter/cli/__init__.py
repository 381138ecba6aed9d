"""The `op-jupyter` command line."""
