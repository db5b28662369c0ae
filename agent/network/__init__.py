"""The door to the network: packets of the membership over UDP, requests between agents over TCP."""
