"""Tables in an S3-compatible object store: where it is and with which keys, for all who read and write tables here.

`deltalake` and Arrow both take this from the environment variables that AWS's own tools know. So what the settings say
goes there once, at the start of a program, and no table has to be told.

A commit to a table is an object that must not exist yet: `deltalake` puts it with `If-None-Match: *`. A store that does
not heed this lets two writers overwrite each other's commits. Spark's way of writing to S3 does not ask for it, so the
jobs that write by Spark refuse such a root.
"""

from __future__ import annotations

import configparser
import stat
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

from edgert.core.errors import EdgertError
from edgert.core.settings.central import ObjectStore
from edgert.core.text_files import ENCODING

SCHEME: Final = "s3://"
_UNFIT: Final = frozenset("[]%^|\\")
_ID, _SECRET, _TOKEN = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"


def is_store(root: str) -> bool:
    """True if the tables under `root` lie in an object store."""
    return root.startswith(SCHEME)


def prepare(root: str, settings: ObjectStore, env: MutableMapping[str, str]) -> None:
    """Tell this process's readers and writers of tables. Raises `EdgertError` for settings that cannot be used.

    Endpoint and keys that the settings name replace those in `env`, a region only where `env` has none. Keys are never
    told to anybody else, neither in a log nor in an error.
    """
    if not is_store(root):
        _check_folder(root)
        return
    if settings.endpoint:
        env["AWS_ENDPOINT_URL"] = settings.endpoint
        if settings.endpoint.startswith("http://"):
            env["AWS_ALLOW_HTTP"] = "true"
    env.setdefault("AWS_REGION", settings.region)
    if settings.credentials_file:
        env[_ID], env[_SECRET] = _keys(Path(settings.credentials_file))
        env.pop(_TOKEN, None)  # it belongs to other keys: with it each request would be refused


def _check_folder(root: str) -> None:
    """Raises `EdgertError` for a folder of whose path `deltalake` makes another one, or at which it breaks off."""
    path = str(Path(root).absolute())
    if "://" not in root and (bad := {*path} & _UNFIT):
        raise EdgertError(
            f"table root: expected a path without {' '.join(sorted(_UNFIT))}, got {path} with {' '.join(sorted(bad))}"
        )


def check_spark(root: str) -> None:
    """Raises `EdgertError` where Spark would have to write to an object store."""
    if is_store(root):
        raise EdgertError(
            f"tables in {root}: expected a folder for what writes by Spark (run, rebuild, train): in an object store "
            "its commits are not safe from other writers; the collector, upkeep, show and query work there"
        )


def _keys(path: Path) -> tuple[str, str]:
    """From a file as AWS's tools have it. Errors name the setting and the file, never what is in it."""
    setting = f"object_store.credentials_file {path}"
    parser = configparser.ConfigParser(interpolation=None)
    try:
        if path.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
            raise EdgertError(f"{setting}: expected a file that not everybody may read: chmod 600 it")
        parser.read_string(path.read_text(encoding=ENCODING))
        section = parser["default"]
        return section[_ID.lower()], section[_SECRET.lower()]
    except OSError as error:
        raise EdgertError(f"{setting}: expected a readable file of credentials: {error.strerror}") from None
    except (configparser.Error, KeyError, UnicodeDecodeError):
        expected = f"expected [default] with {_ID.lower()} and {_SECRET.lower()}"
        raise EdgertError(f"{setting}: {expected}, got something else (not shown)") from None
