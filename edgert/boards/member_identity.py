"""The certificates of members: with these no holder of the fleet's key can speak as another board.

A board signs each of its packets with the key of its certificate. Others take the certificate from it with the first
exchange over TCP, check that the fleet's CA made it for the name, and check each signature with its key. A list of
revoked certificates names boards, so a revoked board has no name left that it could use.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed, decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from edgert.core.errors import EdgertError, SignatureError

SIGNATURE_BYTES: Final = 64
MAX_KNOWN: Final = 4_096
_HALF: Final = SIGNATURE_BYTES // 2
_SIGNS: Final = ec.ECDSA(Prehashed(hashes.SHA256()))


def _digest(*parts: bytes | memoryview) -> bytes:
    found = hashlib.sha256()
    for part in parts:  # one after the other: a copy of a large message would take as much memory again
        found.update(part)
    return found.digest()


class BoardIdentity:
    """This board's certificate and key, and the keys of the members whose certificates it has seen."""

    def __init__(self, name: str, fleet: str, certificate: bytes, key: bytes, wall: Callable[[], float]) -> None:
        """All are PEM; `certificate`: the board's, followed by the one that signed it. Raises `EdgertError`."""
        self._fleet, self._wall = fleet, wall
        self.accepts_unsigned = False
        """True while a fleet gets its certificates: packets without a signature are taken, and are sent to members
        whose certificate is not known."""
        try:
            own, issuer, *_ = x509.load_pem_x509_certificates(certificate)
            private: Any = load_pem_private_key(key, None)
        except (ValueError, TypeError, InvalidSignature) as error:
            raise EdgertError(
                f"agent.certificate: expected this board's certificate and that of its CA, with their key: {error}"
            ) from error
        self._issuer = issuer
        self._private: ec.EllipticCurvePrivateKey = private
        self.known: dict[str, ec.EllipticCurvePublicKey] = {}
        """Name -> key, the newest last."""
        self.own = own.public_bytes(Encoding.DER)
        if self._checked(self.own, name) is None or private.public_key() != own.public_key():
            raise EdgertError(
                f"agent.certificate: expected a certificate of the fleet {fleet} for the board {name}, and its key"
            )

    def signed(self, context: bytes, plain: bytes, *, carries: bool) -> bytes:
        """Plain bytes, and behind them the certificate if the packet `carries` it, its length (2 bytes), and the
        signature of all this and of the `context`."""
        certificate = self.own if carries else b""
        behind = certificate + len(certificate).to_bytes(2)
        r, s = decode_dss_signature(self._private.sign(_digest(context, plain, behind), _SIGNS))
        return b"".join((plain, behind, r.to_bytes(_HALF), s.to_bytes(_HALF)))

    def opened_untrusted(self, name: str, context: bytes, content: memoryview) -> memoryview:
        """The plain bytes, where the member `name` signed them. A certificate that came with them is believed where it
        is of this fleet's CA and for that name, and its key made the signature. Raises `SignatureError`."""
        end = len(content) - SIGNATURE_BYTES - 2
        length = int.from_bytes(content[end : end + 2]) if end >= 0 else 0
        if end < length:
            raise SignatureError("bad signature")
        carried = self._checked(bytes(content[end - length : end]), name) if length else None
        key = carried or self.known.get(name)
        if key is None:
            raise SignatureError("no certificate")
        r, s = (int.from_bytes(content[at : at + _HALF]) for at in (end + 2, end + 2 + _HALF))
        try:
            key.verify(encode_dss_signature(r, s), _digest(context, content[: end + 2]), _SIGNS)
        except InvalidSignature:
            raise SignatureError("bad signature") from None
        if carried is not None:
            self.known.pop(name, None)
            if len(self.known) >= MAX_KNOWN:
                del self.known[next(iter(self.known))]
            self.known[name] = carried
        return content[: end - length]

    def _checked(self, der: bytes, name: str) -> ec.EllipticCurvePublicKey | None:
        try:
            found = x509.load_der_x509_certificate(der)
            found.verify_directly_issued_by(self._issuer)
            uris = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            key = found.public_key()
        except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
            return None
        if found.not_valid_after_utc.timestamp() < self._wall():
            return None  # a board whose clock says 1970 believes it
        named = uris.get_values_for_type(x509.UniformResourceIdentifier) == [f"edgert://{self._fleet}/{name}"]
        return key if named and isinstance(key, ec.EllipticCurvePublicKey) else None
