"""Which instance runs next, and how much it takes: pure policies."""
