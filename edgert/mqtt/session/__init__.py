"""The client's side of an MQTT session, sans-IO, and its parts: states, requests, messages in and out."""
