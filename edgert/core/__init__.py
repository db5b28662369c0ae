"""Terms that every room shares: errors, batches, the clock, packing; results, settings and texts have own rooms."""
