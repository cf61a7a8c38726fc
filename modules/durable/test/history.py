# SPDX-License-Identifier: Apache-2.0
"""The history of each record of a space, read from the append-only file of its
engine, write by write.

What is checked, by the numbers of the invariants: 2 an attempt begins when the
task is due, by the time of the script that begins it. 3 each attempt has a
fence of its own, greater than all before in its shard; it counts as one, and
there are no more than allowed; only the one that runs ends the task. 4 what was
cancelled begins no more. 6 the clock of a shard falls by a reset alone; the
generation of a record never does."""

import collections
import re

from checker import LAYOUT, STATES

Header = collections.namedtuple(
    "Header", "format state attempts most length generation slot due doubt "
    "doubt_before fence changed")
NEW = ("none", "pending")
# From which state to which, in the same generation and in the next one.
SAME = {NEW, ("pending", "pending"), ("pending", "running"),
        ("running", "running"), ("running", "pending"),
        ("running", "succeeded"), ("running", "failed"),
        ("pending", "cancelled"), ("failed", "pending"),
        # The entry of before in a long queue has gone, or it is read anew.
        ("cancelled", "cancelled"), ("succeeded", "succeeded")}
NEXT = {("pending", "pending"), ("failed", "pending"),
        ("succeeded", "pending"), ("cancelled", "pending")}


def commands(data):
    """Each whole command, and where it ends."""
    at = 0
    while at < len(data):
        end = data.find(b"\r\n", at)
        if end < 0:
            return
        if data[at:at + 1] == b"#":  # a time
            at = end + 2
            continue
        count, at = int(data[at + 1:end]), end + 2
        words = []
        for _ in range(count):
            end = data.find(b"\r\n", at)
            if end < 0:
                return
            length = int(data[at + 1:end])
            at = end + 2 + length + 2
            if at > len(data):
                return
            words.append(data[end + 2:at - 2])
        yield words, at


class History:
    """read() goes on where it was. When the file was rewritten, what was
    between the two is unknown, and complete is False."""

    def __init__(self, engine, space, complain):
        self.engine = engine
        self.complain = complain
        self.key = re.compile(rb"\{%s:([0-9]+)\}:(meta$|r:)" %
                              re.escape(space.encode()))
        self.path = None
        self.at = 0
        self.complete = True
        self.writes = 0
        self.headers = {}  # by id: the last one
        self.fences = {}  # by shard: the last one
        self.clocks = {}  # by shard
        self.falls = collections.Counter()  # of clocks, by shard
        self.added, self.cancelled = set(), set()
        self.begun = collections.Counter()  # (id, generation, attempt)

    def read(self):
        path = self.engine.append_only_files()[-1]
        if self.path not in (None, path):
            self.complete = False
            self.headers = {}
            self.at = 0
        self.path = path
        with open(path, "rb") as file:
            file.seek(self.at)
            data = file.read()
        inside, whole, last = [], False, 0
        for words, end in commands(data):
            name = words[0].upper()
            if name == b"MULTI":
                inside, whole = [], True
            elif name == b"EXEC":
                for each in inside:
                    self.note(each)
                whole = False
            elif whole:
                inside.append(words)
            else:
                self.note(words)
            last = last if whole else end
        self.at += last

    def note(self, words):
        name = words[0].upper()
        if name in (b"DEL", b"UNLINK"):
            for key in words[1:]:
                found = self.key.match(key)
                if found and found.group(2) == b"r:":
                    self.headers.pop(key[found.end():], None)
            return
        if name == b"MSET":
            for key, data in zip(words[1::2], words[2::2]):
                self.note_record(key, data)
        elif name in (b"SET", b"SETRANGE"):
            self.note_record(words[1], words[2 if name == b"SET" else 3])
        elif name in (b"HSET", b"HMSET"):
            found = self.key.match(words[1])
            fields = dict(zip(words[2::2], words[3::2]))
            if found and found.group(2) != b"r:":
                self.note_clock(int(found.group(1)),
                                int(fields.get(b"clock", 0)))

    def note_record(self, key, data):
        found = self.key.match(key)
        if found and found.group(2) == b"r:":
            self.step(int(found.group(1)), key[found.end():].decode(),
                      Header(*LAYOUT.unpack_from(data)))

    def note_clock(self, shard, clock):
        if clock and clock < self.clocks.get(shard, 0):
            self.falls[shard] += 1
        self.clocks[shard] = clock or self.clocks.get(shard, 0)

    def step(self, shard, name, new):
        self.writes += 1
        new = new._replace(state=new.state % 16)
        old = self.headers.get(name)
        self.headers[name] = new
        state = STATES[new.state]
        before = STATES[old.state] if old else "none"
        if old or self.complete:
            self.check_step(name, before, state, old, new)
        if before == "none" and state == "pending":
            self.added.add(name)
        elif state == "cancelled":
            self.cancelled.add(name)
        if state == "running" and (not old or new.fence != old.fence):
            self.begin(shard, name, new)

    def check_step(self, name, before, state, old, new):
        if (before, state) == NEW:
            good = new.attempts == new.fence == 0 and new.generation == 1
        elif new.generation == old.generation:
            good = (before, state) in SAME and self.goes_on(
                before, state, old, new)
        else:
            good = new.generation == old.generation + 1 and \
                (before, state) in NEXT and new.attempts == 0
        if not good:
            self.complain(f"history of {name}: from {before} to {state}: "
                          f"{old} {new}")

    @staticmethod
    def goes_on(before, state, old, new):
        """In the same generation."""
        counted = new.attempts - old.attempts
        if (before, state) == ("pending", "running"):
            return counted == 1 and new.fence > old.fence and \
                new.due == old.due
        if state in ("succeeded", "cancelled") or state == before:
            return new.fence == old.fence and counted in (
                (0, -1) if before in ("pending", "running") and
                state == before else (0,))
        return new.fence == old.fence and counted in (0, -1)

    def begin(self, shard, name, new):
        if new.changed < new.due:
            self.complain(f"2 history of {name}: begun {new.due - new.changed}"
                          f" ms early: {new}")
        if new.fence <= self.fences.get(shard, 0):
            self.complain(f"3 history of {name}: fence {new.fence} after "
                          f"{self.fences[shard]}")
        if new.attempts > new.most:
            self.complain(f"3 history of {name}: {new}")
        self.fences[shard] = new.fence
        self.begun[name, new.generation, new.attempts] += 1
