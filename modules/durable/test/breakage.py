#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Bad days of the library, its workers and schedulers: outcomes that nobody
takes, paused shards, many schedulers on a shard, engines that hang, are full,
are set to keep less, or have another clock. What is found with one engine and
one process is in spec/ and scripts.py.

    breakage.py [-v] [CLASS[.test]...]

HWT_BUILD is the folder of the programs; build/plain without it."""

import errno
import os
import resource
import shutil
import signal
import sys
import time

from actor import Actors
from engine import LIMIT, shard_of
from programs import DURABLE, Programs, main, wait_until

MEMORY, FSYNCED = 1, 2
SUCCEEDED = 4
NEVER = -1


class Breakage(Actors, Programs):
    """Each class has an engine, each test a space and any number of actors in
    it, which are ended when it has ended."""

    level = FSYNCED
    shape = {"shards": 2, "slots": 64, "tick": 20}

    def setUp(self):
        super().setUp()
        if self.engine.process is None:
            self.engine.start()

    def actor(self, **options):
        return self.open(self.engine.servers, level=self.level,
                         **self.shape, **options)

    def add(self, actor, payload, *names, delay=0, attempts=5):
        self.assertEqual(
            actor("add", "q", delay, attempts, payload, *names),
            [0] + [0] * len(names), actor.said())

    def get(self, actor, name):
        """State, attempts, generation, due."""
        error, *rest = actor("get", name)
        self.assertEqual(error, 0)
        return rest

    def ends(self, actor, *names, state=SUCCEEDED, limit=LIMIT):
        for name in names:
            wait_until(lambda: self.get(actor, name)[0] == state, limit)

    def check(self, drained=True):
        with self.engine.client() as client:
            self.is_whole(client, drained)

    def succeeded_once(self, actor, count):
        """The engine has accepted just one success for each."""
        self.assertEqual(actor("stats")[1], count)

    def never_early(self, *actors):
        for actor in actors:
            for each in actor.executions:
                self.assertTrue(each.due is None or each.ms >= each.due, each)


class Workers(Breakage):
    """Workers whose outcomes the engine does not take for a while."""

    config, level = {}, MEMORY

    def test_one_that_was_given_up_untold_loses_its_lease(self):
        """The engine refuses everything until the outcome is dropped."""
        actor = self.actor(works=(2, 1000, 2000))
        other = self.actor(schedules=True)
        self.add(actor, "done,90000,0", "t")
        actor.wait(lambda runs: runs)
        self.assertEqual(other("unschedule"), [0])
        with self.engine.client() as client:
            client("ACL", "SETUSER", "default", "-fcall")
            try:
                time.sleep(4)
            finally:
                client("ACL", "SETUSER", "default", "+fcall")
        time.sleep(1)
        self.assertEqual(other("schedule"), [0])
        self.ends(other, "t", limit=30)
        self.assertEqual(actor.begins("t"), [(1, 1), (1, 2)])
        self.succeeded_once(other, 1)
        actor.kill()
        self.stop_all(other)
        self.check()

    def pause(self, what, *shards):
        space = self.scripts()
        for shard in shards:
            self.assertEqual(space(what, shard), 0)

    def test_what_ends_in_a_pause_longer_than_its_lease_counts(self):
        actor = self.actor(schedules=True, works=(4, 1000, 0))
        names = ["t", "u", "v"]
        self.add(actor, "done,300", *names)
        actor.wait(lambda runs: len(runs) == 3)
        self.pause("pause", 0, 1)
        actor.wait(lambda runs: len(runs) == 6)
        time.sleep(2.5)
        self.pause("resume", 0, 1)
        self.ends(actor, *names)
        for name in names:
            self.assertEqual(actor.begins(name), [(1, 1)])
        self.succeeded_once(actor, 3)
        self.stop_all(actor)
        self.check()

    def test_a_shard_that_is_paused_holds_up_no_other(self):
        """More outcomes of it wait than fit into a batch, and they come
        first."""
        actor = self.actor(schedules=True, works=(600, 30000, 0))
        names = [[], []]
        for name in map(str, range(2000)):
            names[shard_of(name.encode(), 2)].append(name)
        held, others = names[0][:400], names[1][:400]
        for i in range(0, 400, 100):
            self.add(actor, "done,3000", *held[i:i + 100])
        actor.wait(lambda runs: len(runs) == 400)
        self.pause("pause", 0)
        actor.wait(lambda runs: len(runs) == 800)
        for i in range(0, 400, 100):
            self.add(actor, "done", *others[i:i + 100])
        self.ends(actor, *others)
        self.pause("resume", 0)
        self.ends(actor, *held)
        self.succeeded_once(actor, 800)
        self.stop_all(actor)
        self.check()

    def test_leases_are_extended_at_once_after_a_pause(self):
        """None ends in the first 10 s after it. A third of this visibility
        is as long as that."""
        actor = self.actor(schedules=True, works=(1, 30000, 0))
        self.add(actor, "done,60000", "t")
        actor.wait(lambda runs: runs)
        self.pause("pause", 0, 1)
        time.sleep(10.5)
        space = self.scripts()

        def lease():
            return [space.client("ZSCORE", space.key(shard, "fly"), "t")
                    for shard in (0, 1)]
        before = lease()
        self.pause("resume", 0, 1)
        wait_until(lambda: lease() != before, limit=6)
        actor.kill()


class Schedulers(Breakage):
    config, level = {}, MEMORY
    shape = {"shards": 1, "slots": 64, "tick": 20}

    def test_eight_processes_and_kills_execute_each_just_once(self):
        schedulers = [self.actor(schedules=True) for _ in range(8)]
        worker = self.actor(works=(4, 30000, 0))
        names = [f"t{i}" for i in range(600)]
        for i in range(0, 600, 50):
            self.add(worker, "done", *names[i:i + 50], delay=3 * i)
            if i % 150 == 0:
                schedulers.pop(i % len(schedulers)).kill()
        wait_until(lambda: worker("stats")[1] == 600)
        for name in names:
            self.assertEqual(worker.begins(name), [(1, 1)])
        self.never_early(worker)
        space = self.scripts()
        meta = space.meta(0)
        wait_until(lambda: space.client(
            "ZCARD", "{%s}:hosts" % self.space) == len(schedulers) == 4)
        self.assertEqual((meta["begun"], meta["missed"]), (600, 0))
        self.stop_all(*schedulers, worker)
        self.check()

    def test_without_any_tasks_are_late_and_not_lost(self):
        first = self.actor(schedules=True, works=(2, 30000, 0))
        self.add(first, "done", "t0")
        self.ends(first, "t0")
        self.assertEqual(first("unschedule"), [0])
        self.add(first, "done", "t1", "t2")
        time.sleep(1.5)
        self.assertEqual(self.get(first, "t1")[0], 1)
        other = self.actor(schedules=True)
        self.ends(first, "t1", "t2")
        self.assertEqual(first("unwork", 30000), [0])
        self.stop_all(other)
        self.check()


class Served(Breakage):
    """With a scheduler, a worker, and a producer of short patience."""

    def setUp(self):
        super().setUp()
        self.worker = self.actor(schedules=True, works=(2, 30000, 0))
        self.brief = self.actor(timeout=300)

    def end(self, *names):
        """All is well again."""
        self.add(self.worker, "done", "last")
        self.ends(self.worker, "last", *names)
        self.never_early(self.worker)
        self.stop_all(self.worker, self.brief)
        self.check()

    def once(self, *names):
        """Leases of 30 s excuse no second execution."""
        for name in names:
            self.assertEqual(len(self.worker.begins(name)), 1,
                             self.worker.begins(name))


class Engines(Served):
    """Engines that are not what they should be, for a while."""

    def test_it_hangs_for_some_seconds(self):
        """What was sent is executed when it goes on, or not."""
        names = [f"t{i}" for i in range(50)]
        self.add(self.brief, "done", *names, delay=500)
        os.kill(self.engine.pid, signal.SIGSTOP)
        try:
            for _ in range(3):
                self.assertIn(self.brief("add", "q", 0, 5, "done", "u")[0],
                              [-errno.ETIMEDOUT, -errno.ECONNREFUSED])
            time.sleep(2)
        finally:
            os.kill(self.engine.pid, signal.SIGCONT)
        # Added now; or before, and pending to succeeded by now.
        self.assertIn(self.brief("add", "q", 0, 5, "done", "u"),
                      [[0, state] for state in range(5)])
        self.ends(self.worker, *names)
        self.once(*names)
        self.end("u")
        self.once("u")

    def test_a_disk_that_is_full_ends_it_and_loses_nothing(self):
        """It cannot acknowledge what it cannot write: Redis ends itself."""
        acknowledged = []
        files = self.engine.append_only_files()
        full = os.path.getsize(files[-1]) + 60000
        resource.prlimit(self.engine.pid, resource.RLIMIT_FSIZE,
                         (full, full))
        for i in range(1000):
            if self.brief("add", "q", 0, 5, "done", f"t{i}")[0] != 0:
                break
            acknowledged.append(f"t{i}")
        self.assertTrue(20 < len(acknowledged) < 999, len(acknowledged))
        self.engine.process.wait(LIMIT)
        self.assertIn(self.brief("add", "q", 0, 5, "done", "u")[0],
                      [-errno.ETIMEDOUT, -errno.ECONNREFUSED])
        self.engine.restart()
        self.ends(self.worker, *acknowledged)
        self.once(*acknowledged)
        self.end()

    def test_a_disk_that_is_full_for_its_dumps(self):
        """stop-writes-on-bgsave-error: nothing is written until it can."""
        folder = os.path.join(self.engine.folder, "away")
        self.engine.kill()
        os.mkdir(folder)
        self.engine.config["dbfilename"] = "dump"
        self.engine.start(save="3600 100000", enable_protected_configs="yes")
        self.add(self.worker, "done", "early")
        names = [f"t{i}" for i in range(20)]
        self.add(self.worker, "done", *names, delay=1000)
        with self.engine.client() as client:
            home = client("CONFIG", "GET", "dir")[1]
            client("CONFIG", "SET", "dir", folder)
            shutil.rmtree(folder)
            client("BGSAVE")
            wait_until(lambda: b"rdb_last_bgsave_status:err" in
                       client("INFO", "persistence"))
            self.assertEqual(self.brief("add", "q", 0, 5, "done", "u"),
                             [-errno.ENOSPC] * 2)
            time.sleep(2)
            self.assertEqual(self.brief("get", "u")[0], -errno.ENOENT)
            client("CONFIG", "SET", "dir", home)
            client("BGSAVE")
            wait_until(lambda: b"rdb_last_bgsave_status:ok" in
                       client("INFO", "persistence"))
        self.ends(self.worker, *names)
        self.once(*names)
        self.add(self.brief, "done", "u")
        self.end("u")

class Settings(Served):
    """An engine that somebody sets otherwise while clients are connected."""

    def lost_after(self, *setting):
        """Adds without pause, while a client sets this. How many were
        acknowledged later than that, and the first answer that is no 0."""
        count = 0
        with self.engine.client() as client:
            client("CONFIG", "SET", *setting)
        began = time.monotonic()
        while True:
            answer = self.brief("add", "q", 600000, 5, "done", f"l{count}")
            if answer[0] != 0 or time.monotonic() > began + LIMIT:
                return count, time.monotonic() - began, answer[0]
            count += 1

    def test_it_is_told_to_keep_less(self):
        """Under clients that are connected. Nothing is acknowledged that would
        not be kept, but for a second; then it goes on by itself."""
        self.add(self.brief, "done,1500", "long")
        self.worker.wait(lambda runs: runs)
        for name, weak, strong in (
                ("appendonly", "no", "yes"),
                ("appendfsync", "everysec", "always"),
                ("no-appendfsync-on-rewrite", "yes", "no"),
                ("aof-load-truncated", "yes", "no"),
                ("maxmemory-policy", "allkeys-lru", "noeviction")):
            with self.subTest(name=name):
                count, seconds, error = self.lost_after(name, weak)
                self.assertEqual(error, -errno.EOPNOTSUPP)
                self.assertLess(seconds, 5, count)
                self.assertIn(name, self.brief.said())
                with self.engine.client() as client:
                    client("CONFIG", "SET", name, strong)
                wait_until(lambda: self.brief(
                    "add", "q", 600000, 5, "done", f"after-{name}")[0] == 0)
                for i in range(count):
                    self.brief("cancel", f"l{i}")
                self.brief("cancel", f"after-{name}")
        # What had run meanwhile has told its end.
        self.ends(self.worker, "long")
        self.once("long")
        self.end()

    def rewrite_slowly(self, client, *command):
        """For four seconds."""
        client("CONFIG", "SET", "rdb-key-save-delay",
               4000000 // client("DBSIZE"))
        client(*command)
        wait_until(lambda: b"aof_rewrite_in_progress:1" in
                   client("INFO", "persistence"))
        client("CONFIG", "SET", "rdb-key-save-delay", 0)

    def test_it_keeps_again_only_when_its_file_is_written(self):
        """appendonly yes begins a rewrite; until it has ended, a kill takes
        what was added since the no."""
        names = [f"t{i}" for i in range(400)]
        self.add(self.brief, "done", *names, delay=600000)
        self.lost_after("appendonly", "no")
        with self.engine.client() as client:
            self.rewrite_slowly(client, "CONFIG", "SET", "appendonly", "yes")
            self.assertEqual(
                self.brief("add", "q", 600000, 5, "done", "u"),
                [-errno.EAGAIN] * 2)
            wait_until(lambda: self.brief(
                "add", "q", 600000, 5, "done", "u")[0] == 0)
            self.assertIn("not yet written", self.brief.said())
            self.assertIn(b"aof_rewrite_in_progress:0",
                          client("INFO", "persistence"))
        self.engine.kill()
        self.engine.start()
        self.assertEqual(self.get(self.worker, "u")[0], 1)

    def test_a_rewrite_alone_is_no_reason(self):
        names = [f"t{i}" for i in range(400)]
        self.add(self.brief, "done", *names, delay=600000)
        with self.engine.client() as client:
            self.rewrite_slowly(client, "BGREWRITEAOF")
            for i in range(25):
                self.add(self.brief, "done", f"v{i}", delay=600000)
                self.add(self.actor(), "done", f"w{i}", delay=600000)
                time.sleep(0.05)
            self.assertIn(b"aof_rewrite_in_progress:1",
                          client("INFO", "persistence"))


class Clocks(Breakage):
    """Engines whose clock is off. The clients' own clock stays right."""

    config = {"clock": True, **DURABLE}

    def setUp(self):
        super().setUp()
        self.engine.clock.set_off(0)

    def test_where_clocks_are_not_compared_the_engines_counts(self):
        """It jumps ahead: what is due by it is executed. It goes back: it
        stands still, so nothing that counts from then on is early. Each shard
        believes the jump by itself: both tasks are in one."""
        self.assertEqual(shard_of(b"t", 2), shard_of(b"v", 2))
        worker = self.actor(schedules=True, works=(2, 30000, 0), skew=NEVER)
        self.add(worker, "done", "t", delay=3000000)
        self.engine.clock.set_off(3600000)
        self.ends(worker, "t")
        self.engine.clock.set_off(0)
        self.add(worker, "done", "v", delay=1000)
        due = self.get(worker, "v")[3]
        self.assertGreater(due, time.time() * 1000 + 3500000)
        time.sleep(1.5)
        self.assertEqual(self.get(worker, "v")[0], 1)
        self.engine.clock.set_off(3600000)
        self.ends(worker, "v")
        self.stop_all(worker)
        self.check()

    def test_small_jumps_at_any_time(self):
        worker = self.actor(schedules=True, works=(4, 30000, 0))
        names = [f"t{i}" for i in range(300)]
        asked = {}
        for i in range(0, 300, 10):
            now = time.time() * 1000
            self.add(worker, "retry", *names[i:i + 10], delay=i)
            asked.update((name, now + i) for name in names[i:i + 10])
            self.engine.clock.set_off([0, 900, -900, 300][i // 10 % 4])
        self.engine.clock.set_off(0)
        self.ends(worker, *names)
        for name in names:
            self.assertEqual(worker.begins(name), [(1, 1), (1, 2)])
        for each in worker.executions:
            # The clock was 900 ms ahead at most when it was begun.
            self.assertTrue(each.due is None or each.ms + 900 >= each.due,
                            each)
            self.assertTrue(each.ms + 1800 >= asked[each.id], each)
        self.stop_all(worker)
        self.check()


class Ends(Programs):
    """SIGTERM and SIGKILL of each program while it has work."""

    def end_some(self, which, *words):
        """A worker and a scheduler get a signal while they have work; what the
        workers have executed, when others have done the rest."""
        schedulers = [self.start("hwtd") for _ in range(2)]
        workers = [self.shell('sleep 0.05; echo "$HWT_ID"', "--threads=2",
                              *words) for _ in range(2)]
        self.feed(*({"queue": "q", "in": i * 3 / 100, "id": f"t{i}"}
                    for i in range(60)))
        for program in (workers[0], schedulers[0]):
            time.sleep(0.3)
            self.assertEqual(program.end(which),
                             0 if which == signal.SIGTERM else -which)
        wait_until(lambda: self.stat()["succeeded"] == 60)
        self.assertEqual((schedulers[1].end(), workers[1].end()), (0, 0))
        self.check()
        return [name for worker in workers for name in worker.out.split()]

    def test_sigkill_of_each(self):
        done = self.end_some(signal.SIGKILL, "--visibility=1")
        self.assertEqual(set(done), {f"t{i}" for i in range(60)})

    def test_sigterm_of_each(self):
        """Nobody was killed, so no task is executed twice."""
        done = self.end_some(signal.SIGTERM)
        self.assertEqual(sorted(done), sorted(f"t{i}" for i in range(60)))


if __name__ == "__main__":
    sys.exit(main())
