"""Walks by hand: `python -m tests.protocol --seeds 0-9999`, `--seed 17` with what happens in it."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from pathlib import Path

from tests.protocol.board import at_once
from tests.protocol.spark import without_spark
from tests.protocol.truth import check
from tests.protocol.world import World, walk


def main() -> int:
    """Returns 1 if a walk found a violation."""
    parser = argparse.ArgumentParser("python -m tests.protocol", description=__doc__)
    parser.add_argument("--seeds", default="0-999", help="FIRST-LAST")
    parser.add_argument("--seed", type=int, help="one, told step by step")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if given.seed is not None:
        return _tell(given.seed)
    first, _, last = given.seeds.partition("-")
    bad = 0
    for seed in range(int(first), int(last or first) + 1):
        with tempfile.TemporaryDirectory() as folder, at_once(), without_spark():
            try:
                walk(seed, Path(folder))
            except Exception as error:  # noqa: BLE001 - whatever a walk raises is a finding
                bad += 1
                print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
    print(f"{bad} of {int(last or first) + 1 - int(first)} walks found a violation")
    return min(1, bad)


def _tell(seed: int) -> int:
    with tempfile.TemporaryDirectory() as folder, at_once(), without_spark():
        world = World(seed, Path(folder))
        try:
            world.run()
            world.settle()
            check(world)
        except AssertionError as error:
            print(*world.said, error, sep="\n")
            return 1
        finally:
            world.close()
        print(*world.said, "no violation", sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
