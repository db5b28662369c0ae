"""What edgert claims of its speed, measured: one folder per claim, `python -m benchmarks NAME`."""
