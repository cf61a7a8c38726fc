#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The scripts, one by one: each in each state a task can be in, with arguments
at and beyond each limit, with clocks that stand, jump and fall, and with keys
that something else has damaged. The clock stands still but where a test moves
it; after each step all invariants are checked.

    scripts.py [PATTERN...]    the last line counts: tally PASSED FAILED SKIPPED
"""

import contextlib
import os
import re
import select
import struct
import subprocess
import sys
import threading
import time
import unittest

from checker import STATES, Checker, Record
from engine import (LIMIT, SCRIPTS, Engine, Error, Scripts, Space,
                    commands_of_scripts, held, join, library_name)

TICK, SLOTS, RETENTION = 100, 16, 3600000
START = 1700000000000  # ms; the begin of a tick
BIG = 2 ** 53
YEARS = 315360000000  # ten of them, in ms
LEASE = 30000
FENCE = START * 1000 + 1  # the first one that is given then
LOOK = [0, 0, 0, 0, 0, "", ""]  # of init: what is there?
PUT = [  # for schedule
    "put", "s", 60, "", "", "last", "q", 3, "p", 0, 0, 0, 0, 0]


class Case(unittest.TestCase):
    """A space with one shard in an engine that all tests share."""

    engine = None

    @classmethod
    def setUpClass(cls):
        if Case.engine is None:
            Case.engine = Engine(clock=True)
            Case.client = Case.engine.client()
            Case.scripts = Scripts(Case.client)

    def setUp(self):
        self.engine.clock.stop_at(START)
        self.client("FLUSHALL")
        self.client("CONFIG", "SET", "maxmemory", 0)
        self.space = self.make("test")
        self.check = Checker(self.client, "test")
        self.token = 0
        self.damaged = False

    def make(self, name, **shape):
        shape = {"shards": 1, "slots": SLOTS, "tick": TICK,
                 "retention": RETENTION, **shape}
        return Space(self.client, name, scripts=self.scripts, **shape)

    def call(self, name, *arguments, **clocks):
        """Calls a script of shard 0, and checks the invariants, but while
        something is damaged."""
        reply = self.space(name, 0, *arguments, **clocks)
        if not self.damaged:
            self.assert_whole()
        return reply

    def assert_whole(self):
        self.damaged = False
        self.assertEqual(self.check(), [])

    def refused(self, code, name, *arguments, **clocks):
        with self.assertRaises(Error) as caught:
            self.space(name, 0, *arguments, **clocks)
        self.assertEqual(caught.exception.text[:len(code)], code)
        return caught.exception.text

    def ask(self, command, rest, *words):
        """The engine, for a key of the shard."""
        return self.client(command, self.space.key(0, rest), *words)

    def move(self, ms):
        self.engine.clock.move(ms)

    def add(self, name="x", delay=0, attempts=3, queue="q", payload="pay",
            flag=""):
        return self.call(
            "add", name, queue, "in", delay, attempts, payload, flag)[0]

    def add_many(self, tasks):
        """Their arguments, 500 tasks at a time; the invariants are not
        checked."""
        tasks = list(tasks)
        for first in range(0, len(tasks), 500):
            self.space("add", 0, *sum(tasks[first:first + 500], []))

    def pump(self, limit=1000, version=""):
        return self.call("pump", limit, version)

    def deliver(self, *task, **options):
        """Adds a task, and pumps."""
        self.add(*task, **options)
        self.pump()

    def deliver_many(self, count, **options):
        """x0, x1 and so on."""
        for i in range(count):
            self.add(f"x{i}", **options)
        self.pump()

    @contextlib.contextmanager
    def nothing_written(self):
        digest = self.client("DEBUG", "DIGEST")
        yield
        self.assertEqual(self.client("DEBUG", "DIGEST"), digest)

    def pump_all(self):
        """Until nothing is left; how many were moved."""
        moved = 0
        while True:
            reply = self.pump()
            moved += reply[0]
            if not reply[5]:
                return moved

    def take(self, limit=10, worker="w", visibility=LEASE, queue="q",
             token=None, received=None):
        if token is None:
            self.token += 1
            token = self.token
        if received is None:
            received = token - 1
        return self.call("take", queue, worker, token, received, limit,
                         visibility)

    def fence(self, name="x"):
        """Of the last attempt; 1, which is nobody's, if there is none."""
        key = self.space.key(0, b"r:" + name.encode())
        try:
            return Record(self.client("GET", key), SLOTS).fence or 1
        except (Error, ValueError):
            return 1

    def finish(self, name="x", fence=None, outcome="done", delay=0):
        if fence is None:
            fence = self.fence(name)
        return self.call("finish", name, fence, outcome, delay)[0]

    def extend(self, visibility, name="x", fence=None):
        if fence is None:
            fence = self.fence(name)
        return self.call("extend", visibility, name, fence)

    def janitor(self, limit=100, random=1):
        return self.call("janitor", limit, random, 8 * limit)

    def state(self, name="x"):
        data = self.space("get", 0, name)
        return STATES[data[1]] if data else "none"

    def record(self, name="x"):
        return Record(self.ask("GET", b"r:" + name.encode()), SLOTS)

    def bucket(self, name="x"):
        """The bucket that its record names, and its member there."""
        record = self.record(name)
        return (self.space.key(0, f"b:{record.slot}"),
                record.member(name.encode()))

    def meta(self):
        """The fields of meta, and the sizes of sets."""
        flat = self.space("stat", 0)
        return {name.decode(): int(value)
                for name, value in zip(flat[::2], flat[1::2])
                if name not in (b"turn", b"schedule", b"now", b"lag")}


# How a task gets into each state, from nothing.

def in_none(case):
    pass


def in_pending(case):
    case.add(delay=1000)


def in_delivered(case):
    case.deliver()


def in_running(case, attempts=3):
    case.deliver(attempts=attempts)
    case.take()


def in_last(case):
    in_running(case, attempts=1)


def in_retrying(case):
    in_running(case)
    case.finish(outcome="retry", delay=1000)


def in_succeeded(case):
    in_running(case)
    case.finish()


def in_failed(case):
    in_running(case)
    case.finish(outcome="fail")


def in_cancelled(case):
    in_pending(case)
    case.call("cancel", "x")


def in_unreadable(case):
    case.add()
    case.ask("SETRANGE", "r:x", 0, b"\x09")
    case.pump()


def in_lost(case):
    case.add()
    case.ask("DEL", "r:x")
    case.pump()


BEFORE = {
    "none": in_none, "pending": in_pending, "retrying": in_retrying,
    "delivered": in_delivered, "running": in_running, "last": in_last,
    "succeeded": in_succeeded, "failed": in_failed,
    "cancelled": in_cancelled, "unreadable": in_unreadable, "lost": in_lost,
}

# What each operation does to a task in each state: the reply, the state after
# it, and which counters change. A state that is not named is left as it is,
# with the reply of "else".

SAME = "same"
RETURNED = "running-1 pending+1"
THERE = {"pending": (1, SAME, ""), "retrying": (1, SAME, ""),
         "delivered": (2, SAME, ""), "running": (3, SAME, ""),
         "last": (3, SAME, ""), "succeeded": (4, SAME, ""),
         "failed": (5, SAME, ""), "cancelled": (6, SAME, ""),
         "else": (7, SAME, "")}
OPERATIONS = {
    "add": (
        lambda case: case.add(delay=1000), {
            **THERE, "none": (0, "pending", "added+1 pending+1")}),
    "add, replace": (
        lambda case: case.add(delay=1000, flag="replace"), {
            **THERE, "none": (0, "pending", "added+1 pending+1"),
            "succeeded": (0, "pending", "added+1 pending+1"),
            "cancelled": (0, "pending", "added+1 pending+1"),
            "failed": (0, "pending", "added+1 pending+1 dead-1 dropped+1")}),
    "cancel": (
        lambda case: case.call("cancel", "x"), {
            "none": (-2, SAME, ""),
            "pending": (0, "cancelled", "pending-1 cancelled+1"),
            "retrying": (0, "cancelled", "pending-1 cancelled+1"),
            "delivered": (0, "cancelled", "delivered-1 cancelled+1"),
            "running": (-115, SAME, ""), "last": (-115, SAME, ""),
            "cancelled": (0, SAME, ""),
            "else": (-114, SAME, "")}),
    "reschedule": (
        lambda case: case.call("reschedule", "x", "in", 2000), {
            "none": (-2, SAME, ""),
            "pending": (0, "pending", ""),
            "retrying": (0, "pending", ""),
            "delivered": (0, "pending", "delivered-1 pending+1"),
            "running": (-115, SAME, ""), "last": (-115, SAME, ""),
            "else": (-114, SAME, "")}),
    "pump early": (
        lambda case: case.pump()[0], {"else": (0, SAME, "")}),
    "pump due": (
        lambda case: (case.move(1000), case.pump()[0])[1], {
            "pending": (1, "delivered", "pending-1 delivered+1"),
            "retrying": (1, "delivered", "pending-1 delivered+1"),
            "else": (0, SAME, "")}),
    "take": (
        lambda case: case.take(), {
            "delivered": ([[b"x", 1, 1, START, 3, b"pay", FENCE]], "running",
                          "delivered-1 running+1 begun+1"),
            "else": ([], SAME, "")}),
    "take again": (
        lambda case: case.take(token=1), {
            "delivered": ([[b"x", 1, 1, START, 3, b"pay", FENCE]], "running",
                          "delivered-1 running+1 begun+1"),
            "running": ([[b"x", 1, 1, START, 3, b"pay", FENCE]], SAME, ""),
            "last": ([[b"x", 1, 1, START, 1, b"pay", FENCE]], SAME, ""),
            "else": ([], SAME, "")}),
    "done": (
        lambda case: case.finish(), {
            "running": (0, "succeeded", "running-1 succeeded+1"),
            "last": (0, "succeeded", "running-1 succeeded+1"),
            "succeeded": (0, SAME, ""),
            "else": (1, SAME, "")}),
    "retry": (
        lambda case: case.finish(outcome="retry", delay=5), {
            "running": (0, "pending", RETURNED + " retried+1"),
            "last": (0, "failed", "running-1 dead+1 failed+1 retried+1"),
            "failed": (0, SAME, ""),
            "else": (1, SAME, "")}),
    "fail": (
        lambda case: case.finish(outcome="fail"), {
            "running": (0, "failed", "running-1 dead+1 failed+1"),
            "last": (0, "failed", "running-1 dead+1 failed+1"),
            "failed": (0, SAME, ""),
            "else": (1, SAME, "")}),
    "release": (
        lambda case: case.finish(outcome="release"), {
            "running": (0, "pending", RETURNED + " given_back+1"),
            "last": (0, "pending", RETURNED + " given_back+1"),
            "else": (1, SAME, "")}),
    "done, a later fence": (
        lambda case: case.finish(fence=case.fence() + 1),
        {"else": (1, SAME, "")}),
    "done, an earlier fence": (
        lambda case: case.finish(fence=max(1, case.fence() - 1)),
        {"else": (1, SAME, "")}),
    "extend": (
        lambda case: case.extend(60000), {
            "running": ([0], SAME, ""), "last": ([0], SAME, ""),
            "else": ([1], SAME, "")}),
    "extend, a later fence": (
        lambda case: case.extend(60000, fence=case.fence() + 1),
        {"else": ([1], SAME, "")}),
    "extend, an earlier fence": (
        lambda case: case.extend(60000, fence=max(1, case.fence() - 1)),
        {"else": ([1], SAME, "")}),
    "janitor": (
        lambda case: (case.move(LEASE - 1), case.janitor())[1],
        {"else": ([0, 0, 0, 0], SAME, "")}),
    "janitor, lease over": (
        lambda case: (case.move(LEASE), case.janitor())[1], {
            "running": ([1, 0, 0, 0], "pending",
                        RETURNED + " expired+1"),
            "last": ([1, 0, 0, 0], "failed",
                     "running-1 dead+1 failed+1 expired+1"),
            "else": ([0, 0, 0, 0], SAME, "")}),
    "janitor, retention over": (
        lambda case: (case.move(RETENTION + 1), case.janitor())[1], {
            "running": ([1, 0, 0, 0], "pending",
                        RETURNED + " expired+1"),
            "last": ([1, 0, 0, 0], "failed",
                     "running-1 dead+1 failed+1 expired+1"),
            "succeeded": ([0, 0, 0, 0], "none", ""),
            "cancelled": ([0, 0, 0, 0], "none", ""),
            "else": ([0, 0, 0, 0], SAME, "")}),
    "drop": (
        lambda case: case.call("dead", "drop", "x"), {
            "failed": (0, "none", "dead-1 dropped+1"),
            "unreadable": (0, "none", "quarantined-1 dropped+1"),
            "lost": (0, "none", "quarantined-1 dropped+1"),
            "else": (-2, SAME, "")}),
    "replay": (
        lambda case: case.call("dead", "replay", "x"), {
            "failed": (0, "pending", "dead-1 pending+1"),
            "else": (-2, SAME, "")}),
    "get": (
        lambda case: (case.space("get", 0, "x") or b"..")[1],
        {**THERE, "none": (ord("."), SAME, "")}),
    "list": (
        lambda case: (case.space("list", 0, "n", "x")[1] or b"..")[1],
        {**THERE, "none": (ord("."), SAME, "")}),
    "audit": (
        lambda case: case.space("audit", 0, "x", ""),
        {"none": ([[b"5 no record"], []], SAME, ""),
         "else": ([[], []], SAME, "")}),
}


class EachStateEachScript(Case):
    """The table."""

    @classmethod
    def add_tests(cls):
        for operation, (act, outcomes) in OPERATIONS.items():
            for state in BEFORE:
                expected = outcomes.get(state, outcomes["else"])
                name = f"test {operation}; {state}"
                setattr(cls, name, cls.make_test(state, act, expected))

    @staticmethod
    def make_test(state, act, expected):
        def test(self):
            reply, after, changes = expected
            BEFORE[state](self)
            self.assertEqual(self.check(), [])
            before, data = self.meta(), self.ask("GET", "r:x")

            self.assertEqual(act(self), reply)

            self.assertEqual(self.check(), [])
            if after == SAME:
                self.assertEqual(self.ask("GET", "r:x"), data)
            else:
                self.assertEqual(self.state(), after)
            self.assert_changes(before, changes)
        return test

    def assert_changes(self, before, changes):
        expected = {}
        for word in changes.split():
            expected[word[:-2]] = int(word[-2:])
        after = self.meta()
        other = ("clock", "cursor", "version", "next", "scan", "walk",
                 "fence")
        self.assertEqual(
            {name: after[name] - before[name] for name in before
             if after[name] != before[name] and name not in other},
            expected)


EachStateEachScript.add_tests()


