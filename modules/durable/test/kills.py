#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Everything is killed with SIGKILL at random moments, and started again: two
producers, two hwtd, three workers, the engine. Then what is left is worked off,
and the logs of all executions are held against what was acknowledged and
against the keys of the engine.

    kills.py [--seconds N] [--rate N] [--seed N] [--outside]

One producer adds RATE tasks a second and cancels some (examples/durable); the
other one, which the seed steers, adds, cancels and reschedules one by one.
Kills are SIGKILL, of whom and when the seed says. soak.py is the long form.
With --outside, what operators, disks and clocks do besides: see Outside. What
becomes of a space whose data is lost is in identity.py.

What is checked, by the numbers of the invariants: 1 what was acknowledged and
not cancelled ends. 2 nothing begins before it is due, by the engine's word and
by what was asked for. 3 what has succeeded did so by an attempt that a worker
has made; no attempt begins twice; another execution has its cause; attempts
are at most as many as allowed. 4 nothing begins after a cancel that answered 0,
and nothing of a generation after a reschedule that did. 5, 7, 8 the checker. 6
clock, cursor and version do not fall. The same once more for each write of the
append-only file: history.py.

Early is what begins by a time that the engine must not believe: see machine.py.
What a leap that lasts makes due is executed at once, which the contract says.

Other faults have tests of their own, for they need other engines: replicas that
are more than those waited for, away for long, or become masters, cluster.py and
replication.py."""

import argparse
import collections
import errno
import json
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time

from actor import BUILD, Actor
from checker import Checker, Record
from engine import (LIMIT, Engine, Error, Space, die_with_parent,
                    scratch_folder)
from history import History
from machine import HOUR, Machine, Steady, now_ms

SPACE, QUEUE = "load", "q"
SHARDS = 8
PATIENCE = 180  # seconds, for what is left
LEAP_MAX = 5 * HOUR
SETTLING = 5  # seconds after a reset, until schedulers have pumped all shards
# Faults by which the engine, for longer than a lease, answers nobody.
ENGINE = {"engine", "engine's clock", "engine stopped", "setting",
          "full_disk", "torn", "damaged"}
REFUSED_FOR_NOW = (-errno.ETIMEDOUT, -errno.ECONNREFUSED, -errno.EAGAIN,
                   -errno.EOPNOTSUPP, -errno.ETIME)


class Part:
    """A process that is killed and started again; command is a function."""

    def __init__(self, load, name, command):
        self.load = load
        self.name = name
        self.command = command
        self.process = None
        self.start()

    def start(self):
        with open(self.load.path(self.name + ".err"), "ab") as errors:
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=errors,
                stderr=errors, preexec_fn=die_with_parent,
                env=self.load.machine.environment(self.name))

    def kill(self):
        """Returns its id. One that has ended by itself is a failure."""
        if self.process.poll() is not None:
            self.load.complain(f"{self.name} has ended by itself: "
                               f"{self.process.returncode}")
        self.process.kill()
        self.process.wait()
        return self.process.pid

    def rss(self):
        """In kB; 0 if it has ended."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") \
                as file:
            return next((int(line.split()[1]) for line in file
                         if line.startswith("VmRSS")), 0)


class Redis:
    """The engine as a part."""

    name = "engine"

    def __init__(self, engine):
        self.engine = engine

    def start(self):
        self.engine.start()

    def kill(self):
        pid = self.engine.pid
        self.engine.kill()
        return pid


