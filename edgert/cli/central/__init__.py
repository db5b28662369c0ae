"""`edgert central`: collector, fleet job, models and alerts, and a look at the tables."""
