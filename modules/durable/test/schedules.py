#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Schedules: when they occur, held against a second implementation that looks
at each minute; and what hwtctl and hwtd do with them, with real engines.

    schedules.py [-v] [CLASS[.test]...]

HWT_SEED seeds what is random. HWT_BUILD and HWT_BEFORE as in programs.py."""

import calendar
import ctypes
import datetime
import os
import random
import signal
import sys
import time
import unittest
import zoneinfo

from engine import shard_of
from programs import NO, ROOT, USAGE, YES, Programs, call, main, wait_until

# The library needs libhwt, which is not installed.
ctypes.CDLL(os.path.join(ROOT, "build/plain/libhwt.so"), ctypes.RTLD_GLOBAL)
LIBRARY = ctypes.CDLL(os.path.join(ROOT, "build/plain/libhwt_durable.so"))


class Schedule(ctypes.Structure):
    """struct hwt_durable_schedule, of which what follows stays 0."""
    _fields_ = [("name", ctypes.c_char_p), ("every_ns", ctypes.c_uint64),
                ("cron", ctypes.c_char_p), ("zone", ctypes.c_char_p),
                ("rest", ctypes.c_uint64 * 64)]


def next_occurrence(after, cron, zone=None):
    """The first occurrence after that time; None: there is none."""
    schedule = Schedule(cron=cron.encode(), zone=zone and zone.encode())
    found, why = ctypes.c_uint64(), ctypes.create_string_buffer(160)
    result = LIBRARY.hwt_durable_schedule_next(
        ctypes.byref(schedule), ctypes.c_uint64(round(after * 1e9)),
        ctypes.byref(found), why)
    if why.value:
        raise ValueError(why.value.decode())
    if result != 0:
        raise OSError(-result, "hwt_durable_schedule_next")
    return found.value / 1e9 or None


DAY = 86400
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe",
         "Africa/Casablanca", "America/Nuuk", "America/St_Johns",
         "Pacific/Chatham", "Europe/Dublin", "America/Santiago"]
LOW, HIGH = [0, 0, 1, 1, 0], [59, 23, 31, 12, 7]
WORDS = [[], [], [], ["", *map(str.lower, calendar.month_abbr[1:])],
         ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]]


class Line:
    """A line of cron: the local days and minutes of the day that it names."""

    def __init__(self, text):
        self.text = text
        fields = text.split()
        minutes, hours, days, months, weekdays = (
            self.expand(field, at) for at, field in enumerate(fields))
        star = [field[0] == "*" for field in fields]
        self.wild = star[0] or star[1]
        self.times = {hour * 60 + minute
                      for hour in hours for minute in minutes}
        both = star[2] or star[4]
        weekdays = {day % 7 for day in weekdays}

        def fits(date):
            by_day = date.day in days
            by_weekday = (date.weekday() + 1) % 7 in weekdays
            return date.month in months and (
                by_day and by_weekday if both else by_day or by_weekday)
        self.fits = fits
        self.known = {}

    @staticmethod
    def expand(field, at):
        found = set()
        for item in field.lower().split(","):
            span, _, step = item.partition("/")
            first, _, last = span.partition("-")
            if span == "*":
                first, last = LOW[at], HIGH[at]
            first, last = (
                WORDS[at].index(each) if each in WORDS[at] else int(each)
                for each in (first, last or first))
            found |= set(range(first, last + 1, int(step or 1)))
        return found

    def names(self, local):
        """Whether it names a minute, as a clock in UTC would show it."""
        if local // 60 % 1440 not in self.times:
            return False
        day = local // DAY
        if day not in self.known:
            self.known[day] = self.fits(
                datetime.date(1970, 1, 1) + datetime.timedelta(day))
        return self.known[day]

    def occurs(self, locals_shown, begin):
        """At which of the minutes from begin on, whose local times these
        are."""
        found, latest = [], locals_shown[0] - 60
        for at, local in enumerate(locals_shown):
            if self.wild:
                occurs = self.names(local)
            else:
                occurs = any(map(self.names, range(latest + 60, local + 1,
                                                   60)))
            if occurs:
                found.append(begin + 60 * at)
            latest = max(latest, local)
        return found


def shown(zone, begin, minutes):
    zone = zoneinfo.ZoneInfo(zone)
    return [at + int(datetime.datetime.fromtimestamp(at, zone).utcoffset()
                     .total_seconds())
            for at in range(begin, begin + 60 * minutes, 60)]


def changes(zone, year):
    """The first seconds of the days of UTC in which its clocks change."""
    first = int(datetime.datetime(
        year, 1, 1, tzinfo=datetime.timezone.utc).timestamp())
    at = shown(zone, first, 1) + [
        shown(zone, first + DAY * day, 1)[0] - DAY * day
        for day in range(1, 367)]
    return [first + DAY * day for day in range(366)
            if at[day] != at[day + 1]]


def answers(text, zone, begin, end):
    """What the library says."""
    found, at = [], begin - 1
    while True:
        at = next_occurrence(at, cron=text, zone=zone)
        if at is None or at >= end:
            return found
        found.append(int(at))


class Calendar(unittest.TestCase):
    def compare(self, text, zone, begin, local):
        # In the first minute the second one does not know what was before.
        want = [at for at in Line(text).occurs(local, begin) if at > begin]
        got = answers(text, zone, begin + 1, begin + 60 * len(local))
        self.assertEqual(got, want, f"{text} in {zone}")

    def test_a_year_of_lines(self):
        begin = int(datetime.datetime(
            2027, 1, 1, tzinfo=datetime.timezone.utc).timestamp())
        for zone in ("Europe/Berlin", "Australia/Lord_Howe",
                     "Africa/Casablanca", "America/Nuuk"):
            local = shown(zone, begin, 365 * 1440)
            for text in ("30 2 * * *", "15 1-3,23 13 mar-nov 0,6",
                         "0 */2 */10 * mon"):
                self.compare(text, zone, begin, local)

    @staticmethod
    def field(chance, at):
        def value():
            return chance.randint(LOW[at], HIGH[at])
        if chance.random() < 0.3:
            return "*"
        if chance.random() < 0.2:
            return f"*/{chance.randint(1, HIGH[at] // 2)}"
        items = []
        for _ in range(chance.choice([1, 1, 2, 3])):
            first, last = sorted((value(), value()))
            items.append(chance.choice([
                f"{first}", f"{first}-{last}",
                f"{first}-{last}/{chance.randint(1, HIGH[at] // 2)}"]))
        return ",".join(items)

    def test_any_line_when_clocks_change(self):
        seed = int(os.environ.get("HWT_SEED", random.randrange(10**6)))
        chance = random.Random(seed)
        compared = 0
        while compared < 200:
            zone = chance.choice(ZONES)
            year = chance.choice([2026, 2027, 2028, 2037, 2038, 2051, 2090])
            begin = chance.choice(changes(zone, year) or [
                calendar.timegm((year, 2, 28, 0, 0, 0))]) - DAY
            local = shown(zone, begin, 3 * 1440)
            for _ in range(10):
                text = " ".join(self.field(chance, at) for at in range(5))
                if chance.random() < 0.5:
                    text = " ".join([*text.split()[:2], "* * *"])
                try:
                    with self.subTest(seed=seed, year=year):
                        self.compare(text, zone, begin, local)
                except ValueError as error:
                    self.assertIn("no month", str(error), text)
                compared += 1

    def test_what_clocks_skip_and_what_they_show_twice(self):
        """Berlin: 2027-03-28 02:00 is 03:00, 2027-10-31 03:00 is 02:00."""
        def on(text, *day):
            begin = calendar.timegm((*day, 0, 0, 0))
            return [time.strftime("%H:%M", time.gmtime(at)) for at in
                    answers(text, "Europe/Berlin", begin, begin + DAY)]
        spring, autumn = (2027, 3, 28), (2027, 10, 31)
        self.assertEqual(on("30 2 * * *", *spring), ["01:00"])
        self.assertEqual(on("0,30 2 * * *", *spring), ["01:00"])
        self.assertEqual(on("0 2,3 * * *", *spring), ["01:00"])
        self.assertEqual(on("30 2 * * *", *autumn), ["00:30"])
        self.assertEqual(on("0 2,3 * * *", *autumn), ["00:00", "02:00"])
        self.assertEqual(on("*/30 2 * * *", *spring), [])
        # By the rule at the end of the file: a fifth Sunday.
        self.assertEqual(on("30 2 * * *", 2038, 10, 31), ["00:30"])
        self.assertEqual(on("*/30 2 * * *", *autumn),
                         ["00:00", "00:30", "01:00", "01:30"])

    def test_the_first_hours_of_1970_in_the_west(self):
        """There it is 1969."""
        for text, at in (("30 20 * * *", 5400), ("0 19 * * *", DAY),
                         ("15 * * * *", 900), ("0 0 * * *", 5 * 3600)):
            self.assertEqual(
                answers(text, "America/New_York", 1, DAY + 1)[0], at, text)

    def test_what_makes_no_sense_is_named(self):
        for text, why in (
                ("60 * * * *", "minute: 60 is not 0 to 59"),
                ("* 24 * * *", "hour: 24 is not 0 to 23"),
                ("* * 0 * *", "day: 0 is not 1 to 31"),
                ("* * * 13 *", "month: 13 is not 1 to 12"),
                ("* * * foo *", "month: foo is not 1 to 12"),
                ("* * * * 8", "weekday: 8 is not 0 to 7"),
                ("* * * * jan", "weekday: jan is not 0 to 7"),
                ("5/2 * * * *", "minute: a step needs * or a range: 5/2"),
                ("*/0 * * * *", "minute: 0 is not 1 to 59"),
                ("* * * */jan *", "month: jan is not 1 to 12"),
                ("* * * * */sun", "weekday: sun is not 1 to 7"),
                ("9-5 * * * *", "minute: 9-5 ends before it begins"),
                ("1, * * * *", "minute: a number is missing"),
                ("1- * * * *", "minute: a number is missing"),
                ("1-2-3 * * * *", "minute: 2-3 is not 0 to 59"),
                ("-1 * * * *", "minute: a number is missing"),
                ("1.5 * * * *", "minute: 1.5 is not 0 to 59"),
                ("", "cron: want five fields, minute hour day month weekday; "
                 "there are 0"),
                ("* * * * * *", "cron: want five fields, minute hour day "
                 "month weekday; there are 6"),
                ("* * * * *" + " " * 248, "cron: want up to 256 bytes"),
                ("@daily", "cron: want five fields, minute hour day month "
                 "weekday; there are 1"),
                ("0 0 30 2 *", "day: no month of the line has such a day"),
                ("0 0 31 feb,apr-apr,jun *",
                 "day: no month of the line has such a day")):
            with self.assertRaises(ValueError) as caught:
                next_occurrence(0, cron=text)
            self.assertEqual(str(caught.exception), why, text)

    def test_a_zone_that_is_none(self):
        for zone in ("../../etc/passwd", "/etc/passwd", ".", "Europe/", "a b",
                     "x" * 65):
            with self.assertRaisesRegex(ValueError, "want a name as"):
                next_occurrence(0, cron="* * * * *", zone=zone)
        for zone, why in (("Nowhere", "there is no .*/Nowhere"),
                          ("Europe", "is no zone file"),
                          ("right/UTC", "is no zone file")):
            with self.assertRaisesRegex(ValueError, why):
                next_occurrence(0, cron="* * * * *", zone=zone)


class Damaged(Programs):
    """Zone files that are none; the program that reads them may be built with
    sanitizers."""

    def put(self, name, **options):
        return self.ctl("schedule", "add", "x", "--queue=q",
                        "--cron=0 0 1 1 *", f"--zone={name}",
                        env={**os.environ, "TZDIR": self.folder}, **options)

    def test_each_byte_of_a_file_may_be_wrong(self):
        with open("/usr/share/zoneinfo/Europe/Berlin", "rb") as file:
            sound = file.read()
        self.path("Sound", sound)
        self.put("Sound")
        chance = random.Random(int(os.environ.get("HWT_SEED", 1)))
        for _ in range(60):
            bad = bytearray(sound[:chance.choice(
                [len(sound), len(sound), chance.randrange(len(sound))])])
            for _ in range(chance.choice([0, 1, 3])):
                at = chance.choice([chance.randrange(60), chance.randrange(
                    len(sound)), len(sound) - chance.randrange(1, 40)])
                if at < len(bad):
                    bad[at] = chance.randrange(256)
            self.path("Bad", bad)
            result = call(
                "hwtctl", "schedule", "add", "x", "--queue=q", "--redis",
                "127.0.0.1:1", "--timeout=0.01", "--cron=0 0 1 1 *",
                "--zone=Bad",
                env={**os.environ, "TZDIR": self.folder})
            self.assertIn(result.status, (USAGE, 3), result.err)

    def test_without_tzdata(self):
        self.put("Europe/Berlin", status=USAGE)
        self.folder += "/none"
        self.assertIn("tzdata is not installed",
                      self.put("Europe/Berlin", status=USAGE).err)
        self.put("UTC")


class Hwtctl(Programs):
    def add(self, name, *words, **options):
        return self.ctl("schedule", "add", name, "--queue=q", *words,
                        **options)

    def listed(self, *names):
        return self.ctl("schedule", "list", *names).objects

    def test_schedules_are_listed_until_they_are_dropped(self):
        self.add("tick", "--every=60", "--payload=p", "--attempts=3")
        self.add("daily", "--cron=30 2 * * mon-fri", "--zone=Europe/Paris",
                 "--missed=all")
        tick, daily = self.listed("tick", "daily")
        self.assertEqual(tick.pop("next_ms") % 60000, 0)
        self.assertGreater(daily.pop("next_ms"), time.time() * 1000)
        self.assertEqual(tick, {
            "name": "tick", "every": 60, "missed": "last", "queue": "q",
            "attempts": 3, "payload": "p", "last_ms": 0})
        self.assertEqual(daily, {
            "name": "daily", "cron": "30 2 * * mon-fri",
            "zone": "Europe/Paris", "missed": "all", "queue": "q",
            "attempts": 20, "payload": "", "last_ms": 0})
        self.assertEqual(len(self.listed()), 2)
        self.add("tick", "--every=60", "--expires-in=30", "--retry-first=9",
                 "--retry-factor=1.5", "--retry-most=90", "--priority=low")
        tick, = self.listed("tick")
        self.assertEqual([tick[name] for name in (
            "expires_in_ms", "retry_first_ms", "retry_factor",
            "retry_most_ms", "priority")], [30000, 9000, 1.5, 90000, "low"])
        self.check()
        self.ctl("schedule", "drop", "tick", "daily")
        self.assertEqual(self.listed(), [])
        for verb in ("drop", "list"):
            self.assertEqual(
                self.ctl("schedule", verb, "tick", status=NO).err,
                "hwtctl: schedule tick: there is none\n")

    def test_more_than_a_call_tells(self):
        names = {f"s{i}" for i in range(40)}
        self.ctl("init", "--shards=1")
        for name in names:
            self.add(name, "--every=60")
        self.assertEqual({each["name"] for each in self.listed()}, names)

    def test_bad_ones_are_named(self):
        for words, why in (
                (["x", "--every=0"], "whole number from 1"),
                (["x", "--every=1.5"], "whole number from 1"),
                (["x"], "either --every or --cron"),
                (["x", "--every=1", "--cron=* * * * *"], "either"),
                (["x", "--every=1", "--zone=UTC"], "there is no --cron"),
                (["x", "--every=1", "--missed=some"], "last, all or none"),
                (["x", "--every=1", "--expires-in=0"], "more than 0"),
                (["x", "--every=1", "--priority=1"], "high, normal or low"),
                (["x", "--every=1", "--expires-at=9"], "no option"),
                (["x", "--every=1", "--retry-factor=0"], "want 1 to 1000"),
                (["x", "--cron=* 25 * * *"], "hour: 25 is not 0 to 23"),
                (["x", "--cron=* * * * *", "--zone=No/Where"],
                 "there is no /usr/share/zoneinfo/No/Where"),
                (["a b", "--every=1"], "NAME has 1 to 43"),
                (["a" * 44, "--every=1"], "NAME has 1 to 43")):
            self.assertIn(why, self.add(*words, status=USAGE).err)
        for words in (["add"], ["drop"], ["move", "x"], ["list", "--every=1"]):
            self.ctl("schedule", *words, status=USAGE)


def name_at(name, at):
    return time.strftime(f"{name}@%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


class Occurs(Programs):
    """What schedulers add."""

    def put(self, *words, name="s"):
        self.ctl("schedule", "add", name, "--queue=q", *words)

    def last_look(self, seconds, name="s"):
        """As if no scheduler had been there for so long."""
        space = self.scripts()
        shard = shard_of(name.encode(), space.shards)
        key = space.key(shard, f"s:{name}")
        space.client("HSET", key, "last",
                     round((time.time() - seconds) * 1000))
        return space, shard

    def await_look(self, name="s"):
        """Until a scheduler has said when the next look is."""
        space = self.scripts()
        shard = shard_of(name.encode(), space.shards)
        wait_until(lambda: not space("schedules", shard, "due")[1:])

    def added(self):
        return sorted(each["id"] for each in self.ctl("list").objects)

    def at_missed_minutes(self):
        """A line of 30 and of 25 minutes ago; and these."""
        if time.time() % 60 > 50:
            time.sleep(11)
        now = int(time.time()) // 60 * 60
        times = [now - 1800, now - 1500]
        return "{} * * * *".format(
            ",".join(str(at // 60 % 60) for at in times)), times

    def test_after_an_outage_what_the_schedule_says_is_added(self):
        cron, times = self.at_missed_minutes()
        for missed in ("all", "last", "none"):
            self.put(f"--cron={cron}", f"--missed={missed}", name=missed)
            self.last_look(3000, missed)
        self.start("hwtd")
        for missed in ("all", "last", "none"):
            self.await_look(missed)
        self.assertEqual(self.added(), sorted([
            *(name_at("all", at) for at in times), name_at("last", times[1])]))
        self.check()

    def test_one_that_is_added_late_expires_no_later(self):
        cron, times = self.at_missed_minutes()
        self.put(f"--cron={cron}", "--missed=all", "--expires-in=1600",
                 "--retry-first=9")
        self.last_look(3000)
        self.start("hwtd")
        self.await_look()
        for at, state in zip(times, ("failed", "succeeded")):
            shown = self.ctl("show", name_at("s", at)).json
            self.assertEqual(shown["expires_ms"], 1000 * (at + 1600))
            self.assertEqual(shown["retry_first_ms"], 9000)
        self.start("hwt-exec", "--queue=q", "--", "true")
        for at, state in zip(times, ("failed", "succeeded")):
            self.ends(name_at("s", at), state=state)

    def test_its_tasks_begin_by_their_priority(self):
        self.ctl("init", "--shards=1")
        cron, times = self.at_missed_minutes()
        names = ["low", "normal", "high"]
        for name in names:
            self.put(f"--cron={cron}", f"--priority={name}", name=name)
            self.last_look(3000, name)
        self.start("hwtd")
        self.await_look()
        wait_until(lambda: len(self.ctl(
            "list", "--state=delivered").lines) == 3)
        worker = self.shell('echo "$HWT_ID"', "--threads=1")
        wait_until(lambda: self.stat()["succeeded"] == 3)
        self.assertEqual(worker.out.split(), [
            name_at(name, times[1]) for name in reversed(names)])

    def test_one_that_cannot_be_read_holds_up_no_other(self):
        self.ctl("init", "--shards=1")
        cron, times = self.at_missed_minutes()
        for name, field, value in (("good", "missed", "all"),
                                   ("many", "attempts", "1001"),
                                   ("far", "every", "18446744074"),
                                   ("late", "expires", "18446744073710"),
                                   ("back", "most", "1"),
                                   ("high", "priority", "3"),
                                   ("none", "queue", "a b")):
            self.put(f"--cron={cron}", "--missed=all", name=name)
            space, shard = self.last_look(3000, name)
            space.client("HSET", space.key(shard, f"s:{name}"), field, value)
        space.client("HSET", space.key(shard, "s:back"), "first", "2")
        hwtd = self.start("hwtd")
        wait_until(lambda: self.added() == [
            name_at("good", at) for at in times])
        wait_until(lambda: "has a schedule that cannot be read" in hwtd.err)
        good, = self.ctl("schedule", "list").objects
        self.assertEqual(good["name"], "good")

    def test_many_missed_ones_are_all_added(self):
        self.put("--every=1", "--missed=all")
        space, shard = self.last_look(300)
        begin = int(space.client(
            "HGET", space.key(shard, "s:s"), "last")) // 1000 + 1
        self.start("hwtd")
        wait_until(lambda: len(self.added()) > 300)
        added = self.added()
        self.assertEqual(
            added, [name_at("s", begin + i) for i in range(len(added))])

    def test_a_scheduler_may_die_after_each_step(self):
        """Nothing; the occurrences in some shards; in all; and all is done,
        but its record is gone, as after the retention."""
        cron, times = self.at_missed_minutes()
        for steps in range(4):
            self.put(f"--cron={cron}", "--missed=all", name=f"s{steps}")
            space, _ = self.last_look(3000, f"s{steps}")
            read = round(time.time() * 1000)
            for at in times[:steps]:
                name = name_at(f"s{steps}", at)
                shard = shard_of(name.encode(), space.shards)
                self.assertEqual(space(
                    "add", shard, name, "q", "at", at * 1000, 3, "",
                    f"occurrence={read}"), [0])
                if steps == 3:
                    self.ctl("cancel", name)
                    space.client("DEL", space.key(shard, f"r:{name}"))
        self.start("hwtd")
        self.start("hwtd")
        for steps in range(4):
            self.await_look(f"s{steps}")
        self.assertEqual(self.added(), sorted(
            name_at(f"s{steps}", at) for steps in range(3) for at in times))

    def test_what_a_full_engine_refuses_is_added_later(self):
        cron, times = self.at_missed_minutes()
        self.put(f"--cron={cron}", "--missed=all")
        space, _ = self.last_look(3000)
        self.addCleanup(space.client, "CONFIG", "SET", "maxmemory", 0)
        space.client("CONFIG", "SET", "maxmemory", 1)
        hwtd = self.start("hwtd")
        wait_until(lambda: "an occurrence is not added" in hwtd.err)
        space.client("CONFIG", "SET", "maxmemory", 0)
        self.await_look()
        self.assertEqual(self.added(), [name_at("s", at) for at in times])

    def test_what_another_machine_has_no_zone_for(self):
        cron, times = self.at_missed_minutes()
        self.put(f"--cron={cron}", "--zone=Europe/Paris")
        self.last_look(3000)
        lacking = self.start(
            "hwtd", env={**os.environ, "TZDIR": self.folder})
        wait_until(lambda: "schedule s: zone: there is no" in lacking.err)
        self.assertEqual(self.added(), [])
        self.start("hwtd")
        self.await_look()
        self.assertEqual(self.added(), [name_at("s", times[1])])

    def test_a_change_and_a_drop_end_what_was(self):
        cron, _ = self.at_missed_minutes()
        self.put(f"--cron={cron}", "--missed=all", name="s")
        self.put(f"--cron={cron}", "--missed=all", name="t")
        self.last_look(3000, "s")
        self.last_look(3000, "t")
        self.put("--cron=0 0 1 1 *", "--missed=all", name="s")
        self.ctl("schedule", "drop", "t")
        self.start("hwtd")
        self.await_look()
        self.assertEqual(self.added(), [])


class Kills(Programs):
    """Schedulers and the engine are killed; records live for a millisecond.
    Each second is executed once, and none is left out."""

    def test_each_occurrence_is_executed_once(self):
        chance = random.Random(int(os.environ.get("HWT_SEED", 1)))
        self.ctl("init", "--shards=4", "--retention=0.001")
        worker = self.shell('echo "$HWT_ID $HWT_ATTEMPT"', "--threads=4")
        schedulers = [self.start("hwtd") for _ in range(3)]
        for name in "abc":
            self.ctl("schedule", "add", name, "--queue=q", "--every=1",
                     "--missed=all")
        end = time.monotonic() + 10
        while time.monotonic() < end:
            time.sleep(chance.random() / 3)
            which = chance.randrange(3)
            schedulers[which].process.kill()
            schedulers[which].wait()
            if chance.random() < 0.2:
                self.engine.restart(signal.SIGKILL)
            schedulers[which] = self.start("hwtd")
        time.sleep(2)
        for name in "abc":
            self.ctl("schedule", "drop", name)
        wait_until(lambda: self.stat()["delivered"] == 0)
        self.assertEqual(worker.end(), YES)
        ran = [line.split() for line in worker.out.splitlines()]
        for name in "abc":
            times = sorted(
                calendar.timegm(time.strptime(each[0][2:],
                                              "%Y-%m-%dT%H:%M:%SZ"))
                for each in ran if each[0][0] == name and each[1] == "1")
            self.assertGreater(len(times), 8)
            self.assertEqual(
                times, list(range(times[0], times[0] + len(times))))


if __name__ == "__main__":
    sys.exit(main())
