"""Clients, the doors to the network: our own for the sensors' broker, and paho's for the control plane."""
