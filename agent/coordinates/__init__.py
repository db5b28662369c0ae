"""Network coordinates: each board has a point, and the distance of two points estimates their round-trip time."""
