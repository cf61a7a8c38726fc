#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The append-only file, cut at each of its last 4,096 bytes, as a machine does
that loses its power. After the repair and a start, the engine must be just
where it was after the last script that is whole in the file: the same digest,
every add that had been acknowledged there, no invariant broken. Then it takes
another task, is killed, and must start again with that too.

    cut.py [--sample N]    N cuts, evenly spread, and those beside the end of
                           each script; without it, all

The last line counts the cuts: tally PASSED FAILED SKIPPED
"""

import argparse
import os
import shutil
import signal
import sys

from checker import Checker
from engine import Engine, Space, held, scratch_folder

TAIL = 4096
START = 1700000000000
TICK = 100


def scripts_of(turn):
    """Some of each kind; each step is a script with its arguments, or what
    makes them of what was taken."""
    names = [f"{turn}-{i}" for i in range(4)]
    tasks = sum(([name, "q", "in", 5 * i, 2, "payload of " + name, ""]
                 for i, name in enumerate(names)), [])
    return [
        ("add", tasks), ("reschedule", (names[3], "in", 7)),
        ("pump", (100, "")), ("take", ("q", "w", turn + 1, turn, 2, 30000)),
        ("extend", lambda taken: (40000, *held(taken[0]))),
        ("finish", lambda taken: sum(
            ((*held(task), outcome, 0) for task, outcome in zip(
                taken, ("done", "retry"))), ())),
        ("cancel", (names[2],)),
        ("janitor", (100, turn, 800)), ("pause", ()), ("resume", ()),
        ("queue", ("pause", "r")), ("queue", ("resume", "r")),
    ]


class History:
    """A file with some scripts; where each of them ends, and the digest and
    the acknowledged ids there."""

    def __init__(self, engine):
        engine.clock.stop_at(START)
        client = engine.client()
        space = Space(client, "cut", 1, 16, TICK, 0, 0)
        path = engine.append_only_files()[-1]
        self.points = []
        added = taken = []
        for turn in range(8):
            for name, arguments in scripts_of(turn):
                if callable(arguments):
                    arguments = arguments(taken)
                reply = space(name, 0, *arguments)
                taken = reply if name == "take" else taken
                if name in ("extend", "finish"):
                    assert set(reply) == {0}, reply
                if name == "add":
                    added = added + list(arguments[::7])
                self.points.append((os.path.getsize(path), name,
                                    client("DEBUG", "DIGEST"), added))
            engine.clock.move(10)
        client.close()
        engine.kill(signal.SIGKILL)
        self.folder = engine.folder
        self.size = os.path.getsize(path)
        self.file = os.path.relpath(path, engine.folder)

    def at(self, cut):
        return [point for point in self.points if point[0] <= cut][-1]

    def cuts(self, sample):
        first = max(self.size - TAIL, self.points[0][0])
        every = range(first, self.size + 1)
        if not sample:
            return list(every)
        beside = {size + by for size, *_ in self.points for by in (-1, 0, 1)}
        spread = set(every[::max(1, len(every) // sample)])
        return sorted((spread | beside) & set(every))


def copy_cut(history, cut):
    folder = scratch_folder("hwt-cut-")
    shutil.copytree(os.path.join(history.folder, "appendonlydir"),
                    os.path.join(folder, "appendonlydir"))
    os.truncate(os.path.join(folder, history.file), cut)
    return folder


def start_on(folder, history, **options):
    engine = Engine(folder=folder, clock=True, start=False, appendonly="yes",
                    appendfsync="always")
    engine.clock.stop_at(START + 100)
    engine.start(**options)
    return engine


def try_cut(history, cut):
    """What is wrong after it, or None."""
    folder = copy_cut(history, cut)
    engine = None
    try:
        engine = start_on(folder, history)
        client = engine.client()
        _, name, digest, added = history.at(cut)
        if client("DEBUG", "DIGEST") != digest:
            return f"it is not where it was after the last {name}"
        space = Space(client, "cut")
        for each in added:
            if space("get", 0, each) is None:
                return f"{each} was acknowledged, and is lost"
        broken = Checker(client, "cut")()
        if broken:
            return broken
        space("resume", 0)
        space("add", 0, "after", "q", "in", 0, 1, "", "")
        space("pump", 0, 100, "")
        digest = client("DEBUG", "DIGEST")
        client.close()
        engine.restart(signal.SIGKILL)
        client = engine.client()
        if client("DEBUG", "DIGEST") != digest:
            return "after another start it is not where it was"
        return Checker(client, "cut")() or None
    finally:
        if engine:
            engine.close()
        shutil.rmtree(folder, ignore_errors=True)


def middle_of_a_script(history):
    """A cut within the second command of the last add but one."""
    ends = [size for size, name, *_ in history.points]
    adds = [i for i, point in enumerate(history.points) if point[1] == "add"]
    return (ends[adds[-1] - 1] + ends[adds[-1]]) // 2


def refuses_unrepaired(history):
    """With aof-load-truncated no, the engine does not start on a file that is
    not whole, instead of keeping half a script in it."""
    folder = copy_cut(history, middle_of_a_script(history))
    engine = None
    try:
        engine = Engine(folder=folder, start=False, appendonly="yes",
                        appendfsync="always")
        try:
            engine.start(repair=False)
        except RuntimeError:
            return None
        return "the engine has started on a file that is not whole"
    finally:
        if engine:
            engine.close()
        shutil.rmtree(folder, ignore_errors=True)


def main(words):
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--sample", type=int, default=0)
    sample = parser.parse_args(words).sample
    passed = failed = 0
    with Engine(clock=True, appendonly="yes",
                appendfsync="always") as engine:
        history = History(engine)
        cuts = history.cuts(sample)
        print(f"{len(history.points)} scripts in {history.size} bytes, "
              f"{len(cuts)} cuts", flush=True)
        for cut in cuts:
            wrong = try_cut(history, cut)
            passed, failed = passed + (not wrong), failed + bool(wrong)
            if wrong:
                print(f"cut at {cut}, {history.size - cut} from the end: "
                      f"{wrong}", flush=True)
        wrong = refuses_unrepaired(history)
        passed, failed = passed + (not wrong), failed + bool(wrong)
        if wrong:
            print(wrong)
    print("tally", passed, failed, 0)
    return 1 if failed or passed < 2 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
