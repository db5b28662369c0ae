"""Bytes to rows and back; one file each."""

from edgert.codecs.base import Captures, Codec, Decoded
from edgert.codecs.registry import make, names

__all__ = ["Captures", "Codec", "Decoded", "make", "names"]