class Chaos(threading.Thread):
    """The other producer: one call after the other, of which the seed says
    what. Its log is as that of examples/durable/producer, and besides

        move MS ID DELAY       a reschedule is asked for
        moved MS ID            it was answered by 0, at the first try
    """

    name = "chaos"

    def __init__(self, load, seed):
        super().__init__(daemon=True)
        self.load = load
        self.rng = random.Random(seed)
        self.file = open(load.path("chaos.log"), "a", encoding="ascii")
        # Before the thread runs: whoever kills it kills this.
        self.actor = self.make_actor()
        self.count = 0
        self.live = []
        self.stopping = False
        self.calls = collections.Counter()
        self.failure = None

    def make_actor(self):
        return Actor(SPACE, self.load.servers(),
                     self.load.machine.environment(self.name))

    def log(self, what, name, *more):
        words = [what, str(now_ms()), name, *map(str, more)]
        self.file.write(" ".join(words) + "\n")
        self.file.flush()

    def connect(self):
        """As often as needed: it may be killed, the engine may be gone."""
        while True:
            try:
                if self.actor.open(level=0, shards=0, slots=0, tick=0,
                                   timeout=2000) == 0:
                    return
            except (AssertionError, OSError):
                pass
            time.sleep(0.05)
            self.actor.kill()
            self.actor = self.make_actor()

    def call(self, *words):
        """The result, and how often it was tried."""
        tries = 0
        while True:
            tries += 1
            try:
                error = self.actor(*words)[0]
            except (AssertionError, OSError):
                self.connect()
                continue
            if error not in REFUSED_FOR_NOW:
                self.calls[words[0], error] += 1
                return error, tries

    def add(self):
        name = f"c{self.count}"
        self.count += 1
        delay = self.rng.choice((0, 50, 500, self.rng.randrange(3000)))
        most = self.rng.choice((1, 2, 20))
        payload = self.rng.choice(("order", "order", "retry", "fail"))
        self.log("ask", name, delay, most)
        error, _ = self.call("add", QUEUE, delay, most, payload, name)
        if error == 0:
            self.log("ack", name)
            self.live = self.live[-100:] + [(name, now_ms())]
        else:
            self.load.complain(f"add {name}: {error}")

    def judge(self, what, name, acked_ms, error):
        """-2, it is not there, is right after the retention alone."""
        if error in (0, -114, -115) or error == -2 and \
                now_ms() >= acked_ms + 1000 * self.load.retention:
            return
        self.load.complain(f"{what} {name}: {error}")

    def cancel(self, name, acked_ms):
        self.log("undo", name)
        error, _ = self.call("cancel", name)
        self.log("cancelled" if error == 0 else "kept", name)
        self.judge("cancel", name, acked_ms, error)

    def move(self, name, acked_ms):
        delay = self.rng.choice((0, 200, 2000))
        self.log("move", name, delay)
        error, tries = self.call("reschedule", name, delay)
        if error == 0 and tries == 1:
            self.log("moved", name)
        self.judge("reschedule", name, acked_ms, error)

    def run(self):
        try:
            self.connect()
            while not self.stopping:
                what = self.rng.random()
                if what < 0.5 or not self.live:
                    self.add()
                elif what < 0.7:
                    self.cancel(*self.live.pop(
                        self.rng.randrange(len(self.live))))
                else:
                    self.move(*self.rng.choice(self.live[-20:]))
                time.sleep(self.rng.random() * 0.01)
        except Exception as error:  # pylint: disable=broad-except
            self.load.complain(f"the second producer failed: {error!r}")

    def kill(self):
        self.actor.process.kill()
        return self.actor.pid

    def stop(self):
        self.stopping = True
        self.join(LIMIT)
        self.actor.kill()
        self.file.close()


class Task:
    """What is known of one."""

    __slots__ = ("asks", "exact", "most", "acked", "undone", "cancelled",
                 "moved", "runs", "seen")

    def __init__(self):
        self.asks = []  # of each generation: when, until when, and the delay
        self.exact = True  # they are known one by one
        self.most = 20
        self.acked = False
        self.undone = False  # a cancel was asked for
        self.cancelled = None  # when it was answered by 0
        self.moved = []  # when each reschedule was
        self.runs = {}  # (generation, attempt): Run
        self.seen = 0


class Run:
    __slots__ = ("begin", "due", "process", "how", "end")

    def __init__(self, begin, due, process):
        self.begin, self.due, self.process = begin, due, process
        self.how = self.end = None


