#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A cluster of three engines on the loopback, with the programs and the library
in it: slots that are moved, with and without a pause of their shard, redirects,
a node that is killed, one that hangs, one that says strange things.

    cluster.py [-v] [CLASS[.test]...]

HWT_BUILD is the folder of the programs; build/plain without it."""

import contextlib
import errno
import signal
import socketserver
import sys
import threading
import time

from actor import Actors
from checker import scan
from engine import Client, Engine, Error, Space, held, join, shard_of
from programs import DURABLE, NO, Programs, main, wait_until

FSYNCED, REPLICATED = 2, 3
SHARDS, SLOTS, TICK = 6, 64, 20
VISIBILITY = 120000  # ms: longer than a node is away
NODES = 3


class Routed:
    """As a client of one engine, for all keys of the cluster."""

    def __init__(self, cluster):
        self.cluster = cluster

    def __call__(self, *words):
        nodes = self.cluster.clients
        if words[0] == "SCAN":
            names = [name for client in nodes
                     for name in scan(client, words[3])]
            assert len(names) == len(set(names)), "a key is on two nodes"
            return [b"0", names]
        if words[0] in ("TIME", "FUNCTION"):
            return [client(*words) for client in nodes][0]
        key = words[3] if words[0] == "FCALL" else words[1]
        return nodes[self.cluster.owner_of(key)](*words)

    def pipeline(self, commands):
        return [self(*command) for command in commands]


class Nodes(Actors, Programs):
    """Three masters, started for the class."""

    timeout = 60

    @classmethod
    def setUpClass(cls):
        cls.engines = [cls.node() for _ in range(NODES)]
        cls.clients = join(cls.engines)
        for client in cls.clients:
            cls.addClassCleanup(client.close)
        cls.ids = [client("CLUSTER", "MYID") for client in cls.clients]
        cls.servers = ",".join(engine.servers for engine in cls.engines)

    @classmethod
    def node(cls):
        engine = Engine(
            cluster_enabled="yes", cluster_node_timeout=4000,
            repl_diskless_sync_delay=0, **DURABLE)
        cls.addClassCleanup(engine.close)
        return engine

    def setUp(self):
        super().setUp()
        # A name whose shards are on all nodes.
        name, suffix = self.space, 0
        while len({self.owner_of(b"{%s:%d}:meta" % (
                self.space.encode(), shard))
                for shard in range(SHARDS)}) < NODES:
            suffix += 1
            self.space = f"{name}-{suffix}"
        self.routed = Routed(self)

    def where(self):
        return ["--cluster", self.servers, "--space", self.space,
                f"--timeout={self.timeout}"]

    def slot_of(self, key):
        return self.clients[0]("CLUSTER", "KEYSLOT", key)

    def slot_of_shard(self, shard):
        return self.slot_of("{%s:%d}:meta" % (self.space, shard))

    def owner_of(self, key):
        return self.owner_of_slot(self.slot_of(key))

    def owner_of_slot(self, slot):
        """The node that says that it is its own."""
        for node, client in enumerate(self.clients):
            for first, last, master, *_ in client("CLUSTER", "SLOTS"):
                if first <= slot <= last and \
                        master[1] == self.engines[node].port:
                    return node
        raise AssertionError(f"slot {slot} is nobody's")

    def actor(self, **options):
        return self.open("cluster:" + self.servers, **{
            "level": FSYNCED, "shards": SHARDS, "slots": SLOTS, "tick": TICK,
            "timeout": 60000, **options})

    def add_tasks(self, actor, prefix, count, delay=0, payload="done"):
        names = [f"{prefix}{i}" for i in range(count)]
        self.assertEqual(actor("add", "q", delay, 5, payload, *names),
                         [0] + [0] * count, actor.said())
        return names

    # A move, step by step.

    def agree(self):
        """All nodes have heard of the same owners and config epochs."""
        seen = []
        for client in self.clients:
            nodes = [line.split() for line in
                     client("CLUSTER", "NODES").decode().splitlines()]
            # ID address flags master ping pong epoch state slot...
            seen.append(sorted([node[0], node[6], *node[8:]]
                               for node in nodes))
        return all(each == seen[0] for each in seen)

    def begin_move(self, slot):
        """To the next node; returns the nodes, from and to.

        A target that has not heard of the source's last epoch takes itself
        for the newest, and keeps its own; what the source claimed before is
        then newer, and the slot nobody's for ever, in Redis 7.0.15."""
        wait_until(self.agree)
        source = self.owner_of_slot(slot)
        target = (source + 1) % NODES
        self.clients[target](
            "CLUSTER", "SETSLOT", slot, "IMPORTING", self.ids[source])
        self.clients[source](
            "CLUSTER", "SETSLOT", slot, "MIGRATING", self.ids[target])
        return source, target

    def move_key(self, key, source, target):
        """False: it has gone by itself."""
        return self.clients[source](
            "MIGRATE", "127.0.0.1", self.engines[target].port, key, 0,
            60000) == b"OK"

    def move_keys(self, slot, source, target, pause=0):
        while True:
            keys = self.clients[source](
                "CLUSTER", "GETKEYSINSLOT", slot, 20)
            if not keys:
                return
            for key in keys:
                time.sleep(pause)
                self.move_key(key, source, target)

    def end_move(self, slot, source, target):
        for node in (target, source, *range(NODES)):
            self.clients[node](
                "CLUSTER", "SETSLOT", slot, "NODE", self.ids[target])

    def move(self, slot, pause=0):
        source, target = self.begin_move(slot)
        self.move_keys(slot, source, target, pause)
        self.end_move(slot, source, target)
        return source, target

    # The end.

    def ran_once(self, names, *workers):
        """Each of them, in its first attempt, and not early."""
        wait_until(lambda: self.stat()["succeeded"] >= len(names))
        runs = [each for worker in workers for each in worker.executions
                if each.what == "begin"]
        self.assertEqual(sorted(each.id for each in runs), sorted(names))
        self.assertEqual({each.key[1:] for each in runs}, {(1, 1)})
        for each in runs:
            self.assertGreaterEqual(each.ms, each.due)

    def no_invariant_is_broken(self, drained=True):
        self.is_whole(self.routed, drained)
        self.check()