class Options(Case):
    """What a task says of itself."""

    def show(self, name="x"):
        """As a worker of before sees it: its state and its error."""
        error = self.ask("GET", "e:" + name)
        return self.state(name), error

    def test_an_attempt_that_would_begin_later_never_does(self):
        for late in (0, 1):
            self.setUp()
            self.add(delay=5, flag="expires-in=20")
            self.move(20 + late)
            self.pump()
            self.assertEqual(len(self.take()), 1 - late)
            self.assertEqual(
                self.show(), [("running", None),
                              ("failed", b"- expired")][late])
        self.assertEqual(self.record().attempts, 0)
        self.assertEqual(self.record().payload, b"pay")
        self.assertEqual(self.meta()["dead"], 1)
        self.assertEqual(self.meta()["begun"], 0)

    def test_a_part_of_a_millisecond_is_too_late(self):
        self.deliver(flag=f"expires-at={START + 20}")
        self.move(20.001)
        self.assertEqual(self.take(), [])
        self.assertEqual(self.state(), "failed")

    def test_a_time_that_has_passed_is_no_error(self):
        """An add is repeated with the same words."""
        for _ in range(2):
            self.assertLessEqual(self.call(
                "add", "x", "q", "at", START - 9, 1, "",
                f"expires-at={START - 1}")[0], 1)
        self.pump()
        self.assertEqual(self.take(), [])
        self.assertEqual(self.state(), "failed")

    def test_a_take_of_nothing_else_says_whether_there_may_be_more(self):
        for each in range(20):
            self.add(f"x{each}", flag="expires-in=5", payload=b"p" * 65536)
        self.deliver("y")
        self.move(6)
        self.assertEqual(self.take(), [1])
        self.assertEqual([task[0] for task in self.take()], [b"y"])
        self.assertEqual(self.meta()["dead"], 20)

    def test_an_entry_twice_expires_once(self):
        self.deliver(flag="expires-in=5")
        self.ask("RPUSH", "q:q", "x")
        self.damaged = True
        self.move(6)
        self.assertEqual(self.take(), [])
        self.assert_whole()
        self.assertEqual(self.meta()["failed"], 1)

    def test_what_is_in_its_bucket_again_expires_too(self):
        """By an entry of before, in a queue that is not searched."""
        self.ask("RPUSH", "q:q", *[f"n{i}" for i in range(1001)])
        self.damaged = True
        self.deliver(flag="expires-in=5")
        self.call("reschedule", "x", "in", 1)
        self.move(6)
        self.ask("LTRIM", "q:q", 1001, -1)
        self.take()
        self.assert_whole()
        self.assertEqual(self.show(), ("failed", b"- expired"))

    def test_what_runs_may_end_later(self):
        self.deliver(flag="expires-in=100")
        self.take()
        self.move(101)
        self.assertEqual(self.extend(60000), [0])
        self.assertEqual(self.finish(), 0)

    def test_a_take_that_was_lost_is_not_handed_over_later(self):
        """But a repeated one is: its first answer may have come."""
        for token, received in ((1, 0), (2, 0)):
            self.setUp()
            self.deliver(flag="expires-in=100")
            self.take(token=1, received=0)
            self.move(101)
            taken = self.take(token=token, received=received)
            self.assertEqual(len(taken), 2 - token)
        self.assertEqual(self.show(), ("failed", b"- expired"))
        self.assertEqual(self.record().attempts, 0)
        self.assertEqual(self.meta()["given_back"], 1)

    def test_a_replay_is_executed(self):
        self.deliver(flag="expires-in=5")
        self.move(6)
        self.take()
        self.assertEqual(self.call("dead", "replay", "x"), 0)
        self.pump()
        self.move(99)
        self.assertEqual(len(self.take()), 1)
        self.assertEqual(self.record().expires, 0)
        self.assertEqual(self.record().payload, b"pay")

    def test_a_replay_in_time_expires_still(self):
        self.deliver(flag="expires-in=50")
        self.take()
        self.finish(outcome="fail")
        self.call("dead", "replay", "x")
        self.assertEqual(self.record().expires, START + 50)

    def test_a_reschedule_does_not_move_it(self):
        self.add(flag="expires-in=50")
        self.assertEqual(self.call("reschedule", "x", "in", 51), -22)
        self.assertEqual(self.record().due, START)
        self.assertEqual(self.call("reschedule", "x", "in", 50), 0)
        self.assertEqual(self.record().expires, START + 50)

    def delays(self, act, flag, attempts, tasks=64):
        """After how many ms tasks are due again by that, from when they are
        taken for the first, second and so on time."""
        names = [f"x{each}" for each in range(tasks)]
        for each in names:
            self.add(each, attempts=1000, flag=flag)
        for attempt in range(attempts):
            self.pump_all()
            begun = self.engine.clock.ms + act(
                [held(task) for task in self.take(limit=tasks)])
            dues = [self.record(each).due for each in names]
            yield sorted(due - begun for due in dues)
            self.move(max(dues) + 1 - self.engine.clock.ms)

    def retry(self, taken):
        self.call("finish", *sum(([*each, "retry", ""] for each in taken),
                                 []))
        return 0

    def crash(self, taken):
        self.move(LEASE)
        self.janitor(random=self.engine.clock.ms)
        return LEASE

    def test_a_retry_waits_for_as_long_as_the_task_says(self):
        for act in (self.retry, self.crash):
            for flag, longest in (
                    ("", [1000, 2000, 4000]),
                    ("retry=200,3000,900", [200, 600, 900, 900]),
                    ("retry=200,1000,900", [200, 200, 200]),
                    (f"retry={YEARS},1000000,{YEARS}", [YEARS])):
                self.setUp()
                delays = self.delays(act, flag, len(longest))
                for most, told in zip(longest, delays):
                    with self.subTest(flag=flag, most=most):
                        self.assertLess(told[0], most / 4)
                        self.assertGreater(told[-1], most * 3 / 4)
                        self.assertLessEqual(told[-1], most)
                        self.assertGreater(len(set(told)), 32)

    def test_a_power_that_is_no_number_is_the_most(self):
        self.deliver(attempts=1000, flag=f"retry=9,1000000,{YEARS}")
        self.take()
        self.ask("SETRANGE", "r:x", 2, struct.pack("<H", 999))
        self.finish(outcome="retry", delay="")
        self.assertGreater(self.record().due, START + YEARS / 1000)

    def test_it_goes_with_what_is_replaced(self):
        self.add(flag="expires-in=50")
        self.call("cancel", "x")
        self.assertEqual(self.add(flag="replace expires-in=60"), 0)
        self.assertEqual(self.record().expires, START + 60)
        self.call("cancel", "x")
        self.assertEqual(self.add(flag="replace"), 0)
        self.assertEqual(self.record().expires, 0)

    def test_others_take_no_bytes_and_no_format(self):
        """So a space of before goes on, and older versions with it, until a
        task has options: from then on they are refused."""
        self.add()
        self.add("z", flag="replace")
        self.assertEqual(self.meta()["format"], 2)
        self.assertEqual(len(self.ask("GET", "r:x")), 56 + 1 + 3)
        self.add("y", flag="expires-in=5")
        self.assertEqual(self.meta()["format"], 3)
        self.assertEqual(self.ask("GET", "r:x")[0], 2)
        self.pump()
        self.assertEqual(len(self.take()), 3)

    def test_an_add_that_stores_nothing_changes_no_format(self):
        self.add()
        self.assertEqual(self.add(flag="expires-in=5"), 1)
        self.assertEqual(self.meta()["format"], 2)

    def test_get_and_list_show_them(self):
        self.add(flag="expires-in=50", payload="p" * 5000)
        shown = self.space("get", 0, "x")
        listed = self.space("list", 0, "x")[0]
        self.assertEqual(len(listed), 56 + 1 + 29)
        self.assertEqual(shown[:len(listed)], listed)
        self.assertEqual(Record(shown, SLOTS).payload, b"p" * 5000)


class WhilePaused(Case):
    """Nothing moves, and nothing is written; reading goes on."""

    COMMANDS = {
        "add": ["y", "q", "in", 0, 1, "", ""], "cancel": ["x"],
        "reschedule": ["x", "in", 0], "pump": [10, ""],
        "take": ["q", "w", 9, 0, 1, 1000], "finish": ["x", 1, "done", 0],
        "extend": [1000, "x", 1], "janitor": [10, 1, 80],
        "dead": ["replay", "x"], "clock": [], "queue": ["pause", "q"],
        "schedule": ["drop", "s"],
    }
    EACH = {  # script
        **COMMANDS, "get": ["x"], "stat": [], "queues": [], "list": ["x"],
        "schedules": ["names"], "audit": ["x"], "pause": [], "resume": [],
        "hosts": ["h", 1000], "notify": ["q", "1"], "init": LOOK,
    }

    def test_changes_are_refused_in_every_state(self):
        for state, begin in BEFORE.items():
            self.setUp()
            begin(self)
            self.call("pause")
            with self.subTest(state), self.nothing_written():
                for name, arguments in self.COMMANDS.items():
                    self.refused("EPAUSED", name, *arguments)

    def test_reading_goes_on(self):
        in_running(self)
        self.call("pause")
        self.assertEqual(self.space("get", 0, "x")[1], 3)
        self.assertEqual(self.space("audit", 0, "x"), [[]])
        self.assertIn(b"paused", self.space("stat", 0))
        self.assertEqual(self.space("init", 0, *LOOK)[5], 0)
        self.assertEqual(self.call("pause"), 0)
        self.assertEqual(self.call("resume"), 0)
        self.assertEqual(self.add("y"), 0)

    def test_leases_have_ten_seconds_after_it(self):
        in_running(self)
        self.call("pause")
        self.move(LEASE * 2)
        self.call("resume")
        self.assertEqual(self.janitor()[0], 0)
        self.move(9999)
        self.assertEqual(self.janitor()[0], 0)
        self.assertEqual(self.extend(2), [0])
        self.move(1)
        self.assertEqual(self.janitor()[0], 0)
        self.move(1)
        self.assertEqual(self.janitor()[0], 1)

    def test_resume_of_what_runs_changes_nothing(self):
        with self.nothing_written():
            self.call("resume")


TASK = ["x", "q", "in", "5", "3", "", ""]
NOT_NUMBERS = ["", "-1", "nan", "inf", "-inf", "1.5", "1e3", "0x10", " 1",
               "1 ", "+1", "1\0", "\0", "one", "1,0", "-0", "9" * 17,
               "9" * 400, "\u0661".encode()]
BAD_IDS = ["", "a" * 65, b"\xff" * 65]
BAD_NAMES = ["", "a" * 65, "a b", "a/b", "a:b", "{a}", "a\0", "\xe4".encode(),
             "a\n", "*", "a%"]


def with_bad(arguments, at, values, which):
    for value in values:
        changed = list(arguments)
        changed[at] = value
        yield which, changed


def bad_tasks():
    """Argument lists of add, each with the index that must be named."""
    yield from with_bad(TASK, 0, BAD_IDS, 1)
    yield from with_bad(TASK, 1, BAD_NAMES, 1)
    yield from with_bad(TASK, 2, ["", "In", "on", "in\0", "at "], 1)
    yield from with_bad(TASK, 3, NOT_NUMBERS + [YEARS + 1, BIG], 1)
    yield from with_bad(TASK, 4, NOT_NUMBERS + [0, 1001, 65536], 1)
    yield from with_bad(TASK, 5, ["a" * 65537], 1)
    yield from with_bad(TASK, 6, [
        "0", " ", " replace", "replace ", "replace expires-in=", "expires=9",
        "expires-in=9 expires-in=9", "expires-in=9 expires-at=" + str(START),
        "expires-in=4", f"expires-in={YEARS + 1}",
        f"expires-at={START + YEARS + 1}", "replace\0",
        "retry=1,2000", "retry=0,2000,5", "retry=5,2000,4", "retry=1,999,5",
        "retry=1,1000001,5", f"retry=1,2000,{YEARS + 1}", "retry=1,,5",
        "retry=1,2000,5 retry=1,2000,5", "retry=1,2000,5,", "retry",
        "high low", "low low", "High", "high=", "normal"], 1)
    yield from with_bad(
        TASK, 6, ["expires-in=" + text for text in NOT_NUMBERS
                  if isinstance(text, str)], 1)
    yield 17, ["x", "q", "in", "5", "3", "a" * 65536, ""] * 16 + [
        "x", "q", "in", "5", "3", "a", ""]
    late = ["x", "q", "at", "", "3", "", ""]
    yield from with_bad(late, 3, NOT_NUMBERS + [START + YEARS + 1, BIG], 1)
    yield 0, TASK[:6]
    yield 0, TASK + ["x"]
    yield 0, TASK * 513


def bad_finishes():
    one = ["x", "1", "done", "0"]
    yield from with_bad(one, 0, BAD_IDS, 1)
    yield from with_bad(one, 1, NOT_NUMBERS + [0, BIG + 2], 1)
    yield from with_bad(one, 2, ["", "Done", "doneX", "0"], 1)
    yield from with_bad(one, 3, NOT_NUMBERS + [YEARS + 1], 1)
    yield 1, ["x", "1", "release", "1"]
    for outcome in ("done", "fail", "release"):
        yield 1, ["x", "1", outcome, ""]
    yield 2, one + ["x", "1", "release", "x"]
    yield 0, one[:3]
    yield 0, one + ["x"]
    yield 0, one * 513


def bad_extends():
    one = ["1000", "x", "1"]
    yield from with_bad(one, 0, NOT_NUMBERS + [0, 86400001], 0)
    yield from with_bad(one, 1, BAD_IDS, 1)
    yield from with_bad(one, 2, NOT_NUMBERS + [0, BIG + 2], 1)
    yield 0, []
    yield 0, one[:2]
    yield 0, ["1000"] + one[1:] * 513


def bad_takes():
    take = ["q", "w", "5", "4", "10", "1000"]
    yield from with_bad(take, 0, BAD_NAMES, 1)
    yield from with_bad(take, 1, BAD_NAMES, 2)
    yield from with_bad(take, 2, NOT_NUMBERS + [0, BIG + 2], 3)
    yield from with_bad(take, 3, NOT_NUMBERS + [5, BIG], 4)
    yield from with_bad(take, 4, NOT_NUMBERS + [0, 513], 5)
    yield from with_bad(take, 5, NOT_NUMBERS + [0, 86400001], 6)
    yield 0, take + ["1"]
    yield 0, take[:5]
    yield 0, []


def bad_schedules():
    yield from with_bad(PUT, 0, ["", "PUT", "add"], 1)
    yield from with_bad(PUT, 1, BAD_NAMES + ["a" * 44], 2)
    yield from with_bad(PUT, 2, NOT_NUMBERS + [315360001], 3)
    yield from with_bad(PUT, 2, [0], 4)
    yield from with_bad(PUT, 3, ["* * * * *"], 4)
    yield from with_bad(PUT, 4, ["z" * 65], 5)
    yield from with_bad(PUT, 5, ["", "first"], 6)
    yield from with_bad(PUT, 6, BAD_NAMES, 7)
    yield from with_bad(PUT, 7, NOT_NUMBERS + [0, 1001], 8)
    yield from with_bad(PUT, 8, ["p" * 65537], 9)
    yield from with_bad(PUT, 9, NOT_NUMBERS + [YEARS + 1], 10)
    for at in range(10, 13):
        yield from with_bad(PUT, at, NOT_NUMBERS + [1, BIG], 11)
    yield from with_bad(PUT, 13, NOT_NUMBERS + [3], 14)
    yield 4, ["put", "s", 0, "*" * 257, *PUT[4:]]
    yield 1, PUT[:8]
    yield 1, PUT + ["1"]
    yield 2, ["drop", ""]
    yield 1, ["drop", "s", "t"]
    move = ["move", "s", 1, 1, 1, 0, "s", 1, 1, 1, 0]
    yield from with_bad(move, 6, BAD_NAMES, 2)
    for at in range(7, 11):
        yield from with_bad(move, at, NOT_NUMBERS + [BIG + 2], 2)
    yield 1, move[:10]
    yield 1, ["move"] + move[1:6] * 513


def bad_inits():
    shape = ["1", str(SLOTS), str(TICK), "2", str(RETENTION), "7", ""]
    numbers = [text for text in NOT_NUMBERS if text]
    yield from with_bad(shape, 0, numbers + [1025], 1)
    yield from with_bad(shape, 1, numbers + [4, 7, 9, 17, 2 ** 21], 2)
    yield from with_bad(shape, 2, numbers + [3600001], 3)
    yield from with_bad(shape, 3, numbers + [4], 4)
    yield from with_bad(shape, 4, numbers + [YEARS + 1], 5)
    yield from with_bad(
        shape, 5, ["0", "x", "-1", "1.5", "07", "1" * 21, b"1\0"], 6)
    yield from with_bad(shape, 6, ["0", "2", "x", "repairs"], 7)
    yield 0, shape[:6]
    yield 0, shape + ["1"]


BAD = {
    "add": bad_tasks, "finish": bad_finishes, "extend": bad_extends,
    "take": bad_takes, "init": bad_inits, "schedule": bad_schedules,
    "schedules": lambda: [
        *with_bad(["names"], 0, ["", "all"], 1),
        (0, ["due", "s"]), (0, ["names", "s"]), (2, ["get", ""]),
        (3, ["get", "s", "a" * 44]), (0, ["get"] + ["s"] * 17), (0, [])],
    "cancel": lambda: [*with_bad(["x"], 0, BAD_IDS, 1), (0, []),
                       (0, ["x", "y"])],
    "get": lambda: [*with_bad(["x"], 0, BAD_IDS, 1), (0, []),
                    (0, ["x", "y"])],
    "reschedule": lambda: [
        *with_bad(["x", "in", "1"], 0, BAD_IDS, 1),
        *with_bad(["x", "in", "1"], 1, ["", "IN"], 3),
        *with_bad(["x", "in", "1"], 2, NOT_NUMBERS + [YEARS + 1], 3),
        *with_bad(["x", "at", "1"], 2, NOT_NUMBERS + [START + YEARS + 1], 3),
        (0, ["x", "in"]), (0, ["x", "in", "1", "1"])],
    "pump": lambda: [
        *with_bad(["5", "1"], 0, NOT_NUMBERS + [0, 1001], 1),
        *with_bad(["5", "1"], 1, NOT_NUMBERS[1:] + [BIG + 2], 2),
        (3, ["5", "", "1"]), (3, ["5", "", ""]),
        (0, []), (0, ["5"]), (0, ["5", "", "notify", "1"])],
    "janitor": lambda: [
        *with_bad(["5", "1", "1"], 0, NOT_NUMBERS + [0, 1001], 1),
        *with_bad(["5", "1", "1"], 1, NOT_NUMBERS + [BIG + 2], 2),
        *with_bad(["5", "1", "1"], 2, NOT_NUMBERS + [0, 8001], 3),
        (0, ["5", "1"]), (0, ["5", "1", "1", "1"])],
    "dead": lambda: [
        *with_bad(["drop", "x"], 0, ["", "DROP", "list"], 1),
        *with_bad(["drop", "x"], 1, BAD_IDS, 2),
        (0, []), (0, ["drop"]), (0, ["drop", "x", "y"])],
    "pause": lambda: [(0, ["1"])], "clock": lambda: [(0, ["1"])],
    "resume": lambda: [(0, ["1"])],
    "stat": lambda: [(0, ["1"])],
    "list": lambda: [(1, [""]), (2, ["x", "y" * 65]), (0, ["x"] * 513)],
    "queue": lambda: [
        *with_bad(["pause", "q"], 0, ["", "PAUSE", "stop"], 1),
        *with_bad(["resume", "q"], 1, BAD_NAMES, 2),
        (0, []), (0, ["pause"]), (0, ["pause", "q", "r"])],
    "queues": lambda: [(1, [""]), (2, ["q", "a b"]), (1, ["q" * 65]),
                       (0, ["q"] * 65)],
    "audit": lambda: [(1, ["a" * 65]), (2, ["x", "a" * 65]),
                      (0, ["x"] * 1001)],
    "notify": lambda: [
        *with_bad(["q", "1 2"], 0, BAD_NAMES, 1),
        *with_bad(["q", "1 2"], 1, ["", " ", "1 ", "-1", "x", "**", "1,2",
                                    "1" * 513], 1),
        (2, ["q", "1", "r", ""]), (0, []), (0, ["q"]), (0, ["q", "1", "r"]),
        (0, ["q", "1"] * 513)],
    "hosts": lambda: [
        *with_bad(["h", "1000"], 0, BAD_NAMES[1:], 1),
        *with_bad(["h", "1000"], 1, NOT_NUMBERS + [0, 86400001], 2),
        (0, []), (0, ["h"]), (0, ["h", "1000", "1"])],
}


