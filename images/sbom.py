"""The packages of an image with versions and licences: a software bill of materials in CycloneDX 1.6 (ECMA-424)."""

from __future__ import annotations

import email.parser
import re
import subprocess
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from images.debian import SUITE

DEBIAN_LICENCE: Final = re.compile(r"^License:[ \t]*(\S.*)$", re.MULTILINE)
"""Licence line of debian/copyright (DEP 5); older copyright files have no such lines."""
COMMON: Final = re.compile(r"/usr/share/common-licenses/([A-Za-z0-9.-]*[A-Za-z0-9])")
PYTHON_CLASSIFIER: Final = "License :: "


def bill(name: str, tree: Path, debs: Iterable[Path], system: Path, libraries: Path) -> dict[str, Any]:
    """The document for an image called `name`.

    `tree` is its root file system, whose packages dpkg knows; `debs` are the packages that were only unpacked.
    `system` is the folder of dpkg's state, `libraries` that of the Python packages.
    """
    components = [*_installed(tree, system), *map(_unpacked, debs), *_python(libraries)]
    components.sort(key=lambda component: component["purl"])
    named = "\n".join(component["purl"] for component in components)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, named)}",
        "version": 1,
        "metadata": {"component": {"type": "operating-system", "name": name}},
        "components": components,
    }


def debian_licences(copyright_text: str) -> list[str]:
    """Names of the licences in a copyright file of Debian, each once."""
    found = DEBIAN_LICENCE.findall(copyright_text) or COMMON.findall(copyright_text)
    return sorted({name.strip() for name in found})


def python_licences(metadata: str) -> list[str]:
    """Names of the licences in the metadata of a Python package (core metadata 2.4, or older)."""
    fields = email.parser.HeaderParser().parsestr(metadata)
    if expression := fields["License-Expression"]:
        return [expression]
    classified = [
        line.rsplit(" :: ", 1)[-1] for line in fields.get_all("Classifier", []) if line.startswith(PYTHON_CLASSIFIER)
    ]
    stated = (fields["License"] or "").strip().splitlines()
    return sorted(set(classified)) or stated[:1]


def _installed(tree: Path, system: Path) -> list[dict[str, Any]]:
    said = subprocess.run(
        ["dpkg-query", f"--admindir={system}", "-W", "-f", "${Package} ${Version} ${Architecture}\n"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    found = []
    for line in said.splitlines():
        package, version, architecture = line.split()
        notice = tree / "usr/share/doc" / package / "copyright"
        found.append(
            _debian(package, version, architecture, notice.read_text(errors="replace") if notice.is_file() else "")
        )
    return found


def _unpacked(deb: Path) -> dict[str, Any]:
    fields = subprocess.run(
        ["dpkg-deb", "--show", "--showformat=${Package} ${Version} ${Architecture}", deb],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    files = subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], capture_output=True, check=True).stdout
    notice = subprocess.run(
        ["tar", "-xO", "-f", "-", f"./usr/share/doc/{fields[0]}/copyright"],
        input=files,
        capture_output=True,
        check=False,
    ).stdout.decode(errors="replace")
    return _debian(fields[0], fields[1], fields[2], notice)


def _debian(package: str, version: str, architecture: str, notice: str) -> dict[str, Any]:
    purl = f"pkg:deb/debian/{package}@{version}?arch={architecture}&distro={SUITE}"
    return _component(package, version, purl, debian_licences(notice))


def _python(libraries: Path) -> list[dict[str, Any]]:
    found = []
    for folder in libraries.glob("*.dist-info"):
        text = (folder / "METADATA").read_text(errors="replace")
        fields = email.parser.HeaderParser().parsestr(text)
        name = re.sub(r"[-_.]+", "-", fields["Name"]).lower()
        purl = f"pkg:pypi/{name}@{fields['Version']}"
        found.append(_component(name, fields["Version"], purl, python_licences(text)))
    return found


def _component(name: str, version: str, purl: str, licences: list[str]) -> dict[str, Any]:
    component: dict[str, Any] = {"type": "library", "name": name, "version": version, "purl": purl}
    if licences:
        component["licenses"] = [{"license": {"name": licence}} for licence in licences]
    return component
