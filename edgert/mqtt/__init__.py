"""MQTT: packets, session and topics are pure; clients are the doors to the network."""
