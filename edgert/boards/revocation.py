"""Certificate revocation lists that name the boards, for those who check names and not certificates.

An entry of the list has the board's name in an extension that is not critical: TLS libraries pass it over, agents read
it. A name that was revoked once is not given to a board again.
"""

from __future__ import annotations

from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec

from edgert.core.errors import EdgertError
from edgert.core.ids import GATEWAY_NAME

MOST_BYTES: Final = 1 << 20
"""Largest list that is sent to a board: some 8,000 entries."""
BOARD_OID: Final = x509.ObjectIdentifier("2.25.227306143612866478303425213216107401583")
"""Identifier of our extension (a random UUID, ITU-T X.667). Its value: the board's name as a DER UTF8String."""
_UTF8_STRING: Final = 0x0C


def name_extension(name: str) -> x509.UnrecognizedExtension:
    """The extension of an entry. A name has at most 63 ASCII characters, so that its length is one byte."""
    return x509.UnrecognizedExtension(BOARD_OID, bytes((_UTF8_STRING, len(name))) + name.encode("ascii"))


def read_list_untrusted(pem: bytes, where: str) -> x509.CertificateRevocationList:
    """Raises `EdgertError` naming `where` the text came from."""
    try:
        return x509.load_pem_x509_crl(pem)
    except ValueError as error:
        raise EdgertError(f"{where}: expected a certificate revocation list (PEM): {error}") from error


def revoked_names_untrusted(pem: bytes, where: str) -> frozenset[str]:
    """The boards whose certificates a list names. Raises `EdgertError`."""
    try:
        return frozenset(filter(None, map(_name, read_list_untrusted(pem, where))))
    except ValueError as error:  # entries are parsed when they are read
        raise EdgertError(f"{where}: expected a certificate revocation list: {error}") from error


def _name(entry: x509.RevokedCertificate) -> str:
    """Empty where an entry names no board."""
    try:
        value = entry.extensions.get_extension_for_oid(BOARD_OID).value
    except x509.ExtensionNotFound:
        return ""
    told = value.value if isinstance(value, x509.UnrecognizedExtension) else b""
    name = told[2:].decode("ascii", "replace")
    whole = told[:2] == bytes((_UTF8_STRING, len(told) - 2)) if 2 <= len(told) < 130 else False
    return name if whole and GATEWAY_NAME.fullmatch(name) else ""


def is_newer_untrusted(pem: bytes, own: bytes, root: bytes, before: bytes) -> bool:
    """True if a list is of the board's CA and later than the one `before` (empty: there is none), False if it is that
    one or an earlier one. `own` is the board's certificate followed by the one that signed it, `root` the CA's; all are
    PEM. Raises `EdgertError` for a list of another CA, and for what is no list."""
    if len(pem) > MOST_BYTES:
        raise EdgertError(f"expected a certificate revocation list of at most {MOST_BYTES} bytes, got {len(pem)}")
    found = read_list_untrusted(pem, "the list that was sent")
    try:
        _, issuer, *_ = x509.load_pem_x509_certificates(own)
        issuer.verify_directly_issued_by(x509.load_pem_x509_certificate(root))
        key = issuer.public_key()
    except (ValueError, TypeError, InvalidSignature) as error:
        raise EdgertError(f"expected this board's certificate with that of its CA: {error}") from error
    try:
        ours = isinstance(key, ec.EllipticCurvePublicKey) and found.is_signature_valid(key)
        if not ours or found.issuer != issuer.subject:
            raise EdgertError("expected a certificate revocation list signed by this board's CA, got another's")
        revoked_names_untrusted(pem, "the list that was sent")
        return not before or _number(found) > _number(read_list_untrusted(before, "the list of this board"))
    except (ValueError, TypeError, x509.ExtensionNotFound) as error:
        raise EdgertError(f"expected a certificate revocation list with a number: {error}") from error


def _number(found: x509.CertificateRevocationList) -> int:
    return found.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
