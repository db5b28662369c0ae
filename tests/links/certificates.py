"""Certificates for tests, made by openssl(1): a fleet's CA, and what it signs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

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
        """Signs a certificate of `issue` again: it ended yesterday."""
        path = self.folder
        self._run("x509", "-x509toreq", "-in", credentials.certificate, "-signkey", credentials.key,
                  "-copy_extensions", "copyall", "-out", f"{path}/again.csr")  # fmt: skip
        self._run("x509", "-req", "-in", f"{path}/again.csr", "-CA", credentials.ca, "-CAkey", f"{path}/ca.key",
                  "-copy_extensions", "copyall", "-days", "-1", "-out", credentials.certificate)  # fmt: skip

    def _request(self, name: str, subject: str, *options: str) -> None:
        files = ["-keyout", f"{self.folder}/{name}.key", "-out", f"{self.folder}/{name}.pem"]
        kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        self._run("req", "-x509", *kind, *files, "-subj", subject, *options)
        (self.folder / f"{name}.key").chmod(0o600)

    @staticmethod
    def _run(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)
