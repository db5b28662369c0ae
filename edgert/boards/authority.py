"""The fleet's CA in a folder: makes certificates, revokes them, and knows which it has made.

root/root.key        key of the root: to be taken off the machine; only a new intermediate needs it
root.pem             its certificate: what boards and brokers trust (`cafile`)
intermediate.pem     signs boards, with intermediate.key
crl.pem              what is revoked (`crlfile`); there from the beginning, empty
fleet.key            what the agents' packets are sealed with (`edgert fleet key`)
mac.key              the central key (`edgert fleet mac-key`): the collector takes it, the gateways' keys are made of it
issued/<name>/       each certificate that was made, named by its serial number
"""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from edgert.boards import certificates as made_of
from edgert.boards import files
from edgert.boards.certificates import EARLIER, EcKey, PublicKey, key_pem, pem
from edgert.boards.revocation import name_extension, read_list_untrusted, revoked_names_untrusted
from edgert.core.errors import EdgertError, show
from edgert.core.ids import GATEWAY_NAME
from edgert.core.results.macs import gateway_key
from edgert.core.settings.board import FLEET_KEY
from edgert.core.text.key_lines import KEY_BYTES, key_line, parse_keys

HOST: Final = re.compile(r"[A-Za-z0-9:][A-Za-z0-9.:-]{0,252}")
"""A host name or an IP address."""
LEAST_LIFE: Final = timedelta(days=90)
"""A certificate that ends sooner is replaced when boards are provisioned again."""
MOST_A_DAY: Final = 5
"""Certificates for keys of one board: one that was taken over cannot fill the disk."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate, followed by the intermediate's, and its private key; both PEM."""

    certificate: bytes
    key: bytes


def create(folder: Path, fleet: str, now: datetime) -> None:
    """Makes a CA in a folder that is not there yet. Raises `EdgertError`."""
    if folder.exists():
        raise EdgertError(f"{folder}: expected a folder that is not there yet; a CA is never made anew over another")
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)  # of a run that was cut off
    for path in (part, part / "root", part / "issued"):
        files.folder(path)
    root_key, key = made_of.new_key(), made_of.new_key()
    root = made_of.authority(fleet, f"edgert fleet {fleet} root", root_key, None, now)
    intermediate = made_of.authority(fleet, f"edgert fleet {fleet} boards", key, (root, root_key), now)
    files.write(part / "root/root.key", key_pem(root_key))
    files.write(part / "root.pem", pem(root), files.PUBLIC)
    files.write(part / "intermediate.key", key_pem(key))
    files.write(part / "intermediate.pem", pem(intermediate), files.PUBLIC)
    files.write(part / "crl.pem", _signed_list(intermediate, key, None, [], now), files.PUBLIC)
    files.write(part / "fleet.key", key_line(secrets.token_bytes(KEY_BYTES)).encode() + b"\n")
    files.write(part / "mac.key", key_line(secrets.token_bytes(KEY_BYTES)).encode() + b"\n")
    part.rename(folder)
    files.sync(folder.parent)


