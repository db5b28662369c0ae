"""Packets of MQTT 3.1.1 and 5 as values, their properties and reason codes, and their bytes."""
