"""One physical copy of an operator: what runs it, feeds it, counts it and tells of it."""
