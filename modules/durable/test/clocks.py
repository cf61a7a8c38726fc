#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Clocks that leap ahead, for a moment or for good, and what stands still
after that. The clients share the machine with the engine: their clock leaps
with its.

    clocks.py [-v] [CLASS[.test]...]

HWT_BUILD is the folder of the programs; build/plain without it."""

import os
import sys
import time

from engine import CLOCK
from programs import DURABLE, NO, Programs, call, main, wait_until
from scripts import START, Case

HOUR = 3600000
DAY = 24 * HOUR
MAX, HOLD = 60000, 10000  # of scripts/common.lua


class Scripts(Case):
    """The rule, with a clock that is moved by hand."""

    def setUp(self):
        super().setUp()
        self.client("FLUSHALL")
        self.space = self.make("test", slots=64)
        self.pump()

    def call(self, name, *arguments, trusted_time=""):
        """By one who does not know the time. The invariants are checked at the
        end of a test."""
        return self.space(name, 0, *arguments, trusted_time=trusted_time)

    def pump(self, trusted_time=""):
        """As a scheduler that has just begun, or knows the time."""
        return self.call("pump", 100, "", trusted_time=trusted_time)

    def janitor(self):
        """How many leases it has ended."""
        return super().janitor(10)[0]

    def pump_for(self, ms):
        """Each second; how many were moved."""
        moved = 0
        for _ in range(ms // 1000):
            self.move(1000)
            moved += self.pump()[0]
        return moved

    def test_what_is_within_the_bound_is_believed_at_once(self):
        self.add("x", MAX)
        self.move(MAX)
        self.assertEqual(self.pump()[0], 1)

    def test_a_leap_for_a_moment_changes_nothing(self):
        self.add("x", 30000)
        self.add("y", HOUR // 2)
        for _ in range(5):
            self.move(HOUR)
            self.assertEqual(self.pump_for(3000), 0)
            self.assertEqual(self.take(), [])
            self.move(-HOUR)
            self.assertLess(self.space.meta(0)["clock"], START + 30000)
            self.pump()
        self.assertEqual(self.pump_for(14000), 0)
        self.assertEqual(self.pump_for(1000), 1)
        self.assert_whole()

    def test_a_leap_that_lasts_is_believed(self):
        self.add("x", HOUR // 2)
        self.move(HOUR)
        self.assertEqual(self.pump_for(HOLD), 0)
        self.assertEqual(self.pump_for(1000), 1)
        self.assert_whole()

    def test_a_second_leap_in_doubt_counts_anew(self):
        self.add("x", HOUR // 2)
        self.move(HOUR)
        self.assertEqual(self.pump_for(3000), 0)
        self.move(HOUR)
        self.assertEqual(self.pump_for(HOLD), 0)
        self.assertEqual(self.pump_for(1000), 1)

    def test_who_knows_that_so_much_time_has_gone_by_is_believed(self):
        self.add("x", HOUR // 2)
        self.move(HOUR)
        self.assertEqual(self.pump(START + HOUR - MAX - 1)[0], 0)
        self.assertEqual(self.pump(START + HOUR - MAX)[0], 1)

    def test_what_is_added_in_doubt_is_never_early(self):
        self.move(DAY)
        self.add("x", 20000)
        self.add("y", 0)
        self.assertEqual(self.pump_for(HOLD), 0)
        self.assertEqual(self.pump_for(1000), 1)
        self.assertEqual(self.pump_for(20000 - HOLD - 2000), 0)
        self.assertEqual(self.pump_for(1000), 1)
        self.assert_whole()

    def test_leases_are_as_long_after_a_leap_that_lasts(self):
        """Whether they were given before it or in doubt."""
        for before in (True, False):
            self.add(f"x{before}", 0)
            self.pump()
            if before:
                self.assertEqual(len(self.take(visibility=HOUR // 2)), 1)
            self.move(HOUR)
            if not before:
                self.assertEqual(len(self.take(visibility=HOUR // 2)), 1)
            self.pump_for(HOLD + 1000)
            self.pump_for(HOUR // 2 - 1000)
            self.assertEqual(self.janitor(), 0)
            self.pump_for(1000)
            self.assertEqual(self.janitor(), 1)
            self.assert_whole()
            self.call("cancel", f"x{before}")

    def test_leases_that_are_over_get_a_while_after_such_a_leap(self):
        self.add("x", 0)
        self.pump()
        self.take(visibility=1)
        self.move(1)
        self.pump()
        self.move(HOUR)
        self.pump_for(HOLD + 1000)
        self.assertEqual(self.janitor(), 0)
        self.pump_for(HOLD)
        self.assertEqual(self.janitor(), 1)

    def test_leases_get_a_while_after_a_long_pause(self):
        """It is told by who does not know how long it was."""
        self.add("x", 0)
        self.pump()
        self.take()
        self.call("pause")
        self.move(HOUR)
        self.call("resume")
        self.pump(START + HOUR)
        self.assertEqual(self.janitor(), 0)
        self.move(HOLD - 1)
        self.assertEqual(self.janitor(), 0)
        self.move(1)
        self.assertEqual(self.janitor(), 1)

    def test_a_pause_that_ended_in_a_leap_for_a_moment(self):
        """Its time is in the future then, and delays no lease."""
        self.add("x", 0)
        self.pump()
        self.take()
        self.call("pause")
        self.move(HOUR)
        self.call("resume")
        self.move(-HOUR)
        self.pump_for(30000)
        self.assertEqual(self.janitor(), 1)

    def test_a_leap_beyond_the_retention_takes_what_has_ended(self):
        """For a moment, too: man hwt_durable. What has not ended stays."""
        self.add("ended", 0)
        self.add("dead", 0)
        self.add("x", 30000)
        self.pump()
        for task in self.take():
            outcome = "done" if task[0] == b"ended" else "fail"
            self.call("finish", task[0], task[6], outcome, 0)
        for hours in (2, -2):
            self.move(hours * HOUR)
            self.pump()
            there = [self.client("EXISTS", self.space.key(0, "r:" + name))
                     for name in ("ended", "dead", "x")]
            self.assertEqual(there, [0, 1, 1])
        self.assert_whole()

    def test_nobody_spins_while_time_stands_still(self):
        self.add("x", 50)
        self.move(-HOUR)
        self.assertEqual(self.pump()[1], 1000)
        self.move(2 * HOUR)
        self.assertEqual(self.pump()[1], 1000)

    def frozen(self):
        """An hour ahead, believed, and back."""
        self.add("before", 2 * HOUR)
        self.move(HOUR)
        self.pump_for(HOLD + 1000)
        self.add("run", 0)
        self.pump()
        fence = self.take()[0][6]
        self.move(-HOUR)
        self.add("frozen", 1000)
        self.pump()
        return fence

    def test_a_reset_ends_a_standstill(self):
        fence = self.frozen()
        self.assertGreater(self.pump()[6], HOUR - 10000)
        # What waits for a worker is due by the old clock alone.
        self.add("now", 0)
        self.pump()
        self.assertEqual(self.call("clock"), -1)
        taken = self.take()[0]
        self.call("finish", taken[0], taken[6], "done", 0)
        self.assertGreater(self.call("clock"), HOUR - 10000)
        self.assertEqual(self.pump()[6], 0)
        self.assert_whole()
        # What is added from now on is due by the clock.
        self.add("new", 3000)
        self.assertEqual([self.pump_for(2000), self.pump_for(1000)], [0, 1])
        fences = [task[6] for task in self.take()]
        self.assertTrue(fences and min(fences) > fence, fences)
        # A lease lasts 30 s, not an hour.
        self.pump_for(31000)
        self.assertEqual(self.janitor(), 1 + len(fences))
        # What was added while time stood still is late, and not lost.
        self.pump_for(HOUR // 50 * 48)
        self.assert_whole()
        self.assertEqual(self.call("clock"), 0)

    def test_a_reset_leaves_nothing_behind_the_cursor(self):
        self.frozen()
        at = START + 60000
        self.call("add", "at", "q", "at", at, 5, "", "")
        self.call("clock")
        self.assert_whole()
        now = self.space.meta(0)["clock"]
        self.assertEqual(self.pump_for(at - now - 1000), 0)
        self.assertEqual(self.pump_for(2000), 1)
        self.assertEqual(self.space("janitor", 0, 10, 1, 80)[3], 0)


class Machines(Programs):
    """hwtd, hwt-exec and hwtctl on the engine's machine."""

    config = {"clock": True, **DURABLE}

    def setUp(self):
        super().setUp()
        self.engine.clock.set_off(0)
        os.environ["HWT_CLOCK_FILE"] = self.engine.clock.path
        os.environ["LD_PRELOAD"] = CLOCK
        self.addCleanup(os.environ.pop, "HWT_CLOCK_FILE")
        self.addCleanup(os.environ.pop, "LD_PRELOAD")
        self.ctl("init", "--shards=2", "--tick=20")
        self.hwtd = self.start("hwtd", "--metrics=0")
        wait_until(lambda: "serves space" in self.hwtd.err)
        self.worker = self.shell('echo "$HWT_ID"')

    def test_an_hour_ahead_for_three_seconds(self):
        """All goes on afterwards, and nothing was early."""
        for i in range(10):
            self.add("--queue=q", "--in=1800", f"--id=early{i}")
        self.engine.clock.set_off(HOUR)
        time.sleep(1.5)
        self.assertEqual(self.hwtd.page("health")[0], 503)
        self.assertIn("leapt", self.hwtd.page("health")[1])
        self.assertIn("clock_leap_seconds", self.hwtd.page("metrics")[1])
        self.assertIn("clock_ahead_seconds", self.hwtd.page("metrics")[1])
        time.sleep(1.5)
        self.engine.clock.set_off(0)
        for i in range(10):
            self.add("--queue=q", "--in=0.2", f"--id=after{i}")
        wait_until(lambda: self.worker.out.count("\n") == 10, 10)
        self.assertEqual(sorted(self.worker.out.split()),
                         sorted(f"after{i}" for i in range(10)))
        wait_until(lambda: self.hwtd.page("health") == (200, "ok\n"))
        self.assertIn("has leapt ahead", self.hwtd.err)
        self.ctl("clock")

    def test_an_hour_ahead_for_too_long_is_told_and_reset(self):
        self.engine.clock.set_off(HOUR)
        self.add("--queue=q", "--in=0", "--id=a")
        wait_until(lambda: self.worker.out.count("\n") == 1)
        self.engine.clock.set_off(0)
        wait_until(lambda: self.hwtd.page("health")[0] == 503)
        self.assertIn("set back", self.hwtd.page("health")[1])
        wait_until(lambda: "behind what it was" in self.hwtd.err)
        said = call("hwtctl", "clock", *self.where())
        self.assertEqual(said.status, NO)
        self.assertIn("time stands still for 35", said.text)
        self.assertIn("set back by", self.ctl("clock", "--reset").text)
        self.add("--queue=q", "--in=0.2", "--id=b")
        wait_until(lambda: self.worker.out.count("\n") == 2, 10)
        wait_until(lambda: self.hwtd.page("health") == (200, "ok\n"))
        self.ctl("clock")


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        if Case.engine:
            Case.engine.close()
