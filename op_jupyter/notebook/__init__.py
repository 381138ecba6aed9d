"""The IPython side: magics, display, approvals, and what the front end can do."""
