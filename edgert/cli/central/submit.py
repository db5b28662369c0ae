"""The file for `spark-submit`, which runs the fleet job on any cluster as `edgert central run` does, but for the
master.

Its own options come before this file, those of `edgert central run` after it. Where it lies:
`python -c "import edgert.cli.central.submit as s; print(s.__file__)"`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status."""
    from edgert.central.spark.session import is_submitted
    from edgert.cli.main import main as edgert

    if not is_submitted():
        print("expected to be started by spark-submit; without it: edgert central run", file=sys.stderr)
        return 2
    if any(argument.partition("=")[0] == "--master" for argument in arguments):
        print("--master is an option of spark-submit: expected it before the file, got it behind", file=sys.stderr)
        return 2
    return edgert(["central", "run", *arguments])


if __name__ == "__main__":
    # Python looks for modules beside the file that it was given first: ours are found by their whole names.
    sys.path[:] = [folder for folder in sys.path if Path(folder or ".").resolve() != Path(__file__).resolve().parent]
    sys.exit(main(sys.argv[1:]))