class Authority:
    """The intermediate, in use. To be held with `files.locked(folder)`."""

    def __init__(self, folder: Path) -> None:
        """Raises `EdgertError` naming the file that is missing or damaged."""
        self.folder = folder
        root, self._intermediate = _certificate(folder / "root.pem"), _certificate(folder / "intermediate.pem")
        self._key = _key(folder / "intermediate.key")
        if self._key.public_key() != self._intermediate.public_key():
            raise EdgertError(f"{folder}: expected the key of intermediate.pem in intermediate.key, got another")
        try:
            self._intermediate.verify_directly_issued_by(root)
        except (ValueError, TypeError, InvalidSignature):
            raise EdgertError(
                f"{folder}: expected the root that signed intermediate.pem in root.pem, got another"
            ) from None
        self.root_pem = pem(root)
        self.fleet_key = _fleet_key(folder / "fleet.key")
        self._central_key = _central_key(folder / "mac.key")
        self.fleet = made_of.fleet_of(self._intermediate)
        self._read_list()

    def mac_key(self, name: str) -> str:
        """The line with the MAC key of the board `name`."""
        return key_line(gateway_key(self._central_key, self.fleet, name)) + "\n"

    def identity(self, name: str, certificate: bytes) -> dict[str, str]:
        """The identity of the board `name` as its provisioning file has it, but for the private key."""
        return {
            "certificate": certificate.decode(),
            "ca": self.root_pem.decode(),
            "crl": self.crl_pem.decode(),
            "fleet_key": self.fleet_key,
            "mac_key": self.mac_key(name),
        }

    # -- certificates

    def board(self, name: str, now: datetime, life: timedelta) -> Issued:
        """Raises `EdgertError` for a name that was revoked, or that is a user's or a broker's."""
        self.of_board(name)
        key = made_of.new_key()
        return self._issue(name, made_of.board(self.fleet, name, key.public_key(), self._signer, now, life), key)

    def signed(self, name: str, public: PublicKey, now: datetime, life: timedelta) -> bytes:
        """The certificate of a board that made its key itself, followed by the intermediate's. A key that has one gets
        that again, as an answer may be lost. Raises `EdgertError` as `board` does, and for too many keys in a day."""
        earlier = self.of_board(name)
        for one in earlier:
            if one.public_key() == public and now < one.not_valid_after_utc:
                return self._chain(one)
        if sum(now - timedelta(days=1) < one.not_valid_before_utc + EARLIER for one in earlier) >= MOST_A_DAY:
            raise EdgertError(f"{name}: expected at most {MOST_A_DAY} new certificates in a day, got one more")
        return self._record(name, made_of.board(self.fleet, name, public, self._signer, now, life))

    def of_board(self, name: str) -> list[x509.Certificate]:
        """The certificates of a board. Raises `EdgertError` for a name that no board may have."""
        found = self.certificates(self._free(name))
        if any(_uris(one) != [self._uri(name)] for one in found):
            raise EdgertError(f"{show(name)}: expected a name that no user and no broker has; give the board another")
        return found

    def owner_untrusted(self, certificate: bytes) -> str:
        """The board that this CA made a certificate (DER) for; TLS has checked that it is valid. Raises
        `EdgertError`."""
        try:
            shown = x509.load_der_x509_certificate(certificate)
            (uri,) = _uris(shown)
        except (ValueError, x509.ExtensionNotFound) as error:
            raise EdgertError(f"expected the certificate of a board: {error}") from None
        name = uri.removeprefix(self._uri(""))
        if not GATEWAY_NAME.fullmatch(name) or shown not in self.of_board(name):
            raise EdgertError(f"expected the certificate of a board of fleet {self.fleet}, got that of {show(uri)}")
        return name

    def user(self, name: str, now: datetime, life: timedelta) -> Issued:
        """Issues a broker client, no gateway, its certificate. Raises `EdgertError` for a name that is taken."""
        key = made_of.new_key()
        return self._issue(name, made_of.user(self.fleet, self._new(name), key, self._signer, now, life), key)

    def updates(self, name: str, now: datetime, life: timedelta) -> Issued:
        """Signs update bundles. Raises `EdgertError` for a name that is taken."""
        key = made_of.new_key()
        return self._issue(name, made_of.updates(self.fleet, self._new(name), key, self._signer, now, life), key)

    def server(self, hosts: Sequence[str], now: datetime, life: timedelta) -> Issued:
        """Issues a broker's certificate, revoked by its first host's name. Raises `EdgertError` for what is no host."""
        if wrong := [host for host in hosts if not HOST.fullmatch(host)]:
            raise EdgertError(f"expected host names or IP addresses, got {', '.join(map(show, wrong))}")
        if taken := [host for host in hosts if any(map(_uris, self.certificates(host)))]:
            raise EdgertError(f"{', '.join(taken)}: expected hosts without the name of a board or a user")
        key = made_of.new_key()
        return self._issue(hosts[0], made_of.server(self.fleet, hosts, key, self._signer, now, life), key)

    def still_good(self, name: str, certificate: bytes, key: bytes, now: datetime) -> bool:
        """True if this CA gave this certificate and key to the board `name`, and they are good for `LEAST_LIFE` at
        least."""
        try:
            found, private = x509.load_pem_x509_certificate(certificate), load_pem_private_key(key, None)
            found.verify_directly_issued_by(self._intermediate)
            uris = _uris(found)
        except Exception:  # noqa: BLE001 -- any fault in the files of an earlier run: a new certificate is made
            return False
        return (
            uris == [self._uri(name)]
            and private.public_key() == found.public_key()
            and certificate.endswith(pem(self._intermediate))
            and found.not_valid_before_utc <= now
            and now + LEAST_LIFE <= found.not_valid_after_utc
            and self._crl.get_revoked_certificate_by_serial_number(found.serial_number) is None
        )

    def certificates(self, name: str) -> list[x509.Certificate]:
        """All that were made for a name."""
        return [_certificate(path) for path in sorted(self._folder(name).glob("*.pem"))]

    @property
    def _signer(self) -> tuple[x509.Certificate, EcKey]:
        return self._intermediate, self._key

    def _folder(self, name: str) -> Path:
        return self.folder / "issued" / name.replace(":", "_")

    def _uri(self, name: str) -> str:
        return f"{made_of.URI}{self.fleet}/{name}"

    def _new(self, name: str) -> str:
        if GATEWAY_NAME.fullmatch(name) and self.certificates(name):
            raise EdgertError(f"{show(name)}: expected a name without a certificate; that of a board stays the board's")
        return self._free(name)

    def _free(self, name: str) -> str:
        if not GATEWAY_NAME.fullmatch(name):
            raise EdgertError(f"expected a name of letters, digits, '_', '.' and '-', got {show(name)}")
        if name in self.revoked:
            raise EdgertError(f"{name}: expected a name that was never revoked; give the board another")
        return name

    def _issue(self, name: str, certificate: x509.Certificate, key: EcKey) -> Issued:
        return Issued(self._record(name, certificate), key_pem(key))

    def _record(self, name: str, certificate: x509.Certificate) -> bytes:
        """The certificate is recorded before anybody has it, so that it can be revoked."""
        files.folder(self._folder(name))
        file = self._folder(name) / f"{certificate.serial_number:040x}.pem"
        files.write(file, pem(certificate), files.PUBLIC)
        return self._chain(certificate)

    def _chain(self, certificate: x509.Certificate) -> bytes:
        return pem(certificate) + pem(self._intermediate)

    # -- revocation

    def revoke(self, name: str, now: datetime) -> int:
        """Revokes every certificate of a name; returns how many were new to the list. Raises `EdgertError`."""
        found = self.certificates(name) if HOST.fullmatch(name) or GATEWAY_NAME.fullmatch(name) else []
        if not found:
            known = ", ".join(sorted(path.name for path in (self.folder / "issued").iterdir())[:10]) or "nobody yet"
            raise EdgertError(f"expected a board with a certificate of this CA ({known}, ...), got {show(name)}")
        known_serials = {entry.serial_number for entry in self._crl}
        new = [one.serial_number for one in found if one.serial_number not in known_serials]
        if new:
            entries = [*self._crl, *(_entry(serial, name, now) for serial in new)]
            self._write_list(_signed_list(self._intermediate, self._key, self._crl, entries, now))
        return len(new)

    def _write_list(self, content: bytes) -> None:
        files.write(self.folder / "crl.pem", content, files.PUBLIC)
        self._read_list()

    def _read_list(self) -> None:
        path = self.folder / "crl.pem"
        self.crl_pem = files.read(path, "the list of revoked certificates")
        self._crl = read_list_untrusted(self.crl_pem, str(path))
        if not self._crl.is_signature_valid(self._key.public_key()):
            raise EdgertError(f"{path}: expected a list signed by this CA, got another's")
        self.revoked = revoked_names_untrusted(self.crl_pem, str(path))
        """Names that were revoked."""


