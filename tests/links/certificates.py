"""Certificates for tests, made by openssl(1): a fleet's CA, and what it signs."""

from __future__ import annotations

import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from edgert.links.tls import Credentials

FLEET = "city"


class Authority:
    """A CA in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("openssl is not installed")
        folder.mkdir(parents=True)
        self.folder = folder
        self._request("ca", "/CN=a CA", "-addext", "basicConstraints=critical,CA:TRUE")

    def issue(self, name: str, *, uri: str | None = "", common_name: str = "-") -> Credentials:
        """`uri`: of the subject alternative name; empty: that of a gateway of the name; None: there is none."""
        alternative = [] if uri is None else ["-addext", f"subjectAltName=URI:{uri or f'edgert://{FLEET}/{name}'}"]
        path = self.folder
        self._request(name, f"/CN={common_name}", "-CA", f"{path}/ca.pem", "-CAkey", f"{path}/ca.key",
                      *alternative)  # fmt: skip
        return Credentials(f"{path}/{name}.pem", f"{path}/{name}.key", f"{path}/ca.pem")

    def expire(self, credentials: Credentials) -> None:
        """Signs a certificate of `issue` again: it ended yesterday. No version of openssl's command does that in the
        same words as another."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization

        file, now = Path(credentials.certificate), datetime.now(UTC)
        old, authority = (x509.load_pem_x509_certificate(Path(p).read_bytes()) for p in (file, credentials.ca))
        key: Any = serialization.load_pem_private_key((self.folder / "ca.key").read_bytes(), None)
        builder = x509.CertificateBuilder(
            authority.subject, old.subject, old.public_key(), old.serial_number,
            now - timedelta(days=2), now - timedelta(days=1), list(old.extensions),
        )  # fmt: skip
        file.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def _request(self, name: str, subject: str, *options: str) -> None:
        files = ["-keyout", f"{self.folder}/{name}.key", "-out", f"{self.folder}/{name}.pem"]
        kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        self._run("req", "-x509", *kind, *files, "-subj", subject, *options)
        (self.folder / f"{name}.key").chmod(0o600)

    @staticmethod
    def _run(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)
