"""The gateway daemon: ingest, deployment over MQTT, uplink, web page."""
