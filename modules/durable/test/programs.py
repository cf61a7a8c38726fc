#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What hwtctl, hwtd and hwt-exec print, which exit status they have, and what
bad input and bad days do to them, with real engines.

    programs.py [-v] [CLASS[.test]...]

HWT_BUILD is the folder of the programs; build/plain without it. HWT_BEFORE is
a command that runs them, as "setarch -R"."""

import base64
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unicodedata
import unittest
import urllib.error
import urllib.request

from checker import Record
from engine import (BUILD, LIMIT, Engine, Space, die_with_parent, free_port,
                    held, join, listens, scratch_folder, shard_of,
                    start_sentinel, wait_until)

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))
BEFORE = shlex.split(os.environ.get("HWT_BEFORE", ""))
DURABLE = {"appendonly": "yes", "appendfsync": "always"}
PAYLOAD_MAX = 65536
YES, NO, USAGE, UNREACHABLE = 0, 1, 2, 3

# What a shell, a format, a protocol or a pattern could stumble over.
NASTY = [
    "%s%n%d%x", "a b", " ", "line\nbreak", "\r\n$5\r\nhello\r\n", "\t", "'",
    '"', "\\", "`id`", "$(id)", "; rm -rf x", "*", "?", "[a-z]", "{x}",
    "}:meta", "x}:0}:b:1", "--", "-1", "NaN", "\x1b[2J", "\x7f", "é中🎉",
    "\u0085", "null", "0" * 64, "a" * 64,
]


def escaped(text):
    """As hwtctl prints what somebody has made up."""
    return "".join(
        "".join(f"\\x{byte:02x}" for byte in sign.encode())
        if unicodedata.category(sign) == "Cc" else sign for sign in text)


class Result:
    def __init__(self, status, out, err):
        self.status = status
        self.out = out
        self.err = err.decode(errors="replace")

    @property
    def text(self):
        return self.out.decode()

    @property
    def lines(self):
        return self.text.splitlines()

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def objects(self):
        """Of lines of JSON."""
        return [json.loads(line) for line in self.lines]


def call(*words, stdin=b"", **options):
    done = subprocess.run(
        [*BEFORE, os.path.join(BUILD, words[0]), *words[1:]], input=stdin,
        stdout=options.pop("stdout", subprocess.PIPE),
        stderr=subprocess.PIPE, timeout=LIMIT, check=False, **options)
    return Result(done.returncode, done.stdout, done.stderr)


class Running:
    """A program that runs on; its stderr, and its stdout, in files."""

    def __init__(self, folder, *words, **options):
        self.paths = []
        files = []
        for _ in range(2):
            number, path = tempfile.mkstemp(dir=folder)
            files.append(number)
            self.paths.append(path)
        self.process = subprocess.Popen(
            [*BEFORE, os.path.join(BUILD, words[0]), *words[1:]],
            stdin=subprocess.DEVNULL, stdout=files[0], stderr=files[1],
            preexec_fn=die_with_parent, **options)
        for number in files:
            os.close(number)

    def read(self, which):
        with open(self.paths[which], encoding="utf-8",
                  errors="replace") as file:
            return file.read()

    @property
    def out(self):
        return self.read(0)

    @property
    def err(self):
        return self.read(1)

    def page(self, path="metrics"):
        """With --metrics=0: the status and the text of a page."""
        url = wait_until(lambda: re.search("http://[^/]+/", self.err))[0]
        try:
            with urllib.request.urlopen(url + path) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def wait(self):
        return self.process.wait(LIMIT)

    def end(self, which=signal.SIGTERM):
        """Sends a signal, and returns the exit status."""
        self.process.send_signal(which)
        return self.wait()

    def memory(self):
        """Resident, in bytes."""
        with open(f"/proc/{self.process.pid}/statm",
                  encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def cpu_in(self, seconds):
        """Seconds of CPU that it takes meanwhile."""
        clock = ~self.process.pid << 3 | 2  # see clock_getcpuclockid(3)
        before = time.clock_gettime(clock)
        time.sleep(seconds)
        return time.clock_gettime(clock) - before

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Between:
    """Passes bytes on between clients and a port, and changes some of the
    answers."""

    def __init__(self, port, before, after):
        assert len(before) == len(after)
        self.to = port
        self.before = before
        self.after = after
        self.changed = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client = self.listener.accept()[0]
                server = socket.create_connection(("127.0.0.1", self.to))
                for ends in ((client, server, False),
                             (server, client, True)):
                    threading.Thread(target=self.pass_on, args=ends,
                                     daemon=True).start()

    def pass_on(self, source, sink, change):
        with contextlib.suppress(OSError):
            while True:
                data = source.recv(1 << 16)
                if not data:
                    sink.shutdown(socket.SHUT_WR)
                    break
                if change:
                    self.changed += data.count(self.before)
                    data = data.replace(self.before, self.after)
                sink.sendall(data)
        source.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()


class Programs(unittest.TestCase):
    """Each class has an engine of its own, each test a space, which is made
    as soon as it is needed, unless the test does that."""

    config = DURABLE
    count = 0
    made = None  # the last space that was made

    @classmethod
    def setUpClass(cls):
        cls.engine = Engine(**cls.config)
        cls.addClassCleanup(cls.engine.close)

    def setUp(self):
        Programs.count += 1
        self.space = f"test{Programs.count}"
        self.folder = scratch_folder("hwt-programs-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def engine_of(self, **config):
        """One of the test's own, with DURABLE but for what is given."""
        engine = Engine(**{**DURABLE, **config})
        self.addCleanup(engine.close)
        return engine

    def where(self):
        where = ["--redis", self.engine.servers, "--space", self.space]
        if self.made != self.space:
            self.made = self.space
            call("hwtctl", "init", *where)
        return where

    def ctl(self, *words, status=YES, **options):
        """hwtctl with this engine and space, and its exit status."""
        if words[0] == "init":
            self.made = self.space
        result = call("hwtctl", words[0], *self.where(), *words[1:],
                      **options)
        self.assertEqual(result.status, status,
                         f"{words}: {result.out} {result.err}")
        if status != YES:
            self.assertTrue(result.err.startswith("hwtctl: "), result.err)
        return result

    def stat(self):
        return self.ctl("stat", "--json").json

    def add(self, *words, **options):
        """Adds a task and returns its id."""
        return self.ctl("add", *words, **options).text[:-1]

    def feed(self, *lines, **options):
        """Adds many, of members or as they are."""
        return self.ctl("add", "--from", "-", stdin=b"".join(
            line if isinstance(line, bytes) else json.dumps(line).encode()
            + b"\n" for line in lines), **options)

    def show(self, name):
        return self.ctl("show", "--", name).json

    def state(self, name):
        return self.show(name)["state"]

    def ends(self, *names, state="succeeded"):
        """Sooner or later each ends so."""
        for name in names:
            self.assertEqual(state, wait_until(
                lambda: self.state(name) in ("succeeded", "failed") and
                self.state(name)))

    def start(self, program, *words, **options):
        running = Running(
            self.folder, program, *self.where(), *words, **options)
        self.addCleanup(running.close)
        return running

    def shell(self, text, *words, **options):
        """A worker of the queue q for which a shell executes that."""
        return self.start("hwt-exec", "--queue=q", *words, "--", "sh", "-c",
                          text, **options)

    def connect(self):
        """A client of the engine, until the end of the test."""
        client = self.engine.client()
        self.addCleanup(client.close)
        return client

    def scripts(self):
        """The space as the scripts see it."""
        return Space(self.connect(), self.space)

    def scripts_of_one_shard(self):
        """So that a test can pump a space whose tasks it has not added."""
        self.ctl("init", "--shards=1")
        return self.scripts()

    def check(self):
        """No invariant is broken."""
        self.assertEqual(
            self.ctl("check").lines[-1].split(", ")[-1], "0 broken")

    def path(self, name, content=b""):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(content)
        return path

    def execute(self, space, name, outcome):
        """Pumps, takes and finishes a due task."""
        shard = shard_of(name.encode(), space.shards)
        wait_until(lambda: space("pump", shard, 100, "")[0])
        taken = space("take", shard, "q", f"w{time.monotonic_ns()}", 1, 0, 10,
                      30000)
        self.assertEqual([task[0] for task in taken], [name.encode()])
        self.assertEqual(
            space("finish", shard, *held(taken[0]), outcome, 0), [0])


