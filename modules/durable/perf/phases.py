# SPDX-License-Identifier: Apache-2.0
"""What main.py measures of one queue."""

import collections
import json
import os
import signal
import statistics
import subprocess
import tempfile
import time

from servers import LIMIT, die_with_parent

KILLS = 3
FILL = 100000
RATE = 500  # of the phase with kills of the worker
AWAY = 0.5  # seconds: from such a kill until another worker starts


def start_client(server, *words, where=None):
    return subprocess.Popen(
        [*server.client_command(), words[0], where or server.address(),
         *map(str, words[1:])], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=die_with_parent)


def finish_client(process):
    try:
        text, errors = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    if process.returncode != 0:
        raise RuntimeError(f"{process.args}: {errors}")
    return json.loads(text)


def measure(server, *words, size=False):
    """A phase, with the CPU of the server, and how much larger it has become.
    A client that warms up says when it has, and waits."""
    def counters():
        return server.cpu(), server.size() if size else 0
    before = None if server.warms else counters()
    process = start_client(server, *words)
    if server.warms:
        wait_warm(process)
        before = counters()
        print("", file=process.stdin, flush=True)
    found = finish_client(process)
    found["server"], found["size"] = (
        after - then for after, then in zip(counters(), before))
    return found


def wait_warm(process):
    if process.stdout.readline() != "begin\n":
        process.kill()
        raise RuntimeError(f"{process.args}: {process.stderr.read()}")


class Worker:
    """A process, or some, that executes and notes that in a file."""

    def __init__(self, server, where, path):
        self.path = path
        self.process = subprocess.Popen(
            [*server.client_command(), "work", where, path],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
            preexec_fn=die_with_parent)

    def kill(self):
        if self.process.poll() is not None:
            raise RuntimeError("the worker has ended by itself")
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(LIMIT)

    def executions(self):
        """How often each task was executed, by its number."""
        with open(self.path, encoding="ascii") as file:
            return collections.Counter(
                line.split()[0] for line in file if line[0].isdigit())