class Tail:
    """A log that grows: the whole lines that are new."""

    def __init__(self, path):
        self.path = path
        self.file = None
        self.rest = ""

    def read(self):
        if self.file is None:
            if not os.path.exists(self.path):
                return []
            self.file = open(self.path, encoding="ascii")
        text = self.rest + self.file.read()
        whole, _, self.rest = text.rpartition("\n")
        return [line.split() for line in whole.split("\n")] if whole else []


class Account:
    """Of each task what was asked for, what was acknowledged, and what came of
    it. What has ended some time ago is judged and forgotten."""

    def __init__(self, load):
        self.load = load
        self.tasks = {}
        self.asked = [Tail(load.path("producer.log")),
                      Tail(load.path("chaos.log"))]
        self.done = Tail(load.path("worker.log"))
        self.counts = collections.Counter()
        self.causes = collections.Counter()
        self.late = collections.Counter()  # ms: how many
        self.quiet = collections.Counter()  # 10 s after a kill and more
        self.dead, self.maybe_dead = set(), set()  # what was forgotten

    def read(self):
        """The logs of the workers first, so that what they name is known."""
        done = self.done.read()
        for tail in self.asked:
            for words in tail.read():
                self.note_asked(*words)
        for words in done:
            self.note_run(*words)

    def note_asked(self, what, ms, name, *more):
        ms = self.load.machine.real(int(ms))
        if what == "ask":
            task = self.tasks.setdefault(name, Task())
            task.asks.append((ms, math.inf, int(more[0])))
            if len(more) > 1:
                task.most = int(more[1])
            self.counts["asked"] += 1
        elif name not in self.tasks:
            # It was judged, and then cancelled or rescheduled in vain.
            if what in ("cancelled", "moved"):
                self.load.complain(f"{name}: {what}, long after its end")
            return
        task = self.tasks[name]
        task.seen = ms
        if what == "ack":
            task.acked = True
            task.asks[0] = (task.asks[0][0], ms, task.asks[0][2])
            self.counts["acked"] += 1
        elif what == "undo":
            task.undone = True
        elif what == "cancelled":
            task.cancelled = ms
        elif what == "move":
            task.exact = False
            task.asks.append((ms, math.inf, int(more[0])))
        elif what == "moved":
            task.asks[-1] = (task.asks[-1][0], ms, task.asks[-1][2])
            task.moved.append(ms)
            task.exact = len(task.moved) == len(task.asks) - 1

    def note_run(self, what, ms, name, generation, attempt, *more):
        key = int(generation), int(attempt)
        ms = self.load.machine.real(int(ms))
        task = self.tasks.get(name)
        if task is None:
            self.load.complain(f"{name}: {what} {key}, unknown or long ended")
            return
        task.seen = ms
        if what == "begin":
            if key in task.runs:
                self.load.complain(f"{name}: attempt {key} begun twice")
            task.runs[key] = Run(ms, int(more[0]), int(more[1]))
        else:
            task.runs[key].how = what
            task.runs[key].end = ms

    def settle(self, older_ms):
        """Judges what has ended and was not heard of since then."""
        for name in [name for name, task in self.tasks.items()
                     if task.seen < older_ms and task.acked and
                     self.has_ended(task)]:
            self.judge(name, self.tasks.pop(name))

    @staticmethod
    def has_ended(task):
        if task.cancelled or any(run.how in ("done", "fail")
                                 for run in task.runs.values()):
            return True
        return len(task.runs) >= task.most

    def judge(self, name, task):
        self.judge_times(name, task)
        self.judge_causes(name, task)
        last = task.runs[max(task.runs)] if task.runs else None
        if task.cancelled:
            kind = "cancelled"
        elif last and last.how in ("done", "fail"):
            kind = last.how
        elif last and max(task.runs)[1] >= task.most:
            kind = "exhausted"
        else:
            kind = "undone" if task.undone else "open"
        self.counts[kind] += 1
        if kind in ("fail", "exhausted"):
            self.dead.add(name)
        elif kind == "done" and max(task.runs)[1] >= task.most:
            self.maybe_dead.add(name)
        return kind

    def due_at_least(self, task, generation, attempt):
        """A retry after the clock was set back is due by the clock then."""
        if attempt > 1 and self.load.machine.marks:
            return 0
        asks = [task.asks[generation - 1]] if task.exact and \
            generation <= len(task.asks) else task.asks
        return min(self.load.machine.earliest(since, until) + delay
                   for since, until, delay in asks)

    def judge_times(self, name, task):
        first = True
        for (generation, attempt), run in sorted(task.runs.items()):
            latest = self.load.machine.latest(run.begin)
            if latest < max(run.due, self.due_at_least(
                    task, generation, attempt)):
                self.load.complain(f"2 {name}: {generation} {attempt} begun "
                                   f"at {run.begin}, when it was {latest}, "
                                   f"due {run.due}, asked for {task.asks}")
            if attempt > task.most:
                self.load.complain(f"3 {name}: attempt {attempt} of "
                                   f"{task.most}")
            if task.cancelled and run.begin > task.cancelled:
                self.load.complain(f"4 {name}: begun at {run.begin}, "
                                   f"cancelled at {task.cancelled}")
            if task.exact and generation <= len(task.moved) and \
                    run.begin > task.moved[generation - 1]:
                self.load.complain(f"4 {name}: generation {generation} begun "
                                   f"at {run.begin}, was over at "
                                   f"{task.moved[generation - 1]}")
            if first:
                self.note_late(run)
            first = False

    def note_late(self, run):
        if self.load.machine.off:
            return  # the clock's due time is not ours
        self.late[run.begin - run.due] += 1
        if not any(run.due - 10000 <= ms <= run.begin
                   for ms, *_ in self.load.killed[-20:]):
            self.quiet[run.begin - run.due] += 1

    def judge_causes(self, name, task):
        order = sorted(task.runs.items())
        for (key, run), (other, following) in zip(order, order[1:]):
            if key[0] != other[0]:
                continue
            cause = self.cause(run, following)
            self.causes[cause or "NONE"] += 1
            if cause is None:
                self.load.complain(
                    f"3 {name}: {other} without a cause, after {key}: "
                    f"{run.begin} to {run.end} {run.how}, then "
                    f"{following.begin}")

    def cause(self, run, following):
        """Why another execution of the same generation followed this one."""
        if run.how == "retry":
            return "a retry was asked for"
        visibility = 1000 * self.load.visibility
        since, until = run.begin - visibility, following.begin
        killed = [(who, pid) for ms, who, pid in self.load.killed
                  if since <= ms <= until]
        if ("worker", run.process) in [(who[:6], pid)
                                       for who, pid in killed]:
            return "its worker was killed"
        if ENGINE & {who for who, _ in killed}:
            return "the engine was killed"
        if following.begin - run.begin >= visibility:
            return "the visibility was over, and nobody was killed"
        return None

    def judge_rest(self, records):
        """At the end: records are those that the engine has, by name."""
        for name, task in sorted(self.tasks.items()):
            if not task.acked:
                self.counts["unknown"] += 1
                self.counts["unknown and there"] += name in records
            kind = self.judge(name, task)
            if name in records:
                self.compare(name, task, kind, records[name])
            elif task.acked and (self.load.keeps or kind == "open"):
                self.load.complain(f"1 {name}: {kind}, lost")
        self.tasks.clear()

    def compare(self, name, task, kind, record):
        self.counts["record " + record.state] += 1
        run = task.runs.get((record.generation, record.attempts))
        if record.state == "succeeded":
            good = run is not None and run.how == "done"
        elif record.state == "failed":
            good = run is not None and run.how == "fail" or \
                record.attempts >= record.max_attempts
        elif record.state == "cancelled":
            good = task.undone
        else:
            good = False
        if task.cancelled and record.state != "cancelled" or not good:
            self.load.complain(
                f"1 {name}: it is {record.state} by {record.generation} "
                f"{record.attempts}, and should be {kind}")

    @staticmethod
    def late_text(late):
        def quantile(share):
            left = share * sum(late.values())
            for ms, count in sorted(late.items()):
                left -= count
                if left <= 0:
                    return ms
            return 0
        return (f"of {sum(late.values())} first executions: p50 "
                f"{quantile(.5)} ms, p99 {quantile(.99)} ms, most "
                f"{quantile(1)} ms")


