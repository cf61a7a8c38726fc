#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Spaces whose data is gone, in whole or in part: what goes on with them, who
may make them anew, and what becomes of the processes of the old one.

    identity.py [-v] [CLASS[.test]...]

HWT_BUILD is the folder of the programs; build/plain without it."""

import errno
import sys
import time
import unittest

import scripts
from actor import Actors
from engine import Error, Engine, Space
from programs import NO, YES, Programs, main, wait_until

STALE = -errno.ESTALE
SCRIPTS = {name: arguments
           for name, arguments in scripts.WhilePaused.EACH.items()
           if name not in ("hosts", "notify")}
SCRIPTS["init"] = [0, 0, 0, 0, 0, 7, "1"]


class Calls(unittest.TestCase):
    """Each script by itself."""

    def setUp(self):
        self.engine = Engine()
        self.addCleanup(self.engine.close)
        self.client = self.engine.client()
        self.addCleanup(self.client.close)
        self.space = Space(self.client, shards=1)
        self.space("add", 0, "x", "q", "in", 0, 3, "", "")

    def dump(self):
        return {key: self.client("DUMP", key)
                for key in self.client("KEYS", "*")}

    def test_none_does_anything_to_another_making(self):
        made = int(self.client("HGET", self.space.key(0), "identity"))
        self.assertEqual({*SCRIPTS, "hosts", "notify"},
                         {*self.space.scripts.names})
        before = self.dump()
        for self.space.identity in (made + 1, f"{made} ", f"0{made}"):
            for name, arguments in SCRIPTS.items():
                with self.assertRaises(Error) as caught:
                    self.space(name, 0, *arguments)
                self.assertEqual(caught.exception.code, "ENOSPACE", name)
        self.assertEqual(self.dump(), before)
        self.space.identity = made
        for name, arguments in SCRIPTS.items():
            self.space(name, 0, *arguments)

    def test_none_makes_a_shard_whose_data_is_gone(self):
        self.client("FLUSHALL")
        for self.space.identity in ("", 7):
            for name, arguments in SCRIPTS.items():
                if name == "init" and self.space.identity == "":
                    arguments = [*arguments[:5], "", ""]
                with self.assertRaises(Error) as caught:
                    self.space(name, 0, *arguments)
                self.assertEqual(caught.exception.code, "ENOSPACE", name)
        self.assertEqual(self.dump(), {})


class Loss(Actors, Programs):
    """4 shards, and processes that have been there before."""

    def setUp(self):
        super().setUp()
        self.ctl("init", "--shards=4", "--slots=64", "--tick=20")
        self.client = self.connect()

    def key(self, shard):
        return f"{{{self.space}:{shard}}}:meta"

    def actor(self, **options):
        return self.open(self.engine.servers, level=2, shards=0, slots=0,
                         tick=0, **options)

    def hwtd(self, *words):
        running = self.start("hwtd", "--metrics=0", *words)
        wait_until(lambda: "serves space" in running.err)
        return running

    def keys(self):
        return self.client("KEYS", f"*{self.space}*")

    def lose(self):
        """All at once, as FLUSHALL would."""
        self.client("EVAL", "redis.call('DEL', unpack("
                    "redis.call('KEYS', ARGV[1])))", 0, f"*{self.space}*")

    def test_only_init_makes_a_space(self):
        self.lose()
        for words in (["stat"], ["list"], ["check"], ["show", "t"],
                      ["cancel", "t"], ["pause", "0"], ["dead", "list"],
                      ["add", "--queue=q", "--in=0"], ["resume", "0"]):
            said = self.ctl(*words, status=NO)
            self.assertIn(f"no space {self.space}", said.err)
        for words in (["hwtd"], ["hwt-exec", "--queue=q", "--", "true"]):
            running = self.start(*words)
            self.assertEqual(running.wait(), NO)
            self.assertIn(f"no space {self.space}", running.err)
        self.assertEqual(self.keys(), [])
        self.ctl("init")
        self.ctl("stat")

    def test_a_process_of_the_old_space_is_refused_for_ever(self):
        old = self.actor(schedules=True, works=(1, 1000, 0))
        self.assertEqual(old("add", "q", 0, 5, "done", "t"), [0, 0])
        old.wait(lambda runs: len(runs) == 2)
        self.lose()
        for _ in range(2):
            for call, said in ((["add", "q", 0, 5, "done", "u"], [STALE] * 2),
                               (["cancel", "t"], [STALE]),
                               (["stats"], [STALE])):
                self.assertEqual(old(*call)[:len(said)], said)
            self.assertEqual(old("get", "t")[0], STALE)
            self.ctl("init", "--shards=10")
        # Also what runs by itself does nothing to it.
        self.ctl("add", "--queue=q", "--in=0", "--id=v")
        time.sleep(2)
        self.assertEqual(self.show("v")["state"], "pending")
        self.assertEqual(len(old.executions), 2)
        self.assertEqual([word for word in old.said().split("\n")
                          if "was made anew" in word][1:], [])
        new = self.actor(schedules=True, works=(1, 1000, 0))
        new.wait(lambda runs: len(runs) == 2)
        self.stop_all(old, new)
        self.is_whole(self.client)

    def test_all_that_is_accepted_after_a_loss_is_found_and_runs(self):
        """Old processes, of 4 shards, go on adding: each is told."""
        old = self.actor()
        self.lose()
        self.ctl("init", "--shards=10")
        new = self.actor()
        names = [f"t{i}" for i in range(40)]
        for name in names:
            self.assertEqual(old("add", "q", 0, 5, "done", name), [STALE] * 2)
            self.assertEqual(new("add", "q", 0, 5, "done", name), [0, 0])
        self.assertEqual(new("schedule"), [0])
        self.assertEqual(new("work", "q", 4, 9000, 0), [0])
        new.wait(lambda runs: len(runs) >= 80)
        self.assertEqual(sorted(run.id for run in new.executions
                                if run.what == "begin"), sorted(names))

    def test_programs_tell_it_and_end(self):
        hwtd = self.hwtd()
        runner = self.start("hwt-exec", "--queue=q", "--", "true")
        self.add("--queue=q", "--in=0", "--id=t")
        self.ends("t")
        self.assertEqual(hwtd.page("health"), (200, "ok\n"))
        self.lose()
        wait_until(lambda: hwtd.page("health")[0] == 503)
        self.assertIn("gone", hwtd.page("health")[1])
        for running in (hwtd, runner):
            self.assertEqual(running.wait(), NO)
            self.assertIn("no such space or shard", running.err)
            self.assertIn("hwtctl init", running.err)
            self.assertLess(len(running.err.split("\n")), 10)

    def test_a_space_that_comes_back_from_a_backup_goes_on(self):
        hwtd = self.hwtd()
        old = self.actor()
        self.assertEqual(old("add", "q", 0, 5, "done", "t"), [0, 0])
        keys = self.keys()
        saved = self.client.pipeline(
            [("MULTI",), *(("DUMP", key) for key in keys), ("EXEC",)])
        self.lose()
        self.assertEqual(old("get", "t")[0], STALE)
        for key, dump in zip(keys, saved[-1]):
            if dump:
                self.client("RESTORE", key, 0, dump, "REPLACE")
        self.assertEqual(old("get", "t")[0], 0)
        wait_until(lambda: hwtd.page("health")[0] == 200)
        self.assertEqual(hwtd.end(), YES)

    def test_a_new_space_is_served_beside_old_schedulers(self):
        """An old one must not go on to own shards that it cannot pump."""
        old = [self.actor() for _ in range(3)]
        for actor in old:
            self.assertEqual(actor("schedule"), [0])
            time.sleep(0.15)  # so that they do not all beat at once
        self.lose()
        self.ctl("init", "--shards=4", "--tick=20")
        self.actor(schedules=True)
        members = f"{{{self.space}}}:hosts"

        def is_alone():
            """For longer than from one beat to the next."""
            for _ in range(15):
                if self.client("ZCARD", members) != 1:
                    return False
                time.sleep(0.1)
            return True

        # Until it has pumped in vain an old one beats: once, and for a lease.
        wait_until(is_alone)

    def test_one_shard_is_gone(self):
        """It is named, and never made unasked; the others go on."""
        old = self.actor()
        hwtd = self.hwtd()
        names = [f"t{i}" for i in range(16)]
        for shard in (2, 0):
            self.client("DEL", self.key(shard))
            said = {old("add", "q", 0, 5, "done", name)[1] for name in names}
            self.assertTrue(STALE in said and len(said) == 2, said)
            for words in (["stat"], ["add", "--queue=q", "--in=0"], ["init"]):
                self.assertIn(f"the data of shard {shard} is gone",
                              self.ctl(*words, status=NO).err)
            self.assertEqual(self.client("EXISTS", self.key(shard)), 0)
            wait_until(lambda: hwtd.page("health")[0] == 503)
            self.assertIn(f"shard {shard}", hwtd.err)
            self.ctl("init", "--repair")
            self.assertIn(": 4 shards of 64 slots, tick 20 ms",
                          self.ctl("init").text)
            self.assertEqual({old("add", "q", 0, 5, "done", name)[0]
                              for name in names}, {0})
            wait_until(lambda: hwtd.page("health")[0] == 200)
        self.assertEqual(hwtd.end(), YES)
        wait_until(lambda: self.stat()["added"] > 0)

    def test_a_shard_of_another_making_is_named(self):
        self.client("HSET", self.key(3), "identity", 5)
        for words in (["stat"], ["init"], ["init", "--repair"]):
            self.assertIn("shard 3 is of another making",
                          self.ctl(*words, status=NO).err)
        self.client("DEL", self.key(3))
        self.ctl("init", "--repair")
        self.ctl("stat")

    def test_a_making_that_was_interrupted_goes_on(self):
        self.client("DEL", self.key(3))
        self.client("HSET", self.key(0), "complete", 0)
        self.assertIn("not made to its end", self.ctl("stat", status=NO).err)
        self.ctl("init")
        self.ctl("stat")

    def test_two_that_make_it_at_once_make_one(self):
        self.lose()
        running = [self.start("hwtctl", "init", "--shards=64")
                   for _ in range(6)]
        self.assertEqual({each.wait() for each in running}, {0})
        self.assertEqual(len({self.client("HGET", self.key(i), "identity")
                              for i in range(64)}), 1)


class OneShard(Programs):
    """Its meta alone is gone: that is no empty space."""

    def test_it_is_refused_until_it_is_repaired(self):
        self.ctl("init")
        self.add("--queue=q", "--in=60", "--id=t")
        client = self.connect()
        client("DEL", "{%s:0}:meta" % self.space)
        # However many keys of others there are.
        for i in range(3000):
            client("SET", f"other:{i}", "")
        keys = sorted(client("KEYS", "*"))
        for words in (["stat"], ["add", "--queue=q", "--in=0"], ["init"]):
            self.assertIn("the data of shard 0 is gone",
                          self.ctl(*words, status=NO).err)
        self.assertEqual(sorted(client("KEYS", "*")), keys)
        self.ctl("init", "--repair")
        self.assertEqual(client("HGET", "{%s:0}:meta" % self.space, "format"),
                         b"4")
        self.add("--queue=q", "--in=0", "--id=u")


if __name__ == "__main__":
    sys.exit(main())
