"""The bill of materials of an image: made from what dpkg and the Python packages say."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from images.sbom import bill, debian_licences, python_licences

DEP5 = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Files: *
License: GPL-2+ and LGPL-2.1+
Files: debian/*
License: Expat
License: Expat
 Permission is hereby granted ...
"""
OLD = (
    "On Debian systems the licence is in `/usr/share/common-licenses/GPL-2'. See also /usr/share/common-licenses/BSD.\n"
)
STATUS = """\
Package: mosquitto
Status: install ok installed
Architecture: arm64
Version: 2.0.21-1
Maintainer: nobody <nobody@example.org>
Description: broker

Package: base-files
Status: install ok installed
Architecture: arm64
Version: 13.8
Maintainer: nobody <nobody@example.org>
Description: files

"""


def test_licences_of_debian_packages() -> None:
    assert debian_licences(DEP5) == ["Expat", "GPL-2+ and LGPL-2.1+"]
    assert debian_licences(OLD) == ["BSD", "GPL-2"]
    assert debian_licences("Do what you like.") == []


@pytest.mark.parametrize(
    ("metadata", "licences"),
    [
        ("Name: a\nLicense-Expression: MIT OR Apache-2.0\nLicense: old\n", ["MIT OR Apache-2.0"]),
        ("Name: a\nClassifier: License :: OSI Approved :: BSD License\nClassifier: Typing :: Typed\n", ["BSD License"]),
        ("Name: a\nLicense: Apache 2.0\n", ["Apache 2.0"]),
        ("Name: a\n", []),
    ],
)
def test_licences_of_python_packages(metadata: str, licences: list[str]) -> None:
    assert python_licences(metadata) == licences


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="needs dpkg")
def test_bill_of_an_image(tmp_path: Path) -> None:
    state, libraries, tree = tmp_path / "dpkg", tmp_path / "lib", tmp_path / "tree"
    for folder in (
        state / "info",
        state / "updates",
        tree / "usr/share/doc/mosquitto",
        libraries / "Some_Lib-1.2.dist-info",
    ):
        folder.mkdir(parents=True)
    (state / "status").write_text(STATUS)
    (tree / "usr/share/doc/mosquitto/copyright").write_text("License: EPL-2.0\n")
    (libraries / "Some_Lib-1.2.dist-info/METADATA").write_text(
        "Name: Some_Lib\nVersion: 1.2\nLicense-Expression: MIT\n"
    )
    package = tmp_path / "package"
    (package / "DEBIAN").mkdir(parents=True)
    (package / "DEBIAN/control").write_text(
        "Package: linux-image-x\nVersion: 6.12-1\nArchitecture: all\nMaintainer: n <n@example.org>\nDescription: d\n"
    )
    (package / "usr/share/doc/linux-image-x").mkdir(parents=True)
    (package / "usr/share/doc/linux-image-x/copyright").write_text("License: GPL-2\n")
    deb = tmp_path / "linux-image-x_6.12-1_all.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", package, deb], check=True, capture_output=True)

    document = bill("edgert-virt", tree, [deb], state, libraries)
    assert document["bomFormat"] == "CycloneDX"
    assert [(part["purl"], part.get("licenses")) for part in document["components"]] == [
        ("pkg:deb/debian/base-files@13.8?arch=arm64&distro=trixie", None),
        ("pkg:deb/debian/linux-image-x@6.12-1?arch=all&distro=trixie", [{"license": {"name": "GPL-2"}}]),
        ("pkg:deb/debian/mosquitto@2.0.21-1?arch=arm64&distro=trixie", [{"license": {"name": "EPL-2.0"}}]),
        ("pkg:pypi/some-lib@1.2", [{"license": {"name": "MIT"}}]),
    ]
    assert bill("edgert-virt", tree, [deb], state, libraries) == document
