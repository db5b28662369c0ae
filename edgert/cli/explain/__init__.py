"""`edgert explain`: the plan of a flow, and where its instances run."""
