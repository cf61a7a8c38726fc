#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Each kind of random run, with so many seeds: minutes for each seed.

    seeds.py [SEEDS] [--first N] [--only KIND]...

What a run prints is in build/durable/seeds. Run by make durable-seeds."""

import argparse
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LOGS = os.path.join(HERE, "../../../build/durable/seeds")
KINDS = {
    "kills": ["kills.py", "--seconds=20", "--seed"],
    "outside": ["kills.py", "--outside", "--seconds=30", "--seed"],
    "model": ["model.py", "--steps=500", "--seeds"],
    "proxy": ["proxy.py", "--seed"],
    "soak": ["soak.py", "60", "--rate=1000", "--seed"],
}
LIMIT = 900  # seconds for a run


def run(kind, seed):
    """Whether it passed."""
    path = os.path.join(LOGS, f"{kind}-{seed}.log")
    program, *words = KINDS[kind]
    began = time.monotonic()
    with open(path, "w", encoding="utf-8") as log:
        try:
            status = subprocess.run(
                [sys.executable, "-B", os.path.join(HERE, program), *words,
                 str(seed)], stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, timeout=LIMIT, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            status = "no end"
    print(f"{kind} {seed}: {'ok' if status == 0 else status}, "
          f"{time.monotonic() - began:.0f} s" +
          ("" if status == 0 else f", see {os.path.relpath(path)}"),
          flush=True)
    return status == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("seeds", type=int, nargs="?", default=10)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--only", choices=list(KINDS), action="append")
    options = parser.parse_args()
    os.makedirs(LOGS, exist_ok=True)
    passed = [run(kind, seed)
              for seed in range(options.first, options.first + options.seeds)
              for kind in options.only or KINDS]
    print("tally", sum(passed), len(passed) - sum(passed), 0)
    return 0 if passed and all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
