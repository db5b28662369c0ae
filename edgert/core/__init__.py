"""Words that every room shares: errors, batches, the clock, configuration, packing."""
