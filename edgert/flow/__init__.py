"""A user's operator graph: document, builder, specification, check, physical plan."""
