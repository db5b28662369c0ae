"""`edgert simulate`: a flow on a virtual board."""
