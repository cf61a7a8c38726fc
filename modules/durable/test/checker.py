# SPDX-License-Identifier: Apache-2.0
"""The invariants of a space, checked from outside: reads all its keys and
names each invariant that does not hold. The rules are those of DESIGN and the
same as in scripts/audit.lua, written a second time.

    5  a pending id is in the bucket that its record names, or, if it is due, in
       its queue, where it is then delivered; a running one in flight; a failed
       one where its state says. No member without a record. What is due is in
       a slot that a pump will look at before a rotation is over
    6  clock, cursor, version, fence, generation never fall
    7  drained: nothing in flight, in queues, in buckets, in quarantine
    8  added = ended + live, and each counter agrees with what is there

A record has options only in a shard of format 3 or 4, and a priority only in
one of format 4, which older versions refuse.

Nothing may change the space while it is being read.
"""

import re
import struct

from engine import shard_of

LAYOUT = struct.Struct("<BBHHHIIQQQQQ")
OPTIONS = struct.Struct("<QQQIB")
STATES = ["", "pending", "delivered", "running", "succeeded", "failed",
          "cancelled", "quarantined"]
SHORT = 1000  # in a longer queue, entries may be left that nobody waits for
TYPES = {"meta": b"hash", "b": b"zset", "r": b"string", "q": b"list",
         "fly": b"zset", "dead": b"zset", "bad": b"zset", "t": b"string",
         "e": b"string", "queues": b"zset", "paused": b"zset",
         "schedules": b"zset", "s": b"hash", "o": b"string",
         "limits": b"zset", "l": b"hash", "f": b"zset"}
WHERE = {"running": "fly", "failed": "dead", "quarantined": "bad"}
QUEUE = re.compile(rb"[A-Za-z0-9._-]{1,64}\Z")


class Record:
    """A record that can be read; ValueError otherwise."""

    def __init__(self, data, slots):
        if data is None or len(data) < LAYOUT.size:
            raise ValueError("too short")
        (kind, state, self.attempts, self.max_attempts, length,
         self.generation, self.slot, self.due, *self.doubts, self.fence,
         self.changed) = LAYOUT.unpack_from(data)
        self.queue = data[LAYOUT.size:LAYOUT.size + length]
        rest = data[LAYOUT.size + length:]
        self.expires, self.retries, self.priority = 0, [0, 0, 0], 0
        if kind == 3:
            if len(rest) < OPTIONS.size:
                raise ValueError("options")
            self.expires, *self.retries, self.priority = \
                OPTIONS.unpack_from(rest)
            rest = rest[OPTIONS.size:]
        self.payload = rest
        self.has_entry = state >= 16  # of before, which was left
        state -= 16 if self.has_entry else 0
        if kind not in (2, 3) or not 1 <= state <= 7:
            raise ValueError("format or state")
        self.state = STATES[state]
        if self.state == "quarantined":
            return
        if len(self.queue) != length or not QUEUE.match(self.queue):
            raise ValueError("queue")
        used_up = self.attempts >= self.max_attempts
        if self.generation < 1 or self.slot >= slots or \
                self.due >= 2 ** 48 or self.expires >= 2 ** 48 or \
                any(self.retries) and 0 in self.retries or \
                self.priority > 2 or \
                self.state == "delivered" or \
                self.attempts > self.max_attempts or \
                self.fence > 2 ** 53 or \
                used_up and self.state == "pending":
            raise ValueError("numbers")

    @property
    def lane(self):
        return self.queue + (b"", b"+", b",")[self.priority]

    def member(self, name):
        """Of its bucket."""
        return self.lane + struct.pack(">Q", self.due)[1:] + name