class Moves(Nodes):
    """Slots are moved from node to node."""

    def test_a_shard_that_is_not_paused_is_moved(self):
        actor = self.actor(schedules=True, works=(2, VISIBILITY, 0))
        names = []
        for shard in range(SHARDS):
            names += self.add_tasks(actor, f"a{shard}-", 20)
            names += self.add_tasks(actor, f"b{shard}-", 20, delay=300)
            names += self.add_tasks(actor, f"c{shard}-", 20, delay=300,
                                    payload="done,10")
            self.move(self.slot_of_shard(shard), pause=0.005)
        self.ran_once(names, actor)
        self.stop_all(actor)
        self.no_invariant_is_broken()

    def test_hwt_exec_goes_on_while_a_shard_is_moved(self):
        """Every other shard is paused for that."""
        self.ctl("init", f"--shards={SHARDS}", "--slots=16", "--tick=20")
        scheduler = self.start("hwtd")
        worker = self.shell(
            'echo "$HWT_ID $HWT_ATTEMPT"; [ "$HWT_ID" != t7 ]',
            "--visibility=120", "--fail-status=1")
        self.feed(*({"queue": "q", "in": i % 2, "id": f"t{i}"}
                    for i in range(40)))
        for shard in range(SHARDS):
            if shard % 2:
                self.ctl("pause", str(shard))
            self.move(self.slot_of_shard(shard))
            if shard % 2:
                self.ctl("resume", str(shard))
        wait_until(lambda: self.stat()["succeeded"] == 39)
        wait_until(lambda: self.ctl("dead", "list").lines)
        self.assertEqual((scheduler.end(), worker.end()), (0, 0))
        self.assertEqual(sorted(worker.out.splitlines()),
                         sorted(f"t{i} 1" for i in range(40)))
        self.ctl("dead", "replay", "t7")
        self.assertEqual(self.state("t7"), "pending")
        self.no_invariant_is_broken(drained=False)

    def test_no_script_does_a_half_while_keys_are_on_the_way(self):
        """Whichever keys have gone first, on both nodes; then all goes on."""
        actor = self.actor(timeout=2000)
        space = Space(self.routed, self.space)
        shard = 2
        slot = self.slot_of_shard(shard)
        for first in ("meta", "fly", "b", "q", "r", "dead"):
            with self.subTest(first=first):
                running, later, name = self.fill(space, shard, first)
                source, target = self.begin_move(slot)
                keys = scan(self.clients[source], b"{%s:%d}:%s*" % (
                    self.space.encode(), shard, first.encode()))
                self.assertTrue(keys)
                for key in keys:
                    self.move_key(key, source, target)
                self.refuse(space, shard, name, source, target)
                if first == "meta":
                    self.assertEqual(actor("get", name)[0], -errno.EAGAIN)
                self.move_keys(slot, source, target)
                self.refuse(space, shard, name, source, target)
                self.end_move(slot, source, target)
                self.assertEqual(actor("get", name)[0], 0)
                self.is_whole(self.routed)
                self.assertEqual(space("finish", shard, *running, "done", 0),
                                 [0])
                self.assertEqual(actor("cancel", later), [0])
        self.assertEqual([actor("schedule"), actor("work", "q", 2, 10000, 0)],
                         [[0], [0]])
        wait_until(lambda: actor("stats")[5:8] == [0, 0, 0])
        self.stop_all(actor)
        self.no_invariant_is_broken()

    def fill(self, space, shard, prefix):
        """Tasks in all states. Returns the one that runs, and the ids of one
        that is due much later, and of one that waits for a pump."""
        names = [name for name in (f"{prefix}{i}" for i in range(200))
                 if shard_of(name.encode(), SHARDS) == shard]

        def add(delay):
            name = names.pop()
            self.assertEqual(space(
                "add", shard, name, "q", "in", delay, 3, "done", ""), [0])
            return name
        for _ in range(5):
            add(0)
        wait_until(lambda: not space("pump", shard, 100, "")[0] and
                   space("stat", shard) and
                   space.meta(shard)["delivered"] >= 5)
        done, failed, running = space(
            "take", shard, "q", f"w{time.monotonic_ns()}", 1, 0, 3, 60000)
        self.assertEqual(space(
            "finish", shard, *held(done), "done", 0, *held(failed), "fail",
            0), [0, 0])
        return held(running), add(100000), add(0)

    def refuse(self, space, shard, name, source, target):
        before = self.dump(shard)
        for script, *arguments in (
                ("pump", 100, ""), ("janitor", 100, 5, 800),
                ("take", "q", f"w{time.monotonic_ns()}", 1, 0, 9, 1000),
                ("add", "other", "q", "in", 0, 1, "", ""),
                ("cancel", name), ("reschedule", name, "in", 0),
                ("finish", name, 1, "done", 0),
                ("extend", 1000, name, 1), ("dead", "drop", name),
                ("get", name), ("stat",), ("audit", name, "")):
            words = space.command(script, shard, *arguments)
            for node in (source, target):
                said = self.clients[node].pipeline([("ASKING",), words])[1]
                self.assertIsInstance(said, Error, (script, node == source))
                self.assertIn(said.code, ("TRYAGAIN", "ASK")[
                    :1 + (node == source)], (script, said.text))
        self.assertEqual(self.dump(shard), before)

    def dump(self, shard):
        """All keys of a shard, on all nodes."""
        held = []
        for client in self.clients:
            for key in scan(client, b"{%s:%d}:*" % (
                    self.space.encode(), shard)):
                held.append((key, client.pipeline(
                    [("ASKING",), ("DUMP", key)])[1]))
                self.assertIsInstance(held[-1][1], bytes)
        return held

    def test_a_new_space_has_a_shard_for_each_of_many_nodes(self):
        self.assertIn(": 16 shards of 4096 slots, tick 100 ms",
                      self.ctl("init").text)

    def test_who_is_asked_says_ASK(self):
        """A key that has gone, in a slot that has not."""
        self.ctl("init", f"--shards={SHARDS}")
        self.add("--queue=q", "--in=600", "--id=t")
        shard = shard_of(b"t", SHARDS)
        slot = self.slot_of_shard(shard)
        source, target = self.begin_move(slot)
        meta = "{%s:%d}:meta" % (self.space, shard)
        self.move_key(meta, source, target)
        self.ctl("pause", str(shard))
        self.assertEqual(self.clients[target].pipeline(
            [("ASKING",), ("HGET", meta, "paused")])[1], b"1")
        self.timeout = 2
        said = self.ctl("show", "t", status=NO)
        self.assertIn("not ready", said.err)
        self.move_keys(slot, source, target)
        self.end_move(slot, source, target)
        self.assertEqual(self.state("t"), "pending")
        self.ctl("cancel", "t", status=NO)
        self.timeout = 60
        self.ctl("resume", str(shard))
        self.ctl("cancel", "t")
        self.no_invariant_is_broken()

    def test_schedulers_say_that_they_are_there_by_ASK(self):
        self.ctl("init", f"--shards={SHARDS}")
        scheduler = self.start("hwtd")
        hosts = "{%s}:hosts" % self.space
        name, = wait_until(lambda: self.routed("ZRANGE", hosts, 0, -1))
        slot = self.slot_of(hosts)
        source, target = self.begin_move(slot)
        self.assertTrue(self.move_key(hosts, source, target))

        def heard():
            return float(self.clients[target].pipeline(
                [("ASKING",), ("ZSCORE", hosts, name)])[1] or 0)
        before = heard()
        wait_until(lambda: heard() > before)
        self.end_move(slot, source, target)
        before = heard()
        wait_until(lambda: heard() > before)
        self.assertEqual(scheduler.end(), 0)
        self.no_invariant_is_broken()


