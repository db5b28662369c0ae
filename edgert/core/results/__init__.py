"""Results on the wire to the central side: messages, schema, pieces of large ones, and MACs."""
