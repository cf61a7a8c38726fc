# SPDX-License-Identifier: Apache-2.0
"""The clock of a machine that everything runs on, an engine and its clients,
which a test sets ahead and back, and the clock of one process alone. Times in
this file are milliseconds; a real one is of this process, which has the right
clock.

A clock is off by whole hours, and a run is shorter than one: so a process'
stamp says when it was really written.

What an engine may take for the time follows from when the clock was set. A
leap that ends soon is not to be believed, one that stays is. When the clock is
set back, time stands still, until somebody resets it."""

import os
import threading
import time

from engine import CLOCK, Clock

HOUR = 3600000
BELIEVED = 8000  # a leap that lasts for longer may be: LEAP_HOLD is 10 s
SLACK = 5000  # after a reset, a callback of before is still called
NEVER = float("inf")


def now_ms():
    return int(time.time() * 1000)


class Machine:
    """folder: where the files of the clocks are; engine: the engine's own."""

    def __init__(self, folder, engine):
        self.folder = folder
        self.clocks = {"engine": engine}
        self.lock = threading.Lock()
        self.began = now_ms() - 60000
        # The clocks were set between these two real times, to be off by this.
        self.steps = [(0, 0, 0)]
        self.marks = []  # from, until, and where time stood still
        self.backs = self.longest = 0  # by how much

    def environment(self, name):
        """Of a process whose clock is the machine's, and its own besides."""
        with self.lock:
            if name not in self.clocks:
                self.clocks[name] = Clock(
                    os.path.join(self.folder, name + ".clock"))
                self.clocks[name].set_off(self.off)
            path = self.clocks[name].path
        return {**os.environ, "LD_PRELOAD": CLOCK, "HWT_CLOCK_FILE": path}

    @property
    def off(self):
        return self.steps[-1][2]

    @property
    def owed(self):
        """What was added by a clock that was ahead then is due by the clock
        of now and this."""
        return self.backs + self.longest

    def set_all(self, off):
        with self.lock:
            for clock in self.clocks.values():
                clock.set_off(off)

    def set_one(self, name, off):
        self.clocks[name].set_off(self.off + off)

    def set_by(self, by):
        """For good."""
        before, off = now_ms(), self.off + by
        self.set_all(off)
        self.steps.append((before, now_ms(), off))

    def set_back(self, by):
        """For good; a reset must follow."""
        self.set_by(-by)
        _, after, off = self.steps[-1]
        self.marks.append((after, NEVER, after + off + by))
        self.backs += by

    def was_reset(self):
        until = now_ms() + SLACK
        self.marks = [(since, min(end, until), mark)
                      for since, end, mark in self.marks]

    def leap(self, by, meanwhile):
        """For as long as meanwhile() takes. False: that was for so long that
        it may be believed, and time stands still now."""
        began, off = now_ms(), self.off
        self.longest = max(self.longest, by)
        self.set_all(off + by)
        meanwhile()
        self.set_all(off)
        ended = now_ms()
        if ended - began < BELIEVED:
            return True
        self.steps += [(began, ended, off + by), (began, ended, off)]
        self.marks.append((ended, NEVER, ended + off + by))
        return False

    def real(self, stamp):
        """When it was written."""
        return self.began + (stamp - self.began) % HOUR

    def offs(self, first, last):
        """What the clock may have been off by at any time from first to last,
        and since when."""
        ends = [after for _, after, _ in self.steps[1:]] + [NEVER]
        for (since, _, off), until in zip(self.steps, ends):
            if since <= last and until >= first:
                yield max(since, first), off

    def earliest(self, first, last):
        """What the engine takes at least for the time, at some time between
        the two."""
        return min(since + off for since, off in self.offs(first, last))

    def latest(self, at):
        """What it takes for the time at most, just then."""
        return max([at + off for _, off in self.offs(at, at)] +
                   [mark for since, until, mark in self.marks
                    if since <= at < until])


class Steady:
    """The clock of a machine that nobody sets."""

    off = owed = 0
    marks = ()

    @staticmethod
    def environment(_):
        return None

    @staticmethod
    def real(stamp):
        return stamp

    @staticmethod
    def earliest(first, _):
        return first

    @staticmethod
    def latest(at):
        return at
