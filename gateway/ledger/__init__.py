"""Lost data: how it is counted, and how it is reported."""