class Hwtctl(Programs):
    def test_init_prints_the_shape_and_refuses_another(self):
        said = (f"{self.space}: 4 shards of 64 slots, tick 50 ms, level "
                "fsync, retention 90 s\n")
        shape = ["--shards", "4", "--slots", "64", "--tick", "50",
                 "--retention", "90", "--level", "fsync"]
        self.assertEqual(self.ctl("init", *shape).text, said)
        self.assertEqual(self.ctl("init", *shape).text, said)
        self.assertEqual(self.ctl("init").text, said)
        for other in ("--shards=8", "--slots=128", "--tick=100",
                      "--retention=91"):
            self.assertIn("another shape", self.ctl(
                "init", other, status=NO).err)

    def test_a_space_is_made_with_the_defaults(self):
        self.assertEqual(
            self.ctl("init").text,
            f"{self.space}: 1 shard of 65536 slots, tick 10 ms, level "
            "fsync, retention 3600 s\n")

    def test_init_out_of_range(self):
        for option, values in {
                "--shards": ["0", "1025", "-1", "x", "", "1.5", "1 "],
                "--slots": ["7", "9", "2097152", "0"],
                "--tick": ["0", "3600001", "0.5"],
                "--retention": ["0", "NaN", "-1", "1e9"],
                "--level": ["", "strong", "fsynced"],
                "--replicas": ["0", "11"],
                "--timeout": ["0", "3601", "inf"]}.items():
            for value in values:
                self.ctl("init", option, value, status=USAGE)

    def test_add_prints_the_id(self):
        made = [self.add("--queue", "q", "--in", "60") for _ in range(2)]
        self.assertNotEqual(made[0], made[1])
        for name in made:
            self.assertRegex(name, "^[0-9a-f]{32}$")
        self.assertEqual(
            self.add("--queue", "q", "--in", "60", "--id", "own"), "own")

    def test_add_takes_what_a_task_says_of_itself(self):
        self.add("--queue=q", "--in=60", "--id=in", "--expires-in=90.5")
        shown = self.show("in")
        self.assertEqual(shown["expires_ms"] - shown["due_ms"], 30500)
        until = int(time.time()) + 900
        self.add("--queue=q", "--in=60", "--id=at",
                 f"--expires-at={until}.25")
        self.assertEqual(self.show("at")["expires_ms"], until * 1000 + 250)
        self.assertNotIn("expires_ms", self.show(
            self.add("--queue=q", "--in=60")))
        self.add("--queue=q", "--in=60", "--id=retry", "--retry-first=9",
                 "--retry-factor=1.5", "--retry-most=60")
        shown = self.show("retry")
        self.assertEqual((shown["retry_first_ms"], shown["retry_factor"],
                          shown["retry_most_ms"]), (9000, 1.5, 60000))
        for priority in ("high", "normal", "low"):
            self.add("--queue=q", "--in=60", f"--id={priority}",
                     f"--priority={priority}")
            self.assertEqual(self.show(priority).get("priority", "normal"),
                             priority)
        for wrong in (["--priority="], ["--priority=1"],
                      ["--expires-in=0"], ["--expires-in=x"],
                      ["--retry-factor=0.9"], ["--retry-factor=nan"],
                      ["--retry-factor=1000.1"], ["--retry-first=0"],
                      ["--retry-most=315360001"],
                      ["--expires-in=9", "--expires-at=4000000000"]):
            self.ctl("add", "--queue=q", "--in=60", *wrong, status=USAGE)
        said = self.ctl("add", "--queue=q", "--in=60", "--expires-in=59",
                        status=USAGE)
        self.assertIn("outside its range", said.err)

    def test_what_has_expired_is_a_dead_letter_that_says_so(self):
        space = self.scripts_of_one_shard()
        self.add("--queue=q", "--in=0", "--id=x", "--expires-in=0.001")
        time.sleep(0.005)
        space("pump", 0, 10, "")
        self.assertEqual(space("take", 0, "q", "w", 1, 0, 9, 1000), [])
        shown = self.show("x")
        self.assertEqual((shown["state"], shown["error"]),
                         ("failed", "expired"))

    def test_a_second_add_changes_nothing(self):
        self.add("--queue", "q", "--in", "60", "--id", "own")
        before = self.show("own")
        again = self.ctl("add", "--queue", "other", "--in", "9", "--id",
                         "own")
        self.assertEqual(again.text, "own\n")
        self.assertEqual(again.err, "hwtctl: own: exists, pending; nothing "
                         "is added\n")
        self.assertEqual(self.show("own"), before)

    def test_an_add_of_what_has_ended_says_so_and_replace_adds_it(self):
        space = self.scripts_of_one_shard()
        for name, state in (("cancelled", "cancelled"), ("done", "succeeded"),
                            ("fail", "failed")):
            self.add("--queue=q", "--in=0", f"--id={name}")
            if state == "cancelled":
                self.ctl("cancel", name)
            else:
                self.execute(space, name, name)
            good = state == "succeeded"
            again = ["add", "--queue=q", "--in=50", f"--id={name}",
                     "--payload=new"]
            result = self.ctl(*again, status=YES if good else NO)
            self.assertEqual(result.text, f"{name}\n" if good else "")
            self.assertIn(f"{name}: exists, {state}; nothing is added",
                          result.err)
            self.assertEqual(self.state(name), state)
            result = self.ctl(*again, "--replace")
            self.assertEqual((result.text, result.err), (f"{name}\n", ""))
            shown = self.show(name)
            self.assertEqual(
                (shown["state"], shown["generation"], shown["payload"]),
                ("pending", 2, "new"))
            # A repetition finds it.
            self.assertIn("exists, pending", self.ctl(
                *again, "--replace").err)
            self.assertEqual(self.show(name), shown)
            self.check()
        stat = self.stat()
        self.assertEqual(
            [stat[name] for name in ("added", "pending", "dead", "dropped")],
            [6, 3, 0, 1])

    def test_show(self):
        before = time.time()
        self.add("--queue", "q.a-B_9", "--in", "1000.5", "--id", "t",
                 "--attempts", "7", "--payload", "text")
        shown = self.show("t")
        due = shown.pop("due_ms")
        self.assertEqual(shown, {
            "id": "t", "state": "pending", "queue": "q.a-B_9",
            "attempts": 0, "max_attempts": 7, "generation": 1,
            "payload": "text"})
        self.assertGreaterEqual(due, int((before + 1000.5) * 1000))
        self.assertLess(due, (time.time() + 1002) * 1000)
        self.assertIn("no such task", self.ctl(
            "show", "other", status=NO).err)

    def test_times(self):
        for text in ("NaN", "nan", "inf", "-1", "-0", "1e3", "0x10", "", " 1",
                     "1 ", "1.", ".5", "1.0000000001", "+1", "1,5",
                     "99999999999999999999", "315360001"):
            self.ctl("add", "--queue=q", f"--in={text}", status=USAGE)
        for text in ("NaN", "-1", "1e9", "", "99999999999999999999"):
            self.ctl("add", "--queue=q", f"--at={text}", status=USAGE)
        self.ctl("add", "--queue=q", "--in=1", "--at=1", status=USAGE)
        self.ctl("add", "--queue=q", status=USAGE)
        self.ctl("add", "--queue=q", f"--at={int(time.time()) + 400000000}",
                 status=USAGE)
        self.add("--queue=q", "--at=1000.5", "--id=past")
        self.assertLessEqual(self.show("past")["due_ms"], time.time() * 1000)
        at = int(time.time()) + 5000
        self.add("--queue=q", f"--at={at}.25", "--id=at")
        self.assertEqual(self.show("at")["due_ms"], at * 1000 + 250)
        self.assertEqual(self.stat()["added"], 2)

    def test_queues_ids_attempts_out_of_range(self):
        for queue in ("", "a b", "q" * 65, "a\n", "%n", "q:x", "{x}", "é"):
            self.ctl("add", "--queue", queue, "--in", "1", status=USAGE)
        for name in ("", "a" * 65, "é" * 33):
            self.ctl("add", "--queue=q", "--in=1", f"--id={name}",
                     status=USAGE)
            self.ctl("show", "--", name, status=USAGE)
        for attempts in ("0", "1001", "-1", "1.5"):
            self.ctl("add", "--queue=q", "--in=1", f"--attempts={attempts}",
                     status=USAGE)
        for name in ("", "a b", "a" * 33, "}", "a\n"):
            result = call("hwtctl", "stat", "--space", name)
            self.assertEqual(result.status, USAGE)
        self.assertEqual(self.stat()["added"], 0)

    def test_payloads(self):
        for payload in (b"", b"x", b"\0\xff\n", b"\0" * PAYLOAD_MAX):
            name = self.add("--queue=q", "--in=60", "--payload", "-",
                            stdin=payload)
            shown = self.show(name)
            if "payload" in shown:
                self.assertEqual(shown["payload"].encode(), payload)
            else:
                self.assertEqual(
                    base64.b64decode(shown["payload_base64"]), payload)
        self.assertIn("more than 65536", self.ctl(
            "add", "--queue=q", "--in=60", "--payload", "-",
            stdin=b"x" * (PAYLOAD_MAX + 1), status=USAGE).err)
        self.ctl("add", "--queue=q", "--in=60",
                 "--payload=" + "x" * (PAYLOAD_MAX + 1), status=USAGE)
        self.assertEqual(self.stat()["added"], 4)

    def test_cancel(self):
        self.add("--queue=q", "--in=60", "--id=t")
        for _ in range(2):
            self.assertEqual(self.ctl("cancel", "t").out, b"")
        self.assertEqual(self.state("t"), "cancelled")
        self.assertIn("no such task", self.ctl(
            "cancel", "other", status=NO).err)
        self.add("--queue=q", "--in=0", "--id=done")
        self.execute(self.scripts(), "done", "done")
        self.assertIn("it has ended", self.ctl(
            "cancel", "done", status=NO).err)
        self.ctl("cancel", status=USAGE)
        self.ctl("cancel", "a", "b", status=USAGE)

    def test_a_running_task_is_neither_cancelled_nor_rescheduled(self):
        self.add("--queue=q", "--in=0", "--id=t")
        space = self.scripts()
        shard = shard_of(b"t", space.shards)
        wait_until(lambda: space("pump", shard, 100, "")[0])
        space("take", shard, "q", "w", 1, 0, 1, 30000)
        self.assertEqual(self.state("t"), "running")
        for words in (["cancel", "t"], ["reschedule", "t", "--in=1"]):
            self.assertIn("it is running", self.ctl(*words, status=NO).err)

    def test_reschedule(self):
        self.add("--queue=q", "--in=60", "--id=t")
        self.ctl("reschedule", "t", "--in", "600")
        shown = self.show("t")
        self.assertEqual(shown["generation"], 2)
        self.assertGreater(shown["due_ms"], (time.time() + 500) * 1000)
        self.ctl("reschedule", "t", status=USAGE)
        self.ctl("reschedule", "t", "--in=NaN", status=USAGE)
        self.ctl("reschedule", "other", "--in=1", status=NO)
        self.ctl("cancel", "t")
        self.ctl("reschedule", "t", "--in=1", status=NO)

    def test_list(self):
        for name in ("a", "b", "c"):
            self.add("--queue=q", "--in=60", f"--id={name}")
        self.ctl("cancel", "b")
        listed = self.ctl("list").objects
        self.assertEqual(sorted((task["id"], task["state"])
                                for task in listed),
                         [("a", "pending"), ("b", "cancelled"),
                          ("c", "pending")])
        self.assertEqual(set(listed[0]), {
            "id", "state", "queue", "due_ms", "attempts", "max_attempts",
            "generation"})
        self.assertEqual(
            [each["id"] for each in
             self.ctl("list", "--state", "cancelled").objects], ["b"])
        for state in ("delivered", "running", "succeeded", "failed",
                      "quarantined"):
            self.assertEqual(self.ctl("list", "--state", state).out, b"")
        self.ctl("list", "--state", "nonsense", status=USAGE)
        self.ctl("list", "--state", "", status=USAGE)

    def test_stat(self):
        self.add("--queue=q", "--in=60", "--id=t")
        self.add("--queue=q", "--in=60")
        self.ctl("cancel", "t")
        stats = self.stat()
        self.assertEqual(
            {name: value for name, value in stats.items() if value},
            {"space": self.space, "added": 2, "cancelled": 1, "pending": 1,
             "all_queues": True, "shards": 1})
        lines = self.ctl("stat").lines
        self.assertEqual(lines[0].split()[:2], ["added", "2"])
        prometheus = self.ctl("stat", "--prometheus")
        self.assertIn(
            f'hwt_durable_added_total{{space="{self.space}"}} 2',
            prometheus.lines)
        self.assertIn(f'hwt_durable_up{{space="{self.space}"}} 1',
                      prometheus.lines)
        self.ctl("stat", "--json", "--prometheus", status=USAGE)
        promtool = shutil.which("promtool")
        if promtool:
            subprocess.run([promtool, "check", "metrics"],
                           input=prometheus.out, check=True,
                           stdout=subprocess.DEVNULL)

    def test_dead(self):
        names = [f"t{i}" for i in range(6)]
        for name in names:
            self.add("--queue=q", "--in=0", f"--id={name}")
            self.execute(self.scripts(), name, "fail")
        listed = self.ctl("dead", "list").objects
        self.assertEqual(sorted(task["id"] for task in listed), names)
        self.assertEqual({task["state"] for task in listed}, {"failed"})
        self.assertEqual(
            sorted(self.ctl("list", "--state=failed").lines),
            sorted(self.ctl("dead", "list").lines))
        self.ctl("dead", "replay", "t0", "t1")
        self.assertEqual(self.show("t0")["generation"], 2)
        self.ctl("dead", "drop", "t2")
        self.ctl("show", "t2", status=NO)
        self.assertIn("no such dead letter", self.ctl(
            "dead", "drop", "t2", "t3", status=NO).err)
        self.ctl("show", "t3", status=NO)
        self.ctl("dead", "replay", "other", status=NO)
        self.ctl("dead", "drop", "--all")
        self.assertEqual(self.ctl("dead", "list").out, b"")
        for words in ([], ["drop"], ["nonsense"], ["list", "t0"],
                      ["drop", "--all", "t0"]):
            self.ctl("dead", *words, status=USAGE)
        self.check()

    @staticmethod
    def exchanges(space):
        """How often the engine has read from a connection."""
        return int(re.search(rb"total_reads_processed:(\d+)",
                             space.client("INFO", "stats")).group(1))

    def test_dead_letters_of_more_than_a_page(self):
        self.ctl("init", "--shards=1")
        self.feed(*[{"queue": "q", "in": 0, "attempts": 1}] * 600)
        space = self.scripts()
        wait_until(lambda: space("pump", 0, 1000, "")[0] >= 0 and
                   space.meta(0)["delivered"] == 600)
        for turn in range(1, 4):
            for task in space("take", 0, "q", "w", turn, turn - 1, 200, 30000):
                space("finish", 0, *held(task), b"fail w %s" % task[0], 0)
        before = self.exchanges(space)
        listed = self.ctl("dead", "list").objects
        self.assertEqual(len({each["id"] for each in listed}), 600)
        self.assertEqual([each["error"] for each in listed],
                         [each["id"] for each in listed])
        self.assertLess(self.exchanges(space) - before, 40)
        self.ctl("dead", "replay", "--all")
        self.assertEqual(self.stat()["dead"], 0)
        self.assertEqual(self.stat()["pending"], 600)
        self.check()

    def test_dead_replay_leaves_out_what_fails_after_its_begin(self):
        """Or it could go on for ever."""
        self.ctl("init", "--shards=1")
        space = self.scripts()
        for name in ("early", "late"):
            self.add("--queue=q", "--in=0", f"--id={name}")
            self.execute(space, name, "fail")
        space.client("ZINCRBY", space.key(0, "dead"), 3600000, "late")
        self.ctl("dead", "replay", "--all")
        self.assertEqual(self.state("early"), "pending")
        self.assertEqual(self.state("late"), "failed")

    def test_pause(self):
        self.ctl("init", "--shards=2")
        name = next(name for name in map(str, range(99))
                    if shard_of(name.encode(), 2) == 1)
        self.ctl("pause", "1")
        self.ctl("add", "--queue=q", "--in=1", f"--id={name}",
                 "--timeout=0.3", status=NO)
        self.ctl("show", name, status=NO)
        self.ctl("resume", "1")
        self.add("--queue=q", "--in=60", f"--id={name}")
        for shard in ("2", "-1", "x", ""):
            self.ctl("pause", "--", shard, status=USAGE)
        self.ctl("pause", status=USAGE)

    def queues(self):
        return {each["queue"]: each["paused_shards"]
                for each in self.stat()["queues"]}

    def test_pause_of_a_queue(self):
        """Also one with a number as its name."""
        self.ctl("init", "--shards=3")
        self.ctl("pause", "--queue=1")
        self.ctl("pause", "--queue=mail")
        self.ctl("resume", "--queue=1")
        self.add("--queue=1", "--in=60")
        self.assertEqual(self.queues(), {"mail": 3})
        self.assertRegex(self.ctl("stat").text,
                         r"\nmail +0 +0\.000 s  paused\n")
        self.assertIn(
            f'hwt_durable_queue_paused_shards{{space="{self.space}",'
            'queue="mail"} 3', self.ctl("stat", "--prometheus").lines)
        space = self.scripts()
        space.client("ZREM", space.key(1, "paused"), "mail")
        self.assertRegex(self.ctl("stat").text,
                         r"\nmail +0 +0\.000 s  paused in 2 of 3 shards\n")
        self.check()
        self.ctl("resume", "--queue=mail")
        self.assertEqual(self.queues(), {})
        for words in (["--queue=q", "0"], ["--queue=a b"], ["--queue="]):
            self.ctl("pause", *words, status=USAGE)
            self.ctl("resume", *words, status=USAGE)

    def test_limits_of_a_queue(self):
        self.ctl("init", "--shards=3")
        for words, said in ((["--at-once=3", "--rate=0.25"],
                             "  at most 3 at once  0.25 a second\n"),
                            (["--rate=10"], "  10 a second\n"),
                            (["--at-once=4"], "  at most 4 at once\n")):
            self.ctl("limit", "--queue=mail", *words)
            self.assertRegex(self.ctl("stat").text,
                             r"\nmail +0 +0\.000 s" + said)
            self.check()
        self.assertIn(
            f'hwt_durable_queue_limit_at_once{{space="{self.space}",'
            'queue="mail"} 4', self.ctl("stat", "--prometheus").lines)
        self.ctl("limit", "--queue=mail", "--rate=0")
        self.assertNotIn("mail", self.ctl("stat").text)
        for words in ([], ["--at-once=1"], ["--at-once=2"], ["--at-once=x"],
                      ["--rate=-1"], ["--rate=0.0001"], ["--rate=1000001"],
                      ["--rate=nan"], ["--at-once=3", "3"]):
            self.ctl("limit", "--queue=mail", *words, status=USAGE)
        self.ctl("limit", "--rate=1", status=USAGE)

    def test_a_pause_of_a_queue_that_is_cut_short(self):
        self.ctl("init", "--shards=2")
        self.ctl("pause", "1")
        said = self.ctl("pause", "--queue=q", "--timeout=0.3", status=NO).err
        self.assertIn("some shards may be paused and others not", said)
        self.assertEqual(self.queues(), {"q": 1})
        self.ctl("resume", "1")
        self.ctl("pause", "--queue=q")
        self.assertEqual(self.queues(), {"q": 2})

    def test_nasty_text_is_only_text(self):
        for name in NASTY:
            self.assertEqual(
                self.ctl("add", "--queue=q", "--in=60", f"--id={name}",
                         f"--payload={name}").text, escaped(name) + "\n")
            shown = self.show(name)
            self.assertEqual((shown["id"], shown["payload"]), (name, name))
        listed = self.ctl("list")
        self.assertEqual(
            sorted(json.loads(line)["id"]
                   for line in listed.out.decode().split("\n")[:-1]),
            sorted(NASTY))
        for byte in (b"\x1b", b"\x7f", b"\xc2\x85", b"\r"):
            self.assertNotIn(byte, listed.out)
        self.check()
        for name in NASTY:
            self.ctl("cancel", "--", name)
            error = self.ctl("reschedule", "--in=1", "--", name,
                             status=NO).err
            self.assertNotIn("\x1b", error)
            self.assertEqual(error.count("\n"), 1, error)
        stats = self.stat()
        self.assertEqual((stats["added"], stats["cancelled"]),
                         (len(NASTY), len(NASTY)))
        self.check()

    def test_bytes_that_are_no_text(self):
        for name in (b"\0", b"a\0b", b"\xff\xfe", b"\xc0\x80",
                     b"\xed\xa0\x80", bytes(range(64))):
            text = base64.b64encode(name).decode()
            self.assertEqual(self.ctl(
                "add", "--queue=q", "--in=60", "--base64", f"--id={text}",
                "--payload", "-", stdin=name).text, text + "\n")
            shown = self.ctl("show", "--base64", text).json
            try:
                plain = name.decode()
            except UnicodeDecodeError:
                self.assertEqual(
                    (shown["id_base64"], shown["payload_base64"]),
                    (text, text))
            else:
                self.assertEqual((shown["id"], shown["payload"]),
                                 (plain, plain))
            self.ctl("cancel", "--base64", text)
        for text in ("a", "ab==c", "YQ=", "Y===", "YR==", "é"):
            self.ctl("show", "--base64", text, status=USAGE)
        self.check()

    def test_options(self):
        for program in ("hwtctl", "hwtd", "hwt-exec"):
            said = call(program, "--help")
            self.assertEqual((said.status, said.err), (YES, ""))
            self.assertTrue(said.text.startswith(f"usage: {program} "))
            self.assertIn("--password-file", said.text)
            self.assertRegex(call(program, "--version").text,
                             rf"^{program} \d+\.\d+\.\d+\n$")
            for words in (["--nonsense"], ["-x"], ["--space"],
                          ["--space=a", "--space=a"], ["--help=x"],
                          ["--redis=h:1", "--sentinel=h:1,n"]):
                said = call(program, *words)
                self.assertEqual((said.status, said.out), (USAGE, b""))
                self.assertTrue(said.err.startswith(f"{program}: "))
        for words in ([], ["nonsense"], ["%n"]):
            self.assertEqual(call("hwtctl", *words).status, USAGE)
        self.assertEqual(call("hwtctl", "stat", "--help").status, YES)

    def test_options_before_the_command_and_after_it(self):
        for words in (["--id=a", "add", "--queue", "q", "--in=60"],
                      ["--queue", "q", "--in", "60", "--id=b", "add"]):
            self.assertEqual(
                call("hwtctl", *self.where(), *words).text,
                words[0][-1] + "\n" if words[0] == "--id=a" else "b\n")
        self.assertEqual(
            call("hwtctl", *self.where(), "show", "--", "a").json["id"], "a")
        for words, said in (
                (["--shards=4", "add"], "--shards: no option of add"),
                (["show", "a", "--json"], "--json: no option of show"),
                (["--nonsense", "add"], "--nonsense: no such option"),
                (["--space=x", "nonsense"], "nonsense: no such command"),
                (["--space=x"], "want a command")):
            result = call("hwtctl", *words)
            self.assertEqual((result.status, result.err.split("\n")[0]),
                             (USAGE, f"hwtctl: {said}"))

    def test_addresses(self):
        for option, values in {
                "--redis": ["", "host", ":1", "h:", "h:0", "h:65536", "h:x",
                            "unix:", "h:6379/0"],
                "--sentinel": ["", "h:1", "h:1,", "h,n", "h:1,h:2,", ",n"],
                "--cluster": ["", "h", "h:1,", ",h:1", "h:1,n"]}.items():
            for value in values:
                said = call("hwtctl", "stat", option, value)
                self.assertEqual(said.status, USAGE, (option, value))

    def test_output_that_goes_nowhere_is_told(self):
        with open("/dev/full", "wb") as full:
            said = call("hwtctl", "stat", *self.where(), stdout=full)
        self.assertEqual(said.status, NO)
        self.assertIn("standard output", said.err)

    def test_the_unix_socket(self):
        said = call("hwtctl", "init", "--space", self.space, "--redis",
                    f"unix:{self.engine.socket_path}")
        self.assertEqual((said.status, said.err), (YES, ""))