class Load:
    """The parts, their logs, and who was killed when."""

    def __init__(self, options, retention=3600, visibility=2, **config):
        self.options = options
        self.visibility = visibility
        self.retention = retention
        self.keeps = retention >= 3600  # the records of all are there
        self.folder = scratch_folder("hwt-kills-")
        self.rng = random.Random(options.seed)
        self.killed = []  # (ms, name, process)
        self.wrong = []
        self.began = time.monotonic()
        self.producers = 0
        self.resting = False  # the producer is not to run
        self.metas = {}
        self.resets = 0  # of the clock
        self.parts = []
        self.chaos = None
        self.engine = Engine(folder=self.folder, appendonly="yes",
                             appendfsync="always",
                             slowlog_log_slower_than=100000, **config)
        self.machine = Machine(self.folder, self.engine.clock) \
            if self.engine.clock else Steady()
        self.history = History(self.engine, SPACE, self.complain)
        self.account = Account(self)

    def path(self, name):
        return os.path.join(self.folder, name)

    def complain(self, text):
        self.wrong.append(text)

    def servers(self):
        return self.engine.servers

    def elapsed(self):
        return time.monotonic() - self.began

    def program(self, name, *words):
        return [os.path.join(BUILD, name), *words]

    def ctl(self, *words):
        return subprocess.run(
            self.program("hwtctl", words[0], "--redis", self.servers(),
                         "--space", SPACE, *words[1:]),
            stdout=subprocess.PIPE, timeout=LIMIT, check=False,
            env=self.machine.environment("hwtctl"))

    def hwtd(self):
        return self.program("hwtd", "--redis", self.servers(), "--space",
                            SPACE)

    def worker(self):
        return self.program(
            "examples/durable/worker", self.servers(), SPACE, QUEUE,
            self.path("worker.log"), str(self.visibility))

    def producer(self):
        """A new one has ids of its own, and the time that is left."""
        self.producers += 1
        left = max(1, round(self.options.seconds - self.elapsed()))
        return self.program(
            "examples/durable/producer", self.servers(), SPACE, QUEUE,
            self.path("producer.log"), f"p{self.producers}",
            str(self.options.rate), str(left))

    def start(self):
        made = self.ctl("init", f"--shards={SHARDS}", "--slots=1024",
                        "--tick=50", f"--retention={self.retention}")
        print(f"seed {self.options.seed}; engine on port {self.engine.port}, "
              f"appendfsync always; {made.stdout.decode()}", end="",
              flush=True)
        self.began = time.monotonic()
        self.parts = [Part(self, f"hwtd-{i}", self.hwtd) for i in (1, 2)]
        self.parts += [Part(self, f"worker-{i}", self.worker)
                       for i in (1, 2, 3)]
        self.parts.append(Part(self, "producer", self.producer))
        self.chaos = Chaos(self, self.rng.random())
        self.chaos.start()

    def kill_one(self, pause):
        part = self.rng.choice((
            self.rng.choice(self.parts[:2]), self.rng.choice(self.parts[2:5]),
            self.rng.choice(self.parts[2:5]), Redis(self.engine),
            self.rng.choice((self.parts[5], self.chaos))))
        if part is self.parts[5] and (self.resting or
                                      part.process.poll() == 0):
            return
        before = now_ms()
        pid = part.kill()
        self.killed.append((before, part.name, pid))
        time.sleep(self.rng.random() * pause)
        if part is not self.chaos:
            part.start()
        self.look()

    def read_metas(self):
        with self.engine.client() as client:
            space = Space(client, SPACE, scripts=object(), init=False)
            return {shard: space.meta(shard) for shard in range(SHARDS)}

    def look(self):
        """What never falls, 6."""
        try:
            metas = self.read_metas()
            for shard, meta in metas.items():
                before = self.metas.get(shard, meta)
                for name in ("clock", "cursor", "version"):
                    if meta[name] < before[name]:
                        self.complain(f"6 shard {shard}: {name} fell")
            self.metas = metas
        except (OSError, Error) as error:
            self.complain(f"the engine does not answer: {error}")

    def stats(self):
        return json.loads(self.ctl("stat", "--json").stdout or "{}")

    def drain(self):
        """Until nothing is left to be done."""
        self.chaos.stop()
        status = self.parts[5].process.wait(PATIENCE)
        if status != 0:
            self.complain(f"the producer's exit status is {status}")
        if self.machine.owed:
            self.machine.set_by(self.machine.owed)
        end = time.monotonic() + PATIENCE
        while True:
            stats = self.stats()
            if stats and not (stats["pending"] or stats["delivered"] or
                              stats["running"]):
                break
            if time.monotonic() > end:
                self.complain(f"1 tasks are left: {stats}")
                break
            time.sleep(0.2)
            self.account.read()

    def end_parts(self):
        """By SIGTERM: each ends as it should."""
        for part in self.parts[:5]:
            part.process.terminate()
            status = part.process.wait(LIMIT)
            if status != 0:
                self.complain(f"{part.name}: exit status {status}")

    def check(self):
        """The keys, after everything has ended; returns the records."""
        with self.engine.client() as client:
            checker = Checker(client, SPACE, routed=True)
            for broken in checker(drained=True):
                self.complain(broken)
            records = {}
            for shard in checker.shards.values():
                for name, data in shard.keys["r"].items():
                    records[name.decode()] = Record(
                        data, shard.meta["slots"])
            slow = client("SLOWLOG", "GET", 100)
        slow = [entry for entry in slow if entry[3][0] == b"FCALL"]
        print(f"scripts of more than 100 ms: {len(slow)}")
        if self.ctl("check").returncode != 0:
            self.complain("hwtctl check: " + self.ctl("check").stdout.decode())
        return records

    def judge_history(self):
        """The append-only file, beside the logs."""
        history = self.history
        history.read()
        for shard, falls in history.falls.items():
            if falls > self.resets:
                self.complain(f"6 history: the clock of shard {shard} fell "
                              f"{falls} times, after {self.resets} resets")
        print(f"history: {history.writes} writes of records, "
              f"{sum(history.begun.values())} attempts"
              f"{'' if history.complete else ', with gaps'}")
        if not history.complete:
            return
        for name, task in self.account.tasks.items():
            if task.acked and name not in history.added:
                self.complain(f"1 {name}: acknowledged, and not in the file")
            if task.cancelled and name not in history.cancelled:
                self.complain(f"4 {name}: cancelled, and not in the file")
            for key in task.runs:
                if (name, *key) not in history.begun:
                    self.complain(f"3 {name}: {key} is not in the file")

    def report(self):
        account = self.account
        counts = account.counts
        for what, count in sorted(counts.items()):
            print(f"{what} {count}")
        print(f"executed more than once {sum(account.causes.values())}")
        for cause, count in sorted(account.causes.items()):
            print(f"  {count} {cause}")
        print("late, kills and all, " + account.late_text(account.late))
        print("late, 10 s after a kill and more, " +
              account.late_text(account.quiet))
        kills = collections.Counter(who for _, who, _ in self.killed)
        print("kills: " + ", ".join(f"{count} of {who}" for who, count in
                                    sorted(kills.items())))
        print("second producer: " + ", ".join(
            f"{count} {what} {error}" for (what, error), count in
            sorted(self.chaos.calls.items())))

    def verdict(self):
        for text in self.wrong[:20]:
            print("WRONG: " + text)
        return not self.wrong

    def close(self):
        for part in self.parts:
            if part.process.poll() is None:
                part.process.kill()
                part.process.wait()
        if self.chaos:
            self.chaos.stopping = True
            self.chaos.actor.process.kill()
        self.engine.close()
        if self.wrong:
            print(f"the logs are in {self.folder}")
        else:
            shutil.rmtree(self.folder, ignore_errors=True)


