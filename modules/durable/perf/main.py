#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""main.py [--only NAME]... [--rounds N] [--seconds N] [--shards N] [--slots N]
[--neighbour] [--workers] [--http] [--lives] [--memory]: the same work on
hwt_durable with Redis, on BullMQ and on Celery with Redis, on two sorted sets
of Redis that one would write oneself, on keys of Redis that expire, on
beanstalkd, and on PostgreSQL with Graphile Worker and with SKIP LOCKED that one
would write oneself, each with a server of its own in a scratch folder. They
fsync before they acknowledge, but for the rows that say "1s": what these
acknowledge, Redis fsyncs within a second.

Each phase runs on all of them, one after the other, before the next phase
begins; what is short does so in each of so many rounds, every other one in the
reverse order, and the medians count: of two rounds, the means. Prints the
machine, the versions, and then three tables with a row for each; README has
some of their columns, DESIGN the others. What is not installed is left out, and
said; packages of npm are installed below build first, as peer/package-lock.json
has them. client.c says what its phases are, the top of each client what is
special of it and who would call it unfair. Run by make perf-durable,
PERF=OPTIONS; the exit status is 1 if hwt_durable has lost a task, executed one
early, or twice without a kill of its worker.

CPU is that of the server + that of all threads of the client (producer, worker
and, of hwt_durable, scheduler), a task. Bytes a task are used_memory of Redis,
the resident memory of beanstalkd, and what PostgreSQL's tables and their
indexes take on disk. Lateness counts from the due time to the begin of the
execution, p50/p99; of beanstalkd only whole seconds are asked.

The kills are SIGKILL, of the server in the middle of adds, where what gets no
answer is asked again; and of the worker, with hwt_durable's scheduler, in the
middle of executions, 500 a second; half a second later there is another. What
it held comes again after the visibility: 5 s for hwt_durable, BullMQ and the
sorted sets; 10 s for Celery, which looks for it every 100 s; 4 hours for
Graphile Worker, so that what is still held is neither lost nor executed here;
never for keys that have expired; for the others at once, when its connection
ends. In a catch-up 50,000 tasks are due before there is a worker.

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
once.

With --lives it measures only what the scripts of a life cost Redis, called by
one connection of Python with 1, 16 and 256 tasks in each: add, pump, take and
finish, all tasks through one before the next; with the file fsynced and without
it. Beside them are the same steps with the fewest commands that could do them,
without any check, as scripts; and scripts that have nothing to do. Time in a
script is the wall clock's, as in INFO commandstats.