class From(Programs):
    """add --from."""

    def test_an_id_that_was_cancelled_stops_nothing(self):
        self.add("--queue=q", "--in=60", "--id=b")
        self.ctl("cancel", "b")
        lines = b"".join(b'{"queue":"q","in":60,"id":"%s"}\n' % name
                         for name in (b"a", b"b", b"c"))
        said = self.feed(lines, status=NO)
        self.assertEqual(said.lines, ["a", "c"])
        self.assertIn("-:2: b: exists, cancelled", said.err)
        said = self.ctl("add", "--from=-", "--replace", stdin=lines)
        self.assertEqual(said.lines, ["a", "b", "c"])
        self.assertEqual(self.show("b")["generation"], 2)

    def test_lines(self):
        at = int(time.time()) + 9000
        result = self.feed(
            {"queue": "q", "in": 60, "id": "a"}, b"\n",
            {"queue": "q", "at": at, "id": "b", "attempts": 3,
             "payload": "x\ny\u0000é🎉\"\\"},
            {"queue": "q", "in": 0.25, "id_base64": "/w==",
             "payload_base64": ""},
            b'{"queue":"q","at":%d.001,"id":"ms","attempts":1000}\n' % at,
            b'{"queue":"q","at":%d.999e0,"id":"e"}\n' % at,
            b'  { "in" : 1.5 , "queue" : "q" , "id":"\\u0063\\uD83C\\uDF89'
            b'\\n\\/" }\r\n',
            b'{"queue":"q","in":1}')
        self.assertEqual(result.lines[:-1], [
            "a", "b", r"\xff", "ms", "e", r"c🎉\x0a/"])
        self.assertEqual([self.show(name)["due_ms"] - at * 1000
                          for name in ("ms", "e")], [1, 999])
        self.assertRegex(result.lines[-1], "^[0-9a-f]{32}$")
        shown = self.show("b")
        self.assertEqual(shown["payload"], "x\ny\u0000é🎉\"\\")
        self.assertEqual(shown["due_ms"], at * 1000)
        self.assertEqual(shown["max_attempts"], 3)
        self.check()

    def test_a_file_of_many(self):
        path = self.path("tasks", b"".join(
            b'{"queue":"q","in":60,"id":"t%d"}\n' % i for i in range(1100)))
        said = self.ctl("add", "--from", path)
        self.assertEqual(said.lines, [f"t{i}" for i in range(1100)])
        listed = [each["id"] for each in self.ctl("list").objects]
        self.assertEqual(sorted(listed), sorted(said.lines))
        self.assertEqual(self.ctl("check").text, "1100 records, 1100 members "
                         "of sets, 0 broken\n")
        again = self.ctl("add", "--from", path)
        self.assertEqual(again.lines, said.lines)
        self.assertEqual(self.stat()["added"], 1100)

    def test_lines_that_make_no_sense(self):
        good = {"queue": "q", "in": 60}
        lines = [
            b"nonsense", b"[]", b"{", b"}", b"{}", b'"x"', b"null", b"1",
            b'{"queue":"q"}', b'{"in":1}', b'{"queue":"q","in":1,"at":1}',
            b'{"queue":"q","in":1,"in":1}', b'{"queue":"q","in":1,}',
            b'{"queue":"q","in":1}x', b'{"queue":"q","in":1}{}',
            b'{"queue":"q" "in":1}', b"{'queue':'q','in':1}",
            b'{queue:"q","in":1}', b'{"queue":"q","at":9000000001}',
            b'{"queue":"q","at":"1"}', b'{"queue":"q","in":1,"payload":"a',
            b'{"queue":"q","in":1,"payload":"a\\', b'{"queue":"q","in":1}\0']
        lines += [b'{"queue":%s,"in":1}' % queue for queue in (
            b"q", b'""', b'"a b"', b'"q\\u0000"', b'"%s"' % (b"q" * 65), b"1",
            b"null", b'["q"]')]
        lines += [b'{"queue":"q","in":%s}' % seconds for seconds in (
            b"NaN", b"Infinity", b"-1", b'"1"', b"1e10", b"01", b"1e999",
            b"-0.1", b"1.", b".5", b"+1", b"", b"true", b"315360001",
            b"99999999999999999999")]
        lines += [b'{"queue":"q","in":1,%s}' % member for member in (
            b'"x":1', b'"":1', b'"replace":1', b'"priority":1',
            b'"priority":""', b'"priority":"low\\u0000"', b'"id":""',
            b'"id":"%s"' % (b"x" * 65), b'"id":"a","id_base64":"YQ=="',
            b'"id_base64":"a"', b'"attempts":0', b'"attempts":1001',
            b'"attempts":1.5', b'"expires_in":0', b'"expires_in":"9"',
            b'"expires_in":9,"expires_at":4e9', b'"retry_first":0',
            b'"retry_most":315360001', b'"retry_factor":0.5',
            b'"retry_factor":"2"', b'"payload":{}')]
        lines += [b'{"queue":"q","in":1,"payload":"%s"}' % text for text in (
            b"\\x", b"\\u12", b"\\ud800", b"\\ud800\\u0041", b"\\udc00",
            b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"a\tb", b"a\0b",
            b"x" * 65537)]
        for line in lines:
            said = self.feed(good, good, line + b"\n", good, status=USAGE)
            self.assertRegex(said.err, r"^hwtctl: -:3: .+\n"
                             r"hwtctl: -: nothing is stored from line 1 on",
                             line)
            self.assertEqual(said.out, b"", line)
        self.assertEqual(self.stat()["added"], 0)

    def test_what_was_before_the_batch_is_stored(self):
        lines = [{"queue": "q", "in": 60}] * 600 + [b"x\n"]
        said = self.feed(*lines, status=USAGE)
        self.assertEqual(len(said.lines), 512)
        self.assertIn("-:601: ", said.err)
        self.assertIn("nothing is stored from line 513 on", said.err)
        self.assertEqual(self.stat()["added"], 512)

    def test_a_line_without_end(self):
        said = self.feed(b"x" * (2 << 20), status=USAGE)
        self.assertIn("-:1: more than 1048576 bytes", said.err)

    def test_what_the_engine_refuses_is_told_for_its_line(self):
        self.ctl("init", "--shards=2")
        self.ctl("pause", "1")
        names = [str(i) for i in range(20)]
        said = self.feed(*({"queue": "q", "in": 60, "id": name}
                           for name in names), status=NO)
        stored = [name for name in names if shard_of(name.encode(), 2) == 0]
        self.assertEqual(said.lines, stored)
        self.assertEqual(len(said.err.splitlines()), 20 - len(stored))
        self.assertEqual(self.stat()["added"], len(stored))

    def test_files_and_options(self):
        self.assertIn("No such file", self.ctl(
            "add", "--from", "/nonexistent/x", status=USAGE).err)
        self.ctl("add", "--from", self.folder, status=USAGE)
        self.ctl("add", "--from", "-", "--queue=q", status=USAGE)
        self.assertEqual(self.ctl("add", "--from", "/dev/null").out, b"")


