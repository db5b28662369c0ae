"""The certificates of a fleet (X.509, P-256): root, intermediate, board, broker. Pure but for the keys' randomness.

P-256 and not Ed25519: Mosquitto, OpenSSL and the hardware tokens that may hold a root key all take it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

EcKey = ec.EllipticCurvePrivateKey
PublicKey = ec.EllipticCurvePublicKey
EARLIER: Final = timedelta(days=1)
"""A certificate is valid from so long before it was made: clocks differ."""
ROOT_DAYS: Final = 20 * 365
INTERMEDIATE_DAYS: Final = 10 * 365
URI: Final = "edgert://"


def new_key() -> EcKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: EcKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def subject(fleet: str, common_name: str = "") -> x509.Name:
    """The fleet's name is the organization. A broker has no common name: nothing takes it for a gateway."""
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, fleet)]
    parts += [x509.NameAttribute(NameOID.COMMON_NAME, common_name)] if common_name else []
    return x509.Name(parts)


def fleet_of(certificate: x509.Certificate) -> str:
    """The fleet that a certificate of ours was made for; empty for others."""
    found = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return str(found[0].value) if found else ""


def authority(
    fleet: str, title: str, key: EcKey, issuer: tuple[x509.Certificate, EcKey] | None, now: datetime
) -> x509.Certificate:
    """A root (`issuer` None), or the intermediate that signs certificates of boards only."""
    days, depth = (ROOT_DAYS, 1) if issuer is None else (INTERMEDIATE_DAYS, 0)
    name = subject(fleet, title)
    signer = (name, key) if issuer is None else (issuer[0].subject, issuer[1])
    made = _builder(name, key.public_key(), signer, now, timedelta(days=days))
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)  # certificates and CRLs
    made = made.add_extension(x509.BasicConstraints(True, depth), True).add_extension(usage, True)
    return made.sign(signer[1], hashes.SHA256())


def board(
    fleet: str, name: str, key: PublicKey, issuer: tuple[x509.Certificate, EcKey], now: datetime, life: timedelta
) -> x509.Certificate:
    """A gateway's certificate: `URI:edgert://<fleet>/<name>` for links, the common name as the broker's user name."""
    alternative = x509.UniformResourceIdentifier(f"{URI}{fleet}/{name}")
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
    return _leaf(subject(fleet, name), [alternative], uses, key, issuer, now, life)


def server(
    fleet: str, hosts: Sequence[str], key: EcKey, issuer: tuple[x509.Certificate, EcKey], now: datetime, life: timedelta
) -> x509.Certificate:
    """Makes the certificate of a broker that is reached by host names or IP addresses `hosts`."""
    uses = [ExtendedKeyUsageOID.SERVER_AUTH]
    return _leaf(subject(fleet), [_host(host) for host in hosts], uses, key.public_key(), issuer, now, life)


def user(
    fleet: str, name: str, key: EcKey, issuer: tuple[x509.Certificate, EcKey], now: datetime, life: timedelta
) -> x509.Certificate:
    """Makes the certificate of a client of the broker that is no gateway: the collector, a person who deploys. Links
    refuse its URI, as it names no gateway."""
    alternative = x509.UniformResourceIdentifier(f"{URI}{fleet}/@user/{name}")
    return _leaf(
        subject(fleet, name), [alternative], [ExtendedKeyUsageOID.CLIENT_AUTH], key.public_key(), issuer, now, life
    )


def updates(
    fleet: str, name: str, key: EcKey, issuer: tuple[x509.Certificate, EcKey], now: datetime, life: timedelta
) -> x509.Certificate:
    """Signs update bundles. A board's update client takes this use alone, so that no board can sign one."""
    alternative = x509.UniformResourceIdentifier(f"{URI}{fleet}/@updates/{name}")
    return _leaf(
        subject(fleet, name), [alternative], [ExtendedKeyUsageOID.CODE_SIGNING], key.public_key(), issuer, now, life
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _leaf(
    name: x509.Name,
    alternatives: Sequence[x509.GeneralName],
    uses: Sequence[x509.ObjectIdentifier],
    key: PublicKey,
    issuer: tuple[x509.Certificate, EcKey],
    now: datetime,
    life: timedelta,
) -> x509.Certificate:
    signer = (issuer[0].subject, issuer[1])
    life = min(life, issuer[0].not_valid_after_utc - now)
    made = _builder(name, key, signer, now, life).add_extension(x509.BasicConstraints(False, None), True)
    usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)  # signatures
    made = made.add_extension(usage, True).add_extension(x509.ExtendedKeyUsage(uses), False)
    return made.add_extension(x509.SubjectAlternativeName(alternatives), False).sign(issuer[1], hashes.SHA256())


def _builder(
    name: x509.Name, public: PublicKey, signer: tuple[x509.Name, EcKey], now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    of_signer = signer[1].public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(signer[0])
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(of_signer), False)
    )
