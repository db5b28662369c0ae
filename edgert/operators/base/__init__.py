"""The base of every operator: logic as the runtime calls it, generated lines, values of rows, the error boundary."""