class Check(Programs):
    """hwtctl check names what is broken."""

    def setUp(self):
        super().setUp()
        self.ctl("init", "--shards=1", "--slots=8")
        for name in ("a", "b"):
            self.add("--queue=q", "--in=60", f"--id={name}")
        self.check()
        self.client = self.connect()

    def key(self, rest):
        return "{%s:0}:%s" % (self.space, rest)

    def broken(self, *texts):
        said = call("hwtctl", "check", *self.where())
        self.assertEqual(said.status, NO, said.text)
        for text in texts:
            self.assertIn(text, said.text)

    def slot(self, name):
        record = self.client("GET", self.key("r:" + name))
        return struct.unpack_from("<I", record, 12)[0]

    def bucket(self, name):
        """The bucket that its record names, and its member there."""
        record = Record(self.client("GET", self.key("r:" + name)), 8)
        return (self.key(f"b:{record.slot}"), record.member(name.encode()))

    def test_a_member_without_a_record(self):
        self.client("DEL", self.key("r:a"))
        self.broken("a: 5 a member without a record")

    def test_a_member_of_each_set_without_a_record(self):
        for name, head in (("fly", b""), ("dead", b""), ("bad", b""),
                           ("b:3", b"q" + bytes(7))):
            self.client("ZADD", self.key(name), 0, head + b"ghost")
            self.broken("ghost: 5 a member without a record")
            self.client("ZREM", self.key(name), head + b"ghost")
        self.check()

    def test_a_record_without_its_bucket(self):
        self.client("ZREM", *self.bucket("a"))
        self.broken("a: 5 not in its bucket")

    def test_a_task_in_two_buckets(self):
        other = (self.slot("a") + 1) % 8
        self.client("ZADD", self.key(f"b:{other}"), 0, self.bucket("a")[1])
        self.broken("a: 5 in a bucket that is not its record's")

    def test_a_member_that_says_what_its_record_does_not(self):
        bucket, member = self.bucket("a")
        for wrong, text in (
                (member[:7] + b"!" + member[8:], "a: 5 in its bucket by a "
                 "time that is not its due time"),
                (b"x" + member, "a: 5 in its bucket by a queue or a "
                 "priority that is not its own"),
                (member.replace(b"\0", b"+\0", 1), "priority that is not"),
                (b"a", "a: 5 a member that is no id"),
                (member[:-1], "5 a member that is no id")):
            self.client("ZADD", bucket, 0, wrong)
            self.broken(text)
            self.client("ZREM", bucket, wrong)
        self.check()

    def test_a_task_in_the_set_of_another_state(self):
        for name in ("fly", "dead"):
            self.client("ZADD", self.key(name), 5, "a")
            self.broken("a: 5 ")
            self.client("ZREM", self.key(name), "a")
        self.check()

    def test_a_record_that_cannot_be_read(self):
        for record in ("", "x", "\2" * 60):
            self.client("SET", self.key("r:a"), record)
            self.broken("a: 5 ")

    def test_keys_that_have_no_place(self):
        for name in ("nonsense", "b:x", "b:-1", "r:" + "x" * 65, "x" * 200,
                     "meta\n", "\x1b[2J"):
            self.client("SET", self.key(name), "x")
            self.broken("5 a key that has no place")
            self.assertNotIn("\x1b", call(
                "hwtctl", "check", *self.where()).text)
            self.client("DEL", self.key(name))
        self.check()

    def test_keys_of_another_type(self):
        for name in ("b:7", "fly", "dead", "bad", "q:x", "t:x"):
            self.client("DEL", self.key(name))
            self.client("HSET", self.key(name), "x", "y")
            self.broken(f"{name}: 5 a key of another type")
            self.client("DEL", self.key(name))

    def test_a_record_of_another_type(self):
        self.client("DEL", self.key("r:a"))
        self.client("LPUSH", self.key("r:a"), "x")
        self.broken("a: 5 a member whose record cannot be read")
        self.assertEqual(self.ctl("list", status=YES).text.count("\n"), 2)

    def test_list_and_dead_go_on_over_what_is_no_task(self):
        long = "x" * 65
        for name in (self.key("r:"), self.key("r:" + long),
                     "{%s:7}:r:a" % self.space):
            self.client("SET", name, "x")
        said = self.ctl("list")
        self.assertEqual(sorted(each["id"] for each in said.objects),
                         ["a", "b"])
        self.assertEqual(sorted(said.err.splitlines()), [
            "hwtctl: shard 0: : is no task's id",
            f"hwtctl: shard 0: {long}: is no task's id",
            "hwtctl: shard 7: a: there is no such shard"])
        self.client("ZADD", self.key("dead"), 5, long)
        self.add("--queue=q", "--in=0", "--id=c")
        self.execute(self.scripts(), "c", "fail")
        said = self.ctl("dead", "list")
        self.assertEqual([each["id"] for each in said.objects], ["c"])
        self.assertIn(f"{long}: is no task's id", said.err)
        self.assertIn(f"{long}: is no task's id",
                      self.ctl("dead", "drop", "--all").err)
        self.ctl("show", "c", status=NO)

    def test_a_shard_that_is_none(self):
        self.client("HSET", "{%s:7}:meta" % self.space, "x", "1")
        self.broken("shard 7: 5 keys of a shard that is none")

    def test_counters(self):
        for name in ("added", "pending", "delivered", "cancelled"):
            self.client("HINCRBY", self.key("meta"), name, 1)
            self.broken("8 ")
            self.client("HINCRBY", self.key("meta"), name, -1)
        self.check()

    def test_pending_is_what_the_buckets_have(self):
        """However many there are, and whether the rest fits or not."""
        for slots in (8, 1 << 15):
            self.space += "s"
            self.ctl("init", "--shards=1", f"--slots={slots}")
            self.add("--queue=q", "--in=60", "--id=a")
            self.check()
            self.client("HINCRBY", self.key("meta"), "pending", 1)
            self.client("HINCRBY", self.key("meta"), "delivered", -1)
            self.broken("shard 0: 8 pending is 2, counted 1")

    def test_no_call_holds_the_engine(self):
        """With a large space, and many tasks, no script calls much."""
        self.space += "wide"
        self.ctl("init", "--shards=1", f"--slots={1 << 14}")
        self.feed(*({"queue": f"q{i}", "in": 60 + i} for i in range(999)))
        with self.engine.client() as monitor:
            monitor("MONITOR")
            self.check()
            self.client("ECHO", "the end")
            seen = self.calls_of_scripts(monitor)
        self.assertEqual(len([each for each in seen if each]), 17)
        self.assertLess(max(seen), 64 * 8)

    def calls_of_scripts(self, monitor):
        """How many commands each script has called, up to an ECHO."""
        calls = [0]
        while True:
            line = monitor.read()
            if b'"ECHO"' in line:
                return calls
            if b" lua] " in line:
                calls[-1] += 1
            else:
                calls.append(0)

    def test_pending_is_not_compared_while_it_changes(self):
        self.space += "wide"
        self.ctl("init", "--shards=1", f"--slots={1 << 14}")
        self.add("--queue=q", "--in=60", "--id=a")
        over = threading.Event()

        def move():
            with self.engine.client() as client:
                space = Space(client, self.space)
                while not over.is_set():
                    for wait in (1000, 1000000):
                        space("reschedule", 0, "a", "in", wait)

        thread = threading.Thread(target=move)
        thread.start()
        try:
            for _ in range(5):
                self.check()
        finally:
            over.set()
            thread.join()

    def test_a_space_with_a_similar_name_is_not_looked_at(self):
        self.client("SET", "{%sx:0}:nonsense" % self.space, "x")
        self.client("SET", "{%s:nonsense" % self.space, "x")
        self.check()

    def test_while_tasks_move(self):
        scheduler = self.start("hwtd")
        worker = self.start("hwt-exec", "--queue=q", "--threads=4", "--",
                            "true")
        self.feed(*({"queue": "q", "in": i / 1000} for i in range(3000)))
        for _ in range(10):
            self.check()
        self.assertEqual((scheduler.end(), worker.end()), (0, 0))
        self.check()

    def test_while_records_are_removed(self):
        """What is gone by the time that it is looked at is not broken."""
        self.space += "short"
        self.ctl("init", "--shards=1", "--slots=8", "--retention=0.05")
        self.start("hwtd")
        for _ in range(10):
            names = self.feed(b'{"queue":"q","in":60}\n' * 300).lines
            with self.engine.client() as client:
                space = Space(client, self.space)
                client.pipeline([space.command("cancel", 0, name)
                                 for name in names])
            for _ in range(5):
                self.check()


