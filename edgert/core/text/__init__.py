"""Text with rules: topics and their templates, strings of MQTT, host names, lines of keys, and numbers of things."""
