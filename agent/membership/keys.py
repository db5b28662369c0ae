"""The fleet's keys: the ring that seals with one and opens with any.

A key file (`edgert.core.text.key_lines`) has one key per line. The first key seals. To rotate: append the new key on
every board, then move it to the front on every board, then remove the old one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

ID_BYTES: Final = 4
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16


def key_id(secret: bytes) -> bytes:
    """The public name of a key: packets carry it."""
    return hashlib.blake2s(secret, digest_size=ID_BYTES, person=b"edgertky").digest()


@dataclass(frozen=True, slots=True)
class _Key:
    identifier: bytes
    cipher: ChaCha20Poly1305


class KeyRing:
    """Seals with the first key, opens with any (ChaCha20-Poly1305, RFC 8439, random nonces)."""

    def __init__(self, secrets: Sequence[bytes]) -> None:
        # Here, since a simulation of a fleet has no keys and needs no `cryptography`.
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        self._keys = {key_id(secret): _Key(key_id(secret), ChaCha20Poly1305(secret)) for secret in secrets}
        self._sealing = next(iter(self._keys.values()))

    @property
    def identifiers(self) -> list[str]:
        """Ids of the keys in hexadecimal, the sealing one first."""
        return [identifier.hex() for identifier in self._keys]

    def seal(self, plain: bytes, context: bytes, nonce: bytes) -> bytes:
        """Key id, nonce, ciphertext and tag. `nonce`: 12 random bytes, never used twice."""
        key = self._sealing
        return key.identifier + nonce + key.cipher.encrypt(nonce, plain, context)

    def knows(self, sealed: memoryview) -> bool:
        """True if a key of this ring has the id that `sealed` begins with."""
        return bytes(sealed[:ID_BYTES]) in self._keys

    def open_untrusted(self, sealed: memoryview, context: bytes) -> bytes | None:
        """The plain bytes; None unless they were sealed with a key of this ring and the same `context`."""
        from cryptography.exceptions import InvalidTag

        key = self._keys.get(bytes(sealed[:ID_BYTES]))
        if key is None or len(sealed) < ID_BYTES + NONCE_BYTES + TAG_BYTES:
            return None
        nonce = bytes(sealed[ID_BYTES : ID_BYTES + NONCE_BYTES])
        try:
            return key.cipher.decrypt(nonce, sealed[ID_BYTES + NONCE_BYTES :], context)
        except InvalidTag:
            return None
