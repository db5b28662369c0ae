"""Tests of a real board, over SSH or its serial console: `make hw-test`."""