class Shard:
    """All keys of a shard, as they are."""

    def __init__(self, client, space, number):
        self.client = client
        self.number = number
        self.prefix = b"{%s:%d}:" % (space.encode(), number)
        self.broken = []
        self.keys = {kind: {} for kind in TYPES}
        self.meta = {}
        self.read()

    def complain(self, invariant, text):
        self.broken.append(f"{invariant} shard {self.number}: {text}")

    def read(self):
        names = scan(self.client, glob(self.prefix) + b"*")
        types = self.client.pipeline([("TYPE", name) for name in names])
        commands, places = [], []
        for name, kind in zip(names, types):
            part, _, rest = name[len(self.prefix):].partition(b":")
            part = part.decode(errors="replace")
            if part == "aside":
                continue
            if kind == b"none":
                continue  # it has expired, or the janitor has emptied it
            if TYPES.get(part) != kind:
                self.complain(5, f"{name!r} is a {kind.decode()}")
                if part == "r":
                    self.keys["r"][rest] = None
                continue
            commands.append({
                b"hash": ("HGETALL", name), b"string": ("GET", name),
                b"zset": ("ZRANGE", name, 0, -1, "WITHSCORES"),
                b"list": ("LRANGE", name, 0, -1)}[kind])
            places.append((part, rest, kind))
        for (part, rest, kind), reply in zip(
                places, self.client.pipeline(commands)):
            if part == "meta":
                self.meta = {reply[i].decode(): int(reply[i + 1])
                             for i in range(0, len(reply), 2)
                             if reply[i] not in (b"turn", b"schedule")}
            elif kind == b"zset":
                reply = {reply[i]: float(reply[i + 1])
                         for i in range(0, len(reply), 2)}
            self.keys[part][rest] = reply

    def members(self, name):
        return self.keys[name].get(b"", {})


def glob(text):
    """Matches just this: the pattern of SCAN."""
    return re.sub(rb"([][*?^\\-])", rb"\\\1", text)


def scan(client, pattern):
    cursor, names = b"0", set()
    while True:
        cursor, found = client(
            "SCAN", cursor, "MATCH", pattern, "COUNT", 10000)
        names.update(found)
        if cursor == b"0":
            return sorted(names)


