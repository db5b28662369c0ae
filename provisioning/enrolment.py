"""On the board, as root: gets its identity for a one-time token of the provisioning file.

    python3 -P -m provisioning.enrolment

The key is made here and never leaves the board. The service's CA has to be the one whose SHA-256 the file has. After a
power cut the same key is shown again, and the service gives the same certificate for it.
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from edgert.boards import files
from edgert.boards.certificates import EcKey, key_pem
from edgert.boards.signing_requests import CA, ENROL, signing_request
from edgert.core.errors import EdgertError, show
from edgert.core.toml import to_toml
from provisioning.document import COMPLETE_FILE, TOKEN_FILE, TOKEN_KEY, files_untrusted
from provisioning.identity import own_name
from provisioning.on_board import STORED, store
from provisioning.renewal import FAULTS, Refused, ask_untrusted, next_key

GIVEN: Final = ("certificate", "ca", "crl", "fleet_key", "mac_key")
REFUSED: Final = 2
"""Exit status: another attempt would end as this one did."""


def main() -> int:
    try:
        done = enrol(STORED, own_name())
    except EdgertError as error:
        print(f"edgert-enrolment: {error}", file=sys.stderr)
        return REFUSED if isinstance(error, Refused) and error.final else 1
    print(f"edgert-enrolment: {done}")
    return 0


def enrol(stored: Path, own: str = "") -> str:
    """Gets and stores the identity, then wipes the token. `own` is the board's name where the file gives none. Returns
    what was done; raises `EdgertError`."""
    complete = stored / COMPLETE_FILE
    if not complete.exists():
        files.write(complete, _complete(stored, own).encode())
    store(stored, files_untrusted(complete.read_text(), own_name=own))
    return "the board has its identity, and its token is wiped"


def _complete(stored: Path, own: str) -> str:
    """The provisioning file with the identity in the token's place."""
    try:
        document: dict[str, Any] = tomllib.loads((stored / TOKEN_FILE).read_text())
        enrolment = document["enrolment"]
        url, token, pinned = enrolment["url"], enrolment["token"], enrolment["ca_sha256"]
    except (OSError, ValueError, KeyError) as error:
        raise EdgertError(f"{stored / TOKEN_FILE}: expected a provisioning file with a token: {error}") from error
    name, key = document.get("gateway", {}).get("id") or own, next_key(stored / TOKEN_KEY)
    ca = pinned_untrusted(ask_untrusted(url, CA, b"", b""), pinned)
    request = signing_request(document.get("gateway", {}).get("fleet", ""), name, key)
    body = json.dumps({"token": token, "request": request.decode()}).encode()
    identity = identity_untrusted(ask_untrusted(url, ENROL, body, ca), key)
    text = to_toml({**document, "enrolment": {"url": url}, "identity": identity})
    files_untrusted(text, "the service's answer", own)
    return text


def pinned_untrusted(pem: bytes, sha256: str) -> bytes:
    """The CA's certificate (PEM) if it is the one with this fingerprint. Raises `EdgertError`."""
    try:
        found = x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise EdgertError(f"expected the certificate of the fleet's CA (PEM): {error}") from None
    if found.fingerprint(hashes.SHA256()).hex() != sha256:
        raise EdgertError(
            "expected the CA with the fingerprint of the provisioning file, got another: no token is sent"
        )
    return found.public_bytes(Encoding.PEM)


def identity_untrusted(answer: bytes, key: EcKey) -> dict[str, str]:
    """The `[identity]` of a provisioning file. Raises `EdgertError`."""
    try:
        plain = json.loads(answer)
    except (ValueError, RecursionError):
        plain = None
    if not isinstance(plain, dict) or not all(isinstance(plain.get(name), str) for name in GIVEN):
        raise EdgertError(f"expected an identity as JSON ({', '.join(GIVEN)}), got {show(answer)}")
    try:
        made = x509.load_pem_x509_certificates(plain["certificate"].encode())
        ours = made[0].public_key() == key.public_key()
    except FAULTS as error:
        raise EdgertError(f"expected a certificate: {error}") from None
    if not ours:
        raise EdgertError("expected a certificate for this board's key, got another's")
    return {**{name: plain[name] for name in GIVEN}, "key": key_pem(key).decode()}


if __name__ == "__main__":
    sys.exit(main())
