"""Text files that people write, some with an editor that puts a byte-order mark in front of UTF-8."""

from __future__ import annotations

from typing import Final

ENCODING: Final = "utf-8-sig"
"""UTF-8; a byte-order mark in front is skipped."""
