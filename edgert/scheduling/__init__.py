"""Scheduling policies, without side effects: the instance that runs next, and the number of rows that it takes."""
