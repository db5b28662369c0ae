"""Summaries of a stream in bounded memory: add, merge, result. Pure; values come as hashes (`hashing`)."""