class Checker:
    """Remembers what must not fall. routed: each id is in the shard that its
    hash names."""

    def __init__(self, client, space, routed=False):
        self.client = client
        self.space = space
        self.routed = routed
        self.forget()

    def forget(self):
        """After a loss that is allowed."""
        self.before = {}
        self.generations = {}

    def __call__(self, drained=False):
        pattern = re.compile(
            rb"\{%s:([0-9]+)\}:" % re.escape(self.space.encode()))
        numbers = sorted({
            int(match.group(1)) for match in map(pattern.match, scan(
                self.client, b"{" + glob(self.space.encode()) + b":*"))
            if match})
        self.broken = []
        self.shards = {}
        for number in numbers:
            shard = Shard(self.client, self.space, number)
            self.shards[number] = shard
            if not shard.meta:
                shard.complain(5, "no meta")
                self.broken += shard.broken
                continue
            self.records = {}
            self.check_records(shard)
            self.check_members(shard)
            self.check_queues(shard)
            self.check_places(shard)
            self.check_counters(shard)
            self.check_order(shard)
            if drained:
                self.check_drained(shard)
            self.broken += shard.broken
        return self.broken

    def now(self, shard):
        seconds, micros = self.client("TIME")
        return max(int(seconds) * 1000 + int(micros) // 1000,
                   shard.meta["clock"])

    def check_records(self, shard):
        now = self.now(shard)
        for name in shard.keys["e"]:
            if name not in shard.members("dead"):
                shard.complain(
                    5, f"{name!r}: an error, and no dead letter")
        for name, data in shard.keys["r"].items():
            try:
                record = Record(data, shard.meta["slots"])
            except ValueError as error:
                record = None
                if name not in shard.members("bad"):
                    shard.complain(
                        5, f"{name!r}: a record that cannot be read: {error}")
            self.records[name] = record
            if record:
                self.check_where(shard, name, record, now)
            if record and shard.meta["format"] < (
                    4 if record.priority else data[0]):
                shard.complain(5, f"{name!r}: options, in an older format")
            if self.routed and shard_of(
                    name, shard.meta["shards"]) != shard.number:
                shard.complain(5, f"{name!r} is another shard's")

    def check_where(self, shard, name, record, now):
        bucket = shard.keys["b"].get(b"%d" % record.slot, {})
        if record.state == "pending" and record.due <= now and \
                record.member(name) not in bucket:
            record.state = "delivered"
        state = record.state
        for place in ("fly", "dead", "bad"):
            there = name in shard.members(place)
            if there != (WHERE.get(state) == place):
                shard.complain(5, f"{name!r}: {state}, and "
                               f"{'' if there else 'not '}in {place}")
        if state == "pending":
            self.check_slot(shard, name, record, now)
        if state in ("succeeded", "cancelled") and record.payload:
            shard.complain(10, f"{name!r}: {state}, with its payload")

    def check_slot(self, shard, name, record, now):
        meta = shard.meta
        bucket = shard.keys["b"].get(b"%d" % record.slot, {})
        if record.member(name) not in bucket:
            shard.complain(5, f"{name!r}: pending, not in its bucket")
        behind = (record.slot - meta["cursor"]) % meta["slots"]
        if record.due <= now:
            if behind > now // meta["tick"] - meta["cursor"]:
                shard.complain(5, f"{name!r}: due, behind the cursor")
        elif record.slot != record.due // meta["tick"] % meta["slots"]:
            shard.complain(5, f"{name!r}: not in the slot of its tick")

    def check_members(self, shard):
        for slot, members in shard.keys["b"].items():
            for member, score in members.items():
                name = member.partition(b"\0")[2][6:]
                record = self.records.get(name)
                if score != 0 or not record or record.state != "pending" or \
                        b"%d" % record.slot != slot or \
                        record.member(name) != member:
                    shard.complain(5, f"{member!r}: in bucket "
                                   f"{slot.decode()}, where it does not "
                                   "belong")
        for place in ("fly", "dead", "bad"):
            for name in shard.members(place):
                if name not in self.records:
                    shard.complain(5, f"{name!r}: in {place}, no record")
                elif not self.records[name] and place != "bad":
                    shard.complain(5, f"{name!r}: in {place}, unreadable")

    def check_places(self, shard):
        """Of a queue with a limit, each that runs has a place, and no other."""
        for queue, limits in shard.keys["l"].items():
            if queue not in shard.members("limits"):
                shard.complain(5, f"{queue!r}: not among those with limits")
            if b"0" == limits[limits.index(b"places") + 1]:
                continue
            running = {name for name, record in self.records.items()
                       if record and record.queue == queue
                       and record.state == "running"}
            places = set(shard.keys["f"].get(queue, ()))
            if places != running:
                shard.complain(5, f"{queue!r}: {running ^ places}: running, "
                               "or in a place")

    def check_queues(self, shard):
        found = set()
        for lane, entries in shard.keys["q"].items():
            if lane.rstrip(b"+,") not in shard.members("queues"):
                shard.complain(5, f"{lane!r}: not among the queues")
            for entry in entries:
                record = self.records.get(entry)
                if not record or record.state != "delivered" or \
                        record.lane != lane or entry in found:
                    if len(entries) <= SHORT and not (
                            record and record.has_entry):
                        shard.complain(5, f"{entry!r}: an entry of "
                                       f"{lane!r} that nobody waits for")
                    continue
                found.add(entry)
        for name, record in self.records.items():
            if record and record.state == "delivered" and name not in found:
                shard.complain(5, f"{name!r}: delivered, in no queue")

    def check_counters(self, shard):
        meta = shard.meta
        states = [record.state for record in self.records.values() if record]
        sizes = {name: states.count(name)
                 for name in ("pending", "delivered")}
        for name, size in sizes.items():
            if meta[name] != size:
                shard.complain(8, f"{name} is {meta[name]}, there are {size}")
        ended = meta["succeeded"] + meta["cancelled"] + meta["dropped"]
        if meta["added"] != ended + sum(sizes.values()) + \
                states.count("running") + states.count("failed") + \
                len(shard.members("bad")):
            shard.complain(8, f"added is {meta['added']}, "
                           f"ended and live are others: {meta}")
        if meta["missed"] != 0:
            shard.complain(5, f"missed is {meta['missed']}")
        if min(meta.values()) < 0:
            shard.complain(8, f"a counter is negative: {meta}")

    def check_order(self, shard):
        before = self.before.get(shard.number, shard.meta)
        for name in ("clock", "cursor", "version", "fence"):
            if shard.meta[name] < before[name]:
                shard.complain(6, f"{name} fell from {before[name]} to "
                               f"{shard.meta[name]}")
        now = self.now(shard)
        if shard.meta["cursor"] > now // shard.meta["tick"]:
            shard.complain(6, "the cursor is in the future")
        self.before[shard.number] = shard.meta
        last = self.generations.get(shard.number, {})
        this = {name: record.generation
                for name, record in self.records.items()
                if record and record.state != "quarantined"}
        for name, generation in this.items():
            if generation < last.get(name, 0):
                shard.complain(6, f"{name!r}: the generation fell")
        self.generations[shard.number] = this

    def check_drained(self, shard):
        for kind in ("b", "q", "fly", "bad"):
            if shard.keys[kind]:
                shard.complain(7, f"left: {list(shard.keys[kind])[:5]} "
                               f"of {kind}")
