"""Files of a connection to a broker: password and certificates."""

from __future__ import annotations

import os
import ssl
import stat
from pathlib import Path

from edgert.core.errors import EdgertError
from edgert.core.settings.connection import Connection
from edgert.core.text.key_lines import parse_keys
from edgert.core.text_files import ENCODING


def read_password(path: str, section: str) -> str | None:
    """First line of the file; None without a path. Raises `EdgertError` naming the setting, by its `section`, and the
    file, never its content."""
    return _read(path, f"{section}.password_file").split("\n", 1)[0] if path else None


def read_mac_keys(path: str, section: str) -> list[bytes]:
    """The keys in a file of MAC keys, the one in use first; none without a path. Raises `EdgertError` naming the
    setting, by its `section`, and the file, never a key."""
    if not path:
        return []
    setting = f"{section}.mac_key_file"
    return parse_keys(_read(path, setting), f"{setting} {path}", "edgert fleet mac-key")


def _read(path: str, setting: str) -> str:
    try:
        return Path(path).read_text(encoding=ENCODING)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise EdgertError(f"{setting} {path}: {reason}") from None


def read_mac_key(path: str) -> bytes | None:
    """The one key in a gateway's file; None without a path. Raises `EdgertError` as `read_mac_keys` does."""
    keys = read_mac_keys(path, "central")
    if len(keys) > 1:
        raise EdgertError(f"central.mac_key_file {path}: expected one key, that of this gateway, got {len(keys)} keys")
    return keys[0] if keys else None


def others_may_read(path: str) -> bool:
    """True if every user of this machine may read a file; not, if it cannot be told."""
    try:
        return bool(os.stat(path).st_mode & stat.S_IROTH)
    except OSError:
        return False


def client_context(ca_file: str, cert_file: str, key_file: str) -> ssl.SSLContext:
    """TLS 1.2 or later; the broker's certificate and name are checked. Raises OSError (ssl.SSLError is one) if a file
    is missing or not what it should be."""
    context = ssl.create_default_context(cafile=ca_file or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if cert_file:
        context.load_cert_chain(cert_file, key_file or None)
    return context


def tls_context(settings: Connection, section: str) -> ssl.SSLContext:
    """A context that checks the broker's name and certificate. Raises `EdgertError` naming the settings of `section`
    and their files, one of which is at fault."""
    try:
        context = client_context(settings.ca_file, settings.cert_file, settings.key_file)
    except (OSError, ssl.SSLError) as error:
        named = {name: getattr(settings, name) for name in ("ca_file", "cert_file", "key_file")}
        files = ", ".join(f"{section}.{name} {file}" for name, file in named.items() if file)
        why = error.strerror if not isinstance(error, ssl.SSLError) else error
        raise EdgertError(f"{files or f'{section}.tls: the certificates of the system'}: {why}") from error
    return context
