#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The phases of client.c, with Celery: SERVER is the port of its Redis. Tasks
are acknowledged after they have been executed, and what a killed worker held is
delivered again after VISIBILITY. There are no batches: one of so many tasks is
so many calls.

Who would call it unfair: its users, since it is in Python, and does more: it
routes, chains, retries and stores results. It is what most of them run for
delayed tasks, at its best for short ones: a pool of threads takes two thirds of
the processor time of one of processes, which is its default; 64 tasks a thread
are fetched ahead, not 4; Redis's answers are parsed in C, by hiredis; results,
events, gossip and remote control are off. An ETA is for minutes, its manual
says, since workers hold what is not due yet: of the phases, only "add" is
longer than 3 s, and has no worker."""

import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import celery
import celery.signals
import kombu.exceptions
import redis.exceptions

VISIBILITY = 10  # seconds; more than any delay but those of the phase add
WORKERS = 4
PAYLOAD = 64
AHEAD_MAX, QUIET, LIMIT = 2048, 3, 30  # as in client.c
FAILURES = (kombu.exceptions.OperationalError, redis.exceptions.RedisError,
            OSError)

app = celery.Celery("perf", set_as_current=True)
app.conf.update(
    broker_transport_options={"visibility_timeout": VISIBILITY},
    broker_pool_limit=16, task_ignore_result=True, task_acks_late=True,
    worker_prefetch_multiplier=64, task_send_sent_event=False,
    worker_enable_remote_control=False, worker_hijack_root_logger=False)
log = None


def now_ms():
    return time.time_ns() // 1000000


@app.task(name="perf.execute")
def execute(payload):
    number, due = payload.split()[:2]
    os.write(log, f"{number} {due} {now_ms()}\n".encode())


def work(path):
    """Until it is killed, or told to end. A line in the log says that it takes
    tasks; then each execution is a line."""
    global log  # pylint: disable=global-statement
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    celery.signals.worker_ready.connect(
        lambda **_: os.write(log, b"ready\n"), weak=False)
    app.worker_main([
        "worker", "--pool=threads", f"--concurrency={WORKERS}",
        "--loglevel=CRITICAL", "--without-gossip", "--without-mingle",
        "--without-heartbeat"])


def cpu_of(pid):
    """Seconds of a process and of its children."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        words = file.read().rsplit(")", 1)[1].split()
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        children = file.read().split()
    return sum(map(int, words[11:13])) / os.sysconf("SC_CLK_TCK") + \
        sum(map(cpu_of, children))