class Kills(Nodes):
    """A node is killed."""

    def test_a_node_is_killed_and_its_replica_takes_over(self):
        replica = self.node()
        client = replica.client()
        self.addClassCleanup(client.close)
        client("CLUSTER", "MEET", "127.0.0.1", self.engines[0].port)
        wait_until(lambda: self.ids[0] in client("CLUSTER", "NODES"))
        wait_until(lambda: client.pipeline([
            ("CLUSTER", "REPLICATE", self.ids[0])]) == [b"OK"])
        wait_until(lambda: b"master_link_status:up" in client(
            "INFO", "replication"))
        # All know each other, as otherwise they do not hear of what follows.
        wait_until(lambda: all(
            b"slave" in said and said.count(b" connected") == NODES + 1
            for said in (each("CLUSTER", "NODES")
                         for each in (client, *self.clients))))
        # The other nodes have no replica, and could not answer this.
        actor = self.actor(level=REPLICATED)
        on_it = [shard for shard in range(SHARDS) if self.owner_of_slot(
            self.slot_of_shard(shard)) == 0]
        names = [name for name in (f"a{i}" for i in range(200))
                 if shard_of(name.encode(), SHARDS) in on_it]
        self.assertEqual(actor("add", "q", 0, 5, "done", *names),
                         [0] + [0] * len(names))
        self.stop_all(actor)
        self.engines[0].kill()
        # An election could take long where the machine is busy.
        client("CLUSTER", "FAILOVER", "TAKEOVER")
        other = self.actor(schedules=True, works=(2, VISIBILITY, 0))
        self.engines[0], self.clients[0] = replica, client
        self.assertEqual(client("ROLE")[0], b"master")
        names += self.add_tasks(other, "b", 60)
        self.ran_once(names, other)
        self.stop_all(other)
        self.no_invariant_is_broken()


