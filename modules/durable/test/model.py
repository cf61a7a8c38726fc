#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A random model: random calls of the scripts, with random bad luck, beside a
plain model of what they promise. After each step all that the engine keeps is
compared with the model, and all invariants are checked.

    model.py [--seeds A-B] [--steps N] [--seconds S] [--quiet]

Bad luck is a kill -9 of the engine, between calls or in the middle of one; its
append-only file cut at any byte, after which the engine must be where it was
at the last whole script; a clock that jumps or falls; queues deleted, scripts
forgotten, pauses; a clock that leaps, for a moment or for good, while callers
know what time it is or do not. A seed is a run of N steps; with --seconds, as
many new seeds as there is time for. What fails says its seed, its step and the
last calls.
The last line counts the seeds: tally PASSED FAILED SKIPPED
"""

import argparse
import copy
import os
import random
import signal
import sys
import time
import traceback

from checker import STATES, Checker
from engine import Engine, Error, Scripts, Space

TICK, SLOTS, RETENTION = 100, 16, 20000
START = 1700000000000
QUEUES = ["q", "r"]
IDS = [f"id{i}" for i in range(24)]
WORKERS = ["a", "b"]
GRACE = 10000
LEAP_MAX, LEAP_HOLD = 60000, 10000
HOUR = 3600000
KEPT = 600000  # for which a take is remembered behind its leases
HISTORY = 60  # steps that a cut may take back


class Broken(Exception):
    """The engine is not where the model is."""


def require(condition, *what):
    if not condition:
        raise Broken(" ".join(map(str, what)))


class Task:
    """What a record must say."""

    def __init__(self, queue, due, max_attempts, payload, expires=0,
                 retries=(0, 0, 0), priority=0):
        self.state = "pending"
        self.queue = queue
        self.due = due
        self.max_attempts = max_attempts
        self.payload = payload
        self.expires = expires
        self.retries = retries  # first, most, factor in thousandths
        self.priority = priority  # 0 normal, 1 high, 2 low
        self.attempts = 0
        self.generation = 1
        self.fence = 0
        self.doubts = [0, 0]  # fences of the last leases that ended
        self.said = False  # that it failed, and did not run out of attempts
        self.until = 0  # end of a lease, or of the retention
        self.has_entry = False

    def is_like(self, record):
        return (self.state, self.queue, self.due, self.max_attempts,
                self.payload, self.attempts, self.generation,
                self.fence, self.doubts, self.expires,
                list(self.retries), self.priority) == (
                    record.state, record.queue.decode(), record.due,
                    record.max_attempts, record.payload.decode(),
                    record.attempts, record.generation, record.fence,
                    record.doubts, record.expires, record.retries,
                    record.priority)

    def is_expired(self, now):
        return 0 < self.expires < now

    def end(self, state, until):
        self.state, self.until, self.payload = state, until, ""


class World:
    """The model. Each do_ method has the arguments of a script, changes the
    model, and answers the reply that is expected. What is for the engine to
    choose (which of several come first, a random delay), it learns from the
    records."""

    def __init__(self):
        self.tasks = {}
        self.paused = False
        self.stopped = set()  # queues that are paused
        self.places = {}  # how many may run of a queue
        self.resumed = 0
        self.version = 1
        self.format = 2
        self.real = 0  # the engine's clock; it forgets takes by this one
        self.base = 0  # what counts from now on counts from this
        self.in_doubt = False  # real has leapt; now stands still
        self.doubted = self.looked = 0  # since when; when that was seen last
        self.takes = {}  # worker: token, end, what it got
        self.fence = 0  # the last one that was given
        self.given = []  # (id, fence) of each attempt
        self.begun = self.given_back = self.dropped = self.added = 0
        self.ended = {"succeeded": 0, "cancelled": 0}

    def state_of(self, name):
        return self.tasks[name].state if name in self.tasks else "none"

    def in_state(self, *states):
        return [name for name, task in self.tasks.items()
                if task.state in states]

    def do_add(self, now, records, tasks):
        results = []
        for (name, queue, due, attempts, payload, replace,
             *options) in tasks:
            there = self.tasks.get(name)
            if there and (not replace or there.state not in (
                    "succeeded", "failed", "cancelled")):
                results.append(STATES.index(there.state))
                continue
            results.append(0)
            self.added += 1
            self.tasks[name] = Task(queue, due, attempts, payload, *options)
            if options != [0, (0, 0, 0), 0]:
                self.format = max(self.format, 4 if options[2] else 3)
            if there:
                self.tasks[name].generation = there.generation + 1
                self.dropped += there.state == "failed"
        return results

    def do_cancel(self, now, records, name):
        state = self.state_of(name)
        if state in ("pending", "delivered"):
            self.tasks[name].end("cancelled", self.real + RETENTION)
            self.ended["cancelled"] += 1
            return 0
        return {"none": -2, "running": -115, "cancelled": 0}.get(state, -114)

    def do_reschedule(self, now, records, name, due):
        state = self.state_of(name)
        if state in ("pending", "delivered"):
            if 0 < self.tasks[name].expires < due:
                return -22
            self.renew(name, due)
            return 0
        return {"none": -2, "running": -115}.get(state, -114)

    def renew(self, name, due):
        task = self.tasks[name]
        task.state, task.due, task.attempts = "pending", due, 0
        task.doubts = [0, 0]
        task.generation += 1

    def weigh_leap(self, now):
        """Whether it has lasted. The time by which the pump goes on."""
        if not self.in_doubt:
            self.doubted = 0
        elif not self.doubted or self.real < self.looked or \
                self.real - self.looked > LEAP_MAX:
            self.doubted = self.real
        elif self.real - self.doubted >= LEAP_HOLD:
            self.doubted, self.in_doubt = 0, False
            for name in self.in_state("running"):
                self.tasks[name].until += self.base - now
            now = self.resumed = self.base
        self.looked = self.real
        return now

    def do_pump(self, now, records, limit, version):
        if version not in ("", self.version):
            return [-1, 0, self.version]
        if self.in_doubt or self.doubted:
            now = self.weigh_leap(now)
        due = [name for name in self.in_state("pending")
               if self.tasks[name].due <= now]
        moved = [name for name in due
                 if records[name].state == "delivered"]
        require(len(moved) == min(limit, len(due)),
                "moved", moved, "of", due, "limit", limit)
        for name in moved:
            self.tasks[name].state = "delivered"
            self.tasks[name].has_entry = True
        more = len(due) >= limit
        left = [self.tasks[name].due for name in self.in_state("pending")]
        ahead = max(now - self.real, 0)
        wait = 0 if more else 1000 if self.in_doubt else min(
            [1000] + [each - now + ahead for each in left])
        queues = {self.tasks[name].queue.encode() for name in moved}
        return [len(moved), wait, None, None, now, int(more), ahead,
                self.real - now if self.in_doubt else 0, sorted(queues),
                0]

    def do_take(self, now, records, queue, worker, token, received, limit,
                visibility):
        last = self.takes.get(worker)
        if not last or last[1] < self.real:
            last = (0, 0, [])
        if token < last[0]:
            return []
        lost = received < last[0]
        if token == last[0] or lost:
            reply = self.take_again(
                now, worker, token, lost and token > last[0], last[2],
                visibility)
            if reply or token == last[0]:
                return reply
        limit = min(limit, self.room(queue))
        if queue in self.stopped or limit == 0:
            return []
        waiting = [name for name in self.in_state("delivered")
                   if self.tasks[name].queue == queue
                   and self.tasks[name].has_entry]
        for name in waiting[:]:
            # Of those that have expired, some may not have been looked at.
            if self.tasks[name].is_expired(now) and \
                    records[name].state == "failed":
                waiting.remove(name)
                self.expire(name)
        got = [name for name in waiting if records[name].state == "running"]
        require(not any(self.tasks[name].is_expired(now) for name in got) and
                (len(got) == limit or got == waiting),
                "taken", got, "of", waiting, "limit", limit)
        ranks = {name: (1, 0, 2)[self.tasks[name].priority]
                 for name in waiting}
        require(max((ranks[name] for name in got), default=0) <=
                min((ranks[name] for name in waiting if name not in got),
                    default=2),
                "taken", got, "before those of higher priority", waiting)
        for name in got:
            task = self.tasks[name]
            task.state, task.until = "running", now + visibility
            task.attempts += 1
            task.fence = records[name].fence
            require(task.due <= now, "early:", name, task.due, now)
        fences = [self.tasks[name].fence for name in got]
        require(min(fences, default=self.fence + 1) > self.fence and
                len(set(fences)) == len(fences), "fences", fences,
                "after", self.fence)
        self.fence = max(fences, default=self.fence)
        self.begun += len(got)
        if got:
            self.remember(worker, token, visibility, list(zip(got, fences)))
            self.given.extend(zip(got, fences))
        return [self.reply(name) for name in got]

    def room(self, queue):
        if queue not in self.places:
            return 10 ** 9
        return max(0, self.places[queue] - sum(
            self.tasks[name].queue == queue
            for name in self.in_state("running")))

    def expire(self, name):
        self.tasks[name].state, self.tasks[name].said = "failed", True

    def remember(self, worker, token, visibility, got):
        self.takes[worker] = (token, self.real + visibility + KEPT, got)

    def take_again(self, now, worker, token, lost, got, visibility):
        names = []
        for name, fence in got:
            if self.is_running(name, fence):
                if lost and self.tasks[name].is_expired(now):
                    self.tasks[name].attempts -= 1
                    self.given_back += 1
                    self.expire(name)
                    continue
                self.tasks[name].until = now + visibility
                names.append(name)
            elif lost:
                self.refund(now, name, fence)
        if names:
            self.remember(worker, token, visibility, [
                (name, self.tasks[name].fence) for name in names])
        return [self.reply(name) for name in names]

    def refund(self, now, name, fence):
        """Whether an attempt that has ended does not count."""
        task = self.tasks.get(name)
        if not task or fence not in task.doubts or \
                task.state not in ("pending", "delivered", "running",
                                   "failed"):
            return False
        task.doubts = [each for each in task.doubts if each != fence] + [0]
        task.attempts -= 1
        self.given_back += 1
        if task.state == "failed" and not task.said:
            task.state, task.due = "pending", now
        return True

    def reply(self, name):
        task = self.tasks[name]
        return [name.encode(), task.generation, task.attempts, task.due,
                task.max_attempts, task.payload.encode(), task.fence]

    def is_running(self, name, fence):
        task = self.tasks.get(name)
        return task and (task.state, task.fence) == ("running", fence)

    def do_finish(self, now, records, finishes):
        ended = {self.tasks[name].queue for name, fence, *_ in finishes
                 if self.is_running(name, fence)}
        results = [self.finish(now, records, *each) for each in finishes]
        entries = {self.tasks[name].queue
                   for name in self.in_state("delivered")
                   if self.tasks[name].has_entry}
        return results + sorted(
            queue.encode() for queue in ended & entries & set(self.places))

    def finish(self, now, records, name, fence, outcome, delay):
        task = self.tasks.get(name)
        if not self.is_running(name, fence):
            if outcome == "release":
                return 0 if self.refund(now, name, fence) else 1
            return 0 if task and task.fence == fence and (
                task.state, outcome) in (
                    ("succeeded", "done"), ("failed", "retry"),
                    ("failed", "fail")) else 1
        if outcome == "done":
            task.end("succeeded", self.real + RETENTION)
            self.ended["succeeded"] += 1
        elif outcome == "fail":
            task.state, task.said = "failed", True
        elif outcome == "release":
            task.state = "pending"
            task.attempts -= 1
            self.given_back += 1
        elif task.attempts == task.max_attempts:
            task.state, task.said = "failed", False
        elif delay == "":
            task.state = "pending"
            self.back_off(self.base, task, records[name])
        else:
            task.state, task.due = "pending", self.base + delay
        return 0

    @staticmethod
    def back_off(now, task, record):
        """By any time up to what the task says."""
        first, most, factor = task.retries if task.retries[0] else (
            1000, 600000, 2000)
        longest = min(most, first * (factor / 1000) ** (task.attempts - 1))
        require(now <= record.due <= now + longest, "back-off",
                record.due - now, "after", task.attempts)
        task.due = record.due

    def do_extend(self, now, records, visibility, extends):
        results = []
        for name, fence in extends:
            if self.is_running(name, fence):
                self.tasks[name].until = now + visibility
                results.append(0)
            else:
                results.append(1)
        return results

    def do_janitor(self, now, records):
        over = [] if self.resumed and now - self.resumed < GRACE and \
            self.resumed <= self.base else [
            name for name in self.in_state("running")
            if self.tasks[name].until <= now]
        for name in over:
            self.end_lease(self.base, self.tasks[name], records[name])
        lost = [name for name in self.in_state("delivered")
                if not self.tasks[name].has_entry]
        for name in lost:
            self.tasks[name].has_entry = True
        return [len(over), len(lost), 0, 0]

    def forget(self, real):
        """The engine removes what has ended by its own clock."""
        for name in self.in_state("succeeded", "cancelled"):
            if self.tasks[name].until < real:
                del self.tasks[name]

    @staticmethod
    def end_lease(now, task, record):
        task.doubts = [task.fence, task.doubts[0]]
        if task.attempts == task.max_attempts:
            task.state, task.said = "failed", False
            return
        task.state = "pending"
        World.back_off(now, task, record)

    def do_dead(self, now, records, verb, name):
        if self.state_of(name) != "failed":
            return -2
        if verb == "drop":
            del self.tasks[name]
            self.dropped += 1
        else:
            self.renew(name, now)
            if self.tasks[name].is_expired(now):
                self.tasks[name].expires = 0
        return 0

    def do_pause(self, now, records):
        self.paused = True
        return 0

    def do_resume(self, now, records):
        if self.paused:
            self.paused, self.resumed = False, self.base
        return 0

    def do_queue(self, now, records, verb, queue, places=0, rate=0):
        if verb == "limit":
            if places + rate > 0:
                self.format = 4
            self.places.pop(queue, None)
            if places:
                self.places[queue] = places
        elif verb == "pause":
            self.stopped.add(queue)
        else:
            self.stopped.discard(queue)
        return 0


class Seen:
    """What the engine keeps, by the checker's reading of it."""

    def __init__(self, checker):
        self.broken = checker()
        shard = checker.shards[0]
        self.meta = shard.meta
        self.records = {name.decode(): record for name, record
                        in checker.records.items()}
        self.scores = {name.decode(): int(score)
                       for name, score in shard.members("fly").items()}
        self.stopped = {name.decode() for name in shard.members("paused")}
        self.places = {name.decode(): int(limits[limits.index(b"places") + 1])
                       for name, limits in shard.keys["l"].items()}
        self.entries = {entry.decode()
                        for entries in shard.keys["q"].values()
                        for entry in entries}

    def compare(self, world):
        """What differs, or None."""
        if set(self.records) != set(world.tasks):
            return f"ids {set(self.records) ^ set(world.tasks)}"
        for name, task in world.tasks.items():
            record = self.records[name]
            if not task.is_like(record):
                return f"{name}: {vars(record)}, model: {vars(task)}"
            if task.state == "running" and \
                    self.scores[name] != task.until:
                return f"{name}: until {self.scores[name]}, {task.until}"
            if task.state == "delivered" and \
                    task.has_entry != (name in self.entries):
                return f"{name}: in its queue or not"
        if self.stopped != world.stopped:
            return f"paused {self.stopped}, model: {world.stopped}"
        if self.places != world.places:
            return f"places {self.places}, model: {world.places}"
        expected = {
            "doubted": world.doubted,
            "paused": int(world.paused), "resumed": world.resumed,
            "fence": world.fence, "format": world.format,
            "begun": world.begun, "given_back": world.given_back,
            "dropped": world.dropped,
            "added": world.added, **world.ended}
        for name, value in expected.items():
            if self.meta[name] != value:
                return f"{name} is {self.meta[name]}, model: {value}"
        return None