class Load:
    """What is added, and what has become of it."""

    def __init__(self, port):
        self.port = port
        self.count = 0
        self.acked = set()
        self.refused = 0
        self.lock = threading.Lock()
        self.executions = {}
        self.executed = 0
        self.late = []
        self.early = 0
        self.folder = tempfile.TemporaryDirectory(prefix="hwt-celery-")
        self.path = os.path.join(self.folder.name, "log")
        self.worker = self.tail = None
        self.worker_cpu = 0

    def task(self, delay_ms, spread_ms):
        with self.lock:
            number = self.count
            self.count += 1
        due = now_ms() + delay_ms + number * 2654435761 % (spread_ms + 1)
        eta = None if delay_ms == 0 else datetime.datetime.fromtimestamp(
            due / 1000, datetime.timezone.utc)
        return number, f"{number} {due} ".ljust(PAYLOAD, "."), eta

    def add(self, delay_ms, spread_ms=0):
        """What gets no answer is asked again."""
        number, payload, eta = self.task(delay_ms, spread_ms)
        while True:
            try:
                execute.apply_async((payload,), eta=eta, retry=False,
                                    task_id=f"t{number}")
                break
            except FAILURES:
                self.refused += 1
                time.sleep(0.005)
        with self.lock:
            self.acked.add(number)

    def add_until(self, end, most, *times, threads=1):
        def produce():
            while time.monotonic() < end() and self.count < most:
                self.add(*times)
        producing = [threading.Thread(target=produce)
                     for _ in range(threads)]
        for thread in producing:
            thread.start()
        for thread in producing:
            thread.join()

    def pace(self, rate, seconds):
        """A batch every 10 ms, while it can keep up."""
        began, sent = time.monotonic(), 0
        while (spent := time.monotonic() - began) < seconds:
            wanted = int(rate * (spent * 100 // 1) / 100) - sent
            for _ in range(min(wanted, 64)):
                self.add(1000, 2000)
                sent += 1
            if wanted <= 0:
                time.sleep(0.001)

    def start(self):
        with open(self.path, "wb"):
            self.tail = open(self.path, encoding="ascii")
        self.worker = subprocess.Popen(
            [sys.executable, "-B", __file__, "work", self.port, self.path],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True)
        end = time.monotonic() + LIMIT
        while self.tail.readline() != "ready\n":
            if self.worker.poll() is not None or time.monotonic() > end:
                sys.exit("the worker does not start")
            time.sleep(0.005)
        self.worker_cpu = -cpu_of(self.worker.pid)

    def read(self):
        """Notes what was executed since then; whether anything was."""
        before = self.executed
        while (line := self.tail.readline()).endswith("\n"):
            number, due, begun = map(int, line.split())
            self.executed += 1
            self.executions[number] = self.executions.get(number, 0) + 1
            self.late.append(max(begun - due, 0))
            self.early += begun < due
        if line:
            self.tail.seek(self.tail.tell() - len(line))
        return self.executed > before

    def wait(self, enough):
        """Returns when the last of them was executed."""
        began = last = time.monotonic()
        while time.monotonic() < min(began + LIMIT, last + QUIET):
            if self.read():
                last = time.monotonic()
            if enough and len(self.executions) >= len(self.acked):
                break
            time.sleep(0.005)
        return last

    def stop(self):
        if self.worker is None:
            return
        self.worker_cpu += cpu_of(self.worker.pid)
        os.killpg(self.worker.pid, signal.SIGKILL)
        self.worker.wait()

    def late_at(self, share):
        late = sorted(self.late)
        return late[min(int(share * len(late)), len(late) - 1)] if late else 0

    def print(self, seconds, cpu):
        times = self.executions
        print(json.dumps({
            "acknowledged": len(self.acked), "seconds": seconds,
            "cpu": cpu + self.worker_cpu, "executed": self.executed,
            "distinct": len(times), "lost": len(self.acked - times.keys()),
            "doubled": sum(count > 1 for count in times.values()),
            "unasked": len(times.keys() - self.acked), "early": self.early,
            "unanswered": self.refused, "p50": self.late_at(.5),
            "p99": self.late_at(.99), "max": self.late_at(1)}))


def life(load, seconds):
    load.start()
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        load.read()
        if load.count - load.executed > AHEAD_MAX:
            time.sleep(0.0002)
            continue
        for _ in range(64):
            load.add(0)
    return load.wait(True) - began


def late(load, rate, seconds):
    load.start()
    load.pace(rate, seconds)
    load.wait(True)
    return seconds


def catch_up(load, count, seconds):
    end = time.monotonic() + seconds
    load.add_until(lambda: end, count, 1000)
    time.sleep(1.1)
    load.start()
    began = time.monotonic()
    return load.wait(True) - began


def crash(load):
    ends = [float("inf")]
    producing = threading.Thread(target=load.add_until, args=(
        lambda: ends[0], float("inf"), 1000))
    producing.start()
    sys.stdin.read()
    ends[0] = 0
    producing.join()
    time.sleep(1.1)
    load.start()
    began = time.monotonic()
    return load.wait(False) - began


def add(load, count, seconds, _, threads):
    began = time.monotonic()
    load.add_until(lambda: began + seconds, count, 3600000, 3600000,
                   threads=threads)
    return time.monotonic() - began


def feed(load, rate, seconds):
    load.pace(rate, seconds)
    return seconds


def main():
    name, port, *given = sys.argv[1:]
    app.conf.broker_url = f"redis://127.0.0.1:{port}/0"
    if name == "work":
        work(given[0])
        return
    load = Load(port)
    cpu = time.process_time()
    seconds = {"life": life, "late": late, "catchup": catch_up,
               "crash": crash, "add": add, "feed": feed}[name](
                   load, *map(int, given))
    cpu = time.process_time() - cpu
    load.stop()
    load.print(seconds, cpu)


if __name__ == "__main__":
    main()
