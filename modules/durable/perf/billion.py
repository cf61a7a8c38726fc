#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""billion.py [--hours N] [--minutes N] [--rate N] [--every S] [--engines N]
[--out FOLDER]: a billion tasks a day, for an hour: 11,574 a second, and three
times as many for a minute in each ten; in a shorter run, for the tenth in its
middle. Half are due within a minute, the others in the next one, a tenth is
cancelled, and one of a thousand fails. Redis executes in one thread, so two
cores carry two engines: the masters of a cluster, with a shard each and with
appendfsync always. They, two hwtd, two workers and a producer share the
machine; each minute one process is killed with SIGKILL, in turn a producer, a
scheduler, a worker, an engine.

Then the account: accepted = executed + cancelled + dead; what was early or
lost; each second execution with its cause; lateness outside of kills, and from
a kill until 10 s later. build/billion/ gets the CPU and the memory of each part
over time, as a table and as a picture, and what they said.

The producer is never ahead of its rates. If the machine does not carry them it
is behind, and the account says how many were added a second, also at the peak.
What is not executed a minute after it was due, while nothing else is, is lost.
The book of the tasks (billion.h) has one size, 270 MB, whatever the time.

The cause of a second execution is that, before the visibility of the first one
was over, 10 s, its worker was killed, or Redis was and not back yet. Any other
is unexplained, and wrong; also where a machine is so slow that Redis does not
answer for as long, which billion.log tells.

The exit status is 0 if it adds up. Run by make billion, HOURS=1 or
MINUTES=2."""

import argparse
import json
import mmap
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))
sys.path.insert(0, os.path.join(ROOT, "modules/durable/test"))
sys.dont_write_bytecode = True
from engine import (  # noqa: E402 pylint: disable=C0413
    BUILD, Engine, die_with_parent)

SPACE = "billion"
PROGRAM = os.path.join(BUILD, "modules/durable/perf/billion")
RATE = 1000000000 / 86400
RETENTION = 60  # seconds
LIMIT = 120
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
PARTS = {"producer": 1, "hwtd": 2, "worker": 3, "redis": 4}  # enum part
HEAD = ("asked acked undone settled executed cancelled dead lost begun kept "
        "early undead worker_killed redis_killed unexplained wanted until "
        "kills").split()
PLOT = """set terminal svg size 900,900 background rgb 'white'
set output '{out}.svg'
set multiplot layout 3,1
set xlabel 'seconds'
set key outside right top
set style data lines
set yrange [0:*]
set ylabel 'tasks a second'
plot {rates}
set ylabel 'CPU, cores'
plot {cpu}
set ylabel 'memory, MB'
plot {memory}
"""


class Book:
    """billion.h."""

    def __init__(self, path):
        size, self.late = map(int, subprocess.run(
            [PROGRAM, "size"], capture_output=True, check=True,
            timeout=LIMIT).stdout.split())
        with open(path, "wb+") as file:
            file.truncate(size)
            self.map = mmap.mmap(file.fileno(), size)

    def __getitem__(self, name):
        return struct.unpack_from("<Q", self.map, 8 * HEAD.index(name))[0]

    def __setitem__(self, name, value):
        struct.pack_into("<Q", self.map, 8 * HEAD.index(name), value)

    def note_kill(self, part, pid):
        struct.pack_into(
            "<QQQQ", self.map, 8 * len(HEAD) + 32 * (self["kills"] % 4096),
            round(time.time() * 1000), PARTS[part], pid, 0)
        self["kills"] += 1

    def note_back(self):
        """What was killed last is there again."""
        struct.pack_into(
            "<Q", self.map,
            8 * len(HEAD) + 32 * ((self["kills"] - 1) % 4096) + 24,
            round(time.time() * 1000))

    def lateness(self, killed):
        late = memoryview(self.map)[self.late:self.late + 16 * 60000].cast(
            "Q")[60000 * killed:60000 * (killed + 1)]
        count, seen, found = sum(late), 0, []
        for share in (.5, .99, 1):
            seen = 0
            for ms, here in enumerate(late):
                seen += here
                if seen and seen >= share * count:
                    found.append(ms)
                    break
        return count, found


def family(pid):
    """A process and its children, as those that rewrite a file."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [pid, *map(int, file.read().split())]
    except OSError:
        return []


