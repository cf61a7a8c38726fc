#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Priorities inside a queue: what take begins first, and that a task of any
priority is moved, counted and mended as others are. Limits of a queue: how many
tasks run at a time, and begin in a second.

    order.py [PATTERN...]    the last line: tally PASSED FAILED SKIPPED
"""

import sys

import scripts
from scripts import LEASE, RETENTION, SLOTS, START, TICK, Case

LANES = {"high": "q+", "": "q", "low": "q,"}


class Priorities(Case):
    def fill(self, order, each=1, flag=""):
        """Adds tasks of these priorities, in this order; their names."""
        names = []
        for priority in order:
            for _ in range(each):
                names.append(f"{priority or 'normal'}{len(names)}")
                self.add(names[-1], flag=f"{priority} {flag}".strip())
        return names

    def taken(self, limit=100, **options):
        return [each[0].decode() for each in self.take(limit, **options)
                if each != 1]

    def kinds(self, limit=100, **options):
        """The same without numbers."""
        return [name.rstrip("0123456789")
                for name in self.taken(limit, **options)]

    def lane(self, priority):
        return self.space.key(0, "q:" + LANES[priority])

    def entries(self, priority):
        return self.client("LRANGE", self.lane(priority), 0, -1)

    def test_high_begins_before_normal_and_low_after_it(self):
        self.fill(["low", "", "high"], each=2)
        self.pump()
        self.assertEqual(self.taken(), ["high4", "high5", "normal2",
                                        "normal3", "low0", "low1"])

    def test_a_take_stops_at_its_limit_in_any_lane(self):
        self.fill(["low", "", "high"], each=3)
        self.pump()
        for limit, kinds in ((2, ["high"] * 2), (3, ["high"] + ["normal"] * 2),
                             (9, ["normal"] + ["low"] * 3), (9, [])):
            self.assertEqual(self.kinds(limit), kinds)

    def test_a_take_that_is_cut_in_a_lane_goes_on_there(self):
        for name in ("a", "b"):
            self.add(name, flag="high", payload="p" * 65536)
        for each in range(16):
            self.add(f"n{each}", payload="p" * 65536)
        self.pump()
        reply = self.take(100)
        self.assertEqual(reply[-1], 1)
        self.assertEqual(len(reply[:-1]) + len(self.take(100)), 18)

    def test_entries_that_nobody_waits_for_are_no_obstacle(self):
        """Not so many in each lane, but in all together, cut a take."""
        self.damaged = True
        self.fill(["high", "", "low"])
        self.pump()
        for priority in LANES:
            for _ in range(10):
                self.client("LPUSH", self.lane(priority), *["x"] * 100)
        self.add("x", delay=60000)
        self.assertEqual(self.take(100)[2:], [1])
        self.assertEqual(self.kinds(), ["low"])
        self.assert_whole()

    def test_a_priority_is_of_its_queue_alone(self):
        self.add("a", queue="q")
        self.add("b", queue="r", flag="high")
        self.deliver("c", queue="q-", flag="high")
        self.assertEqual(self.taken(), ["a"])
        self.assertEqual(self.taken(queue="q-"), ["c"])
        self.assertEqual(self.taken(queue="r"), ["b"])

    def test_a_queue_that_is_told_is_told_once(self):
        self.fill(LANES)
        self.add("r", queue="r", flag="low")
        self.assertEqual(self.pump()[8], [b"q", b"r"])

    def test_an_attempt_more_has_the_same_priority(self):
        def retry(name):
            self.finish(name, outcome="retry")

        def release(name):
            self.finish(name, outcome="release")

        def crash(_):
            self.move(LEASE)
            self.janitor()
            self.move(2000)

        def replay(name):
            self.finish(name, outcome="fail")
            self.call("dead", "replay", name)

        def reschedule(name):
            retry(name)
            self.call("reschedule", name, "in", 0)

        for act in (retry, release, crash, replay, reschedule):
            for priority in ("high", "low"):
                with self.subTest(act=act.__name__, priority=priority):
                    self.setUp()
                    name = self.fill([priority])[0]
                    self.pump()
                    self.assertEqual(self.taken(), [name])
                    act(name)
                    self.pump()
                    self.assertEqual(self.entries(priority), [name.encode()])
                    self.assertEqual(self.taken(), [name])

    def test_a_replay_of_what_has_expired_keeps_it(self):
        name = self.fill(["low"], flag="expires-in=5")[0]
        self.move(6)
        self.pump()
        self.assertEqual(self.taken(), [])
        self.call("dead", "replay", name)
        self.pump()
        self.assertEqual(self.entries("low"), [name.encode()])

    def test_what_replaces_a_task_has_its_own(self):
        for before, after in (("high", "low"), ("low", ""), ("", "high")):
            self.setUp()
            self.add(flag=before, delay=5)
            self.call("cancel", "x")
            self.assertEqual(self.add(flag=f"replace {after}".strip()), 0)
            self.pump()
            self.assertEqual(self.entries(after), [b"x"])

    def test_a_cancel_takes_it_out_of_bucket_and_queue(self):
        for delay in (0, 1000):
            for priority in ("high", "low"):
                self.setUp()
                name, = self.fill([priority])
                other = self.add("other", delay, flag=priority)
                self.assertEqual(other, 0)
                self.pump()
                self.assertEqual(self.call("cancel", "other"), 0)
                self.assertEqual(self.call("cancel", name), 0)
                self.assertEqual(self.entries(priority), [])
                self.assertEqual(self.meta()["cancelled"], 2)

    def leave_in_long_lane(self):
        """The entry of x, low and cancelled, in a lane too long for LREM."""
        self.damaged = True
        self.deliver(flag="low")
        self.client("RPUSH", self.lane("low"), *["y"] * 1001)
        self.call("cancel", "x")

    def test_an_entry_that_was_left_in_another_lane_is_none(self):
        """Of a long queue; its record was replaced meanwhile, and dropped."""
        self.leave_in_long_lane()
        self.call("add", "x", "q", "in", 0, 3, "", "replace high")
        self.pump()
        self.assertEqual(self.taken(1), ["x"])
        self.finish(outcome="fail")
        self.client("LTRIM", self.lane("low"), 0, 0)
        self.assertEqual(self.call("dead", "drop", "x"), 0)
        self.assertEqual(self.taken(), [])
        self.assert_whole()
        self.assertEqual(self.meta()["quarantined"], 0)

    def test_an_entry_in_another_lane_begins_nothing(self):
        """Neither before its task is pumped, nor after it."""
        for is_pumped in (False, True):
            with self.subTest(is_pumped=is_pumped):
                self.setUp()
                self.damaged = True
                self.add(flag="high")
                self.add_many([f"y{i}", "q", "in", 0, 3, "", "high"]
                              for i in range(1500))
                self.pump_all()
                self.call("cancel", "x")
                self.call("add", "x", "q", "in", 0, 3, "", "replace low")
                if is_pumped:
                    self.pump()
                names = sum((self.taken(512) for _ in range(3)), [])
                self.assertEqual(len(names), 1500 + is_pumped)
                self.pump()
                names += self.taken()
                self.assertEqual(names[1500:], ["x"])
                self.assert_whole()

    def test_a_record_waits_for_its_entry_in_any_lane(self):
        self.leave_in_long_lane()
        self.call("add", "x", "q", "in", 5, 3, "", "replace high")
        self.call("cancel", "x")
        self.client("LTRIM", self.lane("low"), 0, 0)
        self.janitor()
        self.assertEqual(self.ask("PTTL", "r:x"), -1)
        self.client("DEL", self.lane("low"))
        self.janitor()
        self.assertGreater(self.ask("PTTL", "r:x"), 0)

    def test_what_leaves_a_short_lane_keeps_its_entry_in_a_long_one(self):
        """An entry that outlasts its record would be a task that was lost."""
        def cancel():
            self.call("cancel", "x")

        def reschedule(outcome="done"):
            self.call("reschedule", "x", "in", 0)
            self.pump()
            self.assertEqual(self.taken(1), ["x"])
            self.finish(outcome=outcome)

        def drop():
            reschedule("fail")
            self.call("dead", "drop", "x")

        key = self.space.key(0, "r:x")
        for act, entry, kept in ((cancel, 0, -1), (reschedule, 0, -1),
                                 (drop, None, -2)):
            with self.subTest(act=act.__name__):
                self.setUp()
                self.leave_in_long_lane()
                self.call("add", "x", "q", "in", 0, 3, "", "replace high")
                self.pump()
                act()
                self.assertEqual(
                    self.client("LPOS", self.lane("low"), "x"), entry)
                self.assertEqual(self.client("PTTL", key), kept)

    def test_what_replaces_it_in_another_queue_has_no_entry_in_its_own(self):
        """The record names one queue, and waits for entries of that alone."""
        self.leave_in_long_lane()
        self.call("add", "x", "r", "in", 0, 3, "", "replace")
        self.assertEqual(self.client("LPOS", self.lane("low"), "x"), None)
        self.call("cancel", "x")
        self.assertGreater(self.ask("PTTL", "r:x"), 0)

    def test_a_lane_that_was_lost_is_mended(self):
        for priority in ("high", "low"):
            self.setUp()
            self.damaged = True
            names = self.fill(["", priority, ""])
            self.pump()
            self.assertEqual(self.space("audit", 0, names[1]), [[]])
            self.client("DEL", self.lane(priority))
            self.assertEqual(self.space("audit", 0, names[1]), [[
                b"5 neither in its bucket nor in its queue"]])
            self.assertEqual(self.janitor()[1], 1)
            self.assert_whole()
            self.assertEqual(self.entries(priority), [names[1].encode()])

    def test_a_bucket_that_was_lost_is_mended(self):
        self.add(delay=1000, flag="high")
        self.client("DEL", self.bucket()[0])
        self.damaged = True
        self.janitor()
        self.assert_whole()
        self.move(1000)
        self.pump()
        self.assertEqual(self.entries("high"), [b"x"])

    def test_a_member_of_another_lane_is_dropped(self):
        """Its record does not name it."""
        self.add(delay=50, flag="high")
        bucket, member = self.bucket()
        for wrong in (b"q", b"q,"):
            self.client("ZADD", bucket, 0, member.replace(b"q+", wrong))
        self.move(50)
        self.damaged = True
        self.assertEqual(self.pump()[0], 1)
        self.assertEqual(self.taken(), ["x"])
        self.assert_whole()

    def test_a_priority_that_is_none_cannot_be_read(self):
        self.add(flag="low")
        self.ask("SETRANGE", "r:x", 56 + 1 + 28, b"\3")
        self.damaged = True
        self.pump()
        self.assertEqual(self.meta()["quarantined"], 1)

    def test_the_depth_and_age_of_a_queue_are_those_of_all_lanes(self):
        self.fill(["low"])
        self.move(7)
        self.fill(["", "high"], each=2)
        self.pump()
        self.move(3)
        self.assertEqual(self.space("queues", 0)[2][:3], [b"q", 5, START])
        self.assertEqual(self.kinds(4), ["high"] * 2 + ["normal"] * 2)
        self.janitor()
        self.assertEqual(self.space("queues", 0)[2][:3], [b"q", 1, START])
        self.assertEqual(self.kinds(), ["low"])
        self.janitor()
        self.assertEqual(self.ask("EXISTS", "queues"), 0)
        self.fill(["high"])
        self.move(3)
        self.deliver("later", flag="low")
        self.assertEqual(self.space("queues", 0)[2][2], START + 10)

    def test_the_clock_is_set_back(self):
        self.fill(["high"])
        self.add("y", delay=10 * TICK, flag="low")
        self.move(-5 * TICK)
        self.space("clock", 0)
        self.check.forget()
        self.assert_whole()
        self.move(5 * TICK)
        self.pump()
        self.assertEqual(self.kinds(), ["high"])
        self.move(10 * TICK)
        self.pump()
        self.assertEqual(self.taken(), ["y"])

    def test_a_pump_that_stops_goes_on_behind_the_lane(self):
        """Whatever stops it: its limit, or that it has read so much."""
        for limit in (1, 8, 256):
            self.setUp()
            self.damaged = True
            self.add_many([f"{priority}{i}", "q", "in", 5 if limit > 1 and
                           priority else 0, 1, "", priority]
                          for priority in LANES for i in range(1500))
            moved = 0
            for _ in range(40 if limit == 1 else 900):
                moved += self.space("pump", 0, limit, "")[0]
                self.move(1)
            self.assertEqual(moved, 40 if limit == 1 else 4500)
            self.assert_whole()

    def test_a_pump_goes_on_behind_lanes_of_which_nothing_is_due(self):
        self.damaged = True
        self.add_many([f"{i}", f"q{i:04}", "in", 50, 1, "", "low"]
                      for i in range(2500))
        self.space("add", 0, "x", "z", "in", 0, 1, "", "low")
        moved = [self.space("pump", 0, 256, "")[0] for _ in range(2)]
        self.assertEqual(moved, [0, 1])

    def test_a_backlog_of_another_priority_is_passed_over(self):
        for noisy, quiet in (("high", "low"), ("low", "high"), ("", "high")):
            self.setUp()
            self.damaged = True
            self.add_many([f"{i}", "q", "in", 0, 1, "", noisy]
                          for i in range(3000))
            self.space("add", 0, "x", "q", "in", 0, 1, "", quiet)
            self.move(1)
            self.space("pump", 0, 256, "")
            self.assertEqual(self.entries(quiet), [b"x"])

    def test_without_any_there_is_one_lane_and_no_other_format(self):
        """So it costs nothing, and versions that know none of it go on."""
        self.add()
        self.add("y", flag="expires-in=1000")
        self.assertEqual(self.meta()["format"], 3)
        self.pump()
        self.client("RPUSH", self.lane("high"), "y")
        self.damaged = True
        self.assertEqual(len(self.take(1)), 1)
        self.assertEqual(self.client("LLEN", self.lane("high")), 1)
        self.add("z", flag="low")
        self.assertEqual(self.meta()["format"], 4)
        self.take(1)
        self.assertEqual(self.client("LLEN", self.lane("high")), 0)
        self.add("w", flag="expires-in=1000")
        self.assertEqual(self.meta()["format"], 4)

    def test_what_is_left_of_a_shard_keeps_its_priorities_and_limits(self):
        """It is made anew, but with what is there but for meta."""
        names = self.fill(["low", "", "high"])
        self.pump()
        self.call("queue", "limit", "q", 2, 0)
        self.client("DEL", self.space.key(0))
        self.damaged = True
        self.space("init", 0, 1, SLOTS, TICK, 2, RETENTION, 7, "repair")
        self.assertEqual(self.meta()["format"], 4)
        self.assertEqual(self.taken(), [names[2], names[1]])
        self.assertEqual(self.taken(), [])

    def test_a_task_of_before_is_normal(self):
        self.add("before", flag="expires-in=1000")
        self.fill(["high", "low"])
        self.pump()
        self.assertEqual(self.taken(), ["high0", "before", "low1"])

    def test_many_at_once_and_one_are_stored_alike(self):
        for each in range(1, 4):
            self.call("add", *sum((
                [f"{priority}{each}{i}", "q", "in", 0, 3, "", priority]
                for priority in LANES for i in range(each)), []))
        self.pump()
        for priority in LANES:
            self.assertEqual(len(self.entries(priority)), 6)


class Limits(Case):
    def fill(self, count, first=0, queue="q"):
        self.space("add", 0, *sum(
            ([f"x{i}", queue, "in", 0, 9, "", ""]
             for i in range(first, first + count)), []))
        self.pump()

    def limit(self, places=0, rate=0, queue="q", space=None):
        return (space or self.space)(
            "queue", 0, "limit", queue, places, rate)

    def taken(self, limit=100, **options):
        """Names, and when to ask again; None: that is not said."""
        reply = self.take(limit, **options)
        wait = reply.pop() if reply and isinstance(reply[-1], int) else None
        return [each[0].decode() for each in reply], wait

    def count(self, limit=100, **options):
        return len(self.taken(limit, **options)[0])

    def ended(self, *names, outcome="done"):
        """Which queues have room by that."""
        return self.call("finish", *sum(
            ([name, self.fence(name), outcome, 0] for name in names),
            []))[len(names):]

    def test_so_many_run_at_a_time(self):
        self.fill(9)
        self.assertEqual(self.limit(3), 0)
        self.assertEqual(self.taken(2), (["x0", "x1"], None))
        self.assertEqual(self.taken(2, worker="v"), (["x2"], None))
        for worker in "vw":
            self.assertEqual(self.taken(worker=worker), ([], None))
        self.assertEqual(self.ended("x0"), [b"q"])
        self.assertEqual(self.taken(worker="v"), (["x3"], None))

    def test_whatever_ends_an_attempt_gives_its_place_back(self):
        for outcome in ("done", "fail", "retry", "release"):
            self.setUp()
            self.fill(3)
            self.limit(1)
            self.assertEqual(self.count(), 1)
            self.assertEqual(self.ended("x0", outcome=outcome), [b"q"])
            self.assertEqual(self.taken()[0], ["x1"])

    def test_a_lease_that_ends_gives_its_place_back(self):
        self.fill(3)
        self.limit(2)
        self.taken(1, visibility=1000)
        self.taken(1, visibility=LEASE)
        self.move(1000)
        self.assertEqual(self.count(), 0)
        self.assertEqual(self.janitor()[0], 1)
        self.assertEqual(self.taken()[0], ["x2"])
        self.assertEqual(self.ended("x0"), [])

    def test_many_leases_that_end_give_all_places_back_at_once(self):
        self.fill(60)
        self.limit(40)
        self.assertEqual(self.count(20), 20)
        self.move(1)
        self.assertEqual(self.count(visibility=1000), 20)
        self.move(1000)
        self.janitor()
        self.assertEqual(self.count(), 20)

    def test_what_expired_before_it_was_handed_over_gives_it_back(self):
        self.add("x0", flag="expires-in=10")
        self.fill(1, first=1)
        self.limit(1)
        self.assertEqual(self.taken(token=5, received=0)[0], ["x0"])
        self.move(11)
        self.assertEqual(self.taken(token=6, received=0)[0], ["x1"])

    def test_what_is_handed_over_again_has_its_place_already(self):
        self.fill(3)
        self.limit(2)
        self.assertEqual(self.count(token=5, received=0), 2)
        for token in (5, 6):
            self.assertEqual(self.taken(token=token, received=0)[0],
                             ["x0", "x1"])
        self.assertEqual(self.taken(token=7)[0], [])

    def test_nobody_is_told_of_room_for_nothing(self):
        self.limit(2)
        self.fill(2)
        self.assertEqual(self.count(), 2)
        self.assertEqual(self.ended("x0"), [])
        self.fill(1, first=2)
        self.assertEqual(self.ended("x1"), [b"q"])
        self.assertEqual(self.ended("x1"), [], "it has ended before")

    def test_what_runs_already_counts(self):
        self.fill(5)
        self.fill(2, first=5, queue="r")
        self.assertEqual(self.count(3), 3)
        self.assertEqual(self.count(queue="r"), 2)
        self.limit(4)
        self.assertEqual(self.taken()[0], ["x3"])
        self.limit(2)
        self.assertEqual(self.ended("x0", "x1"), [b"q"])
        self.assertEqual(self.count(), 0)
        self.ended("x2")
        self.assertEqual(self.taken()[0], ["x4"])

    def test_a_limit_is_taken_away(self):
        for limit in ((1, 0), (0, 1000), (1, 1000)):
            self.setUp()
            self.fill(5)
            self.limit(*limit)
            self.assertEqual(self.count(), 1)
            self.limit()
            self.assertEqual(self.taken(), (["x1", "x2", "x3", "x4"], None))
            for key in ("limits", "l:q", "f:q"):
                self.assertEqual(self.ask("EXISTS", key), 0)
            self.assertEqual(self.ended("x0"), [])

    def test_other_queues_have_none(self):
        self.fill(3)
        self.fill(3, first=3, queue="r")
        self.limit(1, 1000)
        self.assertEqual(self.count(queue="r"), 3)
        self.assertEqual(self.ended("x3"), [])

    def test_so_many_begin_in_a_second(self):
        self.fill(40)
        self.limit(rate=5000)
        self.damaged = True  # not checked at each step
        begun = []
        for _ in range(600):
            begun += [self.space("queues", 0, "q")[0]] * self.count()
            self.move(7)
            if len(begun) == 25:
                break
        ms = [each - START for each in begun]
        self.assertEqual(ms[:5], [0] * 5, "what a second brings")
        for i in range(5, 25):
            self.assertGreaterEqual(ms[i], (i - 4) * 200)
            self.assertLess(ms[i], (i - 4) * 200 + 7)
        self.assert_whole()

    def test_another_rate_counts_from_when_it_is_set(self):
        """Whatever the one before has left in the bucket."""
        for before, after, wait in ((10, 10000, 100), (1, 1000000, 2),
                                    (10, 1000, 1000), (10000, 10, 999)):
            with self.subTest(before=before, after=after):
                self.setUp()
                self.fill(20)
                self.limit(rate=before)
                self.taken()
                self.move(1)
                self.limit(rate=after)
                self.assertEqual(self.taken(), ([], wait))
                self.limit(rate=1000)
                self.move(1000)
                self.assertEqual(self.count(), 1)

    def test_the_bucket_holds_what_a_second_brings(self):
        for rate, holds in ((5000, 5), (1000, 1), (1, 1), (2500, 2)):
            self.setUp()
            self.fill(20)
            self.limit(rate=rate)
            self.move(3600000)
            self.assertEqual(self.count(), holds, rate)

    def test_one_worker_is_told_when_to_ask_again(self):
        self.fill(9)
        self.limit(rate=4000)
        self.assertEqual(self.taken(), (["x0", "x1", "x2", "x3"], 250))
        for worker in "abw":
            self.assertEqual(self.taken(worker=worker), ([], None))
        self.move(250)
        self.assertEqual(self.taken(worker="a"), (["x4"], 250))
        self.move(251)
        self.assertEqual(self.taken(worker="b"), (["x5"], 249))

    def test_who_does_not_ask_again_is_no_obstacle(self):
        self.fill(9)
        self.limit(rate=1)
        self.assertEqual(self.taken(), (["x0"], 1000))
        self.move(998)
        self.assertEqual(self.taken(), ([], None))
        self.move(1)
        self.assertEqual(self.taken(), ([], 1000))

    def test_it_is_told_for_entries_alone(self):
        self.fill(4)
        self.limit(rate=4000)
        self.assertEqual(self.taken()[1], None)
        self.assertEqual(self.taken(), ([], None))
        self.fill(1, first=4)
        self.assertEqual(self.taken(), ([], 250))

    def test_the_lesser_of_two_limits_counts(self):
        self.fill(9)
        self.limit(2, 5000)
        self.assertEqual(self.taken(), (["x0", "x1"], None))
        self.ended("x0", "x1")
        self.assertEqual(self.taken(), (["x2", "x3"], None))
        self.ended("x2", "x3")
        self.assertEqual(self.taken(), (["x4"], 200))
        self.move(200)
        self.assertEqual(self.taken(), (["x5"], None))

    def test_what_does_not_begin_takes_no_token(self):
        for each in range(5):
            self.add(f"late{each}", flag="expires-in=5")
        self.move(6)
        self.fill(9)
        self.limit(rate=2000)
        self.assertEqual(self.taken()[0], ["x0", "x1"])

    def test_a_clock_that_was_ahead_leaves_no_empty_bucket(self):
        self.fill(1)
        self.move(50000)
        self.limit(rate=1000)
        self.assertEqual(self.count(), 1)
        self.move(1 - 50000)
        self.assertEqual(self.space("clock", 0), 49999)
        self.check.forget()
        self.fill(2, first=1)
        self.assertEqual(self.taken(), (["x1"], 1000))
        self.move(1000)
        self.assertEqual(self.count(), 1)

    def test_limits_are_taken_away_before_a_clock_is_set_back(self):
        """No token comes, and no lease ends, while time stands still."""
        for limit in ((1, 0), (0, 1000)):
            with self.subTest(limit=limit):
                self.setUp()
                self.fill(3)
                self.move(50000)
                self.limit(*limit)
                self.assertEqual(self.count(), 1)
                self.move(-5000)
                self.assertEqual(self.count(), 0)
                self.assertEqual(self.space("clock", 0), -2)
                self.limit()
                self.assertEqual(self.count(), 2)
                self.assertEqual(self.space("clock", 0), 5000)

    def test_a_shard_has_its_part_of_the_rate(self):
        space = self.make("parts", shards=4)
        self.space = space
        self.check = lambda: []
        self.fill(20)
        self.limit(rate=8000, space=space)
        self.assertEqual(self.taken(), (["x0", "x1"], 500))

    def test_the_next_worker_is_told_at_any_rate(self):
        """No rounding leaves less than no token."""
        self.space = self.make("parts", shards=16)
        self.check = lambda: []
        self.fill(20)
        self.limit(rate=6000)
        self.assertEqual(self.taken(), (["x0"], 1000))
        self.limit(rate=6000)
        self.assertEqual(self.taken(), ([], 1000))

    def test_places_that_were_lost_are_mended(self):
        self.fill(5)
        self.limit(3)
        self.assertEqual(self.count(2), 2)
        self.ask("ZADD", "f:q", 0, "ghost", 0, "x4")
        self.ask("ZREM", "f:q", "x0")
        self.damaged = True
        self.janitor()
        self.assert_whole()

    def test_all_places_of_all_queues_are_mended_in_time(self):
        """Behind those that are first, in the order of queues and of time."""
        self.damaged = True
        self.fill(40)
        self.limit(41)
        self.ask("ZADD", "f:q", START + 1, "ghost")
        self.assertEqual(self.count(), 40)
        for i in range(99):
            self.limit(1, queue=f"a{i}")
        self.limit(1, queue="z")
        self.ask("ZADD", "f:z", 1, "ghost")
        for each in range(200):
            self.janitor(random=each)
        for queue, places in (("q", 40), ("z", 0)):
            self.assertEqual(self.ask("ZCARD", f"f:{queue}"), places)
        self.assert_whole()

    def test_a_foreign_key_is_no_limit(self):
        self.fill(5)
        self.limit(1)
        self.damaged = True
        for key in ("l:q", "f:q"):
            self.ask("SET", key, "foreign")
        self.assertEqual(self.count(), 5)

    def test_limits_are_told(self):
        self.limit(7, 2500)
        self.fill(2, queue="r")
        self.assertEqual(
            {each[0]: each[5:] for each in self.space("queues", 0)[2:]},
            {b"q": [7, 2500, 0], b"r": [0, 0, 0]})
        self.limit()
        self.assertEqual(
            [each[0] for each in self.space("queues", 0)[2:]], [b"r"])

    def held(self):
        return self.space("queues", 0, "q")[2][7]

    def test_all_places_keep_others_waiting(self):
        """And for 5 s after one of these was free."""
        self.fill(4)
        self.limit(2)
        self.taken(1)
        self.assertEqual(self.held(), 0)
        self.taken(1)
        self.move(6000)
        self.assertEqual(self.held(), 1)
        self.ended("x0")
        self.assertEqual(self.held(), 1)
        self.move(4999)
        self.assertEqual(self.held(), 1)
        self.move(1)
        self.assertEqual(self.held(), 0)
        self.ended("x1")
        self.assertEqual(self.held(), 0)

    def test_tokens_that_are_taken_keep_others_waiting(self):
        """For 5 s after an attempt found none, or took the last one."""
        self.fill(20)
        self.limit(0, 10000)
        self.move(1000)
        self.taken(9)
        self.assertEqual(self.held(), 0)
        self.taken(1)
        self.move(3000)
        self.assertEqual(self.held(), 1)
        self.taken(10)
        self.move(2500)
        self.assertEqual(self.held(), 0)

    def test_a_worker_that_waits_for_a_token_keeps_a_queue_held(self):
        self.fill(3)
        self.limit(0, 100)
        self.taken(1)
        for _ in range(9):
            self.move(1000)
            self.assertEqual(self.count(), 0)
            self.assertEqual(self.held(), 1)
        self.move(5000)
        self.assertEqual(self.held(), 0)

    def test_a_clock_that_was_ahead_keeps_nobody_waiting(self):
        self.fill(2)
        self.move(49000)
        self.limit(rate=1000)
        self.assertEqual(self.count(), 1)
        self.move(1000)
        self.assertEqual(self.count(), 1)
        self.assertEqual(self.held(), 1)
        self.move(1 - 50000)
        self.assertEqual(self.space("clock", 0), 49999)
        self.check.forget()
        self.assertEqual(self.held(), 0)

    def test_bad_limits_are_refused(self):
        for bad in (-1, "x", "", "1.5", "9" * 17):
            self.refused("EARG 3", "queue", "limit", "q", bad, 0)
            self.refused("EARG 4", "queue", "limit", "q", 0, bad)
        self.refused("EARG 4", "queue", "limit", "q", 0, 10 ** 9 + 1)
        self.refused("EARG 2", "queue", "limit", "q+", 1, 1)
        self.refused("EARG 0", "queue", "limit", "q", 1)
        self.refused("EARG 0", "queue", "pause", "q", 1)

    def test_older_versions_are_refused_from_then_on(self):
        self.limit()
        self.assertEqual(self.meta()["format"], 2)
        self.limit(1)
        self.assertEqual(self.meta()["format"], 4)
        self.limit()
        self.assertEqual(self.meta()["format"], 4)


if __name__ == "__main__":
    sys.exit(scripts.main(sys.argv[1:], sys.modules[__name__]))
