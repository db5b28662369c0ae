"""Text files that people write, some with an editor that puts a byte-order mark in front of UTF-8."""

from __future__ import annotations

import codecs
from typing import Final

from edgert.core.errors import DocumentError, Problem

ENCODING: Final = "utf-8-sig"
"""UTF-8; a byte-order mark in front is skipped."""
UTF_16_MARKS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
WANTED: Final = "the encoding UTF-8 (Notepad: Save as, Encoding: UTF-8)"


def text_untrusted(content: bytes, what: str) -> str:
    """The text of the file `what`, without a byte-order mark. Raises `DocumentError` that names line and encoding."""
    if content[:2] in UTF_16_MARKS or b"\0" in content[:2]:  # a zero byte is half a letter
        raise DocumentError(what, [Problem("line 1", WANTED, "UTF-16")])
    try:
        return content.decode(ENCODING)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        got = f"byte 0x{content[error.start]:02x}, as in Windows-1252"
        raise DocumentError(what, [Problem(f"line {line}", WANTED, got)]) from None
