"""Calls that run elsewhere: in processes of this machine, or wherever an executor has workers."""
