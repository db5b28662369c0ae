"""On the board, as root: has its certificate renewed before it ends.

    python3 -P -m provisioning.renewal

The new key is made here and never leaves the board. Certificate and key are replaced together: both names are links
through `renewed/current`, a link that is replaced in one step.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import ssl
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from edgert.boards import files
from edgert.boards.certificates import EcKey, fleet_of, key_pem, new_key
from edgert.boards.signing_requests import RENEW, signing_request
from edgert.core.errors import EdgertError, show
from edgert.core.settings.board import SERVICE
from provisioning.document import IDENTITY, RENEWED, SERVICE_FILE
from provisioning.on_board import STORED, group

CERTIFICATE, KEY, CA = (Path(IDENTITY[name]).name for name in ("certificate", "key", "ca"))
OWN: Final = Path(RENEWED).name
CURRENT: Final = f"{OWN}/current"
NEXT_KEY: Final = f"{OWN}/next.key"
"""The key that was asked for: kept until its certificate is there, so that a lost answer costs none."""
TOLD: Final = Path("/run/edgert-renewal/state.json")
"""The gateway reads there whether the last renewal failed."""
TIMEOUT_S: Final = 30.0
MOST_ANSWER: Final = 64 * 1024
MOST_WHY: Final = 300
FAULTS: Final = (
    ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm, x509.ExtensionNotFound, x509.DuplicateExtension
)  # fmt: skip
"""Errors of the library for certificates that are bent."""
PORT: Final = 8443


class Refused(EdgertError):
    """The service does not give what was asked for."""

    def __init__(self, url: str, status: int, why: bytes) -> None:
        told = "".join(filter(str.isprintable, why[:MOST_WHY].decode(errors="replace")))
        super().__init__(f"{url}: refused with {status}: {told}")
        self.final = status == http.client.FORBIDDEN
        """True if it would do so again."""


def main() -> int:
    """Returns 1 if a renewal was due and failed; the unit's timer tries again."""
    try:
        print(f"edgert-renewal: {renew(STORED, datetime.now(UTC))}")
    except EdgertError as error:
        print(f"edgert-renewal: {error}", file=sys.stderr)
        tell(TOLD, str(error))
        return 1
    tell(TOLD, "")
    return 0


def tell(path: Path, error: str) -> None:
    """Leaves the outcome for the gateway."""
    try:
        files.write(path, json.dumps({"error": error[:MOST_WHY]}).encode(), files.PUBLIC)
    except EdgertError as fault:
        print(f"edgert-renewal: {fault}", file=sys.stderr)


def renew(stored: Path, now: datetime) -> str:
    """Renews the certificate below `stored` in the last third of its life. Returns what was done; raises
    `EdgertError`."""
    identity = stored / Path(IDENTITY["certificate"]).parent
    url = _read(stored / SERVICE_FILE).decode(errors="replace").strip()
    if not url or not (identity / CERTIFICATE).exists():
        return "no renewal: there is no certificate, or no enrolment.url"
    own = _chain(_read(identity / CERTIFICATE))[0]
    ends = own.not_valid_after_utc
    if now < ends - (ends - own.not_valid_before_utc) / 3:
        return f"the certificate is valid until {ends:%Y-%m-%d}"
    key = next_key(identity / NEXT_KEY, own)
    name = str(own.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value)
    request = signing_request(fleet_of(own), name, key)
    answer = ask_untrusted(url, RENEW, request, _read(identity / CA), (identity / CERTIFICATE, identity / KEY))
    try:
        made = checked_untrusted(answer, key, own, _read(identity / CA), now)
    except EdgertError:
        (identity / NEXT_KEY).unlink()  # for this key the same answer would come again
        raise
    swap(identity, answer, key_pem(key))
    return f"a new certificate, valid until {made.not_valid_after_utc:%Y-%m-%d}"


def next_key(path: Path, own: x509.Certificate | None = None) -> EcKey:
    """The key for the next certificate, the same at each attempt; made where there is none, or that of `own`."""
    try:
        found = load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError):
        found = None
    if isinstance(found, ec.EllipticCurvePrivateKey) and (own is None or found.public_key() != own.public_key()):
        return found
    key = new_key()
    path.parent.mkdir(mode=0o755, exist_ok=True)
    files.write(path, key_pem(key))
    return key