class Outside:
    """What happens to an engine but kills."""

    def __init__(self, load):
        self.load = load
        self.engine = load.engine
        self.rng = load.rng
        self.replicas = []
        self.faults = collections.Counter()

    def one(self):
        fault = self.rng.choice(
            [self.replica, self.setting, self.full_disk, self.torn,
             self.damaged, self.stopped, self.leap, self.leap,
             self.own_clock] +
            [each for each in (self.ahead, self.back)
             if not self.faults[each.__name__]])
        self.faults[fault.__name__] += 1
        before = now_ms()
        fault()
        self.load.killed.append((before, fault.__name__, 0))
        self.load.look()

    def replica(self):
        """One comes, and another one goes."""
        for old in self.replicas:
            old.close()
        self.replicas = [Engine(
            replicaof=f"127.0.0.1 {self.engine.port}",
            repl_diskless_sync_delay=0)]

    def setting(self):
        """Somebody sets the engine to keep less, and back. Nothing is killed
        meanwhile: for the second until it is noticed, nobody promises
        anything."""
        name, weak, strong = self.rng.choice((
            ("appendonly", "no", "yes"), ("appendfsync", "everysec", "always"),
            ("maxmemory-policy", "allkeys-lru", "noeviction")))
        self.load.history.read()
        with self.engine.client() as client:
            client("CONFIG", "SET", name, weak)
            time.sleep(self.rng.random() * 3)
            client("CONFIG", "SET", name, strong)
            while b"aof_rewrite_in_progress:1" in client(
                    "INFO", "persistence"):
                time.sleep(0.05)

    def full_disk(self):
        """It cannot write one more kilobyte, and ends."""
        full = os.path.getsize(self.engine.append_only_files()[-1]) + 1000
        resource.prlimit(self.engine.pid, resource.RLIMIT_FSIZE,
                         (full, full))
        try:
            self.engine.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.load.complain("nobody has written to a full disk")
        self.engine.kill()
        self.engine.start()

    def torn(self):
        """A loss of power, with the begin of a transaction at the end."""
        self.engine.kill()
        path = self.engine.append_only_files()[-1]
        with open(path, "r+b") as file:
            data = file.read()
            begin = data.rfind(b"*1\r\n$5\r\nMULTI\r\n")
            if begin >= 0:
                length = self.rng.randrange(1, len(data) - begin)
                file.write(data[begin:begin + length])
        self.engine.start()
        if os.path.getsize(path) < len(data):
            self.load.complain("what was whole has been cut")

    def damaged(self):
        """A byte of the file is damaged: the repair may refuse, or not see it;
        it changes nothing."""
        self.engine.kill()
        path = self.engine.append_only_files()[-1]
        with open(path, "rb") as file:
            data = file.read()
        place = self.rng.randrange(len(data))
        wrong = data[:place] + bytes([data[place] ^ 1 << self.rng.randrange(
            8)]) + data[place + 1:]
        with open(path, "wb") as file:
            file.write(wrong)
        done = subprocess.run(
            [os.path.join(BUILD, "hwt-aof-repair"), os.path.dirname(path)],
            stderr=subprocess.DEVNULL, check=False, timeout=LIMIT)
        with open(path, "rb") as file:
            if file.read() != wrong or done.returncode not in (0, 1):
                self.load.complain(f"byte {place} of {len(data)}: the repair "
                                   f"has answered {done.returncode}")
        with open(path, "wb") as file:
            file.write(data)
        self.engine.start()

    def leap(self):
        """The clock of the machine is ahead for a moment, and right again:
        nothing comes of that."""
        def meanwhile():
            time.sleep(self.rng.random() * 3)
            if self.rng.random() < 0.5:
                self.load.kill_one(0.3)
        by = self.rng.choice((HOUR, LEAP_MAX))
        if not self.load.machine.leap(by, meanwhile):
            print("a leap that was to be short was long", flush=True)
            self.reset()
        self.wait_for_time()

    def ahead(self):
        """It stays ahead: all of that hour is executed, once it is believed.
        """
        self.load.machine.set_by(HOUR)
        self.load.kill_one(0.3)
        self.wait_for_time()

    def back(self):
        """It is set back, and somebody resets it: what was added before is
        late by that."""
        self.load.machine.set_back(HOUR)
        time.sleep(self.rng.random() * 2)
        self.load.kill_one(0.3)
        self.reset()
        self.wait_for_time()

    def reset(self):
        end = time.monotonic() + PATIENCE
        while self.load.ctl("clock", "--reset").returncode != 0:
            if time.monotonic() > end:
                self.load.complain("the clock cannot be reset")
                return
        self.load.machine.was_reset()
        self.load.resets += 1
        self.load.metas = {}
        time.sleep(SETTLING)

    def wait_for_time(self):
        """Until all shards have the time."""
        end = time.monotonic() + LIMIT
        while True:
            metas = self.load.read_metas()
            now = now_ms() + self.load.machine.off
            if all(meta["doubted"] == 0 and abs(now - meta["clock"]) < 5000
                   for meta in metas.values()):
                return
            if time.monotonic() > end:
                clocks = [now - meta["clock"] for meta in metas.values()]
                self.load.complain(f"6 time stands still, ms: {clocks}")
                return
            time.sleep(0.1)

    def any_process(self):
        """A name, and its process; the producers have no leases."""
        part = self.rng.choice((*self.load.parts[:5], Redis(self.engine)))
        return part.name, self.engine.pid if part.name == "engine" else \
            part.process.pid

    def stopped(self):
        """It hangs, mostly for longer than its leases, and goes on where it
        was: what it says is stale then."""
        name, process = self.any_process()
        os.kill(process, signal.SIGSTOP)
        self.load.killed.append((now_ms(), name + " stopped", process))
        time.sleep(self.rng.random() * 2 * self.load.visibility)
        os.kill(process, signal.SIGCONT)
        self.load.killed.append((now_ms(), name + " stopped", process))

    def own_clock(self):
        """That of one process alone, or of the engine, is ahead or behind:
        its calls are refused."""
        name, process = self.any_process()
        self.load.machine.set_one(name, self.rng.choice((HOUR, -HOUR)))
        for _ in range(3):
            self.load.killed.append((now_ms(), name + "'s clock", process))
            time.sleep(self.rng.random())
        self.load.machine.set_one(name, 0)
        self.load.killed.append((now_ms(), name + "'s clock", process))

    def close(self):
        for replica in self.replicas:
            replica.close()