class Fake(socketserver.ThreadingTCPServer):
    """A node that answers each command with what say(words) returns."""

    daemon_threads = True

    class Handler(socketserver.StreamRequestHandler):
        read = Client.read

        @property
        def file(self):
            return self.rfile

        def handle(self):
            with contextlib.suppress(OSError):
                while True:
                    self.wfile.write(self.server.say(self.read()))

    def __init__(self, say):
        super().__init__(("127.0.0.1", 0), self.Handler)
        self.say = say
        self.thread = threading.Thread(target=self.serve_forever)
        self.thread.start()

    def close(self):
        self.shutdown()
        self.thread.join()
        self.server_close()


class Fakes(Nodes):
    """Nodes that say strange things."""

    def test_who_is_not_ready_is_asked_for_the_table(self):
        """Each answer is that to its own question."""
        slots = [each[:3] for each in self.clients[0]("CLUSTER", "SLOTS")]

        def say(words):
            if words[0] != b"CLUSTER":
                return b"-BUSY a script is running\r\n"
            said = b"*%d\r\n" % len(slots)
            for first, last, (host, port, *_) in slots:
                said += b"*3\r\n:%d\r\n:%d\r\n*2\r\n$%d\r\n%s\r\n:%d\r\n" % (
                    first, last, len(host), host, port)
            return said
        fake = Fake(say)
        self.addCleanup(fake.close)
        self.servers = f"127.0.0.1:{fake.server_address[1]}"
        self.timeout = 10
        self.ctl("init", f"--shards={SHARDS}")
        self.add("--queue=q", "--in=600", "--id=t")
        self.assertEqual(self.state("t"), "pending")


