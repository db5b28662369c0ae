"""The page and the metrics of a gateway."""