def ask_untrusted(url: str, path: str, body: bytes, ca: bytes, own: tuple[Path, Path] | None = None) -> bytes:
    """The service's answer. It has to have a certificate for its host, signed by `ca` (empty: whoever answers); `own`
    is shown to it. Raises `Refused` for an answer without success, else `EdgertError`."""
    found = re.fullmatch(SERVICE, url)
    if found is None:
        raise EdgertError(f"enrolment.url: expected https://HOST:PORT, got {show(url)}")
    host, port = found["host"].strip("[]"), int(found["port"] or PORT)
    try:
        connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=_context(ca, own))
        try:
            connection.request("POST", path, body)
            response = connection.getresponse()
            answer = response.read(MOST_ANSWER + 1)
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise EdgertError(f"{url}: no answer: {error}") from error
    if response.status != http.client.OK:
        raise Refused(url, response.status, answer)
    if len(answer) > MOST_ANSWER:
        raise EdgertError(f"{url}: expected an answer of at most {MOST_ANSWER} bytes, got more")
    return answer


def _context(ca: bytes, own: tuple[Path, Path] | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.hostname_checks_common_name = False  # a board's certificate has no host, but a name
    if ca:
        context.load_verify_locations(cadata=ca.decode("ascii", "replace"))
    else:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if own is not None:
        context.load_cert_chain(*own)
    return context


def checked_untrusted(answer: bytes, key: EcKey, own: x509.Certificate, ca: bytes, now: datetime) -> x509.Certificate:
    """The new certificate of this board, for its new key, by its CA, and longer valid. Raises `EdgertError`."""
    made, issuer = _chain(answer)
    try:
        made.verify_directly_issued_by(issuer)
        issuer.verify_directly_issued_by(x509.load_pem_x509_certificate(ca))
        alternative = [one.extensions.get_extension_for_class(x509.SubjectAlternativeName) for one in (made, own)]
        same = made.subject == own.subject and alternative[0] == alternative[1]
        ours = made.public_key() == key.public_key()
    except FAULTS as error:
        raise EdgertError(f"expected a certificate by this board's CA, got another: {error}") from None
    if not same or not ours:
        raise EdgertError("expected a certificate with this board's name and its new key, got another")
    if not made.not_valid_before_utc <= now or made.not_valid_after_utc <= own.not_valid_after_utc:
        raise EdgertError(
            f"expected a certificate that is valid now and longer than until {own.not_valid_after_utc:%Y-%m-%d}, got "
            f"{made.not_valid_before_utc:%Y-%m-%d} to {made.not_valid_after_utc:%Y-%m-%d}; does the CA itself end?"
        )
    return made


def swap(identity: Path, certificate: bytes, key: bytes) -> None:
    """Replaces certificate and key together. Wherever it is cut off, they belong together, and it may be done again.
    Raises `EdgertError`."""
    try:
        (identity / OWN).mkdir(mode=0o755, exist_ok=True)
        if not (identity / KEY).is_symlink():
            _make_current(identity, _read(identity / CERTIFICATE), _read(identity / KEY))
            _link(identity / KEY, f"{CURRENT}/{KEY}")
        if not (identity / CERTIFICATE).is_symlink():
            _link(identity / CERTIFICATE, f"{CURRENT}/{CERTIFICATE}")
        _make_current(identity, certificate, key)
        (identity / NEXT_KEY).unlink(missing_ok=True)
        files.sync(identity / OWN)
    except OSError as error:
        raise EdgertError(f"{identity}: the new certificate cannot be stored: {error}") from error


def _make_current(identity: Path, certificate: bytes, key: bytes) -> None:
    """Stores the pair beside that in use, then lets the link change over."""
    current = identity / CURRENT
    before = os.readlink(current) if current.is_symlink() else ""
    after = "a" if before != "a" else "b"
    _store_pair(current.with_name(after), certificate, key)
    _link(current, after)
    if before:
        shutil.rmtree(current.with_name(before))


def _store_pair(folder: Path, certificate: bytes, key: bytes) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was cut off
    folder.mkdir(mode=0o755)
    files.write(folder / CERTIFICATE, certificate, files.PUBLIC)
    files.write(folder / KEY, key, group=group())
    files.sync(folder.parent)


def _link(path: Path, target: str) -> None:
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    part.symlink_to(target)
    part.replace(path)
    files.sync(path.parent)


def _chain(pem: bytes) -> list[x509.Certificate]:
    """A certificate and that which signed it. Raises `EdgertError`."""
    try:
        found = x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise EdgertError(f"expected certificates (PEM): {error}") from None
    if len(found) != 2:
        raise EdgertError(f"expected two certificates, the board's and its issuer's, got {len(found)}")
    return found


def _read(path: Path) -> bytes:
    return files.read(path) if path.exists() else b""


if __name__ == "__main__":
    sys.exit(main())
