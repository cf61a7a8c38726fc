#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""main.py [--only NAME]... [--seconds N] [--shards N] [--neighbour]
[--workers] [--http]: the same work on hwt_durable with Redis, on two sorted
sets of Redis that one would write oneself, on Celery with Redis, on beanstalkd
and on PostgreSQL with SKIP LOCKED, one after the other, each with a server of
its own in a scratch folder. They fsync before they acknowledge, but for the
rows that say memory: Redis and beanstalkd without a file, PostgreSQL with a
table that is UNLOGGED.

Prints the machine, the versions, and then, as README has them, a table with a
column for each and what a billion tasks a day take. What is not installed is
left out. client.c says what its phases are, celery_client.py what is special of
Celery, which has no batches. Run by make perf-durable, PERF=OPTIONS; the exit
status is 1 if hwt_durable has lost a task, executed one early, or twice without
a kill of its worker.

CPU is that of all threads of the client (producer, worker and, of hwt_durable,
scheduler), and that of all processes of the server. Bytes a task are
used_memory of Redis, the resident memory of beanstalkd, and what PostgreSQL's
table and its indexes take on disk. Lateness counts from the due time to the
begin of the execution; of beanstalkd only whole seconds are asked.

The kills are SIGKILL, of the server in the middle of adds, where what gets no
answer is asked again; and of the worker, with hwt_durable's scheduler, in the
middle of executions, RATE a second. What it held comes again after the
visibility: 5 s for hwt_durable and for the sorted sets; 10 s for Celery, which
looks for it every 100 s; for the others at once, when its connection ends.

With --workers it measures only what it costs that many workers wait for a
queue: of hwt_durable, with Redis without a file, at each rate, with 1, 16 and
64 workers of one thread, which are in one process with the producer and the
scheduler. It prints the CPU of Redis and that of the process in percent of a
core, while tasks are added and executed at that rate; and how late all were,
with those before and after that time.

With --http it measures only hwt-http: tasks that were added before are due at a
steady rate, and call a server of one thread (http.c) that answers each after
100 ms; --http-delay takes other times. Both, hwtd and Redis share the machine.
It prints, of the middle of that time, how many calls there were a second, how
many were under way at most, how late they arrived, and the CPU a call of
hwt-http: of the thread that makes the calls, of the library's, and of both; and
that of Redis, hwtd and the server. All tasks must have been called, and
once."""

import argparse
import collections
import glob
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))
sys.path.insert(0, os.path.join(ROOT, "modules/durable/test"))
sys.dont_write_bytecode = True
from engine import (  # noqa: E402 pylint: disable=C0413
    Engine, die_with_parent, free_port)

BUILD = os.path.join(ROOT, "build/plain/modules/durable/perf")
PYTHON = "/usr/bin/python3"  # has Debian's modules
LIMIT = 120
TICK = os.sysconf("SC_CLK_TCK")
MEMORY, FSYNCED = 1, 2  # HWT_DURABLE_*
KILLS = 3
FILL = 100000
CPU = "CPU a task, us"
RATE = 500  # of the phase with kills of the worker
WORKERS = (1, 16, 64)
WORKERS_RATES = (1000, 50)
SETTLE = 5  # seconds: after 3 of adds, tasks are executed at their rate


def cpu_of(pid):
    """Seconds of a process, of its children, and of those that have ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            words = file.read().rsplit(")", 1)[1].split()
        with open(f"/proc/{pid}/task/{pid}/children",
                  encoding="ascii") as file:
            children = file.read().split()
    except OSError:
        return 0
    return sum(map(int, words[11:15])) / TICK + sum(map(cpu_of, children))


def first_line(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True,
                          timeout=LIMIT).stdout.splitlines()[0]


class Server:
    """Started in a with, ended and removed after it."""

    process = None
    batches = True  # whether an add can have more than one task
    patience = 3  # seconds until others have got what a killed worker held

    def client_command(self):
        return [os.path.join(BUILD, self.client)]

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def cpu(self):
        time.sleep(0.1)  # until children that end have ended
        return cpu_of(self.process.pid)

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait(LIMIT)
            self.process = None

    def wait(self, answers):
        end = time.monotonic() + LIMIT
        while not answers():
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{self.name} does not start")
            time.sleep(0.01)


