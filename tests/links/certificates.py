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

    def _request(self, name: str, subject: str, *options: str) -> None:
        files = ["-keyout", f"{self.folder}/{name}.key", "-out", f"{self.folder}/{name}.pem"]
        kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        command = ["openssl", "req", "-x509", *kind, *files, "-subj", subject, *options]
        subprocess.run(command, check=True, capture_output=True)
        (self.folder / f"{name}.key").chmod(0o600)
