"""Sessions on disk: the journal, git, and the memory twin that keeps the same promises."""