class Redis(Server):
    name = "hwt_durable"
    title = "durable"
    client = "client-hwt"
    workers = 0  # 0: one, of all threads
    shards = 0  # 0: the default

    def __init__(self, memory=False, slots=0, tick=0, lease=30):
        self.tick, self.lease, self.patience = tick, lease, lease + 3
        self.slots, self.level = slots, MEMORY if memory else FSYNCED
        config = {} if memory else \
            {"appendonly": "yes", "appendfsync": "always"}
        self.engine = Engine(start=False, **config)

    @staticmethod
    def version():
        return "Redis " + first_line("redis-server", "-v").split()[2][2:]

    def start(self):
        self.engine.start()
        self.process = self.engine.process

    def close(self):
        self.engine.close()

    def kill(self):
        self.engine.kill()

    def address(self):
        return f"127.0.0.1:{self.engine.port},{self.shards},{self.slots},"\
            f"{self.level},{self.tick},{self.lease},{self.workers}"

    def size(self):
        with self.engine.client() as client:
            text = client("INFO", "memory").decode()
        return int(text.split("used_memory:")[1].split()[0])


class Zset(Redis):
    """Of one's own."""

    name = title = "ZSET"
    client = "client-zset"

    def address(self):
        return f"{self.engine.port},{self.lease * 1000}"


class Celery(Redis):
    """What was held longer than the visibility is looked for every 100 s."""

    name = title = "Celery"
    batches = False

    def __init__(self, memory=False):
        super().__init__(memory=memory)
        self.patience = 120

    @staticmethod
    def version():
        found = subprocess.run(
            [PYTHON, "-c", "import celery, kombu, redis\n"
             "from redis.connection import HIREDIS_AVAILABLE as fast\n"
             "print(celery.__version__, 'of kombu', kombu.__version__,"
             "'and redis-py', redis.__version__,"
             "'with hiredis' if fast else 'without hiredis')"],
            capture_output=True, text=True, check=False, timeout=LIMIT)
        return f"Celery {found.stdout.strip()}" \
            if found.returncode == 0 else None

    def client_command(self):
        return [PYTHON, "-B", os.path.join(
            ROOT, "modules/durable/perf/celery_client.py")]

    def address(self):
        return str(self.engine.port)


