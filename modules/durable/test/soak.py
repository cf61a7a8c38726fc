#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""soak.py [SECONDS]: 5,000 tasks a second for ten minutes, while everything is
killed and started again every few seconds, and the engine rewrites its file.

    soak.py [SECONDS] [--rate N] [--seed N] [--pause S]

It is kills.py, longer: what has ended is judged and forgotten meanwhile, and
records are removed after a short retention. Prints lateness, memory and lag
every 10 seconds, and the account. Where the machine does not carry the rate, so
that tasks wait for workers for more than some seconds, the producer rests until
they have caught up, and goes on with three quarters of it. In the end memory
has to be back at its base: no key is left but those of dead letters and of the
shards, invariant 10.
Run by make soak-durable, SOAK=SECONDS."""

import argparse
import os
import sys
import time

from kills import SHARDS, SPACE, Load, Redis, now_ms
from checker import scan

VISIBILITY, RETENTION = 10, 20  # seconds
FORGET_MS = 45000  # after its last line, nothing more comes of an ended task
MB = 1 << 20


class Soak(Load):
    def __init__(self, options):
        super().__init__(options, retention=RETENTION, visibility=VISIBILITY,
                         auto_aof_rewrite_percentage=100,
                         auto_aof_rewrite_min_size="128mb")
        self.worst = {"lag": 0, "engine": 0, "hwtd": 0, "worker": 0}
        self.first = {}
        self.next_hold = 0

    def memory(self):
        """used_memory of the engine, in bytes."""
        with self.engine.client() as client:
            text = client("INFO", "memory").decode()
        return int(text.split("used_memory:")[1].split()[0])

    def look_closer(self):
        """A line, and the worst of all lines."""
        stats = self.stats()
        sizes = {"hwtd": max(part.rss() for part in self.parts[:2]),
                 "worker": max(part.rss() for part in self.parts[2:5]),
                 "engine": self.memory() // 1024}
        lag = stats.get("lag_ms", 0)
        for name, value in (*sizes.items(), ("lag", lag)):
            self.worst[name] = max(self.worst[name], value)
            self.first.setdefault(name, value)
        account = self.account
        print(f"{self.elapsed():6.0f} s  acknowledged "
              f"{account.counts['acked']}, pending {stats.get('pending')}, "
              f"delivered {stats.get('delivered')}, lag {lag} ms, kB: " +
              ", ".join(f"{name} {value}" for name, value in sizes.items()) +
              f", in the account {len(account.tasks)}, "
              f"wrong {len(self.wrong)}", flush=True)

    def soak(self):
        next_look = 10
        next_kill = self.options.pause
        turn = next_settle = 0
        while self.elapsed() < self.options.seconds:
            time.sleep(0.5)
            self.account.read()
            # While the engine is away, nothing that is over comes again.
            if self.elapsed() > turn + 5:
                next_settle = self.elapsed() + FORGET_MS / 1000
            turn = self.elapsed()
            if turn >= next_settle:
                self.account.settle(now_ms() - FORGET_MS)
            if self.elapsed() >= next_look:
                next_look += 10
                self.look_closer()
            self.hold_back()
            if self.elapsed() >= next_kill:
                self.kill_one(2)
                next_kill = self.elapsed() + self.options.pause * (
                    0.5 + self.rng.random())
        if self.resting:
            self.go_on()

    def hold_back(self):
        """A task that comes again takes its turn behind all others: if that
        were later than FORGET_MS, it would not be known any more."""
        if self.elapsed() < self.next_hold:
            return
        self.next_hold = self.elapsed() + 1
        waiting = self.stats().get("delivered", 0)
        producer = self.parts[5]
        if not self.resting and waiting > 4 * self.options.rate and \
                producer.process.poll() is None:
            self.killed.append((now_ms(), producer.name, producer.kill()))
            self.resting = True
        elif self.resting and waiting < self.options.rate / 2:
            self.options.rate = self.options.rate * 3 // 4
            print(f"{self.elapsed():6.0f} s  too much for this machine: "
                  f"{self.options.rate} a second from now on", flush=True)
            self.go_on()

    def go_on(self):
        self.resting = False
        self.parts[5].start()

    def settle_space(self):
        """Until the retention of all is over, and the janitor has been
        there."""
        end = time.monotonic() + 120
        while time.monotonic() < end:
            with self.engine.client() as client:
                left = sum(len(scan(client, b"{%s:%d}:r:*" % (
                    SPACE.encode(), shard))) - client(
                        "ZCARD", "{%s:%d}:dead" % (SPACE, shard))
                           for shard in range(SHARDS))
            if left == 0:
                return
            time.sleep(1)
        self.complain(f"10 {left} records outlive their retention")

    def check_dead(self, records):
        """Only dead letters are left, and they are those that should be."""
        account = self.account
        for name, record in records.items():
            if record.state != "failed":
                self.complain(f"10 {name}: {record.state}, and still there")
            elif name not in account.dead and \
                    record.attempts < record.max_attempts:
                self.complain(f"1 {name}: failed, and why?")
        for name in account.dead - records.keys():
            self.complain(f"1 {name}: it failed, and is no dead letter")

    def check_counters(self):
        metas = self.read_metas().values()
        total = {name: sum(meta[name] for meta in metas)
                 for name in next(iter(metas))}
        counts = self.account.counts
        print(f"accepted {total['added']} = succeeded {total['succeeded']} + "
              f"cancelled {total['cancelled']} + dead {total['dead']}")
        self.within(total["added"], counts["acked"], counts["unknown"],
                    "added")
        self.within(total["cancelled"], counts["cancelled"],
                    counts["undone"] + counts["unknown"], "cancelled")
        # An attempt of which no worker tells: it was killed before.
        self.within(total["dead"], len(self.account.dead),
                    len(self.account.maybe_dead) + counts["open"], "dead")
        self.within(total["succeeded"],
                    counts["done"] - len(self.account.maybe_dead),
                    len(self.account.maybe_dead), "succeeded")

    def within(self, value, low, more, name):
        if not low <= value <= low + more:
            self.complain(f"8 {name} is {value}, not {low} to {low + more}")

    def report_memory(self, base):
        now = self.memory()
        print(f"memory of the engine: {base // 1024} kB before, at most "
              f"{self.worst['engine']}, now {now // 1024}, with "
              f"{len(self.account.dead)} dead letters")
        print(f"resident, kB: hwtd {self.first['hwtd']} at first, "
              f"{self.worst['hwtd']} at most; worker {self.first['worker']}, "
              f"{self.worst['worker']}; lag at most {self.worst['lag']} ms")
        allowed = base + 16 * MB + 1024 * len(self.account.dead)
        if now > allowed:
            self.complain(f"10 the engine has {now} bytes, not below "
                          f"{allowed}")
        for name in ("hwtd", "worker"):
            if self.worst[name] > self.first[name] + 64 * 1024:
                self.complain(f"10 {name} grew from {self.first[name]} to "
                              f"{self.worst[name]} kB")


def run(options):
    load = Soak(options)
    try:
        load.start()
        base = load.memory()
        load.soak()
        load.drain()
        load.settle_space()
        load.look_closer()
        load.end_parts()
        load.account.read()
        # What a rewrite of the file has kept is released by a start.
        Redis(load.engine).kill()
        load.engine.start()
        records = load.check()
        load.account.judge_rest(records)
        load.check_dead(records)
        load.check_counters()
        load.report()
        print(f"{load.account.counts['acked'] / options.seconds:.0f} were "
              "added a second")
        load.report_memory(base)
    except BaseException as error:
        load.complain(repr(error))
        raise
    finally:
        good = load.verdict()
        load.close()
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("seconds", type=float, nargs="?", default=600)
    parser.add_argument("--rate", type=int, default=5000)
    parser.add_argument("--pause", type=float, default=8,
                        help="seconds between two kills")
    parser.add_argument("--seed", type=int,
                        default=int.from_bytes(os.urandom(4), "big"))
    good = run(parser.parse_args())
    print("all adds up" if good else "FAILED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