class Arguments(Case):
    """Whatever is wrong with them, nothing is written, and it is named."""

    def refuse_all(self, name, cases):
        for begin in (in_none, in_pending, in_running):
            self.setUp()
            begin(self)
            with self.nothing_written():
                for which, arguments in cases:
                    with self.subTest(name=name, arguments=arguments[:9]):
                        text = self.refused(
                            f"EARG {which} ", name, *arguments)
                        self.assertNotIn("script:", text)

    @classmethod
    def add_tests(cls):
        for name, cases in BAD.items():
            def test(self, name=name, cases=cases):
                self.refuse_all(name, list(cases()))
            setattr(cls, f"test {name}", test)

    def test_every_script_has_bad_arguments(self):
        self.assertEqual(sorted(BAD), sorted(self.scripts.names))

    def test_at_the_limits_all_is_well(self):
        name = bytes(range(64))
        self.assertEqual(self.call(
            "add", name, "a" * 64, "in", YEARS, 1000, b"\0" * 65536, "",
            "y", "Az09._-", "at", START + YEARS, 1, "", "",
            "z", "q", "at", 0, 1, "", ""), [0, 0, 0])
        self.assertEqual(self.ask("GET", b"r:" + name)[56 + 64:], b"\0" * 65536)
        self.assertEqual(self.record("y").due, START + YEARS)
        self.assertEqual(self.pump()[0], 1)
        self.assertEqual(self.call("add", *sum(
            ([f"b{i}", "q", "in", 5, 1, b"a" * 65536, ""]
             for i in range(16)), [])), [0] * 16)

    def test_one_bad_task_of_512_stores_none(self):
        for at in (0, 255, 511):
            tasks = [[f"x{i}", "q", "in", "5", "3", "", ""]
                     for i in range(512)]
            tasks[at][3] = "nan"
            self.refused(f"EARG {at + 1} time", "add", *sum(tasks, []))
        self.assertEqual(
            self.client("DBSIZE"), 1, "something besides meta")

    def test_512_tasks_are_added_and_513_refused(self):
        tasks = [[f"x{i}", "q", "in", "0", "3", "", ""] for i in range(513)]
        self.refused("EARG 0", "add", *sum(tasks, []))
        self.assertEqual(self.call("add", *sum(tasks[:512], [])), [0] * 512)
        self.assertEqual(self.pump_all(), 512)

    def test_an_id_twice_in_a_batch_is_stored_once(self):
        self.assertEqual(self.call("add", *TASK, *TASK), [0, 1])

    def test_an_add_of_old_and_new_ones(self):
        self.assertEqual(self.call("add", *TASK, "y", *TASK[1:]), [0, 0])
        kept = self.ask("GET", "r:y")
        self.assertEqual(
            self.call("add", "z", *TASK[1:], "y", *TASK[1:]), [0, 1])
        self.assertEqual(self.ask("GET", "r:y"), kept)
        self.assertEqual(self.meta()["pending"], 3)

    def test_an_id_twice_in_a_finish_ends_once(self):
        in_running(self)
        held_by = ("x", self.fence())
        self.assertEqual(
            self.call("finish", *held_by, "retry", 5, *held_by, "done", 0),
            [0, 1])
        self.assertEqual(self.state(), "pending")

    def test_of_long_records_the_begin_is_read(self):
        """As soon as they are known to be long."""
        tasks = [f"x{i}" for i in range(48)]
        for each in tasks:
            self.add(each, payload=5000 * "x")
        self.assertEqual(self.read_by(self.pump_all), (1, 32))
        taken = self.take(limit=48)
        ended = sum(([*held(task), "done", 0] for task in taken), [])
        self.assertEqual(self.read_by(
            lambda: self.space("finish", 0, *ended)), (1, 32))
        self.assert_whole()
        self.assertEqual(self.state("x47"), "succeeded")

    def read_by(self, act):
        """How often it reads many records, and one. The checks of the
        invariants read none by GETRANGE or MGET."""
        self.client("CONFIG", "RESETSTAT")
        act()
        said = self.client("INFO", "commandstats").decode()
        return tuple(
            int(said.split(f"cmdstat_{name}:calls=")[1].split(",")[0])
            for name in ("mget", "getrange"))

    def test_keys_of_another_form_are_refused(self):
        for key in ("meta", "{test}:meta", "{test:0}", "{test:0}:hosts",
                    "{test:x}:meta", "test:0:meta", "{:0}:meta"):
            for name in self.scripts.names:
                with self.assertRaises(Error) as caught:
                    self.client(*self.scripts.command(name, key, "", ""))
                self.assertIn("EARG", caught.exception.text)

    def test_clocks_that_are_no_numbers_are_refused(self):
        for name, arguments in WhilePaused.EACH.items():
            for clock in ("nan", "-1", "1.5", "x"):
                self.refused("EARG 0", name, *arguments, clock=clock)
                self.refused(
                    "EARG 0", name, *arguments, clock=START, skew=clock)
            self.refused("EARG 0", name, *arguments, clock="", skew="1")

    def test_no_space_comes_before_bad_arguments_before_skew(self):
        with self.assertRaises(Error) as caught:
            self.client(*self.scripts.command(
                "cancel", "{other:0}:meta", START + 9999, 5, ""))
        self.assertEqual(caught.exception.code, "ENOSPACE")
        self.call("pause")
        self.refused("EARG 1", "cancel", "", clock=START + 9999, skew=5)
        self.refused("ESKEW", "cancel", "x", clock=START + 9999, skew=5)
        self.refused("EPAUSED", "cancel", "x", clock=START + 5, skew=5)


Arguments.add_tests()


class Spaces(Case):
    """init, and several spaces in one engine."""

    def test_defaults(self):
        for shards, slots, tick in (("", 65536, 10), (2, 32768, 20),
                                    (5, 8192, 50), (16, 4096, 100),
                                    (1024, 4096, 100)):
            new = Space(self.client, f"new{shards}", scripts=self.scripts,
                        init=False)
            self.assertEqual(
                new("init", 0, shards, "", "", "", "", 7, ""),
                [shards or 1, slots, tick, 2, 3600000, 1, b"7", b"0"])

    def test_again_answers_what_is_there(self):
        there = self.space("init", 0, *LOOK)
        self.assertEqual(there[:6], [1, SLOTS, TICK, 2, RETENTION, 0])
        self.assertEqual(self.space(
            "init", 0, 1, SLOTS, TICK, 3, RETENTION, 7, ""), there)

    def test_another_shape_is_refused(self):
        for shape in ([2, 0, 0, 0, 0], [0, 32, 0, 0, 0], [0, 0, 10, 0, 0],
                      [0, 0, 0, 0, 5]):
            self.refused("ESHAPE", "init", *shape, 7, "")

    def test_a_shard_beyond_the_last_is_refused(self):
        for shards in (0, 3):
            with self.assertRaises(Error) as caught:
                self.client(*self.scripts.command(
                    "init", "{new:%d}:meta" % (shards or 1), "", "",
                    shards, 0, 0, 0, 0, 7, ""))
            self.assertEqual(caught.exception.text[:7], "EARG 1 ")

    def test_another_format_is_left_alone(self):
        for name, arguments in [*WhilePaused.COMMANDS.items(),
                                ("init", LOOK)]:
            for kind in (1, 5):
                self.client("HSET", self.space.key(0), "format", kind)
                text = self.refused("ESHAPE", name, *arguments)
                self.assertIn(f"format {kind}, this program up to 4", text)
                self.assertIn("drain it with the version that made it", text)

    def test_meta_that_cannot_be_read_is_left_alone(self):
        self.client("HSET", self.space.key(0), "cursor", "x")
        self.refused("ESHAPE", "init", *LOOK)
        self.refused("ESHAPE", "pump", 1, "")
        self.client("DEL", self.space.key(0))
        self.client("SET", self.space.key(0), "x")
        self.refused("WRONGTYPE", "pump", 1, "")
        self.refused("WRONGTYPE", "init", *LOOK)

    def test_two_spaces_do_not_meet(self):
        other = self.make("other")
        self.assertEqual(self.add(), 0)
        self.assertEqual(
            other("add", 0, "x", "q", "in", 0, 3, "other", ""), [0])
        self.assertEqual(self.pump()[0], 1)
        self.assertEqual(other("take", 0, "q", "w", 1, 0, 10, 1000), [])
        self.assertEqual(other("pump", 0, 10, "")[0], 1)
        self.assertEqual(
            other("take", 0, "q", "w", 1, 0, 10, 1000)[0][5], b"other")
        self.assertEqual(self.take()[0][5], b"pay")

    def test_hosts_are_forgotten_after_their_lease(self):
        self.assertEqual(self.space("hosts", 0, "b", 1000), [b"b"])
        self.move(600)
        self.assertEqual(self.space("hosts", 0, "a", 1000), [b"a", b"b"])
        self.move(600)
        self.assertEqual(self.space("hosts", 0, "", 1000), [b"a"])
        self.assertEqual(self.space("hosts", 0, "", 1), [])

    def test_hosts_of_the_future_are_forgotten_too(self):
        self.move(86400000)
        self.assertEqual(self.space("hosts", 0, "b", 1000), [b"b"])
        self.move(-86400000)
        self.assertEqual(self.space("hosts", 0, "a", 1000), [b"a"])

    def test_stat_has_every_field_and_the_lag(self):
        in_pending(self)
        self.move(1250)
        flat = self.space("stat", 0)
        stat = dict(zip(flat[::2], flat[1::2]))
        self.assertEqual(int(stat[b"now"]), START + 1250)
        self.assertEqual(int(stat[b"lag"]), 250)
        self.pump()
        flat = self.space("stat", 0)
        self.assertEqual(flat[flat.index(b"lag") + 1], b"0")


class Fencing(Case):
    """An attempt that is not the present one changes nothing."""

    def begin(self, worker="w"):
        """Takes what is due: its generation, its attempt, and the fence."""
        self.pump_all()
        task = self.take(worker=worker)[0]
        return task[1], task[2], task[6]

    def test_an_attempt_whose_lease_is_over_is_stale(self):
        self.add()
        *_, first = self.begin()
        self.move(LEASE)
        self.janitor()
        self.assertEqual(self.finish(fence=first), 1)
        self.move(2000)
        _, attempt, second = self.begin("v")
        self.assertEqual(attempt, 2)
        self.assert_stale(first, ("done", "retry", "fail"))
        self.assertEqual(self.finish(fence=second), 0)
        self.assertEqual(self.finish(fence=second), 0)
        self.assertEqual(self.finish(fence=first), 1)

    def assert_stale(self, fence,
                     outcomes=("done", "retry", "fail", "release")):
        before = self.ask("GET", "r:x")
        for outcome in outcomes:
            self.assertEqual(self.finish(fence=fence, outcome=outcome), 1)
        self.assertEqual(self.extend(99999, fence=fence), [1])
        self.assertEqual(self.ask("GET", "r:x"), before)

    def end_dropped(self):
        self.move(LEASE)
        self.janitor()
        self.assertEqual(self.call("dead", "drop", "x"), 0)

    def end_removed(self):
        self.finish()
        self.move(RETENTION + 1)

    def end_flushed(self):
        self.client("FLUSHALL")
        self.move(1)
        self.space = self.make("test")
        self.check = Checker(self.client, "test")

    def end_lost(self):
        self.ask("DEL", "r:x")
        self.move(LEASE)
        self.janitor()
        self.assertEqual(self.call("dead", "drop", "x"), 0)

    def test_an_id_that_is_added_again_has_another_fence(self):
        """Generation and attempt are as they were."""
        for end in (self.end_dropped, self.end_removed, self.end_flushed,
                    self.end_lost):
            with self.subTest(end.__name__):
                self.setUp()
                self.add(attempts=1)
                *first, old = self.begin()
                end()
                self.add(attempts=1)
                *second, new = self.begin("v")
                self.assertEqual(first, second)
                self.assertGreater(new, old)
                self.assert_stale(old)
                self.assertEqual(self.take(token=1), [])
                self.assertEqual(self.finish(fence=new), 0)

    def test_a_late_take_does_not_find_the_task_of_another_life(self):
        """What the first take got has ended; its repetition gets nothing."""
        self.add(attempts=1)
        self.begin()
        self.move(LEASE - 1)
        self.finish(outcome="fail")
        self.call("dead", "drop", "x")
        self.add(attempts=1)
        self.begin("v")
        self.assertEqual(self.take(token=1), [])

    def test_fences_grow_whatever_the_clock_does(self):
        fences = []
        for move in (0, 0, 1, -86400000, 0, 86400000, 1, 3600000):
            self.move(move)
            self.call("add", "x", "q", "in", 0, 3, "", "",
                      "y", "q", "in", 0, 3, "", "")
            self.pump_all()
            tasks = self.take()
            self.assertEqual(len(tasks), 2)
            for task in tasks:
                fences.append(task[6])
                self.finish(task[0].decode(), fence=task[6], outcome="fail")
                self.call("dead", "drop", task[0])
        self.assertEqual(fences, sorted(set(fences)))

    def test_a_fence_that_is_lost_begins_with_the_clock(self):
        for value in (None, "x", "", "-5", "1e20"):
            self.setUp()
            self.damaged = True
            self.add()
            *_, old = self.begin()
            self.finish(outcome="retry")
            self.client("HDEL", self.space.key(0), "fence")
            if value is not None:
                self.client("HSET", self.space.key(0), "fence", value)
            self.move(1)
            *_, new = self.begin()
            self.assertGreater(new, old)
            self.assertEqual(self.finish(fence=old), 1)
            self.assert_whole()

    def test_a_late_finish_is_good_until_the_lease_is_taken_back(self):
        in_running(self)
        self.move(LEASE * 2)
        self.assertEqual(self.finish(), 0)
        self.assertEqual(self.janitor()[0], 0)

    def test_an_attempt_that_was_given_back_is_over(self):
        self.add()
        *_, first = self.begin()
        self.assertEqual(self.finish(outcome="release"), 0)
        self.assert_stale(first)
        self.pump()
        taken = self.take(worker="v")
        self.assertEqual(
            taken, [[b"x", 1, 1, START, 3, b"pay", first + 1]])
        self.assert_stale(first)
        self.assertEqual(self.state(), "running")

    def test_a_generation_has_all_its_attempts(self):
        def fail(generation):
            self.move(1000000)
            self.assertEqual(self.begin()[:2], (generation, 1))
            self.finish(outcome="release")
            for attempt in (1, 2):
                self.assertEqual(self.begin()[:2], (generation, attempt))
                self.finish(outcome="retry")
            self.assertEqual(self.state(), "failed")

        self.add(attempts=2)
        self.begin()
        self.finish(outcome="retry")
        self.assertEqual(self.call("reschedule", "x", "in", 0), 0)
        fail(2)
        self.assertEqual(self.call("dead", "replay", "x"), 0)
        fail(3)
        self.assertEqual(self.record().max_attempts, 2)

    def test_generations_do_not_wrap(self):
        in_pending(self)
        self.ask("SETRANGE", "r:x", 8, struct.pack("<I", 2 ** 32 - 1))
        self.assertEqual(self.call("reschedule", "x", "in", 0), -114)
        self.assertEqual(self.call("cancel", "x"), 0)
        self.assertEqual(self.add(flag="replace"), 6)

    def test_what_is_added_in_its_place_has_the_next_generation(self):
        for reach in (in_succeeded, in_failed, in_cancelled):
            self.setUp()
            reach(self)
            self.assertEqual(self.add(flag="replace"), 0)
            self.assertEqual(self.record("x").generation, 2)

    def test_why_is_kept_with_a_dead_letter_alone(self):
        why = "w." + "x" * 62 + " " + "t\0\n" * 341 + "t"
        for end in (lambda: self.call("dead", "drop", "x"),
                    lambda: self.call("dead", "replay", "x"),
                    lambda: self.add(flag="replace")):
            for outcome, said in (("fail w text", b"w text"),
                                  ("retry w", b"w"),
                                  ("fail " + why, why.encode()),
                                  ("fail", None)):
                self.setUp()
                in_last(self)
                self.finish(outcome=outcome)
                self.assertEqual(self.ask("GET", "e:x"), said)
                self.assertEqual(end(), 0)
                self.assertEqual(self.ask("EXISTS", "e:x"), 0)
        self.setUp()
        in_running(self)
        self.finish(outcome="retry w text")
        self.assertEqual(self.ask("EXISTS", "e:x"), 0)
        for outcome in ("fail " + why + "x", "done w", "release w", "fail ",
                        "fails w", " fail w", "Fail w"):
            self.refused("EARG 1 outcome", "finish", "x", 1, outcome, 0)

    def test_a_batch_names_each_result(self):
        for name in "abc":
            self.add(name)
        self.pump()
        a, b, c = map(held, self.take())
        self.assertEqual(self.call(
            "finish", *a, "done", 0, b[0], a[1], "done", 0,
            *c, "retry", 10, "none", 1, "done", 0,
            *a, "done", 0, *a, "fail", 0),
            [0, 1, 0, 1, 0, 1])
        self.assertEqual(
            [self.state(name) for name in "abc"],
            ["succeeded", "running", "pending"])