With --memory it measures only what Redis needs for a task in each state:
200,000 in one shard, ids of 16 bytes, payloads of 64, names of queues of 6."""

import argparse
import os
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import alone  # noqa: E402 pylint: disable=C0413
import phases  # noqa: E402 pylint: disable=C0413
import steps  # noqa: E402 pylint: disable=C0413
from servers import (  # noqa: E402 pylint: disable=C0413
    Beanstalkd, Bullmq, BullmqEachSecond, Celery, Expiry, Redis,
    RedisEachSecond, Zset)
from sql import Graphile, Postgresql  # noqa: E402 pylint: disable=C0413

MAKES = {make.name: make for make in (
    Redis, Bullmq, Celery, Graphile, Postgresql, Zset, Expiry, Beanstalkd,
    RedisEachSecond, BullmqEachSecond)}
# Each column: its head in two lines, the figure, and what joins its numbers.
TABLES = (
    (("adds/s:", "1", "adds/s, batch 1", ""),
     ("1 by 16", "threads", "adds/s, 16 threads", ""),
     ("batch", "of 16", "adds/s, batch 16", ""),
     ("batch", "of 512", "adds/s, batch 512", ""),
     ("lives", "/s", "lives/s", ""),
     ("catch-", "up/s", "catch-up, tasks/s", ""),
     ("bytes", "a task", "bytes a task", "")),
    (("lives:", "CPU us", "lives, CPU us", "+"),
     ("1000/s:", "late ms", "late at 1000/s, p50 p99 ms", "/"),
     ("", "CPU us", "1000/s: CPU us", "+"),
     ("beside", "100,000",
      f"late at 1000/s beside {phases.FILL}, p50 p99 ms", "/"),
     ("5000/s:", "late ms", "late at 5000/s, p50 p99 ms", "/"),
     ("", "CPU us", "5000/s: CPU us", "+"),
     ("", "adds/s", "5000/s: added/s", "")),
    (("server", "killed", "server killed: added", ""),
     ("", "lost", "server killed: lost", ""),
     ("", "twice", "server killed: twice", ""),
     ("worker", "killed", "worker killed: added", ""),
     ("", "lost", "worker killed: lost", ""),
     ("", "twice", "worker killed: twice", ""),
     ("catch-", "up lost", "catch-up: lost", "")))


def cell(numbers, join):
    """None: it was not measured. What is 10 s late is told in seconds."""
    return "-" if numbers is None else join.join(
        f"{number / 1000:.0f}s" if join == "/" and number >= 10000
        else f"{number:.0f}" for number in numbers)


def print_tables(columns):
    """At most 76 columns wide; who has nothing to say in one is left out."""
    for table in TABLES:
        lines = [["", *(top for top, _, _, _ in table)],
                 ["", *(low for _, low, _, _ in table)]]
        for column in columns:
            found = [column.medians(name) for _, _, name, _ in table]
            if any(found):
                lines.append([column.make.title, *(
                    cell(numbers, join)
                    for numbers, (_, _, _, join) in zip(found, table))])
        widths = [max(map(len, cells)) for cells in zip(*lines)]
        space = " " * (2 if 2 + sum(widths) + 2 * len(table) <= 76 else 1)
        print()
        for first, *rest in lines:
            print(space.join([f"  {first:<{widths[0]}}", *(
                f"{text:>{width}}" for text, width
                in zip(rest, widths[1:]))]).rstrip())


def measure_all(columns, rounds):
    """What fails in one is said, and the others go on."""
    def run(phase, column):
        if column.make.brief and phase not in phases.BRIEF:
            return
        try:
            phase(column)
        except (RuntimeError, OSError, ValueError,
                subprocess.SubprocessError) as error:
            column.wrong.append(f"{phase.__name__}: {error}")
            print(f"  {column.make.title:<13} {phase.__name__} failed: {error}")
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", flush=True)
        for phase in phases.REPEATED:
            for column in columns[::-1] if number % 2 else columns:
                run(phase, column)
    print("once", flush=True)
    for phase in phases.ONCE:
        for column in columns:
            run(phase, column)


def compare(names, rounds, seconds):
    print(alone.machine())
    began = time.monotonic()
    columns, absent = [], []
    for name in names or MAKES:
        version = MAKES[name].version()
        print(f"{name}: {version or 'not installed'}")
        if version is None:
            absent.append(name)
            continue
        columns.append(phases.Column(MAKES[name], seconds))
    try:
        measure_all(columns, rounds)
    finally:
        Postgresql.clean()
    print_tables(columns)
    if absent:
        print("\nnot installed, so not measured:", ", ".join(absent))
    print(f"\n{time.monotonic() - began:.0f} s, load "
          f"{os.getloadavg()[0]:.1f} after")
    for column in columns:
        for text in column.wrong:
            print(f"{column.make.title}: {text}")
    return 1 if any(column.wrong for column in columns
                    if column.make is Redis) else 0


def number_between(low, high):
    return {"type": int, "choices": range(low, high + 1),
            "metavar": f"{low}..{high}"}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--only", action="append", choices=MAKES, default=[])
    parser.add_argument("--rounds", default=2, **number_between(1, 9))
    parser.add_argument("--seconds", default=1, **number_between(1, 30),
                        help="of the phases that measure a rate")
    parser.add_argument("--neighbour", type=int, nargs="?", const=60,
                        metavar="SECONDS",
                        help="only this: how late a queue is beside 600,000 "
                        "tasks that are due in another after so long, or 60 s")
    parser.add_argument("--workers", nargs="?", const=10,
                        **number_between(1, 30),
                        help="only this: what many workers of a queue cost; "
                        "the CPU is counted for so many seconds, or 10")
    parser.add_argument("--http", nargs="?", const=5000,
                        **number_between(1, 20000),
                        help="only this: so many calls of hwt-http a second, "
                        "or 5000, for --seconds")
    parser.add_argument("--http-delay", default=100,
                        **number_between(0, 5000),
                        help="ms until such a call is answered; 100")
    parser.add_argument("--lives", action="store_true",
                        help="only this: what the scripts of a life cost")
    parser.add_argument("--memory", action="store_true",
                        help="only this: bytes of a task in each state")
    parser.add_argument("--shards", default=0, **number_between(1, 1024),
                        help="of hwt_durable, instead of its default")
    parser.add_argument("--slots", default=0, **number_between(8, 1 << 20),
                        help="the same; a power of two")
    options = parser.parse_args()
    Redis.shards, Redis.slots = options.shards, options.slots
    if options.lives:
        return steps.measure_lives()
    if options.memory:
        return steps.measure_memory()
    if options.http is not None:
        return alone.measure_http(options.http, options.seconds,
                                  options.http_delay)
    if options.workers is not None:
        return alone.measure_workers(options.workers)
    if options.neighbour is not None:
        return alone.measure_neighbour(options.neighbour)
    return compare(options.only, options.rounds, options.seconds)


if __name__ == "__main__":
    sys.exit(main())