def _entry(serial: int, name: str, now: datetime) -> x509.RevokedCertificate:
    made = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
    if GATEWAY_NAME.fullmatch(name):  # others are addresses of brokers
        made = made.add_extension(name_extension(name), False)
    return made.build()


def _signed_list(
    issuer: x509.Certificate,
    key: EcKey,
    before: x509.CertificateRevocationList | None,
    entries: Iterable[x509.RevokedCertificate],
    now: datetime,
) -> bytes:
    """A list is later than the one before, whatever the clock says: OpenSSL takes the later of two. It holds as long as
    its issuer, so that a board that is away for years comes back."""
    began, number = now - EARLIER, 1
    if before is not None:
        began = max(began, before.last_update_utc + timedelta(seconds=1))
        number = 1 + before.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    made = x509.CertificateRevocationListBuilder().issuer_name(issuer.subject)
    made = made.last_update(began).next_update(issuer.not_valid_after_utc)
    made = made.add_extension(x509.CRLNumber(number), False)
    made = made.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), False)
    for entry in entries:
        made = made.add_revoked_certificate(entry)
    return made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def _uris(certificate: x509.Certificate) -> list[str]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return names.get_values_for_type(x509.UniformResourceIdentifier)


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(files.read(path, "a certificate"))
    except ValueError as error:
        raise EdgertError(f"{path}: expected a certificate (PEM): {error}") from error


def _fleet_key(path: Path) -> str:
    text = files.read(path, "the fleet's keys; make a file: edgert fleet key").decode("ascii", "replace")
    if not FLEET_KEY.fullmatch(text):
        raise EdgertError(f"{path}: expected lines as `edgert fleet key` writes them, got another text")
    return text


def _central_key(path: Path) -> bytes:
    """The one in use."""
    text = files.read(path, "the central key of MACs; make a file: edgert fleet mac-key").decode("ascii", "replace")
    return parse_keys(text, str(path), "edgert fleet mac-key")[0]


def _key(path: Path) -> EcKey:
    try:
        found = load_pem_private_key(files.read(path, "the private key of the intermediate"), None)
    except (ValueError, TypeError):
        raise EdgertError(f"{path}: expected a private key (PEM) without a password, got another text") from None
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        raise EdgertError(f"{path}: expected a P-256 key, got another kind")
    return found
