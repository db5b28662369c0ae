"""A user's operator graph: document, builder, specification, check, physical plan, states of its parts."""