def balance(load):
    """With all records there, the counters name the same tasks."""
    counts = load.account.counts
    metas = load.read_metas().values()
    for state, counter in (("succeeded", "succeeded"),
                           ("cancelled", "cancelled"), ("failed", "dead")):
        total = sum(meta[counter] for meta in metas)
        if total != counts["record " + state]:
            load.complain(f"3 {counter} is {total}, and {state} are "
                          f"{counts['record ' + state]}")
    there = sum(meta["added"] for meta in metas)
    expected = counts["acked"] + counts["unknown and there"]
    print(f"accepted {there} = succeeded {counts['record succeeded']} + "
          f"cancelled {counts['record cancelled']} + dead "
          f"{counts['record failed']}")
    if there != expected:
        load.complain(f"1 added is {there}, acknowledged and there are "
                      f"{expected}")


def run(options):
    # A leap of the clock takes what has ended, if its retention is shorter.
    load = Load(options, retention=30 * 86400, clock=options.outside)
    outside = Outside(load)
    try:
        load.start()
        while load.elapsed() < options.seconds:
            time.sleep(load.rng.random() * 0.6)
            load.kill_one(0.3)
            if options.outside:
                outside.one()
            load.account.read()
        load.drain()
        load.end_parts()
        load.account.read()
        load.judge_history()
        load.account.judge_rest(load.check())
        balance(load)
        load.report()
    except BaseException as error:
        load.complain(repr(error))
        raise
    finally:
        good = load.verdict()
        outside.close()
        load.close()
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--rate", type=int, default=300)
    parser.add_argument("--seed", type=int,
                        default=int.from_bytes(os.urandom(4), "big"))
    parser.add_argument("--outside", action="store_true")
    good = run(parser.parse_args())
    print("tally", int(good), int(not good), 0)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