class Take(Case):
    """A take whose reply was lost is repeated with its token."""

    def test_again_gets_the_same_and_counts_once(self):
        self.deliver_many(5, attempts=9)
        first = self.take(limit=3)
        self.assertEqual(self.take(limit=3, token=1), first)
        self.assertEqual(self.take(limit=3, token=1), first)
        self.assertEqual(self.meta()["begun"], 3)
        self.assertEqual(len(self.take(limit=3)), 2)

    def test_again_renews_the_leases(self):
        in_running(self)
        self.move(LEASE - 1)
        self.assertEqual(len(self.take(token=1)), 1)
        self.move(LEASE - 1)
        self.assertEqual(self.janitor()[0], 0)
        self.assertEqual(len(self.take(token=1)), 1)
        self.move(LEASE)
        self.assertEqual(self.janitor()[0], 1)
        self.assertEqual(self.take(token=1), [])

    def test_again_leaves_out_what_has_ended(self):
        self.deliver_many(4)
        self.take()
        self.finish("x0")
        self.finish("x1", outcome="retry")
        self.pump()
        self.take(worker="v", token=1)
        self.ask("DEL", "r:x2")
        self.assertEqual(
            [each[0] for each in self.space("take", 0, "q", "w", 1, 0, 9, 9)],
            [b"x3"])

    def test_a_token_of_the_past_gets_nothing(self):
        self.token = 5
        in_running(self)
        self.deliver("y")
        self.assertEqual(self.take(token=5), [])
        self.assertEqual(self.take(token=1), [])
        self.assertEqual(self.state("y"), "delivered")
        self.assertEqual(self.take(token=7)[0][0], b"y")

    def test_what_a_worker_took_is_forgotten_in_the_end(self):
        in_running(self)
        self.assertEqual(self.ask("PTTL", "t:w"), LEASE + 600000)
        self.move(LEASE + 600001)
        self.assertIsNone(self.ask("GET", "t:w"))

    def test_it_stops_after_a_mebibyte(self):
        for i in range(0, 30, 10):
            self.space("add", 0, *sum(
                ([f"x{j}", "q", "in", 0, 1, b"p" * 65536, ""]
                 for j in range(i, i + 10)), []))
        self.pump()
        *first, more = self.take(limit=512)
        self.assertEqual((len(first), more), (16, 1))
        self.assertEqual(self.take(limit=512, token=1), first)
        self.assertEqual(len(self.take(limit=512)), 14)

    def test_an_empty_queue_writes_nothing(self):
        with self.nothing_written():
            self.take()


class Begun(Case):
    """An attempt counts if its callback may have been called. A worker calls
    none before it has the answer to its take, so one that it asks for again
    was not begun; nor was one that it releases, however late."""

    def lose(self, attempts=1, worker="w", token=1):
        """The answer to a take is lost, and the lease is over."""
        if self.state() == "none":
            self.add(attempts=attempts)
        self.move(5000)
        self.pump_all()
        task = self.take(worker=worker, token=token)[0]
        self.move(LEASE)
        self.assertEqual(self.janitor()[0], 1)
        return task[6]

    def again(self, worker="w", token=2, received=0):
        return self.take(worker=worker, token=token, received=received)

    def test_what_was_not_received_is_handed_over_again(self):
        self.deliver_many(5)
        first = self.take(limit=3)
        self.move(LEASE - 1)
        self.assertEqual(self.again(), first)
        self.move(LEASE - 1)
        self.assertEqual(self.janitor()[0], 0)
        self.assertEqual(self.again(token=3, received=1), first)
        self.assertEqual(len(self.again(token=4, received=3)), 2)
        self.assertEqual(self.meta()["begun"], 5)

    def test_what_has_ended_unreceived_does_not_count(self):
        for attempts in (1, 2):
            self.setUp()
            self.lose(attempts)
            self.assertEqual(self.record().attempts, 1)
            self.assertEqual(self.state(),
                             "failed" if attempts == 1 else "pending")
            self.assertEqual(self.again(), [])
            self.assertEqual(self.record().attempts, 0)
            self.assertEqual(self.state(), "pending")
            self.assertEqual(self.meta()["given_back"], 1)
            self.assertEqual(self.meta()["dead"], 0)

    def test_it_does_not_count_just_once(self):
        self.lose(attempts=3)
        self.lose(worker="v")
        for token in (2, 3):
            self.again(token=token)
            self.assertEqual(self.record().attempts, 1)
            self.assertEqual(self.finish(
                fence=self.record().fence - 1, outcome="release"), 1)

    def test_what_was_received_counts(self):
        self.lose()
        self.assertEqual(self.again(received=1), [])
        self.assertEqual(self.state(), "failed")

    def test_the_same_take_once_more_is_no_word_of_its_worker(self):
        """The connection may have doubled it, after the answer had come."""
        self.lose()
        self.deliver("y")
        self.assertEqual(self.take(token=1), [])
        self.assertEqual(self.state(), "failed")
        self.assertEqual(self.state("y"), "delivered")

    def test_a_late_take_is_none_either(self):
        self.deliver()
        self.take(token=3)
        self.move(LEASE)
        self.janitor()
        self.assertEqual(self.take(token=2, received=0), [])
        self.assertEqual(self.record().attempts, 1)

    def test_a_late_give_back_does_not_count(self):
        first = self.lose()
        self.assertEqual(self.finish(fence=first, outcome="release"), 0)
        self.assertEqual(self.state(), "pending")
        self.assertEqual(self.record().attempts, 0)
        self.assertEqual(self.finish(fence=first, outcome="release"), 1)
        self.assertEqual(self.record().attempts, 0)

    def test_while_another_attempt_runs(self):
        """Which then has what it was promised, and the task one more."""
        first = self.lose(attempts=2)
        self.move(2000)
        self.pump_all()
        task = self.take(worker="v", token=1)[0]
        self.assertEqual(task[2], 2)
        self.assertEqual(self.finish(fence=first, outcome="release"), 0)
        self.assertEqual(self.finish(fence=task[6], outcome="retry"), 0)
        self.assertEqual(self.state(), "pending")
        self.pump_all()
        self.assertEqual(self.take(worker="v", token=2)[0][2], 2)
        self.assertEqual(self.finish(outcome="retry"), 0)
        self.assertEqual(self.state(), "failed")

    def test_two_of_them(self):
        fences = [self.lose(attempts=3, worker=f"w{i}") for i in range(3)]
        self.assertEqual(self.state(), "failed")
        self.assertEqual(self.finish(fence=fences[0], outcome="release"), 1)
        for left, fence in ((2, fences[1]), (1, fences[2])):
            self.assertEqual(self.finish(fence=fence, outcome="release"), 0)
            self.assertEqual(self.record().attempts, left)
        self.assertEqual(self.state(), "pending")

    def test_what_a_worker_has_failed_stays_dead(self):
        first = self.lose(attempts=3)
        self.move(2000)
        self.pump_all()
        self.take(worker="v", token=1)
        self.finish(outcome="fail")
        self.assertEqual(self.finish(fence=first, outcome="release"), 0)
        self.assertEqual(self.state(), "failed")
        self.assertEqual(self.record().attempts, 1)

    def test_what_has_ended_otherwise_is_left_alone(self):
        for how in ("done", "cancel"):
            self.setUp()
            first = self.lose(attempts=3)
            if how == "cancel":
                self.call("cancel", "x")
            else:
                self.move(2000)
                self.pump_all()
                self.take(worker="v", token=1)
                self.finish()
            before = self.ask("GET", "r:x")
            self.assertEqual(self.finish(fence=first, outcome="release"), 1)
            self.again()
            self.assertEqual(self.ask("GET", "r:x"), before)

    def test_another_generation_or_life_has_its_attempts(self):
        for attempts, act in (
                (1, lambda: self.call("dead", "replay", "x")),
                (2, lambda: self.call("reschedule", "x", "in", 0)),
                (1, lambda: (self.call("dead", "drop", "x"),
                             self.add(attempts=1))[1])):
            self.setUp()
            first = self.lose(attempts)
            self.assertEqual(act(), 0)
            self.pump_all()
            self.take(worker="v", token=1)
            self.assertEqual(self.finish(fence=first, outcome="release"), 1)
            self.again()
            self.assertEqual(self.record().attempts, 1)