class Hangs(Nodes):
    """A node is stopped: its connections are accepted, and get no answer. The
    other nodes do not take it for failed."""

    timeout = 4

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for client in cls.clients:
            client("CONFIG", "SET", "cluster-node-timeout", 600000)

    def stop(self, node):
        def go_on():
            self.engines[node].send_signal(signal.SIGCONT)
        self.addCleanup(go_on)
        self.engines[node].send_signal(signal.SIGSTOP)
        return go_on

    def split(self, victim, names):
        """Those of the node, and those of the others."""
        here = [self.owner_of_slot(self.slot_of_shard(shard)) == victim
                for shard in range(SHARDS)]
        on_it = [here[shard_of(name.encode(), SHARDS)] for name in names]
        self.assertEqual(set(on_it), {True, False})
        return ([name for name, is_on in zip(names, on_it) if is_on],
                [name for name, is_on in zip(names, on_it) if not is_on])

    def add_while_it_hangs(self, actor, victim, names, payload="done"):
        """What is not for it is stored, whatever else is in the batch."""
        late, others = victim
        said = actor("add", "q", 0, 5, payload, *names)[1:]
        self.assertEqual(
            [said[names.index(name)] for name in others], [0] * len(others))
        self.assertLessEqual(
            {said[names.index(name)] for name in late},
            {-errno.ETIMEDOUT, -errno.ECONNREFUSED})

    def test_what_is_for_the_other_nodes_is_stored(self):
        for node in range(NODES):
            with self.subTest(node=node):
                cold = self.actor(timeout=self.timeout * 1000)
                warm = self.actor(timeout=self.timeout * 1000)
                batches = [[f"{prefix}{node}-{i}" for i in range(30)]
                           for prefix in "abc"]
                parts = [self.split(node, names) for names in batches]
                self.add_tasks(warm, f"warm{node}-", 30, delay=900000)
                go_on = self.stop(node)
                # Into connections that are there; then without any.
                for i, actor in enumerate((warm, cold, cold)):
                    self.add_while_it_hangs(actor, parts[i], batches[i])
                go_on()
                for names in batches:
                    said = warm("add", "q", 0, 5, "done", *names)
                    self.assertEqual(said[0], 0)
                    self.assertLessEqual(set(said), {0, 1})
                self.stop_all(warm, cold)
        self.no_invariant_is_broken(drained=False)

    def test_what_is_due_on_the_other_nodes_is_executed(self):
        for hosts_too in (True, False):
            with self.subTest(hosts_too=hosts_too):
                self.execute_while_it_hangs(hosts_too)

    def test_leases_on_the_other_nodes_are_extended(self):
        """Though a finish and a take wait for the node that hangs."""
        victim = 0
        actor = self.actor(schedules=True, works=(16, 1500, 0), timeout=40000)
        late, others = self.split(victim, [f"x{i}" for i in range(12)])
        for names, ms in ((others, 6000), (late, 1000)):
            self.assertEqual(
                actor("add", "q", 0, 5, f"done,{ms}", *names)[0], 0)
        actor.wait(lambda runs: len(runs) == 12)
        go_on = self.stop(victim)
        actor.wait(lambda runs: {
            each.id for each in runs if each.what == "end"} >= set(others))
        go_on()
        wait_until(lambda: self.ctl("stat", "--json").json["succeeded"] == 12)
        begun = [each.id for each in actor.executions
                 if each.what == "begin" and each.id in others]
        self.assertEqual(sorted(begun), sorted(others))
        self.stop_all(actor)
        self.no_invariant_is_broken()
        self.routed_reset()

    def execute_while_it_hangs(self, hosts_too):
        """hosts_too: the node has the schedulers' names as well."""
        hosts = self.owner_of("{%s}:hosts" % self.space)
        victim = hosts if hosts_too else (hosts + 1) % NODES
        actor = self.actor(schedules=True, works=(2, VISIBILITY, 0),
                           timeout=self.timeout * 1000)
        scheduler = self.start("hwtd")
        names = self.add_tasks(actor, f"a{victim}-", 60)
        actor.wait(lambda runs: len(runs) == 2 * len(names))
        later = [f"b{victim}-{i}" for i in range(60)]
        late, others = self.split(victim, later)
        self.assertEqual(actor("add", "q", 2000, 5, "done", *later)[0], 0)
        more = [f"c{victim}-{i}" for i in range(60)]
        more_late, more_others = self.split(victim, more)
        go_on = self.stop(victim)
        self.add_while_it_hangs(actor, (more_late, more_others), more)
        wanted = {*names, *others, *more_others}
        actor.wait(lambda runs: {
            each.id for each in runs if each.what == "end"} >= wanted)
        go_on()
        self.assertEqual(actor("add", "q", 0, 5, "done", *more)[0], 0)
        wanted |= {*late, *more_late}
        actor.wait(lambda runs: {
            each.id for each in runs if each.what == "end"} >= wanted)
        self.ran_once([*names, *later, *more], actor)
        self.assertEqual(scheduler.end(), 0)
        self.stop_all(actor)
        self.no_invariant_is_broken()
        self.routed_reset()

    def routed_reset(self):
        """The next part has the space for itself."""
        for client in self.clients:
            for key in scan(client, b"{%s[:}]*" % self.space.encode()):
                client("DEL", key)


if __name__ == "__main__":
    sys.exit(main())
