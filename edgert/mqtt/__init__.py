"""Our own MQTT client: packets, session and topics are pure; transport is the door."""