class Run:
    """One seed."""

    def __init__(self, seed, change):
        self.random = random.Random(seed)
        self.engine = Engine(clock=True, appendonly="yes",
                             appendfsync="always", start=False)
        self.change = change
        self.log = []
        self.token = 0
        self.kills = self.cuts = 0
        self.time = START
        self.trusted_time = 2 ** 53  # of the next call
        self.crew = 0  # workers of before are not heard of again

    def begin(self):
        self.engine.clock.stop_at(self.time)
        self.engine.start()
        self.client = self.engine.client()
        self.scripts = Scripts(self.client, self.change)
        self.space = Space(self.client, "m", 1, SLOTS, TICK, 0, RETENTION,
                           scripts=self.scripts)
        self.checker = Checker(self.client, "m")
        self.world = World()
        self.lost = False  # some entries, until the janitor comes
        self.seen = Seen(self.checker)
        self.history = []
        self.remember()

    def file_size(self):
        return os.path.getsize(self.engine.append_only_files()[-1])

    def remember(self, size=None):
        """size: before look, at which keys expire, which the file is told."""
        size = size or self.file_size()
        self.history.append((size, copy.deepcopy(self.world), self.lost))
        del self.history[:-HISTORY]

    @property
    def base(self):
        return max(self.time, self.seen.meta["clock"])

    @property
    def in_doubt(self):
        return self.time - max(self.seen.meta["clock"],
                               self.trusted_time) > LEAP_MAX

    @property
    def now(self):
        return self.seen.meta["clock"] if self.in_doubt else self.base

    # What may happen, with its weight.

    def steps(self, count):
        events = [
            (20, self.add), (6, self.cancel), (5, self.reschedule),
            (20, self.pump), (20, self.take), (22, self.finish),
            (5, self.extend), (10, self.janitor), (5, self.dead),
            (2, self.pause), (3, self.pause_queue), (3, self.limit),
            (14, self.move_clock), (2, self.lose_queue),
            (2, self.forget_scripts), (2, self.kill), (1, self.cut)]
        weights = [weight for weight, _ in events]
        for number in range(count):
            event = self.random.choices(events, weights)[0][1]
            self.choose_witness()
            self.log.append((number, event.__name__))
            event()

    def choose_witness(self):
        """For a while, nobody knows what time it is; then somebody does."""
        if self.random.random() < 0.1:
            self.trusted_time = self.random.choice([0, 0, 0, 2 ** 53])
        elif self.random.random() < 0.02:
            self.trusted_time = self.time - LEAP_MAX - self.random.randrange(2)

    def drain(self):
        """At last, everything ends."""
        self.trusted_time = 2 ** 53
        self.call("resume", ())
        for queue in QUEUES:
            self.call("queue", ("resume", queue), ("resume", queue))
            limit = ("limit", queue, 0, 0)
            self.call("queue", limit, limit)
        for _ in range(60):
            if not self.world.in_state("pending", "delivered", "running"):
                break
            self.log.append(("drain",))
            self.time = self.now + 86400000
            self.engine.clock.stop_at(self.time)
            self.call("janitor", (1000, 1, 8000), ())
            self.call("pump", (1000, ""), (1000, ""))
            for queue in QUEUES:
                self.token += 1
                arguments = (queue, "z", self.token, self.token - 1, 100,
                             5000)
                self.call("take", arguments, arguments)
            self.finish_all()
        self.time = self.now + RETENTION + 1
        self.engine.clock.stop_at(self.time)
        self.call("janitor", (1000, 1, 8000), ())
        broken = self.checker(drained=True)
        require(not broken, broken)
        self.world.forget(self.time)
        require(not self.world.in_state(
            "pending", "delivered", "running", "succeeded", "cancelled"))

    def finish_all(self):
        items = [(name, self.world.tasks[name].fence, "done", 0)
                 for name in self.world.in_state("running")]
        self.call("finish", sum(items, ()), (items,))

    def name(self, *states):
        """An id, more often one in one of these states."""
        names = self.world.in_state(*states)
        if names and self.random.random() < 0.7:
            return self.random.choice(names)
        return self.random.choice(IDS)

    def delay(self):
        return self.random.choice([
            0, 0, 1, self.random.randrange(TICK),
            self.random.randrange(TICK * SLOTS),
            self.random.randrange(TICK * SLOTS * 3),
            self.random.randrange(86400000)])

    def due(self):
        """Mode, time, and what that is as a due time."""
        delay = self.delay()
        if self.random.random() < 0.7:
            return "in", delay, self.base + delay
        due = max(0, self.base + delay - self.random.choice([0, 0, 5000]))
        return "at", due, due

    def expires(self, mode, when, due):
        """The words of an option, and the time; most often there is none."""
        if self.random.random() < 0.8:
            return [], 0
        later = self.random.choice([0, 1, TICK, 5000, TICK * SLOTS * 3])
        if self.random.random() < 0.5:
            return [f"expires-at={due + later}"], due + later
        later += when if mode == "in" else 0
        return [f"expires-in={later}"], self.base + later

    def add(self):
        words, tasks = [], []
        for _ in range(self.random.choice([1, 1, 1, 2, 5, 9])):
            name = self.random.choice(IDS)
            queue = self.random.choice(QUEUES)
            mode, when, due = self.due()
            attempts = self.random.choice([1, 2, 3, 20])
            payload = "p" * self.random.randrange(9) + name
            replace = self.random.random() < 0.25
            option, expires = self.expires(mode, when, due)
            words += [name, queue, mode, when, attempts, payload,
                      " ".join(["replace"] * replace + option)]
            retries = self.random.choice(
                [(0, 0, 0)] * 4 + [(50, 5000, 1500), (1, 1, 1000)])
            if retries[0]:
                words[-1] = " ".join(filter(None, [
                    words[-1], "retry={0},{2},{1}".format(*retries)]))
            priority = self.random.choice([0, 0, 0, 1, 2])
            words[-1] = " ".join(filter(None, [
                words[-1], ["", "high", "low"][priority]]))
            tasks.append((name, queue, due, attempts, payload, replace,
                          expires, retries, priority))
        if self.random.random() < 0.1:
            bad = self.random.randrange(len(tasks))
            words[bad * 7 + 3] = self.random.choice(
                ["nan", "-1", "inf", "", "9" * 20])
            self.refuse("EARG", "add", words)
        else:
            self.call("add", words, (tasks,))

    def cancel(self):
        name = self.name("pending", "delivered")
        self.call("cancel", (name,), (name,))

    def reschedule(self):
        name = self.name("pending", "delivered")
        mode, when, due = self.due()
        self.call("reschedule", (name, mode, when), (name, due))

    def pump(self):
        limit = self.random.choice([1, 2, 5, 100, 1000])
        version = self.random.choice(
            ["", "", self.seen.meta["version"],
             self.seen.meta["version"] - 1])
        self.world.version = self.seen.meta["version"]
        self.call("pump", (limit, version), (limit, version))

    def take(self):
        worker = f"{self.random.choice(WORKERS)}{self.crew}"
        token = self.token
        if self.random.random() < 0.8:
            self.token += 1
            token = self.token
        elif self.random.random() < 0.3:
            token = max(1, token - self.random.randrange(5))
        token = max(1, token)
        received = self.random.choice(
            [token - 1, token - 1, 0, self.random.randrange(token)])
        arguments = (self.random.choice(QUEUES), worker, token, received,
                     self.random.choice([1, 2, 10]),
                     self.random.choice([1, 1000, 30000]))
        self.call("take", arguments, arguments)

    def attempt_of(self, name):
        """Most often that of now; or any of before, as a worker would know it
        that comes late: of this task, or of one with the same id."""
        if self.random.random() < 0.2 and self.world.given:
            return self.random.choice(self.world.given)
        task = self.world.tasks.get(name)
        fence = max(1, task.fence) if task else 1
        if self.random.random() < 0.1:
            fence = max(1, fence + self.random.choice([-1, 1]))
        return name, fence

    def finish(self):
        items = []
        for _ in range(self.random.choice([1, 1, 2, 6])):
            outcome = self.random.choice(
                ["done", "done", "retry", "retry", "fail", "release"])
            delay = 0 if outcome == "release" else self.delay()
            if outcome == "retry" and self.random.random() < 0.5:
                delay = ""
            name = self.name("running")
            items.append((*self.attempt_of(name), outcome, delay))
        self.call("finish", sum(items, ()), (items,))

    def extend(self):
        items = [self.attempt_of(self.name("running"))
                 for _ in range(self.random.choice([1, 2]))]
        visibility = self.random.choice([1, 1000, 60000])
        self.call("extend", (visibility, *sum(items, ())),
                  (visibility, items))

    def janitor(self):
        self.call("janitor",
                  (1000, self.random.randrange(2 ** 53), 8000), ())

    def dead(self):
        arguments = (self.random.choice(["drop", "replay"]),
                     self.name("failed"))
        self.call("dead", arguments, arguments)

    def pause(self):
        if self.world.paused or self.random.random() < 0.5:
            self.call("resume", ())
        else:
            self.call("pause", ())

    def pause_queue(self):
        arguments = (self.random.choice(["pause", "resume"]),
                     self.random.choice(QUEUES))
        self.call("queue", arguments, arguments)

    def limit(self):
        """Only how many run: the rest is of tests."""
        arguments = ("limit", self.random.choice(QUEUES),
                     self.random.choice([0, 1, 2, 5]), 0)
        self.call("queue", arguments, arguments)

    def move_clock(self):
        before = self.time
        self.time += self.random.choice([
            0, 1, 7, TICK - 1, TICK, TICK + 1, 1000, 5000, TICK * SLOTS,
            TICK * SLOTS * 3 + 1, -1, -5000, -86400000,
            max(0, self.base - self.time), 40000,
            LEAP_MAX, LEAP_MAX + 1, HOUR, HOUR, -HOUR, LEAP_HOLD])
        self.time = max(START, self.time)
        if self.time < before:
            # Which takes the engine has forgotten while its clock was ahead
            # depends on when it looked.
            self.crew += 1
        self.engine.clock.stop_at(self.time)
        # What is looked at is removed, if its time is over.
        self.world.forget(self.time)
        self.forget_generations()
        self.look()
        self.remember()

    def lose_queue(self):
        queue, priority = self.random.choice(QUEUES), self.random.choice(
            [0, 0, 1, 2])
        self.client("DEL", self.space.key(
            0, "q:" + queue + ["", "+", ","][priority]))
        for name in self.world.in_state("delivered"):
            task = self.world.tasks[name]
            if (task.queue, task.priority) == (queue, priority):
                self.world.tasks[name].has_entry = False
                self.lost = True
        self.remember()

    def forget_scripts(self):
        self.client("FUNCTION", "FLUSH")

    # How a script is called, and what follows.

    def words(self, name, arguments):
        words = self.space.command(name, 0, *arguments,
                                   trusted_time=self.trusted_time)
        self.log[-1:] = [(*self.log[-1], name, arguments)] \
            if self.log else []
        return words

    def call(self, name, arguments, modelled=None):
        modelled = modelled if modelled is not None else ()
        if self.world.paused and name not in ("pause", "resume"):
            self.refuse("EPAUSED", name, arguments)
            return
        if self.random.random() < 0.01:
            self.call_and_kill(name, arguments, modelled)
            return
        self.words(name, arguments)
        times = self.now, self.base, self.in_doubt
        reply = self.space(name, 0, *arguments, trusted_time=self.trusted_time)
        size = self.file_size()
        self.look()
        expected = self.apply(name, times, modelled)
        self.compare_reply(name, reply, expected)
        difference = self.seen.compare(self.world)
        require(not difference, difference)
        self.remember(size)

    def apply(self, name, times, modelled):
        act = getattr(self.world, "do_" + name)
        now, self.world.base, self.world.in_doubt = times
        self.world.real = self.time
        self.world.forget(self.time)
        try:
            expected = act(now, self.seen.records, *modelled)
        except KeyError as error:
            raise Broken(f"no record of {error}") from error
        if name == "janitor":
            self.lost = False
        self.forget_generations()
        return expected

    def forget_generations(self):
        """An id that was removed may come again."""
        for name in list(self.checker.generations.get(0, {})):
            if name.decode() not in self.world.tasks:
                del self.checker.generations[0][name]

    def compare_reply(self, name, reply, expected):
        if name == "take":
            reply, expected = sorted(reply), sorted(expected)
        if name == "finish":
            reply = sorted(reply, key=lambda each: isinstance(each, bytes)
                           and each or b"")
        if name == "pump" and len(expected) > 3:
            expected[2], expected[3] = reply[2], reply[3]
        require(reply == expected, name, "answered", reply, "expected",
                expected)

    def look(self):
        self.seen = Seen(self.checker)
        broken = [each for each in self.seen.broken
                  if not (self.lost and "delivered, in no queue" in each)]
        require(not broken, broken)

    def refuse(self, code, name, arguments):
        self.words(name, arguments)
        try:
            reply = self.space(
                name, 0, *arguments, trusted_time=self.trusted_time)
        except Error as error:
            require(error.code == code, error.text)
        else:
            raise Broken(f"{name} was not refused: {reply}")
        self.look()
        difference = self.seen.compare(self.world)
        require(not difference, difference)

    # Bad luck.

    def restart(self):
        """Of an engine that has been killed."""
        self.client.close()
        self.engine.start()
        self.client = self.space.client = self.checker.client = \
            self.engine.client()
        self.scripts.load(self.client)

    def kill(self):
        self.kills += 1
        self.engine.kill(signal.SIGKILL)
        self.restart()
        self.look()
        difference = self.seen.compare(self.world)
        require(not difference, "after a kill:", difference)

    def call_and_kill(self, name, arguments, modelled):
        """It happens whole or not at all."""
        self.kills += 1
        words = self.words(name, arguments)
        times = self.now, self.base, self.in_doubt
        self.client.send(*words)
        time.sleep(self.random.random() * 0.002)
        self.engine.kill(signal.SIGKILL)
        self.restart()
        self.look()
        if self.seen.compare(self.world) is None and not (
                name == "take" and self.world.in_state("running")):
            return
        before = copy.deepcopy(self.world)
        try:
            self.apply(name, times, modelled)
            difference = self.seen.compare(self.world)
        except Broken as error:
            difference = error
        if difference:
            self.world = before
            other = self.seen.compare(self.world)
            require(not other, "after a kill in", name, ":", difference,
                    "and", other)
        self.remember()

    def forget_between(self, after):
        """What expires is removed from the file one by one; by now the clock
        may be behind that."""
        for name in self.world.in_state("succeeded", "cancelled"):
            if name not in after.tasks and name not in self.seen.records:
                del self.world.tasks[name]

    def cut(self):
        """The engine must be where it was at the last whole script."""
        self.cuts += 1
        self.engine.kill(signal.SIGKILL)
        path = self.engine.append_only_files()[-1]
        size = os.path.getsize(path)
        at = self.random.randrange(self.history[0][0], size + 1)
        os.truncate(path, at)
        kept = [each for each in self.history if each[0] <= at]
        following = self.history[len(kept):len(kept) + 1]
        self.history = kept
        _, world, self.lost = kept[-1]
        self.world = copy.deepcopy(world)
        self.world.forget(self.time)
        self.checker.forget()
        self.restart()
        self.look()
        for _, after, _ in following:
            self.forget_between(after)
        difference = self.seen.compare(self.world)
        require(not difference, "cut at", at, "of", size, ":", difference)


