"""Makes a signed update bundle of a built image: `python3 -m images.bundle BOARD --cert FILE --key FILE`.

The certificate is one of `edgert fleet ca updates`; boards of that fleet take the bundle. RAUC makes it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from images.check import memory
from images.programs import BuildError, run

ROOT: Final = Path(__file__).resolve().parents[1]
COMPRESSION: Final = "-comp zstd -Xcompression-level 9 -b 64k"


def manifest(board: str, version: str) -> str:
    """`block-hash-index`: from a URL only those blocks are fetched that neither slot has."""
    return (
        f"[update]\ncompatible=edgert-{board}\nversion={version}\n\n[bundle]\nformat=verity\n\n"
        "[image.root]\nfilename=root.img\nadaptive=block-hash-index\n"
    )


def make(root: Path, board: str, version: str, certificate: Path, key: Path, out: Path) -> None:
    """Writes the bundle `out` with the file system `root`. `certificate` is followed by its CA's, as PEM."""
    chain = split_chain(certificate.read_text())
    with tempfile.TemporaryDirectory(prefix="edgert-bundle-", dir=memory()) as folder:
        content, leaf, above = Path(folder) / "content", Path(folder) / "leaf.pem", Path(folder) / "above.pem"
        content.mkdir()
        (content / "root.img").hardlink_to(root) if _same_device(root, content) else _copy(root, content / "root.img")
        (content / "manifest.raucm").write_text(manifest(board, version))
        leaf.write_text(chain[0])
        above.write_text("".join(chain[1:]))
        out.unlink(missing_ok=True)
        intermediate = [f"--intermediate={above}"] if chain[1:] else []
        run("rauc", "bundle", f"--cert={leaf}", f"--key={key}", *intermediate, f"--mksquashfs-args={COMPRESSION}",
            content, out)  # fmt: skip


def split_chain(text: str) -> list[str]:
    """The certificates of a PEM file, each with its lines. Raises `BuildError` for one without any."""
    end = "-----END CERTIFICATE-----"
    found = [f"{part.strip()}\n{end}\n" for part in text.split(end)[:-1]]
    if not found:
        raise BuildError("expected certificates as PEM, got a file without any")
    return found


def _same_device(one: Path, other: Path) -> bool:
    return one.stat().st_dev == other.stat().st_dev


def _copy(source: Path, target: Path) -> None:
    run("cp", "--sparse=always", source, target)


def version_of(root: Path) -> str:
    """The version that an image says about itself."""
    said = subprocess.run(
        ["debugfs", "-R", "cat /etc/edgert/image.json", root], capture_output=True, text=True, check=False,
        env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"},
    )  # fmt: skip
    try:
        return str(json.loads(said.stdout)["version"])
    except (ValueError, KeyError, TypeError):
        raise BuildError(f"{root}: expected an image with /etc/edgert/image.json: {said.stderr.strip()}") from None


def main(argv: Sequence[str] | None = None) -> int:
    """Makes one bundle; returns the exit status."""
    parser = argparse.ArgumentParser("images.bundle", description="Makes a signed update bundle of a built image.")
    parser.add_argument("board")
    parser.add_argument("--cert", type=Path, required=True, help="updates.pem of `edgert fleet ca updates`")
    parser.add_argument("--key", type=Path, required=True, help="updates.key")
    parser.add_argument("--images", type=Path, help="folder of the image (build/images/BOARD)")
    parser.add_argument("--out", type=Path, help="the bundle (update.raucb in the folder of the image)")
    args = parser.parse_args(argv)
    images = (args.images or ROOT / "build" / "images" / args.board).absolute()
    out = (args.out or images / "update.raucb").absolute()
    try:
        version = version_of(images / "root.ext4")
        make(images / "root.ext4", args.board, version, args.cert.absolute(), args.key.absolute(), out)
    except BuildError as error:
        print(f"bundle: {error}", file=sys.stderr)
        return 1
    print(f"bundle: {out}: version {version}, {out.stat().st_size / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
