"""Certificate revocation lists that name the boards, for those who check names and not certificates.

An entry of the list has the board's name in an extension that is not critical: TLS libraries pass it over, agents read
it. A name that was revoked once is not given to a board again.
"""

from __future__ import annotations

from typing import Final

from cryptography import x509

from edgert.core.errors import EdgertError
from edgert.core.ids import GATEWAY_NAME

BOARD_OID: Final = x509.ObjectIdentifier("2.25.227306143612866478303425213216107401583")
"""Of our own (a random UUID, ITU-T X.667). Its value: the board's name as a DER UTF8String."""
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