def run_seed(seed, steps, change=None, quiet=False):
    """None, or what is wrong."""
    run = Run(seed, change or (lambda name, text: text))
    try:
        run.begin()
        run.steps(steps)
        run.drain()
    except Exception as error:  # whatever it is, with its seed
        lines = [f"seed {seed} failed after {len(run.log)} steps: {error}"]
        lines += [f"    {str(entry)[:300]}" for entry in run.log[-12:]]
        if not isinstance(error, Broken):
            lines.append(traceback.format_exc())
        return "\n".join(lines)
    finally:
        run.engine.close()
    if not quiet:
        print(f"seed {seed}: {steps} steps, {run.kills} kills, "
              f"{run.cuts} cuts, {run.world.added} added, "
              f"{run.world.begun} begun", flush=True)
    return None


def main(words):
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--seeds")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--quiet", action="store_true")
    options = parser.parse_args(words)
    first = random.SystemRandom().randrange(10 ** 9)
    last = first if options.seconds is None else first + 10 ** 6
    if options.seeds:
        first, _, last = options.seeds.partition("-")
        first, last = int(first), int(last or first)
    end = time.monotonic() + (options.seconds or 10 ** 9)
    passed = failed = 0
    for seed in range(first, last + 1):
        wrong = run_seed(seed, options.steps, quiet=options.quiet)
        passed, failed = passed + (not wrong), failed + bool(wrong)
        if wrong:
            print(wrong, flush=True)
        if time.monotonic() > end:
            break
    print("tally", passed, failed, 0)
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
