#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A master with a replica: what is acknowledged when, what a fail-over loses
and what not; and Sentinels, who tell the programs which one is the master.

    replication.py [-v] [CLASS[.test]...]

HWT_BUILD is the folder of the programs; build/plain without it."""

import errno
import os
import signal
import sys
import threading
import time

from actor import Actors
from engine import Client, Error, free_port, start_sentinel
from programs import UNREACHABLE, Programs, main, wait_until

FSYNCED, REPLICATED = 2, 3
SHAPE = {"shards": 4, "slots": 64, "tick": 20}


class Pair(Actors, Programs):
    """A master and its replica, new for each test; no engine of the class."""

    servers = None
    timeout = 60

    @classmethod
    def setUpClass(cls):
        pass

    def setUp(self):
        super().setUp()
        self.master = self.engine_of(repl_diskless_sync_delay=0)
        self.replica = self.replica_of_master()
        wait_until(lambda: self.is_replica(self.replica))
        self.servers = ["--redis", self.master.servers]

    def replica_of_master(self):
        return self.engine_of(repl_diskless_sync_delay=0,
                              replicaof=f"127.0.0.1 {self.master.port}")

    @staticmethod
    def is_replica(engine):
        """With all that its master has. It closes connections when it becomes
        one."""
        try:
            with engine.client() as client:
                return b"master_link_status:up" in client(
                    "INFO", "replication")
        except (OSError, Error):
            return False

    def leave_behind(self, replica):
        """It stops, and the master sends more than lies in sockets: what comes
        then does not get to it, also if it goes on later."""
        replica.send_signal(signal.SIGSTOP)
        with self.master.client() as client:
            for _ in range(32):
                client("SET", "filler", "x" * (1 << 20))

    def promote(self):
        """By hand: the replica is a master from now on."""
        with self.replica.client() as client:
            client("REPLICAOF", "NO", "ONE")

    def demote(self):
        """The master is a replica of what was its own."""
        with self.master.client() as client:
            client("REPLICAOF", "127.0.0.1", self.replica.port)
        wait_until(lambda: self.is_replica(self.master))

    def where(self):
        return [*self.servers, "--space", self.space,
                f"--timeout={self.timeout}"]

    def actor(self, servers=None, **options):
        """servers: of the library; of the master if there are none."""
        return self.open(servers or self.master.servers, **{
            "level": REPLICATED, "timeout": 60000, **SHAPE, **options})

    def no_invariant_is_broken(self, engine, drained=True):
        with engine.client() as client:
            self.is_whole(client, drained)


class Replicas(Pair):
    """By hand, without Sentinels."""

    def test_a_replica_that_hangs(self):
        """The answer is: uncertain. The same id may come again."""
        actor = self.actor(timeout=1500)

        def add(name):
            return actor("add", "q", 0, 5, "done", name)
        wait_until(lambda: add("a")[0] == 0)
        self.replica.send_signal(signal.SIGSTOP)
        self.assertEqual(add("b"), [-errno.ETIMEDOUT] * 2)
        self.assertEqual(actor("cancel", "a"), [-errno.ETIMEDOUT])
        self.assertIn("fewer than 1 replicas", actor.said())
        # What asks for less goes on, with a handle of its own.
        other = self.actor(level=FSYNCED)
        self.assertEqual(other("add", "q", 0, 5, "done", "c"), [0, 0])
        self.replica.send_signal(signal.SIGCONT)
        wait_until(lambda: add("b") == [0, 1])
        wait_until(lambda: actor("cancel", "a") == [0])
        self.stop_all(actor, other)
        self.no_invariant_is_broken(self.replica, drained=False)

    def test_attempts_that_were_not_begun_do_not_count(self):
        """The replica is away for longer than the leases of the two attempts
        that each task has: no worker learns what it has taken."""
        self.ctl("init", "--shards=4", "--slots=64", "--tick=20",
                 "--level=replicated")
        self.feed(*({"queue": "q", "in": 3, "attempts": 2, "id": f"t{i}"}
                    for i in range(20)))
        scheduler = self.start("hwtd")
        workers = [self.shell('echo "$HWT_ID"', "--visibility=1")
                   for _ in range(2)]
        self.replica.send_signal(signal.SIGSTOP)
        self.addCleanup(self.replica.send_signal, signal.SIGCONT)
        time.sleep(12)
        self.assertEqual([worker.out for worker in workers], ["", ""])
        self.replica.send_signal(signal.SIGCONT)
        wait_until(lambda: sum(
            worker.out.count("\n") for worker in workers) == 20)
        self.assertEqual(
            sorted("".join(worker.out for worker in workers).split()),
            sorted(f"t{i}" for i in range(20)))
        self.assertEqual(self.ctl("dead", "list").lines, [])
        self.assertEqual([each.end() for each in (scheduler, *workers)],
                         [0, 0, 0])

    def test_one_that_has_just_come_is_waited_for(self):
        """Before the second is over for which the replicas were counted."""
        producer = self.actor(timeout=1500)
        wait_until(lambda: producer(
            "add", "q", 600000, 5, "done", "a")[0] == 0)
        other = self.replica_of_master()
        with self.master.client() as client:
            self.assertEqual(producer(
                "add", "q", 600000, 5, "done", "b")[0], 0)
            while len(client("ROLE")[2]) < 2:
                pass
            other.send_signal(signal.SIGSTOP)
            client("SET", "filler", "x")
        said = producer("add", "q", 600000, 5, "done", "c")[0]
        self.assertEqual(said, -errno.ETIMEDOUT)
        self.stop_all(producer)

    def test_a_fail_over_loses_what_was_not_waited_for(self):
        """A master that is one no more, and does not know it."""
        careless = self.actor(level=FSYNCED)
        careful = self.actor(timeout=1500)
        wait_until(lambda: careful(
            "add", "q", 0, 5, "done", "a")[0] == 0)
        self.promote()
        self.assertEqual(careless("add", "q", 0, 5, "done", "b"), [0, 0])
        self.assertEqual(careful("add", "q", 0, 5, "done", "c"),
                         [-errno.ETIMEDOUT] * 2)
        self.master.kill()
        after = self.actor(self.replica.servers)
        for name, error in (("a", 0), ("b", -errno.ENOENT),
                            ("c", -errno.ENOENT)):
            self.assertEqual(after("get", name)[0], error)
        self.stop_all(after)

    def test_a_fail_over_loses_nothing_that_was_waited_for(self):
        """The master is killed while tasks are added, cancelled and executed;
        the replica goes on."""
        producer = self.actor(timeout=3000)
        worker = self.actor(schedules=True, works=(2, 2000, 0))
        acked, cancelled, stopping = [], [], threading.Event()

        def produce():
            number = 0
            while not stopping.is_set():
                number += 1
                names = [f"t{number}-{i}" for i in range(8)]
                said = producer("add", "q", number % 3 * 500, 5, "done",
                                *names)
                acked.extend(name for name, error in zip(names, said[1:])
                             if error in (0, 1))
                if number % 3 and producer("cancel", names[0]) == [0]:
                    cancelled.append(names[0])
        thread = threading.Thread(target=produce)
        thread.start()
        try:
            wait_until(lambda: len(acked) > 200 and len(cancelled) > 5)
            self.master.kill()
        finally:
            stopping.set()
            thread.join()
        worker.kill()
        self.promote()
        other = self.actor(self.replica.servers, level=FSYNCED,
                           schedules=True, works=(4, 30000, 0))
        wait_until(lambda: other("stats")[5:8] == [0, 0, 0])
        kept = set(cancelled)
        done = {each.id for each in (*worker.executions, *other.executions)
                if each.what == "end"}
        for name in acked:
            state = other("get", name)[1]
            if name in kept:
                self.assertEqual(state, 6, name)
            elif state != 6:  # cancelled, which nobody has heard
                self.assertEqual((name, state), (name, 4))
                self.assertIn(name, done)
        for name in cancelled:
            self.assertEqual(worker.begins(name) + other.begins(name), [])
        # No attempt is made twice.
        begun = [each.key for each in (*worker.executions,
                                       *other.executions)
                 if each.what == "begin"]
        self.assertEqual(len(begun), len(set(begun)))
        self.stop_all(other)
        self.no_invariant_is_broken(self.replica)

    def test_a_master_that_becomes_a_replica_is_not_written_to(self):
        """It is waited for, as it was a master when it was found."""
        actor = self.actor(level=FSYNCED, timeout=2000)
        with self.replica.client() as client:
            wait_until(lambda: client("EXISTS", *(
                "{%s:%d}:meta" % (self.space, i) for i in range(4))) == 4)
        self.promote()
        self.demote()
        self.assertIn(actor("add", "q", 0, 5, "done", "a")[0],
                      (-errno.EAGAIN, -errno.ETIMEDOUT))
        with self.replica.client() as client:
            self.assertEqual(client("EXISTS", *(
                "{%s:%d}:r:a" % (self.space, i) for i in range(4))), 0)
        with self.master.client() as client:
            client("REPLICAOF", "NO", "ONE")
        self.assertEqual(actor("add", "q", 0, 5, "done", "a"), [0, 0])
        self.stop_all(actor)


class More(Pair):
    """More replicas than one."""

    def setUp(self):
        super().setUp()
        self.other = self.one_more()
        # One that comes while an add waits for others makes that uncertain.
        wait_until(lambda: self.counted() == 2)

    def one_more(self):
        other = self.replica_of_master()
        wait_until(lambda: self.is_replica(other))
        return other

    def counted(self):
        with self.master.client() as client:
            return len(client("ROLE")[2])

    def adds(self, actor, *names, say=0):
        self.assertEqual(actor("add", "q", 600000, 5, "done", *names),
                         [say] + [say] * len(names), actor.said())

    def test_whichever_is_promoted_has_all_that_was_acknowledged(self):
        """The one that lags, since Sentinel has not heard of the other."""
        producer = self.actor(timeout=2000)
        self.adds(producer, "a", "c")
        self.leave_behind(self.replica)
        acked = []
        for i in range(5):
            if producer("add", "q", 600000, 5, "done", f"b{i}")[0] == 0:
                acked.append(f"b{i}")
        self.assertEqual(producer("cancel", "c"), [-errno.ETIMEDOUT])
        self.master.kill()
        self.other.kill()
        self.replica.send_signal(signal.SIGCONT)
        self.promote()
        after = self.actor(self.replica.servers, level=FSYNCED)
        for name in ["a", *acked]:
            self.assertEqual(after("get", name)[0], 0, name)
        self.assertEqual(acked, [])
        self.stop_all(after)

    def test_one_that_leaves_is_waited_for_no_more(self):
        producer = self.actor(timeout=2000)
        self.adds(producer, "a")
        self.other.kill()
        wait_until(lambda: producer("add", "q", 600000, 5, "done", "b")[0]
                   == 0)
        for i in range(20):
            self.adds(producer, f"c{i}")
        self.stop_all(producer)

    def test_more_than_are_waited_for_are_told(self):
        """Nothing stops: an operator may have good reasons."""
        producer = self.actor(replicas=2)
        self.adds(producer, "a")
        hwtd = self.start("hwtd", "--metrics=0", "--replicas=2")
        self.assertEqual(hwtd.page("health"), (200, "ok\n"))
        self.assertNotIn("replicas are connected", producer.said())
        self.one_more()
        warning = "3 replicas are connected, and 2 waited for"

        def is_told():
            self.adds(producer, f"b{time.monotonic_ns()}")
            return warning in producer.said()
        wait_until(is_told)
        wait_until(lambda: warning in hwtd.err)
        wait_until(lambda: "warning: 3 replicas" in hwtd.page("health")[1])
        status, text = hwtd.page("health")
        self.assertEqual((status, text[:3]), (200, "ok\n"))
        text = hwtd.page()[1]
        for line in (f'replicas{{space="{self.space}"}} 3\n',
                     f'replicas_awaited{{space="{self.space}"}} 2\n'):
            self.assertIn("hwt_durable_" + line, text)
        self.assertEqual(hwtd.end(), 0)
        # Who does not say a number waits for all.
        stat = self.stat()
        self.assertEqual((stat["replicas"], stat["replicas_awaited"]), (3, 3))
        self.stop_all(producer)

    def test_as_many_as_are_asked_for(self):
        """Fewer are too few, also if they are all."""
        producer = self.actor(replicas=3, timeout=1500)
        self.adds(producer, "a", say=-errno.ETIMEDOUT)
        self.assertIn("fewer than 3 replicas", producer.said())
        self.one_more()
        wait_until(lambda: producer("add", "q", 600000, 5, "done", "a")
                   == [0, 1])
        self.stop_all(producer)


class Watched(Pair):
    """By three Sentinels, of whom two decide."""

    replicas = 1

    def setUp(self):
        super().setUp()
        self.others = [self.replica_of_master()
                       for _ in range(1, self.replicas)]
        self.ports = [self.sentinel(i) for i in range(3)]
        for port in self.ports:
            wait_until(lambda: self.knows(port))
        # The first is nobody.
        self.list = ",".join(f"127.0.0.1:{port}" for port in
                             [free_port(), *self.ports]) + ",first"
        self.servers = ["--sentinel", self.list]

    def sentinel(self, number):
        folder = os.path.join(self.folder, f"sentinel{number}")
        os.mkdir(folder)
        port, process = start_sentinel(
            folder, self.master, 2,
            "sentinel down-after-milliseconds first 1500",
            "sentinel failover-timeout first 6000")
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return port

    def ask(self, port, *words):
        try:
            with Client(("127.0.0.1", port)) as client:
                return client(*words)
        except (OSError, Error):
            return None

    def knows(self, port):
        """It has found all replicas, and both of the others."""
        said = self.ask(port, "INFO", "sentinel")
        return said and b"slaves=%d,sentinels=3" % self.replicas in said


class Sentinels(Watched):
    """They tell who is the master."""

    def test_the_programs_follow_a_fail_over(self):
        self.ctl("init", "--shards=4", "--slots=64", "--tick=20",
                 "--level=replicated")
        scheduler = self.start("hwtd")
        worker = self.shell('echo "$HWT_ID"', "--visibility=5")
        before = [f"a{i}" for i in range(20)]
        for names, delay in ((before[:10], 0), (before[10:], 4)):
            self.feed(*({"queue": "q", "in": delay, "id": name}
                        for name in names))
        wait_until(lambda: len(set(worker.out.split())) >= 10)
        self.master.kill()
        # Nobody replicates now: fsynced. It waits until there is a master.
        after = [f"b{i}" for i in range(10)]
        actor = self.actor("sentinel:" + self.list, level=FSYNCED)
        self.assertEqual(actor("add", "q", 0, 5, "done", *after),
                         [0] + [0] * 10, actor.said())
        with self.replica.client() as client:
            self.assertEqual(client("ROLE")[0], b"master")
        # The old one comes back, is taken for a replica, and heals the level.
        self.master.start()
        wait_until(lambda: self.is_replica(self.master))
        wait_until(lambda: self.stat()["succeeded"] == 30)
        self.assertEqual(set(worker.out.split()), {*before, *after})
        self.ctl("add", "--queue=q", "--in=600", "--id=c")
        self.ctl("cancel", "c")
        self.stop_all(actor)
        self.assertEqual((scheduler.end(), worker.end()), (0, 0))
        self.no_invariant_is_broken(self.replica)
        self.check()

    def test_a_sentinel_that_names_a_replica_is_not_believed(self):
        """The master has become a replica, and no Sentinel has noticed."""
        self.ctl("init")
        self.promote()
        self.demote()
        self.timeout = 3
        said = self.ctl("stat", status=UNREACHABLE)
        self.assertIn("is a replica", said.err)
        self.timeout = 60
        # Until somebody puts it right: they, or we.
        with self.master.client() as client:
            client("REPLICAOF", "NO", "ONE")
        self.ctl("stat")


class Elections(Watched):
    """Of two replicas, they take the one that they reach, though it lags."""

    replicas = 2

    def test_the_one_that_lags_is_promoted(self):
        wait_until(lambda: self.is_replica(self.others[0]))
        producer = self.actor("sentinel:" + self.list, timeout=1500)

        def add(name):
            return producer("add", "q", 600000, 5, "done", name)[0]
        wait_until(lambda: add("a") == 0)
        acked = ["a"]
        self.leave_behind(self.replica)
        acked += [name for name in map("b{}".format, range(4))
                  if add(name) == 0]
        self.master.kill()
        self.others[0].kill()
        self.replica.send_signal(signal.SIGCONT)
        after = self.actor("sentinel:" + self.list, level=FSYNCED)
        for name in acked:
            self.assertEqual(after("get", name)[0], 0, name)
        with self.replica.client() as client:
            self.assertEqual(client("ROLE")[0], b"master")
        self.stop_all(after)


if __name__ == "__main__":
    sys.exit(main())