def each_program(*options):
    """The words of a call of each, with these options."""
    for words in (["hwtctl", "stat"], ["hwtctl", "add", "--queue=q", "--in=1"],
                  ["hwtd"]):
        yield [*words, *options]
    yield ["hwt-exec", "--queue=q", *options, "--", "true"]


class Engines(Programs):
    """Engines that are not fit, not there, or not willing; each test has one
    of its own."""

    @classmethod
    def setUpClass(cls):
        pass

    def refused(self, text, *where):
        """Each program says what is wrong with the engine, and ends."""
        for words in each_program(*(where or self.where())):
            said = call(*words)
            self.assertEqual((said.status, said.out), (NO, b""), said.err)
            self.assertTrue(said.err.startswith(f"{words[0]}: "), said.err)
            self.assertIn(text, said.err)

    def test_nobody_there(self):
        for servers in (f"127.0.0.1:{free_port()}",
                        "unix:/nonexistent/socket"):
            for words in each_program("--timeout=0.5", "--redis", servers):
                said = call(*words)
                self.assertEqual(said.status, UNREACHABLE, said.err)
                self.assertIn("cannot be reached", said.err)
                self.assertEqual(said.out, b"")

    @staticmethod
    def address_of(server):
        return f"127.0.0.1:{server.getsockname()[1]}"

    def test_somebody_who_does_not_answer(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            before = time.monotonic()
            said = call("hwtctl", "stat", "--timeout=0.5", "--redis",
                        self.address_of(silent))
            self.assertEqual(said.status, UNREACHABLE, said.err)
            self.assertLess(time.monotonic() - before, LIMIT / 2)

    def test_somebody_who_is_no_engine(self):
        for answer in (b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 100,
                       b"*-5\r\n", b"$99999999999999999999\r\n",
                       b"*1000000\r\n" * 3):
            with socket.create_server(("127.0.0.1", 0)) as server:
                server.settimeout(0.1)
                running = Running(self.folder, "hwtctl", "stat", "--timeout=1",
                                  "--redis", self.address_of(server))
                self.addCleanup(running.close)
                while running.process.poll() is None:
                    with contextlib.suppress(OSError):
                        other = server.accept()[0]
                        other.sendall(answer)
                        other.close()
                self.assertEqual(running.wait(), UNREACHABLE, answer)
                self.assertTrue(running.err.startswith("hwtctl: "))

    def test_weak_persistence(self):
        for config, level, status in (
                ({"appendonly": "no"}, "memory", YES),
                ({"appendonly": "no"}, "fsync", NO),
                ({"appendfsync": "everysec"}, "fsync", NO),
                ({}, "fsync", YES)):
            self.engine = self.engine_of(**config)
            said = self.ctl("init", f"--level={level}", status=status)
            if status == NO:
                self.assertIn("append", said.err)
            self.engine.close()

    def test_an_engine_that_evicts(self):
        self.engine = self.engine_of(maxmemory_policy="allkeys-lru",
                                     maxmemory="100mb")
        self.refused("maxmemory")

    def test_a_replica(self):
        master = self.engine_of()
        self.engine = self.engine_of(replicaof=f"127.0.0.1 {master.port}")
        self.refused("replica")

    def test_out_of_memory(self):
        self.engine = self.engine_of()
        self.add("--queue=q", "--in=60", "--id=t")
        with self.engine.client() as client:
            client("CONFIG", "SET", "maxmemory", "1")
            said = self.ctl("add", "--queue=q", "--in=60", "--id=u", status=NO)
            self.assertIn("out of memory", said.err)
            self.ctl("cancel", "t")
            client("CONFIG", "SET", "maxmemory", "0")
        self.add("--queue=q", "--in=60", "--id=u")

    def test_a_clock_an_hour_off(self):
        self.engine = self.engine_of(clock=True)
        self.ctl("init")
        for hours in (1, -1):
            self.engine.clock.set_off(hours * 3600000)
            self.refused("clock")
        self.engine.clock.set_off(0)
        self.add("--queue=q", "--in=0")

    def test_an_engine_that_is_too_old(self):
        """It says so: a proxy changes the version in its answers."""
        engine = self.engine_of()
        with engine.client() as client:
            info = client("INFO", "server").decode()
        version = re.search(r"redis_version:(\S+)", info)[1]
        with Between(engine.port, f"redis_version:{version}".encode(),
                     f"redis_version:6{version[1:]}".encode()) as between:
            self.refused("7", "--redis", f"127.0.0.1:{between.port}")
            self.assertGreater(between.changed, 0)

    def test_an_engine_that_is_loading(self):
        self.engine = self.engine_of(appendonly="no")
        self.ctl("init", "--level=memory")
        self.feed(b'{"queue":"q","in":600}\n' * 1000)
        with self.engine.client() as client:
            client("SAVE")
        self.engine.kill()
        # Each key takes so many us; between them, it answers.
        self.engine.start(wait=False, key_load_delay=3000,
                          loading_process_events_interval_bytes=1024)
        wait_until(lambda: "Loading RDB" in self.engine.log())
        self.ctl("stat", "--timeout=0.2", status=UNREACHABLE)
        said = self.ctl("stat", "--json", "--timeout=50")
        self.assertEqual(said.json["added"], 1000)

    def test_a_signal_ends_hwtctl_and_again(self):
        """Its ids say what is stored, by whole batches."""
        self.engine = self.engine_of()
        lines = [b'{"queue":"q","in":600,"id":"t%d"}\n' % i
                 for i in range(1100)]
        for which in (signal.SIGTERM, signal.SIGKILL):
            self.space = which.name
            path = os.path.join(self.folder, which.name)
            os.mkfifo(path)
            running = Running(self.folder, "hwtctl", "add", *self.where(),
                              "--from", path)
            self.addCleanup(running.close)
            with open(path, "wb") as pipe:
                pipe.write(b"".join(lines[:600]))
                pipe.flush()
                wait_until(lambda: running.out.count("\n") >= 512)
                self.assertEqual(running.end(which), -which)
            self.assertEqual(running.out, "".join(
                f"t{i}\n" for i in range(512)))
            self.assertEqual(self.stat()["added"], 512)
            self.assertEqual(len(self.feed(*lines).lines), 1100)
            self.assertEqual(self.stat()["added"], 1100)
            self.check()

    def test_a_signal_ends_a_start_that_gets_no_answer(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            for words in each_program("--timeout=3600", "--redis",
                                      self.address_of(silent)):
                for which in (signal.SIGTERM, signal.SIGINT):
                    running = Running(self.folder, *words)
                    self.addCleanup(running.close)
                    with silent.accept()[0]:
                        self.assertEqual(running.end(which), -which, words)

    def test_a_user_with_a_password(self):
        secret = "s3cret-Pa55word"
        engine = self.engine_of(start=False)
        engine.start(wait=False, user=[
            "default on nopass ~nothing resetchannels -@all +ping",
            f"hwt on >{secret} ~* &* +@all"])
        engine.wait()
        files = {name: self.path(name, text.encode()) for name, text in (
            ("right", secret + "\nmore"), ("wrong", "other\n"),
            ("empty", ""))}
        files["none"] = os.path.join(self.folder, "nonexistent")
        redis = ["--redis", engine.servers]
        for user, name, status in (
                ("hwt", "right", YES), ("hwt", "wrong", NO),
                ("other", "right", NO), ("hwt", "none", USAGE),
                ("hwt", "empty", USAGE)):
            said = call("hwtctl", "init", *redis, "--user", user,
                        "--password-file", files[name])
            self.assertEqual(said.status, status, (user, name, said.err))
            self.assertNotIn(secret, said.err + said.text)
            self.assertNotIn("other", said.err.replace("--user", ""))
        self.assertEqual(call("hwtctl", "stat", *redis).status, NO)
        self.roles_with_a_password(
            engine, secret, [*redis, "--user", "hwt", "--password-file",
                             files["right"]])
        self.assertNotIn(secret, engine.log())

    def test_an_engine_that_repeats_the_password(self):
        secret = "s3cret-Pa55word"
        engine = self.engine_of(rename_command='AUTH ""')
        said = call("hwtctl", "stat", "--redis", engine.servers, "--user",
                    "hwt", "--password-file",
                    self.path("secret", secret.encode()))
        self.assertEqual(said.status, NO)
        self.assertIn("ERR", said.err)
        self.assertNotIn(secret, said.err + said.text)

    def roles_with_a_password(self, engine, secret, where):
        """Nobody sees it: neither in argv nor in what is written."""
        running = [Running(self.folder, "hwtd", *where),
                   Running(self.folder, "hwt-exec", *where, "--queue=q",
                           "--", "sh", "-c", "echo ran; env")]
        for each in running:
            self.addCleanup(each.close)
        self.assertEqual(call("hwtctl", "add", "--queue=q", "--in=0",
                              *where).status, YES)
        wait_until(lambda: "ran" in running[1].out)
        for each in running:
            with open(f"/proc/{each.process.pid}/cmdline",
                      encoding="utf-8") as file:
                self.assertNotIn(secret, file.read())
        engine.kill()
        engine.start(wait=False)
        engine.wait()
        for each in running:
            self.assertEqual(each.end(), 0)
            self.assertNotIn(secret, each.out + each.err)

    def test_a_password_in_an_address_is_refused_and_not_repeated(self):
        for option in ("--redis", "--sentinel", "--cluster"):
            for address in ("user:s3cret@host:6379",
                            "redis://:s3cret@host:6379"):
                said = call("hwtctl", "stat", option, address)
                self.assertEqual(said.status, USAGE)
                self.assertNotIn("s3cret", said.err)


class Hwtd(Programs):
    def test_tasks_get_into_their_queue_and_signals_end_it(self):
        for which in (signal.SIGTERM, signal.SIGINT):
            running = self.start("hwtd")
            name = self.add("--queue=q", "--in=0.2")
            wait_until(lambda: self.state(name) == "delivered")
            self.assertEqual(running.end(which), 0)
            self.assertIn(f"serves space {self.space}", running.err)
        self.check()

    def test_the_janitor_comes_more_often_if_pumps_do(self):
        """Once a second, and up to 8 times: counted by the registration of the
        scheduler, which is once a second."""
        self.engine = self.engine_of()
        client = self.connect()

        def calls_of(command):
            for line in client("INFO", "commandstats").decode().split():
                if line.startswith(f"cmdstat_{command}:calls="):
                    return int(line.split("=")[1].split(",")[0])
            return 0

        def janitors_a_second():
            client("CONFIG", "RESETSTAT")
            wait_until(lambda: calls_of("zremrangebyscore") >= 8)
            return calls_of("scan") / (calls_of("zremrangebyscore") / 2)
        self.ctl("init", "--shards=1")
        self.start("hwtd")
        wait_until(lambda: calls_of("scan"))
        self.assertLess(janitors_a_second(), 2)
        self.feed(*({"queue": "q", "in": i / 50} for i in range(5000)))
        self.assertGreater(janitors_a_second(), 2)

    def test_a_part_of_the_shards(self):
        self.ctl("init", "--shards=4")
        names = {shard_of(str(i).encode(), 4): str(i) for i in range(50)}
        for name in names.values():
            self.add("--queue=q", "--in=0", f"--id={name}")
        running = self.start("hwtd", "--shards", "1-2")
        for shard in (1, 2):
            wait_until(lambda: self.state(names[shard]) == "delivered")
        self.assertEqual(self.state(names[0]), "pending")
        self.assertEqual(self.state(names[3]), "pending")
        self.assertEqual(running.end(), 0)
        for shards in ("", "1", "2-1", "-1", "1-", "0-4", "x-y", "1-2-3"):
            said = call("hwtd", f"--shards={shards}", *self.where())
            self.assertEqual(said.status, USAGE, shards)

    def test_sigterm_while_the_engine_is_gone(self):
        running = self.start("hwtd", "--timeout=1")
        wait_until(lambda: "serves" in running.err)
        self.engine.kill()
        try:
            time.sleep(0.2)
            self.assertEqual(running.end(), 0)
        finally:
            self.engine.start()

    def test_options(self):
        for words in (["--metrics", "x"], ["--metrics", "localhost:1"],
                      ["--metrics", "1.2.3:4"], ["--metrics", "65536"],
                      ["--metrics", "[::1:4"], ["--name", "a b"],
                      ["--name", "a" * 49], ["--name", ""], ["extra"]):
            said = call("hwtd", *words, *self.where())
            self.assertEqual(said.status, USAGE, words)


class HwtExec(Programs):
    def test_several_queues(self):
        worker = self.shell('echo "$HWT_QUEUE"', "--queue", "r",
                            "--queue=s,t")
        for queue in "qrst":
            self.add(f"--queue={queue}", "--in=0")
        wait_until(lambda: len(worker.out.splitlines()) == 4)
        self.assertEqual(sorted(worker.out.splitlines()), [*"qrst"])
        for bad in ("--queue=a b", "--queue=", "--queue=r,", "--queue=r,,s",
                    "--queue=" + ",".join(map(str, range(16)))):
            result = call("hwt-exec", "--queue=q", bad, "--", "true")
            self.assertEqual(result.status, USAGE, bad)
        self.assertIn("--queue: q is given twice", call(
            "hwt-exec", "--queue=q", "--queue=r,q", "--", "true").err)

    def setUp(self):
        super().setUp()
        self.scheduler = self.start("hwtd")

    def work(self, *words, **options):
        return self.start("hwt-exec", "--queue=q", *words, **options)

    def test_environment_and_payload(self):
        worker = self.shell(
            'echo "$HWT_ID|$HWT_ATTEMPT|$HWT_GENERATION|$HWT_DUE|$OTHER"; '
            "env | grep -cE '^HWT_(ID|ATTEMPT|GENERATION|FENCE|DUE)='; "
            "echo $HWT_FENCE >fence; cat >out",
            "--threads=2", cwd=self.folder,
            env={**os.environ, "HWT_ID": "wrong", "OTHER": "x y"})
        name = "a b'\"%s$(id)"
        self.add("--queue=q", "--in=0.3", f"--id={name}", "--payload=-",
                 stdin=b"\0\xffx" * 20000)
        due = self.show(name)["due_ms"]
        self.ends(name)
        self.assertEqual(worker.out, f"{name}|1|1|{due}|x y\n5\n")
        with open(os.path.join(
                self.folder, "fence"), encoding="ascii") as file:
            self.assertGreaterEqual(int(file.read()), due * 1000)
        with open(os.path.join(self.folder, "out"), "rb") as file:
            self.assertEqual(file.read(), b"\0\xffx" * 20000)
        self.assertGreaterEqual(time.time() * 1000, due)
        self.assertEqual(worker.end(), 0)
        self.check()

    def test_metrics(self):
        worker = self.shell("exit 0", "--metrics=0")
        self.add("--queue=q", "--in=0", "--id=x")
        self.ends("x")
        _, text = worker.page()
        labels = f'queue="q",serial="1",space="{self.space}"'
        self.assertIn(f"\nhwt_durable_worker_done_total{{{labels}}} 1\n", text)
        for name in ("lateness", "execution"):
            for end in (',le="0.000262143"', ',le="8796.093022207"',
                        ',le="+Inf"'):
                self.assertIn(f"\nhwt_durable_worker_{name}_seconds_bucket"
                              f"{{{labels}{end}}} ", text)
        self.assertEqual(worker.page("metrics/x")[0], 404)
        self.assertEqual(worker.end(), YES)

    def test_the_dashboard_asks_for_what_is_written(self):
        told = set()
        for running in (self.start("hwtd", "--metrics=0"),
                        self.work("--metrics=0", "--", "true")):
            _, text = running.page()
            told.update(re.findall(r"^hwt_durable_\w+", text, re.M))
            # Without a queue, there is no sample of these.
            told.update(re.findall(r"# TYPE (\w+) (?:gauge|counter)", text))
        with open(os.path.join(ROOT, "modules/durable/grafana.json"),
                  encoding="ascii") as file:
            board = json.load(file)
        asked = set(re.findall(r"hwt_durable_\w+", json.dumps([
            board["panels"], board["templating"]])))
        self.assertGreater(len(asked), 20)
        self.assertEqual(asked - told, set())

    def test_metrics_where_nobody_can_listen(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            for where, status in (("x", USAGE), ("", USAGE), ("65536", USAGE),
                                  (str(taken.getsockname()[1]), NO)):
                said = call("hwt-exec", *self.where(), "--queue=q",
                            "--metrics", where, "--", "true")
                self.assertEqual(said.status, status, said.err)
                self.assertIn("--metrics: ", said.err)

    def test_a_parent_that_ignores_SIGCHLD(self):
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        try:
            worker = self.shell("exit 0")
        finally:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.ends(self.add("--queue=q", "--in=0"))
        self.assertEqual(worker.end(), 0)

    def test_exit_statuses(self):
        """0 is done; those of --fail-status fail at once; the others, and
        signals, are tried again until the attempts are used up."""
        worker = self.shell('[ "$HWT_ATTEMPT" = 3 ] || eval "$(cat)"',
                            "--fail-status=64-66,70")
        for text, said, state, attempts in (
                ("exit 0", "", "succeeded", 1),
                ("exit 1", "exit status 1", "succeeded", 3),
                ("exit 75", "exit status 75", "succeeded", 3),
                ("kill -9 $$", "ended by signal 9", "succeeded", 3),
                ("exit 64", "exit status 64", "failed", 1),
                ("exit 66", "exit status 66", "failed", 1),
                ("exit 67", "exit status 67", "succeeded", 3),
                ("exit 70", "exit status 70", "failed", 1)):
            with self.subTest(text=text):
                name = self.add("--queue=q", "--in=0", f"--payload={text}")
                self.ends(name, state=state)
                self.assertEqual(self.show(name)["attempts"], attempts)
                for attempt in range(1, attempts + (state == "failed")):
                    self.assertIn(
                        f"{name}: attempt {attempt}: {said}\n", worker.err)
        name = self.add("--queue=q", "--in=0", "--attempts=2",
                        "--payload=exit 1")
        self.ends(name, state="failed")
        self.assertEqual(self.show(name)["attempts"], 2)
        self.check()

    def test_a_dead_letter_tells_why_when_and_where(self):
        worker = self.shell(
            "head -c 300000 /dev/zero | tr '\\0' x >&2; echo last >&2; "
            'eval "$(cat)"', "--fail-status=3", "--limit=1")
        before = time.time() * 1000 - 1
        for text, attempts, why in (
                ("exit 3", 20, "exit status 3: x*xlast"),
                ("exit 1", 1, "exit status 1: x*xlast"),
                ("printf '\\033[2J\\377' >&2; exit 3", 20,
                 "exit status 3: x*xlast\n\x1b[2J\\\\xff"),
                ("sleep 1000", 1, "ended, for it took longer than --limit: "
                 "x*xlast"),
                ("kill -9 $$", 1, "ended by signal 9: x*xlast"),
                ("echo first >&2; exit 75", 2,
                 "exit status 75: x*xlast\nfirst")):
            with self.subTest(text=text):
                name = self.add("--queue=q", "--in=0", f"--payload={text}",
                                f"--attempts={attempts}")
                self.ends(name, state="failed")
                shown = self.show(name)
                listed = self.ctl("dead", "list").objects
                self.assertIn({key: shown[key] for key in shown
                               if key != "payload"}, listed)
                said = shown.get("error") or base64.b64decode(
                    shown["error_base64"]).decode(errors="backslashreplace")
                self.assertEqual(re.sub("x{100,}", "x*x", said),
                                 why.replace("\\\\", "\\"))
                self.assertLessEqual(len(said), 1024)
                self.assertIn(str(worker.process.pid), shown["worker"])
                self.assertGreaterEqual(shown["failed_ms"], before)
                self.assertLessEqual(shown["failed_ms"], time.time() * 1000)
        # What it said has gone on, whole.
        wait_until(lambda: worker.err.count("x" * 300000 + "last\n") == 7)
        self.check()
        self.assertEqual(worker.end(), 0)
        self.ctl("dead", "replay", name)
        self.assertNotIn("error", self.show(name))
        self.ctl("dead", "drop", "--all")
        self.check()

    def test_what_a_lost_worker_leaves_says_so(self):
        worker = self.shell("echo begun; exec sleep 1000", "--visibility=1")
        name = self.add("--queue=q", "--in=0", "--attempts=1")
        wait_until(lambda: "begun" in worker.out)
        worker.end(signal.SIGKILL)
        self.ends(name, state="failed")
        self.assertEqual(self.show(name)["error"], "the lease ended: nothing "
                         "was heard of its worker")

    def test_a_command_may_leave_others_behind(self):
        """What they say still comes; the task does not wait for them."""
        worker = self.shell("(while ! [ -e go ]; do sleep 0.1; done; "
                            "echo late >&2) & echo early >&2",
                            cwd=self.folder)
        self.ends(self.add("--queue=q", "--in=0"))
        self.assertEqual(worker.err, "early\n")
        self.path("go")
        wait_until(lambda: worker.err == "early\nlate\n")
        self.assertEqual(worker.end(), 0)

    def test_a_command_that_takes_too_long(self):
        """It is ended with all that it has started, and tried again."""
        worker = self.shell(
            'echo $HWT_ATTEMPT $$; [ "$HWT_ATTEMPT" = 2 ] || '
            "{ sleep 1000 & sleep 1000; }", "--limit=0.5")
        name = self.add("--queue=q", "--in=0")
        self.ends(name)
        lines = [line.split() for line in worker.out.splitlines()]
        self.assertEqual([attempt for attempt, _ in lines], ["1", "2"])
        wait_until(lambda: not self.group(lines[0][1]))
        self.assertEqual(worker.err, f"hwt-exec: {name}: attempt 1: ended, "
                         "for it took longer than --limit\n")
        name = self.add("--queue=q", "--in=0", "--attempts=1")
        self.ends(name, state="failed")
        self.assertEqual(worker.end(), 0)
        self.check()

    def test_a_command_may_end_well_after_the_limit(self):
        worker = self.shell(
            "trap 'echo told; exit 0' TERM; echo begun; "
            "while :; do sleep 0.1; done", "--limit=0.2")
        self.ends(self.add("--queue=q", "--in=0"))
        self.assertEqual(worker.out, "begun\ntold\n")
        self.assertNotIn("--limit", worker.err)

    def test_a_command_that_ignores_SIGTERM(self):
        worker = self.shell("trap '' TERM; echo $$; sleep 1000",
                            "--limit=0.2")
        name = self.add("--queue=q", "--in=0", "--attempts=1")
        begun = time.monotonic()
        self.ends(name, state="failed")
        self.assertGreater(time.monotonic() - begun, 9)
        self.assertEqual(self.group(worker.out.strip()), [])
        self.check()

    def test_within_the_limit_the_exit_status_counts(self):
        for status, state in ((0, "succeeded"), (1, "failed")):
            worker = self.shell(f"exit {status}", "--limit=50",
                                "--fail-status=1")
            name = self.add("--queue=q", "--in=0")
            self.ends(name, state=state)
            self.assertEqual(worker.end(), 0)

    @staticmethod
    def group(number):
        """The processes of a group, but for those that have ended."""
        found = []
        for folder in os.listdir("/proc"):
            if not folder.isdigit():
                continue
            with contextlib.suppress(OSError):
                with open(f"/proc/{folder}/stat", encoding="utf-8") as file:
                    words = file.read().rsplit(")", 1)[1].split()
                if words[2] == number and words[0] != "Z":
                    found.append(folder)
        return found

    def test_a_command_that_reads_a_part_or_nothing(self):
        for command, said in ((["true"], ""), (["head", "-c", "3"], "xxx")):
            worker = self.work("--", *command)
            self.ends(self.add("--queue=q", "--in=0", "--payload=-",
                               stdin=b"x" * PAYLOAD_MAX))
            self.assertEqual(worker.end(), 0)
            self.assertEqual(worker.out, said)

    def test_a_command_gets_nothing_else_that_is_open(self):
        worker = self.shell("ls /proc/self/fd; grep -E 'Sig(Blk|Ign)' "
                            "/proc/self/status")
        self.ends(self.add("--queue=q", "--in=0"))
        lines = worker.out.split("\n")
        # The last one is the folder that ls reads.
        self.assertEqual(lines[:4], ["0", "1", "2", "3"])
        self.assertEqual(lines[4], "SigBlk:\t" + "0" * 16)
        # The C library ignores two of its own signals in a command. What a
        # shell ignores for us when we are in the background stays ignored;
        # Python itself ignores two, but not in what it starts.
        ignored = int(lines[5].split()[1], 16)
        self.assertEqual(
            {number for number in range(1, 32) if ignored >> number - 1 & 1},
            {number for number in range(1, 32)
             if signal.getsignal(number) == signal.SIG_IGN} -
            {signal.SIGPIPE, signal.SIGXFSZ})

    def test_arguments_are_no_shell(self):
        worker = self.work("--", "printf", "%s|", "$HWT_ID", "a b", "`x`")
        self.ends(self.add("--queue=q", "--in=0"))
        self.assertEqual(worker.out, "$HWT_ID|a b|`x`|")

    def test_a_command_that_does_not_exist(self):
        for command in ("nonexistent-command", "/nonexistent/command",
                        "/etc/passwd"):
            said = call("hwt-exec", "--queue=q", *self.where(), "--",
                        command)
            self.assertEqual(said.status, USAGE)
            self.assertIn(f"{command}: no such command", said.err)
        for words in (["--queue=q"], ["--", "true"],
                      ["--queue=a b", "--", "true"],
                      ["--queue=q", "--threads=0", "--", "true"],
                      ["--queue=q", "--threads=1025", "--", "true"],
                      ["--queue=q", "--visibility=0.5", "--", "true"],
                      ["--queue=q", "--visibility=NaN", "--", "true"],
                      ["--queue=q", "--limit=0", "--", "true"],
                      ["--queue=q", "--limit=86401", "--", "true"],
                      ["--queue=q", "--limit=-1", "--", "true"],
                      *(["--queue=q", f"--fail-status={text}", "--", "true"]
                        for text in ("", "0", "256", "5-4", "x", "1,", "1--2",
                                     "-1", "1-", "1 "))):
            self.assertEqual(
                call("hwt-exec", *self.where(), *words).status, USAGE, words)

    def test_a_command_that_vanishes_is_tried_again(self):
        command = self.path("command", b"#!/bin/sh\necho ran $HWT_ATTEMPT\n")
        os.chmod(command, 0o755)
        worker = self.work("--", command)
        self.ends(self.add("--queue=q", "--in=0"))
        os.rename(command, command + ".away")
        name = self.add("--queue=q", "--in=0")
        wait_until(lambda: f"{name}: attempt 1: {command}: No such file" in
                   worker.err)
        os.rename(command + ".away", command)
        self.ends(name)
        self.assertNotIn("ran 1", worker.out.split("\n")[1:])

    def test_an_id_with_a_zero_byte(self):
        worker = self.work("--", "true")
        self.ctl("add", "--queue=q", "--in=0", "--base64", "--id=YQBi")
        wait_until(lambda: self.ctl("show", "--base64", "YQBi").json["state"]
                   == "failed")
        self.assertIn("byte 0", worker.err)

    def test_sigterm_finishes_what_runs(self):
        worker = self.shell("echo begun; sleep 1; echo ended", "--threads=2")
        names = [self.add("--queue=q", "--in=0") for _ in range(2)]
        wait_until(lambda: worker.out.count("begun") == 2)
        later = self.add("--queue=q", "--in=0")
        self.assertEqual(worker.end(), 0)
        self.assertEqual(worker.out.count("ended"), 2)
        self.assertEqual([self.state(name) for name in names],
                         ["succeeded"] * 2)
        wait_until(lambda: self.state(later) == "delivered")
        self.check()


class Minute(Programs):
    """The engine is gone for a minute, and comes back."""

    def test_all_goes_on(self):
        scheduler = self.start("hwtd")
        worker = self.shell("echo $HWT_ID", "--threads=2")
        before = [self.add("--queue=q", "--in=1") for _ in range(20)]
        later = self.add("--queue=q", "--in=90")
        self.engine.kill()
        time.sleep(60)
        said = call("hwtctl", "stat", "--timeout=1", *self.where())
        self.assertEqual(said.status, UNREACHABLE)
        self.engine.start()
        self.ends(*before)
        self.assertEqual(self.state(later), "pending")
        self.ends(later)
        self.assertEqual(sorted(worker.out.split()),
                         sorted([*before, later]))
        for running in (scheduler, worker):
            self.assertLess(running.err.count("\n"), 100, running.err)
            self.assertIn("127.0.0.1", running.err)
            self.assertEqual(running.end(), 0)
        self.check()


class Many(Programs):
    """Redis Cluster, and Sentinel. The class's own engine is not used."""

    servers = None

    def where(self):
        return [*self.servers, "--space", self.space]

    def life(self):
        """Some tasks, by all programs."""
        self.ctl("init", "--shards=6", "--slots=16")
        self.assertEqual(len(self.feed(*(
            {"queue": "q", "in": i % 2 * 60, "id": f"t{i}"}
            for i in range(60))).lines), 60)
        self.assertEqual(len(self.ctl("list").lines), 60)
        self.assertEqual(self.state("t1"), "pending")
        self.ctl("cancel", "t1")
        self.ctl("reschedule", "t3", "--in=0")
        scheduler = self.start("hwtd")
        worker = self.shell('[ "$HWT_ID" != t0 ]', "--fail-status=1")
        wait_until(lambda: self.stat()["succeeded"] == 30)
        dead, = self.ctl("dead", "list").objects
        self.assertEqual(dead["id"], "t0")
        self.ctl("dead", "drop", "--all")
        self.assertEqual((scheduler.end(), worker.end()), (0, 0))
        self.assertEqual(len(self.ctl("list").lines), 59)
        self.check()

    def test_cluster(self):
        nodes = [self.engine_of(cluster_enabled="yes",
                                cluster_node_timeout=5000)
                 for _ in range(3)]
        clients = join(nodes)
        for client in clients:
            self.addCleanup(client.close)
        self.servers = ["--cluster", ",".join(
            node.servers for node in nodes)]
        self.life()
        held = [client("DBSIZE") for client in clients]
        self.assertGreater(min(held), 0, "a node without keys")

    def test_sentinel(self):
        port, process = start_sentinel(self.folder, self.engine_of(), 1)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        wait_until(lambda: listens(port))
        self.servers = ["--sentinel", f"127.0.0.1:{port},first"]
        self.life()
        self.servers = ["--sentinel",
                        f"127.0.0.1:{free_port()},127.0.0.1:{port},first"]
        self.ctl("stat")
        self.servers = ["--sentinel", f"127.0.0.1:{port},other",
                        "--timeout=0.5"]
        self.ctl("stat", status=UNREACHABLE)

    def test_replicated(self):
        master = self.engine_of(repl_diskless_sync_delay=0)
        self.servers = ["--redis", master.servers]
        add = ["add", "--queue=q", "--in=60", "--timeout=1"]
        # Nobody has it yet: it may be stored or not, and the id is told.
        said = self.ctl("init", "--level=replicated")
        self.assertIn("level replicated", said.text)
        said = self.ctl(*add, "--id=t", status=UNREACHABLE)
        self.assertIn("t: no answer in time", said.err)
        replica = self.engine_of(replicaof=f"127.0.0.1 {master.port}")
        with replica.client() as client:
            wait_until(lambda: b"master_link_status:up" in client(
                "INFO", "replication"))
        self.ctl("add", "--queue=q", "--in=60", "--id=t")
        self.ctl("add", "--queue=q", "--in=60", "--replicas=2",
                 "--timeout=1", status=UNREACHABLE)
        self.check()


class Documents(Programs):
    """The programs of README and of the page do what these say."""

    def run_program(self, text, expected):
        """In what is expected, "..." stands for anything."""
        source = self.path("example.c", text.encode())
        program = os.path.join(self.folder, "example")
        subprocess.run(
            [os.environ.get("CC", "gcc"), "-Wall", "-Wextra", "-Werror",
             "-I.", "-Imodules/durable", "-o", program, source,
             os.path.join(BUILD, "libhwt_durable.a"),
             os.path.join(BUILD, "libhwt.a"), "-lhiredis", "-pthread"],
            cwd=ROOT, check=True)
        said = subprocess.run(
            [program, f"127.0.0.1:{self.engine.port}"], check=True,
            stdout=subprocess.PIPE, timeout=LIMIT)
        self.assertRegex(said.stdout.decode(), "\\A" + ".*".join(
            re.escape(part) for part in expected.split("...")) + "\\Z")
        # The next program adds the same task.
        with self.engine.client() as client:
            client("FLUSHALL")

    @staticmethod
    def text_of(path):
        with open(os.path.join(ROOT, "modules/durable", path),
                  encoding="utf-8") as file:
            return file.read()

    def on_this_engine(self, line):
        """A command as the documents have it."""
        program, *words = shlex.split(line)
        first = [words.pop(0)] if program == "hwtctl" else []
        return [program, *first, *self.where(), *words]

    def test_the_four_commands(self):
        lines = self.text_of("README").split("\n")
        at = lines.index("    hwtd")
        said = call(*self.on_this_engine(lines[at - 1]))
        self.assertEqual(said.status, YES, said.err)
        scheduler = Running(self.folder, *self.on_this_engine(lines[at]))
        self.addCleanup(scheduler.close)
        worker = Running(self.folder, *self.on_this_engine(lines[at + 1]))
        self.addCleanup(worker.close)
        before = time.time()
        said = call(*self.on_this_engine(lines[at + 2]))
        self.assertEqual(said.status, YES, said.err)
        wait_until(lambda: "\n" in worker.out)
        self.assertGreaterEqual(time.time(), before + 5)
        self.assertEqual(worker.out,
                         f"{said.text[:-1]}: five seconds later\n")

    def test_the_examples_of_hwtctl(self):
        text = self.text_of("man/hwtctl.1").split(".Sh EXAMPLES")[1]
        lines = text.split(".Bd -literal\n")[1].split("\n.Ed")[0]
        said, told = "", []
        for line in lines.split("\n"):
            if line.startswith("$ "):
                self.assertEqual(told, [])
                said = call(*self.on_this_engine(line[2:]))
                self.assertEqual(said.status, YES, said.err)
                told = said.lines
            else:
                start, _, end = line.partition("...")
                self.assertTrue(told[0].startswith(start) and
                                told.pop(0).endswith(end))
        self.assertEqual(told, [])

    def test_programs(self):
        readme = self.text_of("README")
        lines = readme[readme.index("    /* example.c */"):].split("\n")
        end = next(i for i, line in enumerate(lines)
                   if line and not line.startswith("    "))
        text = "".join(line[4:] + "\n" for line in lines[:end])
        expected = readme.split('It prints "')[1].split('"')[0] + "\n"
        self.run_program(text, expected)


def main():
    """The last line says how many passed, failed and were skipped."""
    result = unittest.main(exit=False).result
    failed = len(result.failures) + len(result.errors)
    skipped = len(result.skipped)
    for test, reason in result.skipped:
        print(f"skipped {test}: {reason}")
    print("tally", result.testsRun - failed - skipped, failed, skipped)
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
