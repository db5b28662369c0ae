"""Which board runs which operator: a pure decision from figures, capacities and latencies (FGCS 2025, section 4)."""
