"""Settings: where each value comes from and what it may be."""
