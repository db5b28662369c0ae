"""Membership of a fleet: SWIM with Lifeguard. The protocol is pure; `transport` is the door to the network."""