def used(pid):
    """Seconds of CPU with that of ended children, and resident MB."""
    cpu = memory = 0
    for each in family(pid):
        try:
            with open(f"/proc/{each}/stat", encoding="ascii") as file:
                words = file.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        own = words[11:15] if each == pid else words[11:13]
        cpu += sum(map(int, own)) / TICK
        memory += int(words[21]) * PAGE / 1e6
    return cpu, memory


class Part:
    """Some processes of one kind. Redis starts by itself."""

    def __init__(self, name, command, log, count=1):
        self.name, self.command, self.log = name, command, log
        self.processes = []
        self.ended = 0  # seconds of CPU of those that were killed
        for _ in range(count):
            self.start()

    def start(self):
        self.processes.append(subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stdout=self.log,
            stderr=self.log, preexec_fn=die_with_parent))

    def kill(self, book):
        """False: it has ended by itself."""
        process = self.processes.pop(0)
        self.ended += used(process.pid)[0]
        book.note_kill(self.name, process.pid)
        died = process.poll() is None
        process.kill()
        process.wait()
        return died

    def revive(self):
        """Starts what has ended by itself again, as a supervisor would, and
        returns the statuses."""
        found = [process for process in self.processes
                 if process.poll() is not None]
        for process in found:
            self.processes.remove(process)
            self.start()
        return [process.returncode for process in found]

    def use(self):
        both = [used(process.pid) for process in self.processes]
        return (self.ended + sum(cpu for cpu, _ in both),
                sum(memory for _, memory in both))

    def end(self):
        for process in self.processes:
            process.terminate()
        return [process.wait(LIMIT) for process in self.processes]


class Redis(Part):
    """Masters of a cluster, or one engine without one."""

    def __init__(self, count, folder):
        config = {"appendonly": "yes", "appendfsync": "always",
                  "auto_aof_rewrite_percentage": 100,
                  "auto_aof_rewrite_min_size": "512mb"}
        if count > 1:
            # The others go on while one is away.
            config.update(cluster_enabled="yes",
                          cluster_require_full_coverage="no")
        self.engines = []
        self.turn = 0  # of the engine to kill
        for i in range(count):
            home = os.path.join(folder, str(i))
            os.mkdir(home)
            self.engines.append(Engine(folder=home, **config))
        if count > 1:
            self.join()
        super().__init__("redis", None, None)

    def join(self):
        """Divides the slots so that each engine has one shard."""
        clients = [engine.client() for engine in self.engines]
        ends = sorted(
            clients[0]("CLUSTER", "KEYSLOT", f"{{{SPACE}:{shard}}}")
            for shard in range(len(clients)))[:-1] + [16383]
        begin = 0
        for client, end in zip(clients, ends):
            client("CLUSTER", "ADDSLOTSRANGE", begin, end)
            begin = end + 1
            client("CLUSTER", "MEET", "127.0.0.1", self.engines[0].port)
        limit = time.monotonic() + LIMIT
        while not all(b"cluster_slots_assigned:16384" in
                      client("CLUSTER", "INFO") for client in clients):
            if time.monotonic() > limit:
                raise RuntimeError("the cluster does not come together")
            time.sleep(0.05)
        for client in clients:
            client.close()

    @property
    def servers(self):
        return ",".join(f"127.0.0.1:{engine.port}" for engine in self.engines)

    def start(self):
        for engine in self.engines:
            if engine.process is None:
                engine.start()
        self.processes = [engine.process for engine in self.engines]

    def kill(self, book):
        engine = self.engines[self.turn % len(self.engines)]
        self.turn += 1
        self.ended += used(engine.pid)[0]
        book.note_kill(self.name, engine.pid)
        engine.kill()
        return True

    def close(self):
        for engine in self.engines:
            engine.close()


