"""Text with rules: topics and their templates, strings of MQTT, host names, and lines of keys."""
