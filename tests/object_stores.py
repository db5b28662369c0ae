"""An S3-compatible object store for tests: a process of its own, on loopback, with one empty bucket.

MinIO if it is installed, else moto's server. Neither is asked for more than Amazon's store does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from pyarrow import fs

from benchmarks.ports import free_port
from tests.brokers import wait_listening

KEY, SECRET = "edgert-test", "edgert-test-secret"
BUCKET = "fleet"
# One request at a time: moto looks whether an object exists and makes it in two steps, which must not be interrupted.
_MOTO = """
import sys
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
run_simple("127.0.0.1", int(sys.argv[1]), DomainDispatcherApplication(create_backend_app), threaded=False)
"""


@dataclass
class ObjectStore:
    """`environment` is what a program needs to find it."""

    port: int
    process: subprocess.Popen[bytes]

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "EDGERT_OBJECT_STORE_ENDPOINT": self.endpoint,
        }

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def object_store(folder: Path) -> ObjectStore:
    """Started, with the bucket `BUCKET`."""
    port = free_port()
    log = folder / "object-store.log"
    minio = shutil.which("minio")
    env = {**os.environ, "MINIO_ROOT_USER": KEY, "MINIO_ROOT_PASSWORD": SECRET, "MINIO_BROWSER": "off"}
    command = [sys.executable, "-c", _MOTO, str(port)]
    if minio:
        command = [minio, "server", "--quiet", "--address", f"127.0.0.1:{port}", str(folder / "objects")]
    with log.open("ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=env)
    wait_listening(port, process, log)
    store = ObjectStore(port, process)
    filesystem = fs.S3FileSystem(
        access_key=KEY, secret_key=SECRET, endpoint_override=store.endpoint, region="us-east-1",
        allow_bucket_creation=True,
    )  # fmt: skip
    filesystem.create_dir(BUCKET)
    return store
