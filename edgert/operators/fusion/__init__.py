"""Several operators as one instance: chains, regions, and the functions that are generated for them."""