class Beanstalkd(Server):
    name = title = "beanstalkd"
    client = "client-beanstalkd"
    program = shutil.which("beanstalkd")

    def __init__(self, memory=False):
        self.memory = memory
        self.folder = tempfile.mkdtemp(prefix="hwt-beanstalkd-")
        self.port = free_port()

    @classmethod
    def version(cls):
        return first_line(cls.program, "-v") if cls.program else None

    def start(self):
        self.process = subprocess.Popen(
            [self.program, "-l", "127.0.0.1", "-p", str(self.port),
             *([] if self.memory else ["-b", self.folder, "-f", "0"])],
            preexec_fn=die_with_parent)
        self.wait(lambda: subprocess.run(
            ["bash", "-c", f": </dev/tcp/127.0.0.1/{self.port}"],
            stderr=subprocess.DEVNULL, check=False).returncode == 0)

    def close(self):
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def address(self):
        return str(self.port)

    def size(self):
        with open(f"/proc/{self.process.pid}/statm",
                  encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Postgresql(Server):
    """It does not run as root. One cluster serves all phases, with a table for
    each."""

    name = title = "PostgreSQL"
    client = "client-postgresql"
    folders = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
    cluster = None
    tables = 0

    def __init__(self, memory=False):
        self.memory = memory
        self.user = pwd.getpwnam("postgres") if os.getuid() == 0 else None
        cls = type(self)
        if cls.cluster is None:
            cls.cluster = tempfile.mkdtemp(prefix="hwt-postgresql-")
            if self.user:
                os.chown(cls.cluster, self.user.pw_uid, self.user.pw_gid)
            subprocess.run(
                self.command("initdb", "-U", "perf", "-A", "trust",
                             "--no-sync"),
                cwd="/", preexec_fn=self.become, check=True, timeout=LIMIT,
                stdout=subprocess.DEVNULL)
        self.port = free_port()
        self.table = "none"

    @classmethod
    def version(cls):
        client = os.path.join(BUILD, cls.client)
        if not cls.folders or not os.path.exists(client):
            return None
        return " ".join(first_line(
            os.path.join(cls.folders[-1], "postgres"), "-V").split()[1:3])

    def command(self, name, *words):
        return [os.path.join(self.folders[-1], name), "-D", self.cluster,
                *words]

    def become(self):
        if self.user:
            os.setgroups([])
            os.setgid(self.user.pw_gid)
            os.setuid(self.user.pw_uid)
        die_with_parent()

    def start(self):
        self.process = subprocess.Popen(
            self.command("postgres", "-p", str(self.port), "-h", "127.0.0.1",
                         "-k", self.cluster, "-c", "synchronous_commit="
                         + ("off" if self.memory else "on")),
            cwd="/", preexec_fn=self.become, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.wait(lambda: self.ask("SELECT 1") == "1")

    def ask(self, text):
        return subprocess.run(
            [os.path.join(self.folders[-1], "psql"), "-h", "127.0.0.1", "-p",
             str(self.port), "-U", "perf", "-d", "postgres", "-Atc", text],
            capture_output=True, text=True, check=False,
            timeout=LIMIT).stdout.strip()

    def close(self):
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(LIMIT)
            self.process = None

    @classmethod
    def clean(cls):
        if cls.cluster is not None:
            shutil.rmtree(cls.cluster, ignore_errors=True)

    def kill(self):
        """The server is the leader and its children: kill -9 of all."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children",
                  encoding="ascii") as file:
            children = file.read().split()
        super().kill()
        for child in map(int, children):
            try:
                os.kill(child, signal.SIGKILL)
                self.wait_gone(child)
            except OSError:
                pass

    @staticmethod
    def wait_gone(pid):
        """Ends with an OSError, or with a process that is no more than its
        exit status."""
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return
            time.sleep(0.005)

    def address(self):
        """With a new table."""
        type(self).tables += 1
        self.table = f"task{self.tables}"
        return (f"host=127.0.0.1 port={self.port} user=perf dbname=postgres,"
                f"{self.table}{',UNLOGGED' if self.memory else ''}")

    def size(self):
        found = self.ask(f"SELECT pg_total_relation_size('{self.table}')")
        return int(found or 0)


def start_client(server, *words, where=None):
    return subprocess.Popen(
        [*server.client_command(), words[0], where or server.address(),
         *map(str, words[1:])], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=die_with_parent)


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


def finish_client(process):
    try:
        text, errors = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    if process.returncode != 0:
        raise RuntimeError(f"{process.args}: {errors}")
    return json.loads(text)


def measure(server, *words):
    """A phase, with the CPU of the server."""
    before = server.cpu()
    found = finish_client(start_client(server, *words))
    found["server"] = server.cpu() - before
    return found


class Column:
    """What has been measured of one queue: row, a group and a name in it, to
    text."""

    def __init__(self, make, seconds):
        self.make, self.seconds = make, seconds
        self.rows = {}
        self.costs = {}
        self.wrong = []

    def put(self, group, name, text, detail=False):
        """A detail is printed here, and is not in the table."""
        if not detail:
            self.rows[group, name] = text
        print(f"  {name and '  ' + name or group:<30} {text}",
              flush=True)

    def judge(self, row, found, *allowed):
        for what in ("lost", "early", "doubled"):
            if found[what] and what not in allowed:
                self.wrong.append(f"{row}: {found[what]} {what}")

    @staticmethod
    def cpu(found):
        count = max(found["executed"], 1)
        return (f"{found['server'] / count * 1e6:.0f}+"
                f"{found['cpu'] / count * 1e6:.0f}")

    def adds(self, memory):
        level = "memory" if memory else "fsynced"
        for batch, threads in ((1, 1), (1, 16), (16, 1), (512, 1)):
            if batch > 1 and not self.make.batches:
                continue
            with self.make(memory=memory) as server:
                found = measure(server, "add", 1 << 20, self.seconds, batch,
                                threads)
            rate = found["acknowledged"] / found["seconds"]
            name = f"batch {batch}" if threads == 1 else f"{threads} threads"
            self.put(f"adds/s, {level}, {name}", "", f"{rate:.0f}",
                     memory and batch * threads > 1)

    def life(self):
        with self.make() as server:
            found = measure(server, "life", self.seconds)
        self.judge("life", found)
        self.put("whole lives/s", "",
                 f"{found['executed'] / found['seconds']:.0f}")
        self.put("whole lives/s", CPU, self.cpu(found))

    def late(self, rate):
        with self.make() as server:
            found = measure(server, "late", rate, self.seconds + 1)
        row = f"late at {rate}/s, p50/p99 ms"
        self.judge(f"late at {rate}/s", found)
        self.put(row, "", f"{found['p50']}/{found['p99']}")
        self.put(row, "most, ms", str(found["max"]), detail=True)
        self.put(row, "added/s",
                 f"{found['acknowledged'] / found['seconds']:.0f}")
        self.put(row, CPU, self.cpu(found))
        self.costs["server"] = found["server"] / max(found["distinct"], 1)
        self.costs["client"] = found["cpu"] / max(found["distinct"], 1)

    def late_with_coarser_timer(self, rate):
        """Fewer and larger pumps, so it takes less CPU."""
        with self.make(tick=10) as server:
            found = measure(server, "late", rate, self.seconds + 1)
        row = f"late at {rate}/s, p50/p99 ms"
        self.judge(f"late at {rate}/s, tick of 10 ms", found)
        self.put(row, "with a tick of 10 ms",
                 f"{found['p50']}/{found['p99']}")
        self.put(row, "and CPU a task, us", self.cpu(found))

    def size(self, **settings):
        with self.make(**settings) as server:
            before = server.size()
            found = finish_client(start_client(
                server, "add", FILL, 2 * self.seconds,
                512 if server.batches else 1, 1))
            size = (server.size() - before) / found["acknowledged"]
        self.costs["bytes"] = size
        self.put("bytes a task", "", f"{size:.0f}")
        self.put("bytes a task", "pending", str(found["acknowledged"]),
                 detail=True)

    def catch_up(self):
        with self.make() as server:
            found = finish_client(start_client(
                server, "catchup", 50000, self.seconds))
        self.judge("catch-up", found)
        self.put("catch-up, tasks/s", "",
                 f"{found['executed'] / found['seconds']:.0f}")
        self.put("catch-up, tasks/s", "overdue", str(found["executed"]),
                 detail=True)

    def kill_server(self):
        with self.make() as server:
            process = start_client(server, "crash")
            try:
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
        row = f"{what} killed: added"
        self.judge(f"{what} killed", found, *allowed)
        self.put(row, "", str(found["acknowledged"]))
        self.put(row, "lost", str(found["lost"]))
        self.put(row, "executed twice", str(found["doubled"]))

    def kill_worker(self, **settings):
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
                time.sleep(2)
                worker.kill()
                worker = Worker(server, where, path)
            found = finish_client(feed)
            times = wait_quiet(worker, server.patience)
        finally:
            worker.kill()
            if feed is not None:
                feed.kill()
        lost = found["acknowledged"] - len(times)
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


def measure_all(make, seconds):
    print(make.name, flush=True)
    column = Column(make, seconds)
    column.adds(memory=True)
    column.adds(memory=False)
    column.life()
    for rate in (1000, 5000):
        column.late(rate)
        if make is Redis:
            column.late_with_coarser_timer(rate)
    # A bucket for 100 tasks: man hwt_durable (7).
    column.size(memory=True, **({"slots": max(
        8, 1024 >> max(Redis.shards, 1).bit_length() - 1)}
                                if make is Redis else {}))
    column.catch_up()
    column.kill_server()
    column.kill_worker(**({"lease": 5} if make in (Redis, Zset) else {}))
    return column


def machine():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        models = [line.split(":")[1].strip() for line in file
                  if line.startswith("model name")]
    return (f"{os.cpu_count()} cores, {models[0] if models else 'unknown'}, "
            f"Linux {os.uname().release}; load "
            f"{os.getloadavg()[0]:.1f} before")


def print_table(columns):
    """At most 76 columns wide, with the rows in the order of whoever has them
    first."""
    rows = []
    for column in columns.values():
        rows.extend(row for row in column.rows if row not in rows)
    # What belongs to a row stands below it.
    groups = [group for group, _ in rows]
    rows.sort(key=lambda row: groups.index(row[0]))
    widths = [1 + max(len(text) for text in
                      [column.make.title, *column.rows.values()])
              for column in columns.values()]

    def line(label, texts):
        print(f"{label:<29}" + "".join(
            f"{text:>{width}}" for text, width in zip(texts, widths)))
    line("\n", (column.make.title for column in columns.values()))
    for group, name in rows:
        line(f"    {name}" if name else f"  {group}",
             (column.rows.get((group, name), "-")
              for column in columns.values()))


def print_sheet(costs):
    """What a billion tasks a day take."""
    rate = 1e9 / 86400
    print(f"\nA BILLION A DAY, calculated from the unit costs above at 5000/s, "
          f"not\nmeasured: {rate:.0f} tasks a second, and three times that at "
          f"the peak.\n")
    print(f"    {'':<32}{'mean':>12}{'peak':>12}")
    for name, cost in (("cores of Redis", costs["server"]),
                       ("cores of clients", costs["client"])):
        print(f"    {name:<32}{rate * cost:>12.1f}{3 * rate * cost:>12.1f}")
    # One of its threads executes commands; half of it is to be left.
    nodes = -(-3 * rate * costs["server"] // 0.5)
    print(f"    {'masters, half busy at the peak':<32}{'':>12}{nodes:>12.0f}")
    for name, seconds in (("half an hour", 1800), ("a day", 86400)):
        size = f"{rate * seconds * costs['bytes'] / 1e9:.1f}"
        print(f"    {'memory, ' + name + ' ahead':<32}{size:>9} GB")


def measure_neighbour(seconds):
    """neighbour.c says what it does; how late, in ms."""
    print(machine())
    with Redis() as server:
        done = subprocess.run(
            [os.path.join(BUILD, "neighbour"),
             f"127.0.0.1:{server.engine.port}", "600000",
             str(seconds)],
            stdout=subprocess.PIPE, text=True, check=False,
            timeout=seconds + 300,
            preexec_fn=die_with_parent)
    if done.returncode != 0:
        return 1
    found = json.loads(done.stdout)
    for name in ("before", "after"):
        late = found[name]
        print(f"{name:<8}p50 {late['p50']}, p99 {late['p99']}, "
              f"most {late['max']} ms")
    print(f"{found['noisy']} of the others executed; load "
          f"{os.getloadavg()[0]:.1f}")
    return 0


def measure_with_workers(rate, workers, seconds):
    """The phase late, with the shares of a core from SETTLE on."""
    with Redis(memory=True) as server:
        server.workers = workers
        process = start_client(server, "late", rate, SETTLE + seconds)
        try:
            time.sleep(SETTLE)
            began = time.monotonic()
            pids = (server.process.pid, process.pid)
            before = [cpu_of(pid) for pid in pids]
            time.sleep(seconds)
            after = [cpu_of(pid) for pid in pids]
            spent = time.monotonic() - began
        except BaseException:
            process.kill()
            raise
        found = finish_client(process)
    found["shares"] = [(b - a) / spent for a, b in zip(before, after)]
    return found


def measure_workers(seconds):
    print(machine())
    column = Column(Redis, seconds)

    def line(label, texts):
        print(f"    {label:<26}" + "".join(f"{text:>13}" for text in texts),
              flush=True)
    line("", (f"{workers} worker{'s' if workers > 1 else ''}"
              for workers in WORKERS))
    for rate in WORKERS_RATES:
        cells = []
        for workers in WORKERS:
            cells.append(measure_with_workers(rate, workers, seconds))
            column.judge(f"{rate}/s, {workers} workers", cells[-1])
        line(f"{rate} tasks/s: Redis, %",
             (f"{cell['shares'][0] * 100:.1f}" for cell in cells))
        line("  the process, %",
             (f"{cell['shares'][1] * 100:.1f}" for cell in cells))
        line("  late, p50/p99 ms",
             (f"{cell['p50']}/{cell['p99']}" for cell in cells))
        line("  added/s", (f"{cell['acknowledged'] / cell['seconds']:.0f}"
                           for cell in cells))
    print(f"load {os.getloadavg()[0]:.1f} after", *column.wrong, sep="\n")
    return 1 if column.wrong else 0


def threads_cpu(pid):
    """Seconds of CPU of each of its threads, by name."""
    spent = collections.Counter()
    for path in glob.glob(f"/proc/{pid}/task/*/stat"):
        with open(path, encoding="ascii") as file:
            name, rest = file.read().split("(", 1)[1].rsplit(")", 1)
        spent[name] += sum(map(int, rest.split()[11:13])) / TICK
    return spent


def http_program(*words, **options):
    return subprocess.Popen(
        words, text=True, preexec_fn=die_with_parent, **options)


def http_ask(server):
    print("", file=server.stdin, flush=True)
    return json.loads(server.stdout.readline())


def http_tasks(port, rate, count, first):
    """Tasks as lines of JSON, and where they lie."""
    payload = json.dumps({
        "url": f"http://127.0.0.1:{port}/paid", "body": json.dumps(
            {"event": "paid", "order": 123456, "amount": "12.34"})})
    file = tempfile.NamedTemporaryFile("w", prefix="hwt-http-")
    for i in range(count):
        print(json.dumps({"id": f"order-{i}", "queue": "hooks", "at":
                          round(first + i / rate, 6), "payload": payload}),
              file=file)
    file.flush()
    return file


def measure_http(rate, seconds, delay_ms):
    print(machine())
    programs = os.path.join(ROOT, "build/plain")
    settle = 3 + delay_ms // 1000
    count, most = rate * (2 * settle + seconds), 4 * rate * delay_ms // 1000
    most = max(most, rate // 5)
    with Redis() as redis:
        where = ["--redis", f"127.0.0.1:{redis.engine.port}"]
        subprocess.run([f"{programs}/hwtctl", "init", *where], check=True,
                       stdout=subprocess.DEVNULL)
        server = http_program(os.path.join(BUILD, "http"), str(delay_ms),
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        first = time.time() + 2 + count / 20000
        with http_tasks(int(server.stdout.readline()), rate, count,
                        first) as file:
            subprocess.run(
                [f"{programs}/hwtctl", "add", "--from", file.name, *where],
                check=True, stdout=subprocess.DEVNULL)
        if time.time() > first:
            print("adding took too long")
            return 1
        hwtd = http_program(f"{programs}/hwtd", *where)
        http = http_program(
            f"{programs}/hwt-http", *where, "--queue=hooks",
            "--allow=127.0.0.1", f"--concurrency={most}",
            f"--per-host={most}")
        shares = {"Redis": redis.process, "hwtd": hwtd, "server": server}
        time.sleep(first + settle - time.time())
        calls = http_ask(server)["requests"]
        began = time.monotonic()
        before = threads_cpu(http.pid)
        others = {name: cpu_of(process.pid)
                  for name, process in shares.items()}
        time.sleep(seconds)
        found = http_ask(server)
        spent = time.monotonic() - began
        cpu = threads_cpu(http.pid) - before
        for name, process in shares.items():
            others[name] = cpu_of(process.pid) - others[name]
        calls += found["requests"]
        until = time.monotonic() + LIMIT
        while calls < count and time.monotonic() < until:
            time.sleep(1)
            calls += http_ask(server)["requests"]
        http.terminate()
        status = http.wait(LIMIT)
        hwtd.terminate()
        hwtd.wait(LIMIT)
        server.stdin.close()
        server.wait(LIMIT)

    def us(part):
        return f"{part * 1e6 / max(found['requests'], 1):.0f}"
    ours = cpu["hwt-calls"]
    for name, text in (
            ("calls/s", f"{found['requests'] / spent:.0f} of {rate}"),
            ("under way at most", f"{found['most']}"),
            ("late, p50/p99/max ms",
             f"{found['p50']}/{found['p99']}/{found['max']}"),
            ("CPU a call of hwt-http, us", us(sum(cpu.values()))),
            ("  of its calls' thread", us(ours)),
            ("  of the library's", us(sum(cpu.values()) - ours)),
            *((f"CPU a call of {name}, us", us(part))
              for name, part in others.items()),
            ("load after", f"{os.getloadavg()[0]:.1f}")):
        print(f"    {name:<30}{text:>16}")
    if calls == count and status == 0:
        return 0
    print(f"{calls} calls of {count} tasks; hwt-http ended with {status}")
    return 1


def main():
    makes = {make.name: make for make in (Redis, Zset, Celery, Beanstalkd,
                                        Postgresql)}
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--only", action="append",
                        choices=[*makes, "hwt"], default=[])
    parser.add_argument("--seconds", type=int, default=2,
                        choices=range(1, 31), metavar="1..30",
                        help="of the phases that measure a rate")
    parser.add_argument("--neighbour", type=int, nargs="?", const=60,
                        metavar="SECONDS",
                        help="only this: how late a queue is beside 600,000 "
                        "tasks that are due in another after so long, or 60 s")
    parser.add_argument("--workers", type=int, nargs="?", const=10,
                        choices=range(1, 31), metavar="1..30",
                        help="only this: what many workers of a queue cost; "
                        "the CPU is counted for so many seconds, or 10")
    parser.add_argument("--http", type=int, nargs="?", const=5000,
                        choices=range(1, 20001), metavar="1..20000",
                        help="only this: so many calls of hwt-http a second, "
                        "or 5000, for --seconds")
    parser.add_argument("--http-delay", type=int, default=100,
                        choices=range(0, 5001), metavar="0..5000",
                        help="ms until such a call is answered; 100")
    parser.add_argument("--shards", type=int, default=0,
                        choices=range(1, 1025), metavar="1..1024",
                        help="of hwt_durable, instead of its default")
    options = parser.parse_args()
    Redis.shards = options.shards
    if options.http is not None:
        return measure_http(options.http, options.seconds, options.http_delay)
    if options.workers is not None:
        return measure_workers(options.workers)
    if options.neighbour is not None:
        return measure_neighbour(options.neighbour)
    only = {"hwt_durable" if name == "hwt" else name
            for name in options.only}
    print(machine())
    columns = {}
    began = time.monotonic()
    try:
        for name, make in makes.items():
            version = make.version()
            if only and name not in only:
                continue
            if version is None:
                print(f"{name} is not installed")
                continue
            print(version)
            columns[name] = measure_all(make, options.seconds)
    finally:
        Postgresql.clean()
    print_table(columns)
    if Redis.name in columns:
        print_sheet(columns[Redis.name].costs)
    print(f"\n{time.monotonic() - began:.0f} s, load "
          f"{os.getloadavg()[0]:.1f} after")
    for name, column in columns.items():
        for text in column.wrong:
            print(f"{name}: {text}")
    return 1 if Redis.name in columns and columns[Redis.name].wrong else 0


if __name__ == "__main__":
    sys.exit(main())
