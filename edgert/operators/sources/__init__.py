"""`mqtt_source`: messages decoded to rows, event times, and the watermark of each device."""