class Column:
    """What has been measured of one queue: by the name of a figure, what each
    round has found, in as many numbers as the figure has."""

    def __init__(self, make, seconds):
        self.make, self.seconds = make, seconds
        self.figures = {}
        self.wrong = []

    def put(self, name, *numbers):
        self.figures.setdefault(name, []).append(numbers)
        print(f"  {self.make.title:<13} {name:<26}",
              *(f"{number:.0f}" for number in numbers), flush=True)

    def medians(self, name):
        """None: it was not measured."""
        rounds = self.figures.get(name)
        return rounds and tuple(map(statistics.median, zip(*rounds)))

    def judge(self, phase, found, *allowed):
        for what in ("lost", "early", "doubled"):
            if found[what] and what not in allowed:
                self.wrong.append(f"{phase}: {found[what]} {what}")

    def put_cpu(self, name, found):
        count = max(found["executed"], 1)
        self.put(name, found["server"] / count * 1e6,
                 found["cpu"] / count * 1e6)

    def adds(self):
        for batch, threads in ((1, 1), (1, 16), (16, 1), (512, 1)):
            if batch > 1 and not self.make.batches:
                continue
            with self.make() as server:
                found = measure(server, "add", 1 << 20, self.seconds, batch,
                                threads)
            name = f"batch {batch}" if threads == 1 else f"{threads} threads"
            self.put(f"adds/s, {name}",
                     found["acknowledged"] / found["seconds"])

    def life(self):
        with self.make() as server:
            found = measure(server, "life", self.seconds)
        self.judge("life", found)
        self.put("lives/s", found["executed"] / found["seconds"])
        self.put_cpu("lives, CPU us", found)

    def late(self, rate, ahead=0):
        """ahead: so many others are due in the next hours."""
        if ahead and not self.make.batches:
            return
        with self.make() as server:
            if ahead:
                measure(server, "add", ahead, 60, 512, 1)
            found = measure(server, "late", rate, self.seconds + 1)
        name = f"{rate}/s" + (f" beside {ahead}" if ahead else "")
        self.judge(f"late at {name}", found)
        self.put(f"late at {name}, p50 p99 ms", found["p50"], found["p99"])
        self.put(f"{name}: added/s", found["acknowledged"] / found["seconds"])
        self.put_cpu(f"{name}: CPU us", found)

    def late_1000(self):
        self.late(1000)

    def late_5000(self):
        self.late(5000)

    def late_beside(self):
        self.late(1000, FILL)

    def size(self):
        for name, count in (("bytes a task of 1000", 1000),
                            ("bytes a task", FILL)):
            with self.make(memory=True) as server:
                found = measure(
                    server, "add", count, 2 * self.seconds + 2,
                    512 if server.batches else 1, 1, size=True)
            self.put(name, found["size"] / found["acknowledged"])

    def catch_up(self):
        with self.make() as server:
            found = measure(server, "catchup", 50000, self.seconds)
        self.judge("catch-up", found)
        self.put("catch-up, tasks/s", found["executed"] / found["seconds"])
        self.put("catch-up: lost", found["lost"])

    def kill_server(self):
        with self.make() as server:
            process = start_client(server, "crash")
            try:
                if server.warms:
                    wait_warm(process)
                    print("", file=process.stdin, flush=True)
                for _ in range(KILLS):
                    time.sleep(self.seconds / 2)
                    server.kill()
                    server.start()
                time.sleep(self.seconds / 2)
            except BaseException:
                process.kill()
                raise
            found = finish_client(process)
        self.put_killed("server", found)

    def put_killed(self, what, found, *allowed):
        self.judge(f"{what} killed", found, *allowed)
        self.put(f"{what} killed: added", found["acknowledged"])
        self.put(f"{what} killed: lost", found["lost"])
        self.put(f"{what} killed: twice", found["doubled"])

    def kill_worker(self):
        settings = {"lease": 5} if self.make.leases else {}
        with tempfile.TemporaryDirectory(prefix="hwt-perf-") as folder, \
                self.make(**settings) as server:
            self.put_killed("worker", self.kills_of_worker(
                server, server.address(), os.path.join(folder, "log")),
                "doubled")

    @staticmethod
    def kills_of_worker(server, where, path):
        """The worker makes what is needed, and then the file."""
        worker = Worker(server, where, path)
        feed = None
        try:
            wait_until(lambda: os.path.exists(path))
            feed = start_client(server, "feed", RATE, 2 * KILLS + 2,
                                where=where)
            for _ in range(KILLS):
                time.sleep(2 - AWAY)
                worker.kill()
                time.sleep(AWAY)
                worker = Worker(server, where, path)
            found = finish_client(feed)
            times = wait_quiet(worker, server.patience)
        finally:
            worker.kill()
            if feed is not None:
                feed.kill()
        held = server.held() - times.keys()
        if held:
            print(f"  {len(held)} are held by a worker that was killed")
        lost = found["acknowledged"] - len(times) - len(held)
        return {**found, "lost": lost,
                "doubled": sum(count > 1 for count in times.values())}


def wait_until(what):
    end = time.monotonic() + LIMIT
    while not what():
        if time.monotonic() > end:
            raise RuntimeError("it does not come")
        time.sleep(0.01)


def wait_quiet(worker, seconds):
    """Until nothing was executed for so long."""
    times, moved = worker.executions(), time.monotonic()
    while time.monotonic() < moved + seconds:
        time.sleep(0.2)
        now = worker.executions()
        if now != times:
            times, moved = now, time.monotonic()
    return times


# In this order, each of all queues before the next one; those that are not
# repeated take long, or count.
REPEATED = (Column.adds, Column.life, Column.late_1000, Column.late_5000)
BRIEF = (Column.adds, Column.life, Column.late_5000)  # of rows "1s"
ONCE = (Column.late_beside, Column.size, Column.catch_up, Column.kill_server,
        Column.kill_worker)
