"""Requests of boards for certificates (CSR, PEM): a board makes its key, signs a request with it, and the fleet's CA
signs the certificate. Pure."""

from __future__ import annotations

import json
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from edgert.boards.certificates import EcKey, PublicKey, subject
from edgert.core.errors import EdgertError, show
from edgert.core.ids import GATEWAY_NAME
from edgert.core.settings.board import TOKEN

MOST_BYTES: Final = 8192
RENEW: Final = "/v1/renew"
"""Path of the service: a request comes with the board's certificate (TLS), a chain of PEM certificates goes back."""

CA: Final = "/v1/ca"
"""Answers the root's certificate, to anybody."""
ENROL: Final = "/v1/enrol"
"""A token and a request come as JSON (`token`, `request`), the identity goes back, without its key: each setting of
`[identity]` by name."""
MOST_BODY: Final = MOST_BYTES + 1024


def signing_request(fleet: str, name: str, key: EcKey) -> bytes:
    """The request of the board `name`."""
    made = x509.CertificateSigningRequestBuilder().subject_name(subject(fleet, name))
    return made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def enrolment_untrusted(body: bytes) -> tuple[str, bytes]:
    """The token and the signing request (PEM) of a board without a certificate. Raises `EdgertError`."""
    try:
        plain = json.loads(body) if len(body) <= MOST_BODY else None
    except (ValueError, RecursionError):
        plain = None
    found = [plain.get(name) if isinstance(plain, dict) else None for name in ("token", "request")]
    token, request = (one if isinstance(one, str) and one.isascii() else "" for one in found)
    if not TOKEN.fullmatch(token):
        raise EdgertError("expected a token and a signing request as JSON, got something else")
    return token, request.encode()


def signing_request_untrusted(pem: bytes) -> tuple[str, PublicKey]:
    """The name in a request, and its key, which has signed it. Nothing else of a request counts. Raises
    `EdgertError`."""
    if len(pem) > MOST_BYTES:
        raise EdgertError(f"expected a signing request of at most {MOST_BYTES} bytes, got {len(pem)}")
    try:
        found = x509.load_pem_x509_csr(pem)
        key, signed = found.public_key(), found.is_signature_valid
        names = [str(one.value) for one in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm) as error:
        raise EdgertError(f"expected a signing request (PEM): {error}") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1) or not signed:
        raise EdgertError("expected a signing request with a P-256 key that has signed it, got another")
    if len(names) != 1 or not GATEWAY_NAME.fullmatch(names[0]):
        raise EdgertError(f"expected a signing request with the name of one board, got {show(names)}")
    return names[0], key