class Run:
    def __init__(self, options):
        self.options = options
        self.seconds = options.minutes * 60 if options.minutes else \
            options.hours * 3600
        self.folder = tempfile.mkdtemp(prefix="hwt-billion-")
        self.book_path = tempfile.mktemp(prefix="hwt-billion-", dir="/dev/shm")
        self.wrong = []
        os.makedirs(options.out, exist_ok=True)
        self.log = open(os.path.join(options.out, "billion.log"), "wb")
        self.parts = []
        self.rows = []
        self.redis = None
        self.book = Book(self.book_path)

    def ctl(self, *words):
        return subprocess.run(
            [os.path.join(BUILD, "hwtctl"), words[0], *self.where,
             *words[1:]],
            stdout=subprocess.PIPE, timeout=LIMIT, check=False)

    def start(self):
        count = self.options.engines
        self.redis = Redis(count, self.folder)
        self.where = ["--cluster" if count > 1 else "--redis",
                      self.redis.servers, "--space", SPACE]
        made = self.ctl("init", f"--retention={RETENTION}",
                        f"--shards={count}")
        print(made.stdout.decode(), end="", flush=True)
        self.began = time.time()
        self.book["until"] = round((self.began + self.seconds) * 1000)
        period = min(600, self.seconds)
        self.period = period
        work = [PROGRAM, self.book_path,
                "cluster:" * (count > 1) + self.redis.servers]
        log = self.log
        self.parts = [
            Part("producer", [*work, "produce", str(round(self.options.rate)),
                              str(round(1000 * period)),
                              str(round(1000 * self.began))], log),
            Part("hwtd", [os.path.join(BUILD, "hwtd"), *self.where], log, 2),
            Part("worker", [*work, "work"], log, 2),
            self.redis]

    def look(self):
        """A row: seconds; added and executions so far; CPU and memory of each
        part."""
        row = [time.time() - self.began, self.book["acked"],
               self.book["begun"]]
        for part in self.parts:
            row.extend(part.use())
        self.rows.append(row)

    def say(self, text):
        print(f"{time.time() - self.began:7.1f} s  {text}", flush=True)

    def run(self):
        """Ends with the producer, which ends when all tasks have."""
        every = max(1, self.seconds / 600)
        next_look = next_said = 0
        kills, next_kill = 0, self.options.every / 2
        producer = self.parts[0]
        while producer.processes[0].poll() is None:
            spent = time.time() - self.began
            if spent >= next_look:
                next_look = spent + every
                self.look()
            if spent >= next_said:
                next_said += 30
                self.say(f"added {self.book['acked']} of "
                         f"{self.book['wanted']}, executions "
                         f"{self.book['begun']}")
            for part in self.parts[1:3]:
                for status in part.revive():
                    self.say(f"{part.name} has ended with {status}, and is "
                             "started again")
            if next_kill <= spent < self.seconds:
                next_kill += self.options.every
                part = self.parts[kills % 4]
                kills += 1
                self.say(f"kill -9: {part.name}")
                if not part.kill(self.book):
                    self.wrong.append(f"{part.name} had ended by itself")
                part.start()
                self.book.note_back()
            time.sleep(0.1)
        self.look()
        if producer.processes[0].returncode != 0:
            self.wrong.append("the producer has failed")

    def rates(self):
        """Added a second: by the rates, in all, and at the peaks."""
        wanted = self.book["wanted"] / self.seconds
        added = self.book["acked"] / self.seconds
        peaks = [(b[1] - a[1]) / (b[0] - a[0])
                 for a, b in zip(self.rows, self.rows[1:])
                 if .45 <= a[0] % self.period / self.period <
                 b[0] % self.period / self.period <= .55 and
                 b[0] < self.seconds]
        return wanted, added, sum(peaks) / max(len(peaks), 1)

    def account(self):
        book = self.book
        accepted, ended = book["acked"], \
            book["executed"] + book["cancelled"] + book["dead"]
        wanted, added, peak = self.rates()
        print(f"\nadded/s {added:.0f} of {wanted:.0f}, at the peak {peak:.0f} "
              f"of {3 * self.options.rate:.0f}"
              + ("" if added > .99 * wanted else
                 ": this machine does not carry the rate"))
        print(f"accepted {accepted} = executed {book['executed']} + cancelled "
              f"{book['cancelled']} + dead {book['dead']}")
        print(f"early {book['early']}\nlost {book['lost']}\n"
              f"executed after a cancel {book['undead']}\n"
              f"too late to be cancelled {book['kept']}\n"
              "executed again: its worker was killed "
              f"{book['worker_killed']}, Redis was {book['redis_killed']}, "
              f"unexplained {book['unexplained']}")
        for name, killed in (("outside of kills", 0),
                             ("from a kill until 10 s later", 1)):
            count, late = book.lateness(killed)
            print(f"late, {name}: {count}, p50/p99/most ms "
                  f"{'/'.join(map(str, late))}")
        if accepted != ended:
            self.wrong.append(f"{accepted} accepted, {ended} ended")
        for name in ("early", "lost", "undead", "unexplained"):
            if book[name]:
                self.wrong.append(f"{name}: {book[name]}")
        self.costs(accepted)

    def costs(self, accepted):
        for part in self.parts:
            cpu, memory = part.use()
            print(f"{part.name}: {cpu / (self.rows[-1][0]):.2f} cores, "
                  f"{cpu / max(accepted, 1) * 1e6:.0f} us a task, "
                  f"{memory:.0f} MB")

    def compare(self):
        """What the engine says."""
        stats = json.loads(self.ctl("stat", "--json").stdout or "{}")
        for theirs, ours in (("added", "acked"), ("succeeded", "executed"),
                             ("cancelled", "cancelled"), ("dead", "dead")):
            if stats.get(theirs) != self.book[ours]:
                self.wrong.append(f"the engine says {theirs} "
                                  f"{stats.get(theirs)}, not "
                                  f"{self.book[ours]}")

    def draw(self):
        out = os.path.join(self.options.out, "billion")
        names = [part.name for part in self.parts]
        with open(out + ".tsv", "w", encoding="ascii") as file:
            print("seconds", "added/s", "executed/s", *(
                f"{name} {what}" for name in names
                for what in ("cores", "MB")), sep="\t", file=file)
            for a, b in zip(self.rows, self.rows[1:]):
                took = b[0] - a[0]
                row = [b[0], *((y - x) / took for x, y in zip(
                    a[1:3], b[1:3]))]
                for i in range(3, len(b), 2):
                    row += [max(0, b[i] - a[i]) / took, b[i + 1]]
                print(*(f"{each:.2f}" for each in row), sep="\t", file=file)

        def lines(columns):
            return ", ".join(
                f"'{out}.tsv' skip 1 using 1:{column} title '{title}'"
                for column, title in columns)
        if not shutil.which("gnuplot"):
            print("no picture: gnuplot is not installed")
            return
        subprocess.run(["gnuplot"], input=PLOT.format(
            out=out, rates=lines([(2, "added"), (3, "executed")]),
            cpu=lines((4 + 2 * i, name) for i, name in enumerate(names)),
            memory=lines((5 + 2 * i, name) for i, name in enumerate(names))),
            text=True, check=True, timeout=LIMIT)
        print(f"{out}.svg")

    def close(self):
        for part in self.parts:
            for process in part.processes:
                process.kill()
        if self.redis:
            self.redis.close()
        os.unlink(self.book_path)
        shutil.rmtree(self.folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--hours", type=float, default=1)
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--every", type=float, default=60,
                        help="seconds between two kills")
    parser.add_argument("--engines", type=int, default=2)
    parser.add_argument("--out", default=os.path.join(ROOT, "build/billion"))
    run = Run(parser.parse_args())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        run.start()
        run.run()
        run.account()
        run.compare()
        run.draw()
        for part in run.parts[1:3]:
            if any(part.end()):
                run.wrong.append(f"{part.name}: it does not end well")
    finally:
        run.close()
    for text in run.wrong:
        print("WRONG: " + text)
    print("FAILED" if run.wrong else "all adds up")
    return 1 if run.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
