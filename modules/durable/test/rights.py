#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rights that a user needs: those that hwt_durable(7) names are enough for
all programs, and none of them is there for nothing.

    rights.py [-v] [CLASS[.test]...]

HWT_BUILD is the folder of the programs; build/plain without it."""

import os
import re
import sys
import time

from engine import commands_of_scripts
from programs import NO, ROOT, Programs, main, wait_until

PAGE = os.path.join(ROOT, "modules/durable/man/hwt_durable.7")
# What is sent besides the scripts' commands, and what sends it.
OTHERS = {
    "asking", "blpop", "cluster|slots", "config|get", "fcall",
    "function|load", "info", "role", "subscribe", "wait",  # the library
    "type", "zscan",  # hwtctl
}
# An open does not find out that one of these is missing: the right to load the
# library of functions is needed only while it is not there.
UNASKED = {"asking", "cluster|slots", "function|load", "publish", "subscribe",
           "type", "wait", "zscan"}


def words_of_page():
    """From ACL on."""
    with open(PAGE, encoding="ascii") as file:
        found = re.search(r"^ACL SETUSER .*?(?=^\.Ed)", file.read(),
                          re.MULTILINE | re.DOTALL)
    return found.group().split()


def commands_of_page():
    return [word[1:] for word in words_of_page() if word[0] == "+"]


class Rights(Programs):
    def setUp(self):
        super().setUp()
        self.admin = self.connect()
        self.admin(*[
            word.replace("hwt", self.space)
            if word[0] in "~&" or word == "hwt"
            else word.replace("PASSWORD", "secret")
            for word in words_of_page()])
        self.secret = self.path("secret", b"secret\n")

    def where(self):
        return [*super().where(), "--user", self.space,
                "--password-file", self.secret]

    def allow(self, sign, command):
        self.admin("ACL", "SETUSER", self.space, sign + command)

    def test_the_page_names_what_is_sent(self):
        self.assertEqual(sorted(commands_of_page()),
                         sorted({name.lower() for name
                                 in commands_of_scripts()} | OTHERS))

    def test_they_are_enough(self):
        self.ctl("init", "--shards=2")
        hwtd = self.start("hwtd")
        worker = self.shell('exit "$(cat)"', "--fail-status=1")
        for name, payload in (("done", 0), ("dead", 1), ("dropped", 1)):
            self.add("--queue=q", "--in=0", f"--id={name}",
                     f"--payload={payload}")
        for name in ("done", "dead", "dropped"):
            wait_until(lambda: self.state(name) in ("succeeded", "failed"))
        for name in ("later", "never"):
            self.add("--queue=q", "--in=3600", f"--id={name}")
        self.ctl("reschedule", "later", "--in=7200")
        self.ctl("cancel", "never")
        self.assertEqual(len(self.ctl("dead", "list").lines), 2)
        self.ctl("dead", "drop", "dropped")
        self.ctl("dead", "replay", "dead")
        self.ctl("pause", "0")
        self.ctl("resume", "0")
        self.ctl("pause", "--queue=q")
        self.ctl("resume", "--queue=q")
        self.assertEqual(self.stat()["added"], 5)
        self.assertTrue(self.ctl("list").lines)
        self.ends("dead", state="failed")
        self.assertEqual([worker.end(), hwtd.end()], [0, 0])
        self.ctl("check")
        for running in (worker, hwtd):
            self.assertNotIn("NOPERM", running.err)
        self.assertEqual([
            entry for entry in self.admin("ACL", "LOG")
            if self.space.encode() in entry], [])

    def test_a_user_that_hears_no_worker(self):
        """hwtd says so once, asks no more than once a minute, and does all
        else."""
        self.admin("ACL", "SETUSER", self.space, "resetchannels",
                   f"&{self.space}:due")
        channel = f"{self.space}:stats"
        hwtd = self.start("hwtd", "--metrics=0")
        wait_until(lambda: f"publish on {channel} is not heard" in hwtd.err)
        time.sleep(3)  # for more than there may be
        self.assertEqual(hwtd.err.count(channel), 1)
        self.assertEqual([entry[1] for entry in self.admin("ACL", "LOG")
                          if channel.encode() in entry], [1])
        name = self.add("--queue=q", "--in=0")
        wait_until(lambda: self.state(name) == "delivered")
        self.assertEqual(hwtd.end(), 0)

    def test_an_open_names_what_is_missing(self):
        self.ctl("init", "--shards=2")
        for command in set(commands_of_page()) - UNASKED:
            with self.subTest(command):
                self.allow("-", command)
                result = self.ctl("init", status=NO)
                self.allow("+", command)
                self.assertIn(command.split("|", maxsplit=1)[0],
                              result.err.lower())
        self.ctl("init")


if __name__ == "__main__":
    sys.exit(main())
