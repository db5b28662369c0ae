"""From the sensors' broker to the flows' queues."""