class Wheel(Case):
    """Nothing early, nothing missed, wherever the cursor is."""

    ROTATION = TICK * SLOTS

    def test_never_before_it_is_due(self):
        for delay in (1, TICK - 1, TICK, TICK + 1, self.ROTATION,
                      self.ROTATION + 1, 5 * self.ROTATION):
            self.setUp()
            self.add(delay=delay)
            self.move(delay - 1)
            self.assertEqual(self.pump_all(), 0, delay)
            self.move(1)
            self.assertEqual(self.pump_all(), 1, delay)

    def test_a_delay_counts_from_the_next_millisecond(self):
        self.move(0.4)
        self.add(delay=10)
        self.assertEqual(self.record().due, START + 11)
        self.add("y", delay=0)
        self.assertEqual(self.record("y").due, START)

    def test_after_any_pause_of_the_pump_all_is_found(self):
        delays = sorted({0, 1, TICK, 7 * TICK + 3, self.ROTATION - 1,
                         self.ROTATION, self.ROTATION + 1,
                         2 * self.ROTATION + 5, 3 * self.ROTATION,
                         9 * self.ROTATION, 7 * 86400000})
        for pause in (0, 1, TICK, self.ROTATION - TICK, self.ROTATION,
                      self.ROTATION + TICK, 3 * self.ROTATION, 7 * 86400000):
            for before in (0, 250, self.ROTATION + 250):
                self.setUp()
                self.move(before)
                self.pump_all()
                for delay in delays:
                    self.add(f"x{delay}", delay=delay)
                self.move(pause)
                due = len([each for each in delays if each <= pause])
                self.assertEqual(self.pump_all(), due, (pause, before))
                self.assertEqual(self.pump()[3], self.tick_now())

    def tick_now(self):
        seconds, micros = self.client("TIME")
        return (int(seconds) * 1000 + int(micros) // 1000) // TICK

    def test_an_add_behind_a_cursor_that_lags_is_found(self):
        self.add("a", delay=3 * TICK)
        self.move(2 * self.ROTATION + 30)
        self.add("b", delay=0)
        self.call("add", "c", "q", "at", START + TICK, 1, "", "")
        self.assertEqual(self.pump_all(), 3)

    def test_a_limit_stops_and_the_next_goes_on(self):
        for i in range(25):
            self.add(f"x{i}", delay=i * 37)
        self.move(2 * self.ROTATION)
        moved = []
        while True:
            reply = self.pump(limit=7)
            moved.append(reply[0])
            self.assertEqual(reply[1], 0 if reply[5] else 1000)
            if not reply[5]:
                break
        self.assertEqual(sum(moved), 25)
        self.assertTrue(max(moved) <= 7)

    def test_it_stops_after_a_thousand_ticks(self):
        self.space = self.make("long", slots=4096)
        self.check = Checker(self.client, "long")
        self.add(delay=2500 * TICK)
        self.move(2500 * TICK)
        replies = [self.pump() for _ in range(3)]
        self.assertEqual([each[0] for each in replies], [0, 0, 1])
        self.assertEqual([each[5] for each in replies], [1, 1, 0])

    def test_a_version_has_one_winner(self):
        self.add()
        self.add("y", delay=TICK)
        version = self.meta()["version"]
        self.assertEqual(self.pump(version=version)[0], 1)
        self.assertEqual(
            self.pump(version=version), [-1, 0, version + 1])
        self.move(TICK)
        self.assertEqual(self.pump(version=version + 1)[:1], [1])

    def test_a_pump_without_effect_keeps_the_version(self):
        version = self.meta()["version"]
        self.assertEqual(self.pump()[2], version)
        self.move(TICK)
        self.assertEqual(self.pump()[2], version + 1)

    def test_wait_is_never_too_long(self):
        """If nobody adds, what is due is found at the time that wait says."""
        for tick, slots in ((100, 16), (1, 8), (1, 4096), (7, 64),
                            (3600000, 8), (1000, 8)):
            name = f"wait{tick}-{slots}"
            self.engine.clock.stop_at(START + 33)
            self.space = self.make(name, tick=tick, slots=slots)
            self.check = Checker(self.client, name)
            dues = [1, 2, 99, 100, 101, 450, 999, 1000, 1001, 1500, 3000]
            for due in dues:
                self.add(f"x{due}", delay=due)
            passed = 0
            while dues:
                reply = self.pump()
                while reply[5]:
                    reply = self.pump()
                dues = [due for due in dues if due > passed]
                if dues:
                    self.assertEqual(
                        reply[1], min(1000, dues[0] - passed), (tick, slots))
                self.assertEqual(self.meta()["delivered"],
                                 11 - len(dues), (tick, slots))
                self.move(reply[1])
                passed += reply[1]

    def test_wait_looks_at_what_came_late(self):
        self.move(TICK * 3 + 50)
        self.pump_all()
        self.call("add", "x", "q", "at", START + TICK * 3 + 70, 1, "", "")
        self.assertEqual(self.pump()[1], 20)


class Fair(Case):
    """The backlog of a queue does not delay what is due in another."""

    NOISE, LIMIT = 3000, 256

    def setUp(self):
        super().setUp()
        self.damaged = True  # not checked at each step: there are so many

    def fill(self, queue, count, due=START):
        self.add_many([f"{queue}.{due}.{i}", queue, "at", due, 1, "", ""]
                      for i in range(count))

    def add_queues(self, count, due):
        """A task in each of so many queues, all in one slot."""
        self.add_many([f"x{i}", f"q{i:05}", "at", due, 1, "", ""]
                      for i in range(count))

    def moved_until(self, queue, limit=LIMIT):
        """How many tasks of others are moved until one of this queue is."""
        moved = 0
        while not self.ask("EXISTS", "q:" + queue):
            reply = self.space("pump", 0, limit, "")
            moved += reply[0]
            self.assertTrue(reply[0] or reply[5], "it is never moved")
        return moved - 1

    def all_are_moved(self, count):
        while self.space("pump", 0, self.LIMIT, "")[5]:
            pass
        self.assert_whole()
        self.assertEqual(self.meta()["delivered"], count)

    def test_behind_a_backlog_in_the_same_slot(self):
        for quiet in ("a", "z"):
            for due in (START, START + 50):
                self.setUp()
                self.fill("noisy", self.NOISE)
                self.fill(quiet, 1, due)
                self.move(60)
                self.assertLess(self.moved_until(quiet), self.LIMIT)
                self.all_are_moved(self.NOISE + 1)

    def test_late_by_more_ticks_than_a_pump_sees(self):
        """Each moves its limit all the same."""
        self.space = self.make("late", slots=4096, tick=10)
        for tick in range(400):
            self.fill("q", 20, START + 10 * tick)
        self.move(4000)
        moved, pumps = 0, 0
        while moved < 8000 and pumps < 8000 / self.LIMIT + 3:
            moved += self.space("pump", 0, self.LIMIT, "")[0]
            pumps += 1
        self.assertEqual(moved, 8000)

    def test_a_backlog_is_passed_over_and_not_read(self):
        self.fill("noisy", 9000)
        self.fill("z", 1)
        self.space("pump", 0, self.LIMIT, "")
        self.assertEqual(self.ask("LLEN", "q:z"), 1)

    def test_a_pump_reads_so_many_members_and_no_more(self):
        """The first of each of many queues; the next one goes on there."""
        self.add_queues(9000, START + 90)
        reply = self.space("pump", 0, self.LIMIT, "")
        self.assertEqual((reply[0], reply[5]), (0, 1))
        self.move(90)
        self.all_are_moved(9000)

    def test_more_queues_than_a_pump_reads_in_one_slot(self):
        """They are due rotations later: pumps come round them, to those that
        are due, wherever they are, and then there is nothing more to do."""
        later = START + 50 * TICK * SLOTS
        self.add_queues(12000, later)
        for name, due in (("a", START), ("q06000x", START),
                          ("z", START), ("b", START + 20 * TICK)):
            self.fill(name, 1, due)
        pumps = 0
        while self.space("pump", 0, self.LIMIT, "")[5]:
            pumps += 1
            self.assertLess(pumps, 10)
        self.assertEqual(self.meta()["delivered"], 3)
        for each in range(1, 25):
            self.move(TICK)
            while self.space("pump", 0, self.LIMIT, "")[5]:
                pumps += 1
            self.assertGreaterEqual(
                self.meta()["cursor"], START // TICK + each - 1)
        self.assertEqual(self.meta()["delivered"], 4)
        self.assertLess(pumps, 30)
        self.move(later - START)
        self.all_are_moved(12004)

    def test_what_has_become_due_since_a_pass_began(self):
        """The pump that ends the pass moves that too."""
        self.fill("b", 1)
        self.fill("c", 1)
        self.assertEqual(self.space("pump", 0, 1, "")[0], 1)
        self.move(2 * TICK)
        self.fill("a", 2, START + TICK)
        for more in (1, 0):
            reply = self.space("pump", 0, 2, "")
            self.assertEqual((reply[0], reply[5]), (1 + more, more))

    def test_the_rest_of_a_queue_in_which_a_pump_was_stopped(self):
        """By its limit, or by what it has read."""
        self.fill("q", 3)
        self.move(TICK)
        self.assertEqual(self.space("pump", 0, 1, "")[0], 1)
        self.all_are_moved(3)
        self.setUp()
        self.add_queues(6000, START + 50 * TICK * SLOTS)
        self.fill("q02239x", 100)  # in the last page that a pump reads
        self.move(TICK)
        self.assertIn(self.space("pump", 0, 1000, "")[0], range(1, 100))
        self.all_are_moved(100)

    def test_what_is_added_while_a_pass_goes_on_is_not_missed(self):
        """Before and behind where it is; a pass takes several pumps."""
        self.add_queues(6000, START + 50 * TICK * SLOTS)
        self.move(TICK - 10)
        self.fill("q03000x", 1, START + TICK - 10)
        added = 1
        for step in range(60):
            self.space("pump", 0, self.LIMIT, "")
            for name in ("a", "q01000x", "q05000x", "z"):
                self.fill(name, 1, START - step)
                added += 1
            self.move(7)
            self.assertEqual(self.space("janitor", 0, 100, 1, 800)[2], 0)
        self.all_are_moved(added)
        self.assertEqual(self.meta()["missed"], 0)

    def test_queues_that_are_not_due_cost_little_each(self):
        """They share the slot, and are due rotations later."""
        for i in range(40):
            self.fill(f"n{i:02}", 300, START + 1000 * TICK * SLOTS)
        self.assertEqual(self.space("pump", 0, self.LIMIT, "")[5], 0)
        self.move(TICK)
        self.assertEqual(self.space("pump", 0, self.LIMIT, "")[5], 0)
        self.assertEqual(self.meta()["cursor"], START // TICK + 1)

    def test_behind_many_backlogs(self):
        """Each gets a share before any gets a second one."""
        names = [f"n{i}" for i in range(20)]
        for name in names:
            self.fill(name, 150)
        for quiet in ("a", "n5x", "z"):
            self.fill(quiet, 1, START + 1)
        self.move(10)
        share = self.LIMIT // 8
        for quiet in ("a", "n5x", "z"):
            self.assertLessEqual(
                self.moved_until(quiet), 23 * share + self.LIMIT)
        self.all_are_moved(20 * 150 + 3)

    def test_what_a_turn_has_not_come_to_is_not_left_behind(self):
        """The second pump goes on in the second tick, and ends there."""
        self.fill("a", 3)
        for i in range(20):
            self.fill(f"n{i:02}", 1, START + TICK)
        self.move(2 * TICK)
        for _ in range(2):
            self.assertEqual(self.space("pump", 0, 8, "")[0], 8)
        self.assertEqual(self.meta()["cursor"], START // TICK)
        self.all_are_moved(23)

    def test_while_more_and_more_becomes_due(self):
        """More than the pumps can move; the turn goes on all the same."""
        names = [f"n{i}" for i in range(12)]
        self.fill("z", 1, START)
        for turn in range(12):
            for name in names:
                self.fill(name, 20, START + turn)
            self.move(1)
            self.space("pump", 0, 10, "")
        self.assertEqual(self.ask("LLEN", "q:z"), 1)

    def test_a_backlog_alone_has_the_whole_limit(self):
        self.fill("noisy", self.NOISE)
        self.assertEqual(self.space("pump", 0, self.LIMIT, "")[0], self.LIMIT)

    def test_the_oldest_come_first_in_a_queue(self):
        for due in (30, 10, 20, 0):
            self.fill("q", 40, START + due)
        self.move(50)
        self.all_are_moved(160)
        dues = [self.record(task[0].decode()).due
                for task in self.space("take", 0, "q", "w", 1, 0, 512, 1000)]
        self.assertEqual(dues, sorted(dues))

    def test_a_slot_of_more_queues_than_are_looked_at(self):
        """When the first of them is due, it is moved."""
        for i in range(200):
            self.fill(f"n{i:03}", 1, START + 90)
        self.fill("z", 1, START + 70)
        for _ in range(100):
            reply = self.space("pump", 0, self.LIMIT, "")
            self.assertFalse(reply[5])
            if self.meta()["delivered"]:
                break
            self.move(reply[1])
        self.assertEqual(self.client("TIME")[1], b"70000")
        self.assert_whole()

    def test_a_place_to_go_on_that_is_none_begins_anew(self):
        now = START // TICK
        for turn in ("x", "-1 q", f"{now + 99} q", "1 q", "", "9",
                     f"{now} - 1 q", f"{now + 1} - {now + 1} q",
                     f"{now} - {now + 1} q", f"1 - {now} q",
                     f"{now - 1} x {now - 1} q"):
            self.setUp()
            self.fill("q", 1)
            self.client("HSET", self.space.key(0), "turn", turn)
            self.assertEqual(self.space("pump", 0, 10, "")[0], 1)


class LongQueue(Case):
    """A queue that is not searched for the entry of a cancelled task."""

    def setUp(self):
        super().setUp()
        self.add_many([f"x{i:03}", "q", "in", 0, 1, "", ""]
                      for i in range(1200))
        self.damaged = True  # not checked at each step: there are so many
        self.pump_all()
        self.assert_whole()
        self.damaged = True

    def length(self):
        return self.ask("LLEN", "q:q")

    def expiry(self, name):
        return self.ask("PTTL", "r:" + name)

    def lose_queue(self):
        """The janitor fills it again, and all is taken."""
        self.ask("DEL", "q:q")
        while self.space("janitor", 0, 1000, 1, 8000)[1]:
            while self.take(limit=500):
                pass

    def test_a_cancelled_record_stays_until_its_entry_goes(self):
        self.assertEqual(self.call("cancel", "x002"), 0)
        self.assertEqual(self.length(), 1200)
        self.assertEqual(self.expiry("x002"), -1)
        self.assertEqual(self.state("x002"), "cancelled")
        self.assert_whole()
        self.move(RETENTION * 2)
        self.assertEqual(
            [task[0] for task in self.take(limit=3)],
            [b"x000", b"x001", b"x003"])
        self.assertEqual(self.expiry("x002"), RETENTION)
        self.assert_whole()

    def test_a_rescheduled_task_begins_when_it_is_due_again(self):
        self.assertEqual(self.call("reschedule", "x001", "in", 500), 0)
        self.assertEqual(self.length(), 1200)
        self.assertEqual(
            [task[0] for task in self.take(limit=2)], [b"x000", b"x002"])
        self.move(500)
        self.pump_all()
        while self.length():
            last = self.take(limit=500)
        self.assertEqual(last[-1][:2], [b"x001", 2])
        self.assert_whole()

    def test_an_entry_of_before_that_is_due_again_begins_once(self):
        """Before the pump has come, the entry takes it out of its bucket."""
        self.assertEqual(self.call("reschedule", "x000", "in", 0), 0)
        self.assertEqual([task[:2] for task in self.take(limit=1)],
                         [[b"x000", 2]])
        self.assert_whole()
        self.assertEqual(self.pump_all(), 0)

    def test_an_entry_of_before_that_comes_after_the_end(self):
        """Later than the retention; it is no task that was lost."""
        self.call("reschedule", "x000", "in", 0)
        self.pump_all()
        self.assertEqual(self.length(), 1201)
        self.assertEqual(self.take(limit=1)[0][0], b"x000")
        self.finish("x000")
        self.assertEqual(self.state("x000"), "succeeded")
        self.assertEqual(self.expiry("x000"), -1)
        self.assert_whole()
        while self.take(limit=500):
            pass
        self.assertEqual(self.expiry("x000"), RETENTION)
        self.assert_whole()

    def test_the_entry_of_a_dead_letter_that_is_dropped_goes_with_it(self):
        """Otherwise, it would be quarantined as a task that was lost."""
        self.call("reschedule", "x000", "in", 0)
        self.pump_all()
        self.take(limit=1)
        self.finish("x000", outcome="fail")
        self.assertEqual(self.call("dead", "drop", "x000"), 0)
        self.assertEqual(self.length(), 1199)
        self.assert_whole()
        self.assertEqual(self.add("x000", delay=1000), 0)
        while self.take(limit=500):
            pass
        self.assertEqual(self.state("x000"), "pending")
        self.assertEqual(self.meta()["quarantined"], 0)
        self.assert_whole()

    def test_so_does_what_is_added_in_its_place(self):
        self.call("cancel", "x000")
        self.assertEqual(self.add("x000", delay=0, flag="replace"), 0)
        self.pump_all()
        self.take(limit=1)
        self.finish("x000")
        self.assertEqual(self.expiry("x000"), -1)
        self.lose_queue()
        self.assertEqual(self.expiry("x000"), RETENTION)

    def test_all_entries_go_with_the_task_from_a_short_queue(self):
        self.call("reschedule", "x500", "in", 0)
        self.pump_all()
        self.take(limit=300)
        self.assertEqual(self.length(), 901)
        self.call("cancel", "x500")
        self.assertEqual(self.length(), 899)
        self.assertEqual(self.expiry("x500"), RETENTION)
        self.assert_whole()

    def test_many_cancelled_entries_do_not_hold_up_a_small_take(self):
        """A worker with one thread looks again a second later."""
        *cancelled, first = self.ask("LRANGE", "q:q", 0, 199)
        for name in cancelled:
            self.space("cancel", 0, name)
        self.assertEqual(self.length(), 1200)
        self.assertEqual([task[0] for task in self.take(limit=1)], [first])
        self.assertEqual(self.length(), 1000)
        self.assert_whole()

    def test_a_record_that_was_kept_for_an_entry_that_is_gone(self):
        self.assertEqual(self.call("cancel", "x002"), 0)
        self.lose_queue()
        self.assertEqual(self.expiry("x002"), RETENTION)


class Size(Case):
    """What the engine needs for it."""

    def used(self):
        info = self.client("INFO", "memory").decode()
        return int(re.search(r"used_memory:(\d+)", info).group(1))

    def test_many_queues_with_a_task_each(self):
        self.damaged = True
        self.add_many([f"x{i}", f"q{i}", "in", 0, 1, "", ""]
                      for i in range(4000))
        self.client("MEMORY", "PURGE")
        before = self.used()
        self.pump_all()
        self.assertEqual(self.meta()["delivered"], 4000)
        self.assertLess((self.used() - before) / 4000, 250)

    def test_what_has_ended_is_in_no_set(self):
        in_succeeded(self)
        self.janitor()
        self.assertEqual(sorted(self.client("KEYS", "*")), [
            self.space.key(0), self.space.key(0, "r:x"),
            self.space.key(0, "t:w")])


class Queues(Case):
    """What waits for a worker, by queue."""

    def queues(self, *names):
        return self.space("queues", 0, *names)

    def waiting(self, *names):
        return [[name.decode(), entries, due]
                for name, entries, due, *_ in self.queues(*names)[2:]]

    def running(self, *names):
        return {name.decode(): count for name, _, _, _, count, *_
                in self.queues(*names)[2:]}

    def test_entries_and_when_the_oldest_was_due(self):
        self.assertEqual(self.queues(), [START, 1])
        for i in range(3):
            self.add(f"x{i}", delay=i * 1000, queue="a")
            self.add(f"y{i}", delay=500 + i * 1000, queue="b")
        self.move(1500)
        self.assertEqual(self.queues(), [START + 1500, 1])
        self.pump_all()
        wanted = [["a", 2, START], ["b", 2, START + 500]]
        self.assertEqual(self.waiting(), wanted)
        self.assertEqual(self.waiting("b", "c", "a"), [
            wanted[1], ["c", 0, 0], wanted[0]])
        self.take(queue="a", limit=1)
        self.assertEqual(self.waiting("a"), [["a", 1, START + 1000]])
        # An entry whose task was put off does not count.
        self.damaged = True
        self.ask("RPUSH", "q:c", "x2", "none")
        self.assertEqual(self.waiting("c"), [["c", 2, START + 1500]])
        self.client("ZADD", self.space.key(0, "queues"), START + 700, "c")
        self.assertEqual(self.waiting("c"), [["c", 2, START + 700]])

    def test_how_many_run(self):
        self.add("w", queue="waits")
        for i in range(3):
            self.add(f"x{i}", queue="a")
        self.add("y", queue="b")
        self.pump_all()
        self.assertEqual(self.running(), {"waits": 0, "a": 0, "b": 0})
        self.take(queue="a", limit=2)
        self.take(queue="b")
        self.assertEqual(self.running("b", "a"), {"b": 1, "a": 2})
        self.janitor()
        self.assertEqual(self.running(), {"waits": 0, "a": 2, "b": 1})
        self.finish("x0")
        self.finish("y", outcome="retry", delay=1000)
        self.assertEqual(self.running(), {"waits": 0, "a": 1})

    def test_how_many_run_is_estimated_beyond_256(self):
        """The leases of each take end together, and stand together."""
        for i, queue in enumerate(("a", "a", "b", "a", "a")):
            for j in range(120):
                self.space("add", 0, f"{i}.{j}", queue, "in", 0, 3, "", "")
            while self.space("pump", 0, 1000, "")[5]:
                pass
            self.token += 1
            self.space("take", 0, queue, "w", self.token, self.token - 1,
                       120, LEASE)
            self.move(1)
            if i == 1:
                self.assertEqual(self.running("a", "b"), {"a": 240, "b": 0})
        self.client("CONFIG", "RESETSTAT")
        running = self.running()
        self.assertIn(b"cmdstat_mget:calls=16,",
                      self.client("INFO", "commandstats"))
        self.assertAlmostEqual(running["a"], 480, delta=40)
        self.assertAlmostEqual(running["b"], 120, delta=40)

    def test_the_queue_that_nobody_serves_stands_first(self):
        """However many others there are, and whatever their names."""
        self.add("lonely", queue="m")
        self.pump_all()
        for i in range(70):
            self.add(f"x{i}", queue=f"q{i}")
        self.move(10)
        self.pump_all()
        self.assertEqual(self.queues()[1], 0)
        self.assertEqual(len(self.waiting()), 64)
        # They were first by their times until then.
        for i in range(70):
            self.ask("ZADD", "queues", START - 1, f"q{i}")
            self.take(queue=f"q{i}")
            self.add(f"y{i}", queue=f"q{i}", delay=1)
        self.move(1000)
        self.pump_all()
        for _ in range(4):
            self.janitor()
        self.assertEqual(self.waiting()[0], ["m", 1, START])

    def test_the_janitor_forgets_what_is_empty(self):
        for name in ("a", "b"):
            self.add(name, queue=name)
        self.pump_all()
        self.take(queue="a")
        self.finish("a")
        self.assertEqual(self.waiting(), [["a", 0, 0], ["b", 1, START]])
        self.janitor()
        self.assertEqual(self.waiting(), [["b", 1, START]])

    def test_a_key_that_is_gone_or_foreign_comes_again(self):
        self.add()
        self.pump_all()
        for damage in (lambda: None, lambda: self.ask("SET", "queues", "x")):
            self.damaged = True
            self.ask("DEL", "queues")
            damage()
            self.assertEqual(self.waiting(), [])
            for _ in range(9):
                self.janitor()
            self.assert_whole()
            self.assertEqual(self.waiting(), [["q", 1, START]])


class Paused(Case):
    """Nothing of a queue is taken until it is resumed."""

    def queue(self, verb, queue="q"):
        self.assertEqual(self.call("queue", verb, queue), 0)

    def told(self, *names):
        return [[name.decode(), entries, int(since > 0)]
                for name, entries, _, since, *_
                in self.space("queues", 0, *names)[2:]]

    def test_nothing_is_taken_and_all_else_goes_on(self):
        self.add("x")
        self.add("late", delay=1000)
        self.add("y", queue="r")
        self.queue("pause")
        self.assertEqual(self.add("z"), 0)
        self.assertEqual(self.pump_all(), 3)
        with self.nothing_written():
            self.assertEqual(self.take(), [])
        self.assertEqual(len(self.take(queue="r")), 1)
        self.assertEqual(self.call("cancel", "z"), 0)
        self.move(1000)
        self.assertEqual(self.pump_all(), 1)
        self.assertEqual(self.take(), [])
        self.queue("resume")
        self.assertEqual([each[0] for each in self.take()], [b"x", b"late"])

    def test_what_runs_ends(self):
        """Also if the answer to its take was lost; what is to be tried again
        waits."""
        for name in ("done", "retry", "lease"):
            self.add(name)
        self.pump_all()
        taken = self.take()
        self.queue("pause")
        self.assertEqual(self.take(token=self.token), taken)
        self.assertEqual(self.extend(LEASE, "done"), [0])
        self.assertEqual(self.finish("done"), 0)
        self.assertEqual(self.finish("retry", outcome="retry"), 0)
        self.move(LEASE * 2)
        self.assertEqual(self.janitor()[0], 1)
        self.move(LEASE)
        self.assertEqual(self.pump_all(), 2)
        self.assertEqual(self.take(), [])
        self.queue("resume")
        self.assertEqual(len(self.take()), 2)

    def test_again_is_the_same(self):
        self.queue("pause")
        with self.nothing_written():
            self.move(5)
            self.queue("pause")
        self.queue("resume")
        with self.nothing_written():
            self.queue("resume")
        self.queue("pause")
        self.move(5)
        self.assertEqual(self.space("queues", 0, "q")[2:],
                         [[b"q", 0, 0, START + 5, 0, 0, 0, 0]])

    def test_it_is_told_of_queues_without_tasks_too(self):
        self.add("x", queue="a")
        self.add("y", queue="b")
        self.pump_all()
        self.queue("pause", "b")
        self.queue("pause", "idle")
        wanted = [["a", 1, 0], ["b", 1, 1], ["idle", 0, 1]]
        self.assertEqual(self.told(), wanted)
        self.assertEqual(self.told("idle", "a"), [wanted[2], wanted[0]])
        self.assertEqual(self.space("queues", 0)[1], 1)

    def test_those_with_tasks_come_before_those_without(self):
        for i in range(64):
            self.add(f"x{i}", queue=f"q{i}")
        self.pump_all()
        self.queue("pause", "q9")
        self.assertEqual(self.space("queues", 0)[1], 1)
        self.queue("pause", "idle")
        self.assertEqual(self.space("queues", 0)[1], 0)
        self.assertEqual(len(self.told()), 64)
        self.assertNotIn(["idle", 0, 1], self.told())
        self.assertIn(["q9", 1, 1], self.told())

    def test_a_foreign_key_pauses_nothing_and_is_set_aside(self):
        self.add()
        self.pump_all()
        self.ask("SET", "paused", "foreign")
        self.damaged = True
        self.assertEqual(self.told(), [["q", 1, 0]])
        self.assertEqual(len(self.take()), 1)
        for verb in ("resume", "pause"):
            self.ask("SET", "paused", "foreign")
            self.queue(verb)
            self.assertEqual(self.ask("GET", "aside:paused"), b"foreign")
        self.assert_whole()
        self.assertEqual(self.told("q"), [["q", 0, 1]])


class Notifications(Case):
    """The hints: what is due before the next poll sends a hint."""

    def setUp(self):
        super().setUp()
        self.ear = self.engine.client()
        self.addCleanup(self.ear.close)
        self.ear("PSUBSCRIBE", "test:*")

    def heard(self):
        self.client("PUBLISH", "test:end", "")
        names = []
        while True:
            _, _, channel, text = self.ear.read()
            if channel == b"test:end":
                return names
            names.append((channel.decode(), text))

    def test_an_add_before_the_next_look_rings(self):
        self.assertEqual(self.pump()[1], 1000)
        self.add("x", delay=1500)
        self.assertEqual(self.heard(), [])
        self.add("y", delay=700)
        self.assertEqual(self.heard(), [("test:due", b"0")])
        self.add("z", delay=800)
        self.assertEqual(self.heard(), [])
        self.add("a", delay=1)
        self.assertEqual(self.heard(), [("test:due", b"0")])

    def test_next_is_what_the_last_pump_said(self):
        self.add("x", delay=300)
        self.heard()
        self.pump()
        self.assertEqual(self.meta()["next"], START + 300)
        self.move(10)
        self.assertEqual(self.pump()[1], 290)
        self.add("y", delay=280)
        self.assertEqual(self.heard(), [("test:due", b"0")])

    def test_a_pump_without_effect_still_says_when_it_looks_next(self):
        self.pump()
        self.move(50)
        self.assertEqual(self.pump()[1], 1000)
        self.assertEqual(self.meta()["next"], START + 1050)

    def test_reschedule_retry_replay_and_leases_ring(self):
        in_running(self)
        self.add("y", delay=9000)
        self.deliver("z", delay=9000)
        self.heard()
        self.call("reschedule", "y", "in", 500)
        self.assertEqual(self.heard(), [("test:due", b"0")])
        self.finish(outcome="retry", delay=400)
        self.assertEqual(self.heard(), [("test:due", b"0")])


class Hints(Case):
    """One of those that wait for a queue is told."""

    KEY = "{test}:k:q"

    def waiting(self, key=KEY):
        client = self.engine.client()
        self.addCleanup(client.close)
        client.send("BLPOP", key, 0)
        return client

    def told(self, client):
        """What it was told, or None."""
        if not select.select([client.socket], [], [], 0.1)[0]:
            return None
        return client.read()[1]

    def test_one_is_told_and_the_next_one_by_the_next(self):
        waiting = [self.waiting() for _ in range(3)]
        other = self.waiting("{test}:k:r")
        self.assertEqual(self.space("notify", 0, "q", "0 3"), 1)
        self.assertEqual([self.told(each) for each in waiting],
                         [b"0 3", None, None])
        self.space("notify", 0, "r", "*", "q", "5")
        self.assertEqual(self.told(waiting[1]), b"5")
        self.assertEqual(self.told(other), b"*")
        self.assertEqual(self.client("EXISTS", self.KEY), 0)

    def test_a_pump_notifies_one_for_each_queue_that_gets_something(self):
        waiting = [self.waiting() for _ in range(2)]
        other = self.waiting("{test}:k:r")
        self.add("x", delay=0)
        self.add("y", delay=0, flag="high")
        self.add("z", queue="r", delay=0)
        self.assertEqual(self.call("pump", 10, "", "notify")[8], [])
        self.assertEqual([self.told(each) for each in (*waiting, other)],
                         [b"0", None, b"0"])
        self.assertEqual(self.call("pump", 10, "", "notify")[8], [])
        self.assertEqual(self.told(waiting[1]), None)

    def test_a_pump_says_for_which_queues_it_could_not(self):
        self.client("SET", self.KEY, "foreign")
        self.add("x", delay=0)
        self.add("z", queue="r", delay=0)
        moved, *_, names, _ = self.call("pump", 10, "", "notify")
        self.assertEqual((moved, names), (2, [b"q"]))
        self.assertEqual(self.client("GET", self.KEY), b"foreign")
        self.assertEqual(self.client("LLEN", "{test}:k:r"), 1)

    def test_a_hint_stays_for_who_comes(self):
        self.space("notify", 0, "q", "7")
        self.assertEqual(self.told(self.waiting()), b"7")

    def test_of_hints_that_nobody_takes_few_stay_and_not_for_ever(self):
        for shard in range(40):
            self.space("notify", 0, "q", shard)
        self.assertEqual(
            self.client("LRANGE", self.KEY, 0, -1),
            [b"%d" % shard for shard in range(24, 40)])
        self.move(60001)
        self.assertEqual(self.client("EXISTS", self.KEY), 0)

    def test_a_foreign_key_is_set_aside(self):
        self.client("SET", self.KEY, "foreign")
        self.space("notify", 0, "q", "1")
        self.assertEqual(self.client("GET", "{test}:aside:k:q"), b"foreign")
        self.assertEqual(self.told(self.waiting()), b"1")


class Schedules(Case):
    """What the engine has of schedules; the arithmetic is in schedules.py."""

    def put(self, name="s", every=60, cron="", zone="", missed="last",
            queue="q", attempts=3, payload="p", expires=0,
            retries=(0, 0, 0), priority=0):
        return self.call("schedule", "put", name, every, cron, zone, missed,
                         queue, attempts, payload, expires, *retries, priority)

    def get(self, name="s"):
        now, (_, *fields) = self.space("schedules", 0, "get", name)
        self.assertEqual(now, self.engine.clock.ms)
        if not fields:
            return None
        return {"look": int(fields[0]), **{
            key.decode(): value.decode()
            for key, value in zip(fields[1::2], fields[2::2])}}

    def due(self):
        return [name.decode() for name, *_ in
                self.space("schedules", 0, "due")[1:]]

    def moves(self, last, look, version=None, name="s", occurred=0):
        return self.call("schedule", "move", name,
                         version or self.get(name)["version"], last, look,
                         occurred)[0]

    def occurs(self, time, name="s", read=START, clock="", at="at"):
        return self.call(
            "add", f"{name}@{time}", "q", at, time, 3, "",
            f"occurrence={read}", clock=clock)[0]

    def test_what_is_put_is_to_be_looked_at_and_pumps_say_so(self):
        self.assertEqual(self.pump()[9], 0)
        self.move(5)
        self.assertEqual(self.put(), 0)
        self.assertEqual(self.get(), {
            "look": START + 5, "version": "2", "last": str(START + 5),
            "occurred": "0", "every": "60", "cron": "", "zone": "",
            "missed": "last", "queue": "q", "attempts": "3", "payload": "p",
            "expires": "0", "first": "0", "factor": "0", "most": "0",
            "priority": "0"})
        self.assertEqual(self.due(), ["s"])
        self.assertEqual(self.pump()[9], 1)
        self.assertEqual(self.pump()[1], 1000, "and that is not at once")

    def test_put_again_changes_nothing(self):
        self.put()
        self.moves(START, START + 9000)
        self.move(1)
        with self.nothing_written():
            self.assertEqual(self.put(), 1)

    def test_another_time_begins_anew_another_task_does_not(self):
        for change, last in (({"every": 61}, 7), ({"zone": "UTC"}, 7),
                             ({"every": 0, "cron": "x"}, 7),
                             ({"missed": "all"}, 0), ({"queue": "r"}, 0),
                             ({"attempts": 4}, 0), ({"payload": ""}, 0),
                             ({"expires": 5}, 0), ({"priority": 2}, 0)):
            with self.subTest(change):
                self.setUp()
                self.put()
                self.moves(START, START + 9000, occurred=5)
                self.move(7)
                self.assertEqual(self.put(**change), 0)
                got = self.get()
                self.assertEqual(int(got["last"]), START + last)
                self.assertEqual(got["occurred"], "0" if last else "5")
                self.assertEqual(got["look"], START + 7)
                for name, value in change.items():
                    self.assertEqual(got[name], str(value))

    def test_what_an_older_version_has_put(self):
        """It lacks the options, and is there just so without any."""
        self.put()
        options = ("expires", "first", "factor", "most", "priority")
        self.ask("HDEL", "s:s", *options)
        self.assertEqual(self.put(), 1)
        self.assertEqual(self.put(retries=(9, 1500, 90)), 0)
        got = self.get()
        self.assertEqual([got[name] for name in options],
                         ["0", "9", "1500", "90", "0"])
        self.ask("HDEL", "s:s", "priority")
        self.assertEqual(self.put(retries=(9, 1500, 90)), 1)
        self.assertEqual(self.put(retries=(9, 1500, 90), priority=1), 0)
        self.assertEqual(self.get()["priority"], "1")

    def test_an_older_version_is_refused_from_the_first_options_on(self):
        for options, needed in (
                ({"expires": 1}, 3), ({"retries": (1, 1000, 1)}, 3),
                ({"priority": 2}, 4), ({"priority": 1, "expires": 1}, 4)):
            with self.subTest(options):
                self.setUp()
                self.put()
                self.assertEqual(self.meta()["format"], 2)
                self.put(**options)
                self.assertEqual(self.meta()["format"], needed)
                self.put("t", expires=1)
                self.assertEqual(self.meta()["format"], needed)

    def test_a_move_says_when_the_next_look_is(self):
        self.put()
        self.put("t")
        self.move(10)
        self.assertEqual(self.moves(START + 10, START + 300), 0)
        self.assertEqual(self.due(), ["t"])
        self.assertEqual(self.moves(START + 10, START + 700, name="t"), 0)
        self.assertEqual(self.pump()[1:10:8], [290, 0])
        self.move(290)
        self.assertEqual(self.due(), ["s"])
        self.assertEqual(self.pump()[1:10:8], [1000, 1])

    def test_a_move_of_another_version_is_stale(self):
        self.put()
        version = self.get()["version"]
        self.put(payload="other")
        self.assertEqual(self.moves(START, START + 9, version), 1)
        self.call("schedule", "drop", "s")
        self.put()
        self.assertEqual(self.moves(START, START + 9, version), 1)
        self.assertEqual(self.due(), ["s"])

    def test_a_move_goes_neither_back_nor_beyond_now(self):
        self.put()
        self.move(10)
        self.assertEqual(self.moves(START + 11, START + 99), 1)
        self.assertEqual(self.moves(START + 10, START + 99), 0)
        self.assertEqual(self.moves(START + 9, START + 99), 1)
        self.assertEqual(self.moves(START + 10, START + 98), 0)
        self.assertEqual(self.moves(START + 10, START + 98, name="t",
                                    version=1), 1)
        self.assertIsNone(self.get("t"))

    def test_a_drop(self):
        self.put()
        self.put("t")
        self.assertEqual(self.call("schedule", "drop", "s"), 0)
        self.assertEqual(self.call("schedule", "drop", "s"), -2)
        self.assertIsNone(self.get())
        self.assertEqual(self.space("schedules", 0, "names"), [b"t"])
        self.call("schedule", "drop", "t")
        self.assertEqual(self.pump()[9], 0)
        self.assertEqual(self.client("KEYS", "*schedules"), [])

    def test_of_many_that_are_due_none_is_always_left_out(self):
        names = {f"s{i}" for i in range(200)}
        for name in names:
            self.space("schedule", 0, *PUT[:1], name, *PUT[2:])
        self.put("later")
        self.moves(START, START + 9000, name="later")
        seen = set()
        for _ in range(200 - 16 + 1):
            due = self.due()
            self.assertEqual(len(due), 16)
            seen |= {*due}
            self.move(1)
        self.assertEqual(seen, names)

    def test_what_is_due_for_long_is_lag(self):
        self.put()
        self.move(4000)
        stat = self.space("stat", 0)
        self.assertEqual(stat[stat.index(b"lag") + 1], b"4000")

    def test_an_occurrence_is_added_once_though_its_record_is_gone(self):
        self.assertEqual(self.occurs(START - 2), 0)
        self.assertEqual(self.ask("GET", "o:s"), b"%d" % (START - 2))
        self.pump()
        fence = self.take()[0][6]
        self.call("finish", f"s@{START - 2}", fence, "done", 0)
        self.ask("DEL", f"r:s@{START - 2}")
        self.assertEqual(self.occurs(START - 2), 4)
        self.assertEqual(self.occurs(START - 3), 4, "one before it")
        self.assertEqual(self.occurs(START - 1), 0)
        self.assertEqual(self.occurs(START - 3, name="t"), 0)
        self.assertEqual(self.meta()["added"], 3)

    def test_an_occurrence_whose_id_is_there_is_left(self):
        self.add("s@5", delay=1000)
        self.assertEqual(self.occurs(5), 1)
        self.assertEqual(self.ask("GET", "o:s"), b"5")

    def test_what_was_read_before_a_drop_leaves_its_end(self):
        """Also if the scheduler's clock is behind or ahead."""
        for ahead in (0, -4000, 4000):
            for read, left in ((START + 2999, 59000), (START + 3001, -1)):
                self.setUp()
                self.occurs(START - 2)
                self.move(3000)
                self.ask("PEXPIRE", "o:s", 60000)
                self.move(1000)
                self.occurs(START - 1, read=read + ahead,
                            clock=START + 4000 + ahead)
                self.assertEqual(self.ask("PTTL", "o:s"), left)

    def test_an_occurrence_that_was_found_long_ago_is_refused(self):
        for late, refused in ((10000, False), (10001, True)):
            with self.subTest(late):
                self.setUp()
                clock = START + late
                if refused:
                    self.refused("EARG 1 options", "add", "s@1", "q", "at",
                                 1, 3, "", f"occurrence={START}", clock=clock)
                else:
                    self.assertEqual(self.occurs(1, clock=clock), 0)

    def test_what_is_no_occurrence_is_refused(self):
        for name, mode, flag in (
                ("s", "at", "occurrence=1"), ("@1", "at", "occurrence=1"),
                ("a b@1", "at", "occurrence=1"), ("s@1", "in", "occurrence=1"),
                ("a" * 44 + "@1", "at", "occurrence=1"),
                ("s@1", "at", "occurrence"), ("s@1", "at", "occurrence=x"),
                ("s@1", "at", "occurrence=1 ")):
            self.refused("EARG 1 options", "add", name, "q", mode, 1, 3, "",
                         flag)

    def test_foreign_keys_are_set_aside(self):
        self.damaged = True
        for rest in ("schedules", "s:s", "o:s"):
            self.ask("SET" if rest != "o:s" else "RPUSH", rest, "foreign")
        self.assertEqual(self.space("schedules", 0, "due"), [START])
        self.assertEqual(self.space("schedules", 0, "names"), [])
        self.assertEqual(self.get(), None)
        self.assertEqual(self.put(), 0)
        self.assertEqual(self.occurs(1), 0)
        self.assert_whole()
        self.assertEqual(self.due(), ["s"])


class Clocks(Case):
    """now never falls, and nobody acts by a clock that is far off."""

    def test_a_clock_that_falls_stands_still(self):
        self.add(delay=5000)
        self.move(3000)
        self.assertEqual(self.pump()[4], START + 3000)
        self.engine.clock.stop_at(START - 86400000)
        self.assertEqual(self.pump()[4], START + 3000)
        self.add("y", delay=0)
        self.assertEqual(self.record("y").due, START + 3000)
        self.assertEqual(self.pump()[0], 1)
        self.add("z", delay=10)
        self.assertEqual(self.record("z").due, START + 3010)
        self.assertEqual(self.take()[0][0], b"y")
        self.engine.clock.stop_at(START + 4999)
        self.assertEqual(self.pump_all(), 1)
        self.assertEqual(self.janitor()[0], 0)
        self.engine.clock.stop_at(START + 5000)
        self.assertEqual(self.pump_all(), 1)

    def test_a_script_that_writes_moves_the_mark(self):
        for begin, act in (
                (in_none, lambda: self.add("new", delay=1)),
                (in_pending, lambda: self.call("cancel", "x")),
                (in_pending, lambda: self.call("reschedule", "x", "in", 9)),
                (in_delivered, self.take), (in_running, self.finish),
                (in_running, lambda: self.extend(9)),
                (in_none, self.janitor), (in_none, self.pump),
                (in_failed, lambda: self.call("dead", "replay", "x")),
                (in_none, lambda: self.call("queue", "pause", "q")),
                (in_none, lambda: self.call("pause"))):
            self.setUp()
            begin(self)
            self.move(777)
            act()
            self.assertEqual(self.meta()["clock"], START + 777)

    def test_a_caller_further_off_than_skew_is_refused(self):
        commands = WhilePaused.EACH
        self.assertEqual(sorted(commands), sorted(self.scripts.names))
        in_running(self)
        with self.nothing_written():
            for name, arguments in commands.items():
                for off in (5001, -5001, 86400000):
                    self.refused("ESKEW", name, *arguments,
                                 clock=START + off, skew=5000)
        for name, arguments in commands.items():
            if name not in ("pause", "resume"):
                self.call(name, *arguments, clock=START + 5000, skew=5000)
                self.call(name, *arguments, clock=START - 5000, skew=5000)
                self.call(name, *arguments, clock=0, skew="")

    def test_the_caller_is_compared_with_the_clock_not_with_the_mark(self):
        self.move(86400000)
        self.pump_all()
        self.move(-86400000)
        self.call("cancel", "x", clock=START, skew=5000)
        self.refused("ESKEW", "cancel", "x", clock=START + 86400000,
                     skew=5000)


class Damage(Case):
    """What else may have happened to the keys delays nothing."""

    BROKEN = {
        "cut in the header": lambda data: data[:30],
        "cut in the queue": lambda data: data[:57],
        "a byte": lambda data: b"\1",
        "format 9": lambda data: b"\x09" + data[1:],
        "state 0": lambda data: data[:1] + b"\0" + data[2:],
        "state 9": lambda data: data[:1] + b"\x09" + data[2:],
        "attempts used up":
            lambda data: data[:2] + data[4:6] + data[4:],
        "no generation": lambda data: data[:8] + bytes(4) + data[12:],
        "slot": lambda data: data[:12] + b"\xff\xff\0\0" + data[16:],
        "queue": lambda data: data[:56] + b"a:b" + data[59:],
        "due": lambda data: data[:16] + b"\xff" * 8 + data[24:],
        "zeros": lambda data: bytes(len(data)),
        "options that are not there": lambda data: b"\3" + data[1:],
        "options": lambda data: b"\3" + data[1:59] + b"\xff" * 29,
    }

    def break_record(self, change, name="x"):
        data = self.ask("GET", "r:" + name)
        self.ask("SET", "r:" + name, change(data))

    def looked_at(self):
        """States, and what comes by the record then."""
        return ((in_pending, lambda: (self.move(1000), self.pump())),
                (in_delivered, self.take),
                (in_running, lambda: (self.move(LEASE), self.janitor())))

    def test_a_pending_record_that_cannot_be_read(self):
        for name, change in self.BROKEN.items():
            with self.subTest(name):
                self.setUp()
                self.add(queue="abc")
                self.add("y", queue="abc")
                self.break_record(change)
                kept = self.ask("GET", "r:x")
                self.assertEqual(self.pump()[0], 1)
                self.assertEqual(self.meta()["quarantined"], 1)
                self.assertEqual(self.space("get", 0, "x")[1], 7)
                self.assertEqual(self.ask("GET", "r:x"), kept)
                self.assertEqual(self.pump()[0], 0)
                self.assertEqual(self.call("dead", "drop", "x"), 0)
                self.assertEqual(self.add("x"), 0)

    def test_records_of_a_wrong_type(self):
        for begin, act in self.looked_at():
            self.setUp()
            begin(self)
            self.damaged = True
            self.ask("DEL", "r:x")
            self.ask("SADD", "r:x", "x")
            self.assertEqual(self.space("get", 0, "x")[1], 7)
            self.assertEqual(self.call("cancel", "x"), -114)
            self.assertEqual(self.call("reschedule", "x", "in", 1), -114)
            self.assertEqual(self.finish(), 1)
            self.assertEqual(self.extend(9), [1])
            self.assertEqual(self.call("dead", "drop", "x"), -2)
            self.assertEqual(self.add(), 7)
            act()
            broken = [each for each in self.check() if "is a set" not in each]
            self.assertEqual(broken, [])
            self.assertEqual(self.meta()["quarantined"], 1)
            self.assertEqual(self.call("dead", "drop", "x"), 0)
            self.assert_whole()

    def test_a_record_that_is_gone(self):
        for begin, act in self.looked_at():
            self.setUp()
            begin(self)
            self.ask("DEL", "r:x")
            act()
            self.assertEqual(self.state(), "quarantined")
            self.assertEqual(self.call("add", *TASK), [7])
            self.assertEqual(self.call("dead", "drop", "x"), 0)
            self.assertEqual(self.call("add", *TASK), [0])

    def test_what_can_be_read_again_is_replayed(self):
        self.add()
        good = self.ask("GET", "r:x")
        self.break_record(lambda data: b"\x09" + data[1:])
        self.pump()
        self.assertEqual(self.call("dead", "replay", "x"), -2)
        self.ask("SET", "r:x", good)
        self.assertEqual(self.call("dead", "replay", "x"), 0)
        self.assertEqual(self.pump()[0], 1)
        self.assertEqual(self.take()[0][:3], [b"x", 2, 1])

    def put(self, bucket, member):
        self.ask("ZADD", bucket, 0, member)

    def push(self, *entries, queue="q"):
        self.ask("RPUSH", "q:" + queue, *entries)

    def test_members_that_belong_nowhere_are_dropped(self):
        self.damaged = True
        self.add("x", delay=1000)
        record = self.record()
        self.put(f"b:{(record.slot + 1) % SLOTS}", record.member(b"x"))
        in_slot = START // TICK % SLOTS
        self.deliver("y")
        for stray in (b"q" + bytes(7) + b"y", "x", "\0", "q\0x",
                      b"q" + bytes(7), b"\xff" * 80):
            self.put(f"b:{in_slot}", stray)
        self.ask("ZADD", "fly", 1, "x")
        self.move(1100)
        self.pump()
        self.janitor()
        self.assert_whole()
        self.assertEqual(self.state("x"), "delivered")

    def test_a_large_queue_that_is_gone_is_found_bit_by_bit(self):
        for i in range(50):
            self.space("add", 0, f"x{i}", "q", "in", 0, 1, "", "")
        self.pump()
        self.ask("DEL", "q:q")
        restored = [self.space("janitor", 0, 1, 1, 8)[1] for _ in range(50)]
        self.assertEqual(sum(restored), 50)
        self.assertLess(max(restored), 50)
        self.assertEqual(self.check(), [])

    def test_an_entry_that_is_gone_is_put_back(self):
        self.deliver_many(3)
        self.ask("LREM", "q:q", 1, "x1")
        self.assertEqual(self.janitor()[1], 1)
        self.assertEqual(len(self.take()), 3)

    def test_what_is_in_no_set_is_put_back(self):
        for begin, key in ((in_pending, None), (in_running, "fly"),
                           (in_failed, "dead")):
            self.setUp()
            begin(self)
            self.client("DEL", self.space.key(0, key) if key
                        else self.bucket()[0])
            self.damaged = True
            self.assertEqual(self.janitor()[1], 1)
            self.assert_whole()
            self.assertEqual(self.janitor()[1], 0)

    def test_a_walk_is_as_long_as_its_caller_says(self):
        """The engine's table has places without a key, too."""
        for i in range(400):
            self.add(f"t{i}", delay=100000)
        self.client("DEL", *self.client("KEYS", self.space.key(0, "b:*")))
        self.damaged = True
        restored = []
        while sum(restored) < 400:
            restored.append(self.call("janitor", 100, 1, 16)[1])
        self.assertGreaterEqual(len(restored), 10)
        self.assert_whole()

    def test_a_walk_takes_the_name_of_the_space_as_it_is(self):
        """Of two spaces, one whose name is a pattern of the other's."""
        self.client("FLUSHALL")
        other = self.make("te[s]t*")
        self.space = self.make("test")
        for space in (other, self.space):
            space("add", 0, "x", "q", "in", 0, 1, "", "")
            space("pump", 0, 10, "")
            self.client("DEL", space.key(0, "q:q"))
        self.assertEqual(other("janitor", 0, 100, 1, 800)[1], 1)
        self.assertEqual(self.janitor()[1], 1)

    def test_a_queue_of_another_type_is_set_aside(self):
        in_delivered(self)
        self.damaged = True
        for act in (lambda: (self.add("y"), self.pump()), self.janitor,
                    self.take):
            self.ask("DEL", "q:q")
            self.ask("SET", "q:q", "foreign")
            act()
            self.assertEqual(self.ask("GET", "aside:q:q"), b"foreign")
        self.janitor()
        self.assert_whole()
        self.assertEqual(len(self.take()), 2)

    def test_an_entry_that_is_there_twice_begins_once(self):
        in_delivered(self)
        self.push("x", "x")
        self.damaged = True
        self.assertEqual([each[0] for each in self.take()], [b"x"])
        self.push("x")
        self.assertEqual(self.take(), [])
        self.assert_whole()
        self.assertEqual(self.meta()["begun"], 1)

    def test_an_entry_of_another_queue_begins_nothing(self):
        in_delivered(self)
        self.damaged = True
        self.push("x", queue="r")
        self.assertEqual(self.take(queue="r"), [])
        self.assert_whole()
        self.assertEqual(self.take()[0][0], b"x")

    def test_an_entry_of_what_is_not_delivered_begins_nothing(self):
        for state in ("pending", "running", "succeeded", "failed",
                      "cancelled"):
            self.setUp()
            BEFORE[state](self)
            self.damaged = True
            self.push("x")
            self.assertEqual(self.take(), [])
            self.assertEqual(self.state(), state)
            self.assert_whole()

    def test_an_entry_of_a_due_task_that_is_not_pumped_takes_it_out(self):
        """It is due, so it may begin, but not twice."""
        for state in (in_none, in_retrying):
            self.setUp()
            state(self)
            self.move(1000)
            self.add()
            self.damaged = True
            self.push("x")
            self.assertEqual([each[0] for each in self.take()], [b"x"])
            self.assert_whole()
            self.assertEqual(self.pump()[0], 0)

    def test_entries_that_are_dropped_do_not_make_it_take_more(self):
        self.damaged = True
        self.add("z", delay=5000)
        self.push("z")
        for name in "abc":
            self.add(name)
        self.pump()
        self.assertEqual(len(self.take(limit=2)), 2)
        self.assert_whole()

    def test_a_stray_member_is_not_what_delivers(self):
        for flag in ("", "expires-in=9000"):
            self.setUp()
            self.add(delay=3 * TICK, flag=flag)
            slot = self.record().slot
            stray = (slot - 1) % SLOTS
            self.damaged = True
            self.put(f"b:{stray}", self.record().member(b"x"))
            self.move(3 * TICK)
            self.assertEqual(self.pump(limit=1)[0], 0)
            self.assert_whole()
            self.assertEqual(self.pump(limit=1)[0], 1)

    def test_a_member_of_a_queue_whose_name_is_a_part_of_the_task_s(self):
        for flag in ("", "expires-in=9000"):
            self.setUp()
            self.add(queue="qq", flag=flag)
            self.damaged = True
            self.put(f"b:{self.record().slot}",
                     self.record().member(b"x")[1:])
            reply = self.pump()
            self.assertEqual((reply[0], reply[8]), (1, [b"qq"]))
            self.assert_whole()

    def test_foreign_keys_are_set_aside(self):
        for rest in ("fly", "dead", "bad", "b:%d" % (
                START // TICK % SLOTS)):
            self.setUp()
            self.damaged = True
            self.ask("SET", rest, "foreign")
            self.add("x", attempts=1)
            self.add("y")
            self.add("z")
            self.ask("DEL", "r:z")
            self.pump()
            self.take()
            self.finish("x", outcome="fail")
            self.finish("y")
            self.janitor()
            self.assert_whole()
            self.assertEqual(self.call("dead", "drop", "z"), 0)
            self.assertEqual(self.ask("GET", "aside:" + rest), b"foreign")

    def test_a_bucket_that_turns_foreign_at_the_pump(self):
        self.add()
        slot = self.record().slot
        self.ask("SET", f"b:{slot}", "foreign")
        self.assertEqual(self.space("pump", 0, 10, "")[0], 0)
        self.assertEqual(self.space("audit", 0, "x")[0],
                         [b"5 neither in its bucket nor in its queue"])
        self.damaged = True
        self.assertEqual(self.call("cancel", "x"), 0)
        # What was in it is counted as pending still.
        self.assertEqual({each[0] for each in self.check()}, {"8"})

    def test_what_a_worker_took_may_be_anything(self):
        for value in (b"", b"x", b"\x93", b"\x91\xa1x", b"\xc0", b"\x90"):
            self.setUp()
            in_delivered(self)
            self.ask("SET", "t:w", value)
            self.assertEqual(self.take()[0][0], b"x")
        self.setUp()
        in_delivered(self)
        self.ask("SADD", "t:w", value)
        self.assertEqual(self.take()[0][0], b"x")

    def test_what_lies_behind_the_cursor_is_mended_and_counted(self):
        in_pending(self)
        behind = (START // TICK - 5) % SLOTS
        self.client("ZREM", *self.bucket())
        self.ask("SETRANGE", "r:x", 12, struct.pack("<IQ", behind, START))
        self.client("ZADD", self.bucket()[0], 0, self.bucket()[1])
        self.assertIn(b"5 behind the cursor",
                      self.space("audit", 0, "x")[0])
        self.assertEqual(self.space("janitor", 0, 100, 1, 800)[2], 1)
        self.assertEqual(self.meta()["missed"], 1)
        self.assertEqual(self.space("audit", 0, "x", ""), [[], []])
        self.assertEqual(self.space("pump", 0, 100, "")[0], 1)

    def test_one_that_runs_and_has_no_lease_is_reported(self):
        self.damaged = True
        in_delivered(self)
        self.take()
        self.ask("ZREM", "fly", "x")
        self.assertEqual(self.space("audit", 0, "x")[0], [b"5 not in fly"])

    def test_a_counter_that_is_no_number_stops_nothing(self):
        self.damaged = True
        self.client("HSET", self.space.key(0), "added", "x")
        self.assertEqual(self.add(), 0)
        self.assertEqual(self.pump()[0], 1)
        self.assertEqual(self.space("audit", 0, "")[0][:1],
                         [b"8 added is x, counted 1"])

    def test_an_error_of_the_engine_is_no_damage(self):
        """Nothing is put aside or into quarantine because of it."""
        keys = "~{test:0}:meta", "~{test:0}:move:*", "~{test:0}:b:*"
        for count in (2, 3):
            self.setUp()
            in_pending(self)
            self.move(1000)
            digest = self.client("DEBUG", "DIGEST")
            self.client("ACL", "SETUSER", "limited", "reset", "on", "nopass",
                        *keys[:count], "&*", "+@all")
            with self.engine.client() as client:
                client("AUTH", "limited", "")
                with self.assertRaises(Error) as caught:
                    client(*self.space.command("pump", 0, 100, ""))
            self.assertIn("can't access at least one of the keys",
                          caught.exception.text)
            self.assertEqual(self.client("DEBUG", "DIGEST"), digest)
            self.assertEqual(self.pump()[0], 1)

    def test_bells_need_no_rights(self):
        """A new user of Redis 7 has no channels: nothing is left half."""
        self.client("ACL", "SETUSER", "quiet", "reset", "on", "nopass",
                    "~*", "resetchannels", "+@all")
        with self.engine.client() as client:
            client("AUTH", "quiet", "")
            self.assertEqual(client(*self.space.command(
                "add", 0, "x", "q", "in", "0", "3", "", "")), [0])
            self.assertEqual(
                client(*self.space.command("pump", 0, 100, ""))[0], 1)
        self.assertEqual(self.state(), "delivered")

    def test_the_library_is_what_programs_load(self):
        """Its name has the sum of its text."""
        folder = os.path.dirname(SCRIPTS)
        made = subprocess.run([os.path.join(folder, "embed"), SCRIPTS],
                              capture_output=True, check=True, timeout=LIMIT)
        self.assertIn(f'"{library_name()}_take"'.encode(), made.stdout)

    def test_audit_and_checker_find_the_same(self):
        """But what only a walk over all buckets finds."""
        damages = [
            (in_pending, lambda: self.client("DEL", self.bucket()[0])),
            (in_pending, lambda: self.ask("ZADD", "fly", 5, "x")),
            (in_pending, lambda: self.ask("ZADD", "dead", 5, "x")),
            (in_delivered, lambda: self.ask("DEL", "q:q")),
            (in_running, lambda: self.ask("DEL", "fly")),
            (in_failed, lambda: self.ask("DEL", "dead")),
            (in_failed, lambda: self.ask("ZADD", "bad", 5, "x")),
            (in_unreadable, lambda: self.ask("DEL", "bad")),
            (in_running, lambda: self.break_record(
                lambda data: data[:20])),
            (in_failed, lambda: self.client(
                "HINCRBY", self.space.key(0), "added", 1)),
            (in_failed, lambda: self.client(
                "HINCRBY", self.space.key(0), "delivered", 1)),
            (in_pending, lambda: self.client(
                "HINCRBY", self.space.key(0), "pending", -1)),
            (in_pending, lambda: self.client(
                "HINCRBY", self.space.key(0), "cursor", 1)),
        ]
        for number, (begin, damage) in enumerate(damages):
            self.setUp()
            begin(self)
            self.assertEqual(self.space("audit", 0, "x", ""), [[], []])
            damage()
            self.assertNotEqual(self.check(), [], number)
            self.assertNotEqual(
                self.space("audit", 0, "x", ""), [[], []], number)


class Rights(Case):
    """A user without a right that a script needs leaves nothing half."""

    def setUp(self):
        super().setUp()
        self.client("ACL", "SETUSER", "limited", "reset", "on", "nopass",
                    "~*", "&*", "+@all")
        self.limited = self.engine.client()
        self.addCleanup(self.limited.close)
        self.limited("AUTH", "limited", "")

    def in_foreign(self):
        """A key of another type is where each script comes by."""
        in_running(self)
        self.add("y", delay=0)
        for rest in ("fly", "dead", "b:%d" % (START // TICK % SLOTS)):
            self.ask("DEL", rest)
            self.ask("SET", rest, "foreign")

    def operations(self):
        """What each script does, on the task that is there."""
        for name in self.scripts.names:
            if name not in ("init", "audit", "get", "list", "queues",
                            "schedules", "stat"):
                yield name, {
                    "add": ["y", *TASK[1:]], "pause": [], "resume": [],
                    "clock": [], "queue": ["pause", "q"],
                    "take": ["q", "w", 1, 0, 9, 1000], "hosts": ["h", 1000],
                    "notify": ["q", "1"],
                    "finish": ["x", self.fence(), "done", 0],
                    "extend": [1000, "x", self.fence()],
                    "janitor": [100, 1, 800], "pump": [100, "", "notify"],
                    "cancel": ["x"], "reschedule": ["x", "in", 5],
                    "schedule": PUT, "dead": ["drop", "x"]}[name]
        for outcome in ("retry", "fail", "release"):
            yield "finish", ["x", self.fence(), outcome, 0]
        yield "dead", ["replay", "x"]
        yield "queue", ["limit", "r", 1, 1]
        yield "queue", ["resume", "r"]
        yield "schedule", ["drop", "kept"]
        yield "schedule", ["move", "kept", 2, START, START + 1, 0]
        yield "add", ["kept@x", "q", "at", 1, 1, "", f"occurrence={START}"]

    def ran(self):
        """The commands that scripts have called since the last RESETSTAT."""
        stats = self.client("INFO", "commandstats").decode()
        return {line[8:].split(":")[0] for line in stats.split()
                if line.startswith("cmdstat_")} - {
            "fcall", "function|load", "config|resetstat", "info", "publish"}

    def begin(self, begin):
        self.engine.clock.stop_at(START)
        self.client("FLUSHALL")
        self.space = self.make("test")
        self.space("queue", 0, "pause", "r")
        self.space("schedule", 0, "put", "kept", *PUT[2:])
        self.token = 0
        self.damaged = True  # not checked: there are so many
        begin(self)
        self.move(LEASE)
        return self.client("DEBUG", "DIGEST")

    def refused_without(self, begin, number, command):
        digest = self.begin(begin)
        name, arguments = list(self.operations())[number]
        self.client("ACL", "SETUSER", "limited", "-" + command)
        try:
            self.limited(*self.space.command(name, 0, *arguments))
            self.fail(f"{name} {arguments} without {command}")
        except Error as error:
            self.assertRegex(error.text, "NOPERM|can't run this command")
        finally:
            self.client("ACL", "SETUSER", "limited", "+" + command)
        self.assertEqual(self.client("DEBUG", "DIGEST"), digest,
                         (name, arguments, command))

    def test_each_command_of_each_script_in_each_state(self):
        """What calls the same commands as before is not tried again."""
        tried, seen = 0, set()
        for begin in (in_none, in_pending, in_delivered, in_running, in_last,
                      in_succeeded, in_failed, in_lost, self.in_broken,
                      Rights.in_foreign):
            for number in range(len(list(self.operations()))):
                digest = self.begin(begin)
                name, arguments = list(self.operations())[number]
                self.client("CONFIG", "RESETSTAT")
                self.limited(*self.space.command(name, 0, *arguments))
                commands = self.ran()
                key = number, frozenset(commands)
                if key in seen or self.client("DEBUG", "DIGEST") == digest:
                    continue
                seen.add(key)
                for command in sorted(commands - {"time"}):
                    self.refused_without(begin, number, command)
                    tried += 1
        self.assertGreater(tried, 200)

    @staticmethod
    def in_broken(case):
        """Delivered, and its record and its entry are gone."""
        in_delivered(case)
        case.ask("DEL", "q:q")
        case.ask("DEL", "r:x")

    def test_init_names_what_is_missing(self):
        """Of all commands of all scripts."""
        used = commands_of_scripts()
        self.assertGreater(len(used), 20)
        for command in used - {"PUBLISH"}:
            self.client("ACL", "SETUSER", "limited", "-" + command)
            with self.assertRaises(Error) as caught:
                self.limited(*self.space.command(
                    "init", 0, *LOOK))
            self.assertRegex(
                caught.exception.text,
                f"^NOPERM .* {command}$|can't run this command")
            self.client("ACL", "SETUSER", "limited", "+" + command)
        self.assertEqual(self.limited(*self.space.command(
            "init", 0, *LOOK))[5], 0)

    def test_init_names_the_key_that_is_missing(self):
        keys = ["~{test:*}:" + rest for rest in (
            "meta", "move:*", "b:*", "r:*", "q:*", "t:*", "e:*", "fly",
            "dead", "bad", "queues", "paused", "limits", "l:*", "f:*",
            "schedules", "s:*", "o:*", "aside:*")] + [
                "~{test}:" + rest
                for rest in ("hosts", "k:*", "p:*", "aside:*")]
        for lacking in keys[2:]:
            self.client("ACL", "SETUSER", "limited", "resetkeys",
                        *(set(keys) - {lacking}))
            with self.assertRaises(Error) as caught:
                self.limited(*self.space.command(
                    "init", 0, *LOOK))
            self.assertRegex(caught.exception.text, "^NOPERM .* {test")
        self.client("ACL", "SETUSER", "limited", "resetkeys", *keys)
        self.limited(*self.space.command("init", 0, *LOOK))


class Memory(Case):
    """An engine that is full refuses adds, and everything else goes on."""

    def test_only_adds_are_refused(self):
        for name in "abcdef":
            self.add(name)
        self.add("x", delay=1000)
        self.client("CONFIG", "SET", "maxmemory", 1)
        self.refused("OOM", "add", *TASK)
        self.assertEqual(self.pump()[0], 6)
        a, b, c, d, e, _ = map(held, self.take())
        self.assertEqual(self.call(
            "finish", *a, "done", 0, *b, "fail", 0,
            *c, "retry", 5, *d, "release", 0), [0] * 4)
        self.assertEqual(self.call("extend", 5, *e), [0])
        self.assertEqual(self.call("cancel", "d"), 0)
        self.assertEqual(self.call("reschedule", "x", "in", 5), 0)
        self.assertEqual(self.call("dead", "replay", "b"), 0)
        self.move(5)
        self.assertEqual(self.janitor()[0], 1)
        self.assertEqual(self.space("get", 0, "x")[1], 1)
        self.assertEqual(self.space("audit", 0, ""), [[]])
        self.call("pause")
        self.call("resume")
        self.space("hosts", 0, "h", 1000)
        self.space("stat", 0)
        self.make("other")
        self.client("CONFIG", "SET", "maxmemory", 0)
        self.assertEqual(self.add("y"), 0)

    def test_the_end_leaves_only_meta(self):
        for i in range(20):
            self.add(f"x{i}", delay=i * 50)
        self.move(1000)
        self.pump_all()
        for task in self.take(limit=20):
            self.finish(task[0].decode())
        self.move(RETENTION + 1)
        self.janitor()
        self.assertEqual(self.check(drained=True), [])
        self.assertEqual(
            self.client("KEYS", "*"), [self.space.key(0)])


class Janitor(Case):
    """Its back-off, its limits, its scan."""

    def test_the_back_off_grows_and_differs(self):
        longest = {}
        for random in range(0, BIG, BIG // 23):
            for attempts in (1, 2, 5, 11):
                self.setUp()
                self.space("add", 0, "x", "q", "in", 0, 20, "", "")
                self.ask("SETRANGE", "r:x", 2, struct.pack("<H", attempts - 1))
                self.space("pump", 0, 10, "")
                self.space("take", 0, "q", "w", 1, 0, 1, 1)
                self.move(1)
                self.assertEqual(
                    self.space("janitor", 0, 10, random, 80)[0], 1)
                delay = self.record().due - START - 1
                self.assertTrue(
                    0 <= delay <= min(600000, 1000 * 2 ** (attempts - 1)))
                longest.setdefault(attempts, set()).add(delay)
        for attempts, delays in longest.items():
            most = min(600000, 1000 * 2 ** (attempts - 1))
            self.assertTrue(max(delays) > most / 2, attempts)
            self.assertTrue(len(delays) > 10, attempts)

    def test_the_back_off_comes_of_the_random_number(self):
        delays = {}
        for random in (5, 6, 5, 6, BIG, BIG):
            self.setUp()
            in_running(self)
            self.move(LEASE)
            self.janitor(random=random)
            delays.setdefault(random, set()).add(self.record().due)
        self.assertEqual([len(each) for each in delays.values()], [1, 1, 1])

    def test_a_record_stays_for_its_retention(self):
        in_succeeded(self)
        self.move(RETENTION)
        self.assertEqual(self.add(), 4)
        self.move(1)
        self.assertEqual(self.add(), 0)

    def test_a_limit_leaves_the_rest_for_the_next(self):
        self.deliver_many(5)
        self.take()
        self.move(LEASE)
        self.assertEqual(
            [self.janitor(limit=2)[::3] for _ in range(4)],
            [[2, 1], [2, 1], [1, 0], [0, 0]])

    def test_the_scan_finds_nothing_that_a_pump_will_find(self):
        for delay in range(0, 3 * TICK * SLOTS, 130):
            self.add(f"x{delay}", delay=delay)
        for _ in range(40):
            self.move(TICK + 7)
            self.assertEqual(self.janitor()[2], 0)
            if _ % 5 == 0:
                self.pump_all()
                self.assertEqual(self.janitor()[2], 0)
        self.assertEqual(self.meta()["missed"], 0)


class Cluster(unittest.TestCase):
    """Each script touches keys of one slot alone, which a cluster checks; but
    a pump asks for another, and is refused."""

    def test_a_life_in_a_cluster(self):
        with Engine(cluster_enabled="yes") as engine:
            client, = join([engine])
            space = Space(client, "test", shards=3, slots=SLOTS, tick=TICK)
            for shard in range(3):
                self.live(space, shard)
            self.assertEqual(space("hosts", 0, "h", 1000), [b"h"])
            self.assertEqual(Checker(client, "test")(), [])

    def live(self, space, shard):
        self.assertEqual(space(
            "add", shard, "x", "q", "in", 0, 2, "", "",
            "y", "r", "in", 0, 1, "", "", "z", "q", "in", 9999, 1, "", ""),
            [0, 0, 0])
        moved, *_, unnotified, _ = space("pump", shard, 10, "", "notify")
        self.assertEqual((moved, unnotified), (2, [b"q", b"r"]))
        x = held(space("take", shard, "q", "w", 1, 0, 1, LEASE)[0])
        y = held(space("take", shard, "r", "w", 2, 1, 1, LEASE)[0])
        self.assertEqual((x[0], y[0]), (b"x", b"y"))
        self.assertEqual(space(
            "finish", shard, *x, "done", 0, *y, "fail", 0), [0, 0])
        self.assertEqual(space("dead", shard, "drop", "y"), 0)
        self.assertEqual(space("reschedule", shard, "z", "in", 5000), 0)
        self.assertEqual(space("cancel", shard, "z"), 0)
        self.assertEqual(space("janitor", shard, 10, 1, 80), [0] * 4)
        self.assertEqual(space("audit", shard, "x", "z", ""), [[], [], []])


class Race(Case):
    """Many at once on one shard, while the clock runs."""

    TASKS, SCHEDULERS, WORKERS = 2000, 8, 4

    def setUp(self):
        super().setUp()
        self.engine.clock.set_off(0)
        self.space = self.make("race", tick=10)
        self.check = Checker(self.client, "race")
        self.pumps, self.takes = [], []
        self.ended = []  # appended to: adding to a number would not be safe

    def schedule(self):
        with self.engine.client() as client:
            space = Space(client, "race", scripts=self.scripts, init=False)
            version = ""
            while not self.over():
                reply = space("pump", 0, 64, version)
                version = reply[2]
                if reply[0] > 0:
                    self.pumps.append(reply)
                time.sleep(0.001)

    def work(self, name):
        with self.engine.client() as client:
            space = Space(client, "race", scripts=self.scripts, init=False)
            token = 0
            while not self.over():
                token += 1
                tasks = space("take", 0, "q", name, token, token - 1, 32, LEASE)
                now = self.now(client)
                words = []
                for task in tasks:
                    self.takes.append((*task[:3], now - task[3]))
                    words += [*held(task), "done", 0]
                self.ended.extend(
                    result for result in space("finish", 0, *words)
                    if result == 0)
                time.sleep(0.001)

    @staticmethod
    def now(client):
        seconds, micros = client("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    def over(self):
        return len(self.ended) >= self.TASKS

    def add_all(self):
        for first in range(0, self.TASKS, 100):
            self.space("add", 0, *sum(
                ([f"x{i}", "q", "in", i % 300, 1, "", ""]
                 for i in range(first, first + 100)), []))

    def test_each_version_has_one_winner_and_each_attempt_one_worker(self):
        threads = [threading.Thread(target=self.schedule)
                   for _ in range(self.SCHEDULERS)]
        threads += [threading.Thread(target=self.work, args=(f"w{i}",))
                    for i in range(self.WORKERS)]
        for thread in threads:
            thread.start()
        try:
            self.add_all()
            for thread in threads:
                thread.join(LIMIT)
                self.assertFalse(thread.is_alive())
        finally:
            self.ended.extend([0] * self.TASKS)
        self.assertEqual(sum(reply[0] for reply in self.pumps), self.TASKS)
        self.assertEqual(len({reply[2] for reply in self.pumps}),
                         len(self.pumps))
        self.assertEqual(len({each[:3] for each in self.takes}), self.TASKS)
        self.assertTrue(min(each[3] for each in self.takes) >= 0, "early")
        self.assertEqual(self.check(drained=True), [])
        self.assertEqual(self.space.meta(0)["succeeded"], self.TASKS)


def main(arguments=(), module=sys.modules[__name__]):
    loader = unittest.TestLoader()
    if arguments:
        loader.testNamePatterns = [f"*{each}*" for each in arguments]
    suite = loader.loadTestsFromModule(module)
    try:
        result = unittest.TextTestRunner(
            stream=sys.stdout, verbosity=0).run(suite)
    finally:
        if Case.engine:
            Case.engine.close()
            Case.engine = None
    bad = len({str(test).split(" (")[0] for test, _ in
               result.failures + result.errors})
    print("tally", result.testsRun - bad - len(result.skipped), bad,
          len(result.skipped))
    return 1 if bad or result.testsRun == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
