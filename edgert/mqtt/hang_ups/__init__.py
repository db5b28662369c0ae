"""Rules for a broker that hangs up at a packet: which one it was is found, and its like is refused for a time. Pure."""
