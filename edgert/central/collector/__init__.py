"""The collector: takes results from the broker in order, lands them, and acknowledges what is safe."""
