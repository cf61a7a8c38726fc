# SPDX-License-Identifier: Apache-2.0
"""Processes that use the library: programs/client.c, which does what it is
told, and says what its worker does; and what tests do with them."""

import contextlib
import os
import subprocess
import tempfile
import threading
import time

from checker import Checker
from engine import BUILD, LIMIT, die_with_parent

CLIENT = os.path.join(BUILD, "modules/durable/test/programs/client")


class Execution:
    """A line that tells of a callback: begin, with due, or end, with how."""

    def __init__(self, words):
        self.what, ms, self.id, generation, attempt, rest = words
        self.ms = int(ms)
        self.generation = int(generation)
        self.attempt = int(attempt)
        self.due = int(rest) if self.what == "begin" else None
        self.outcome = rest if self.what == "end" else None
        self.key = self.id, self.generation, self.attempt

    def __repr__(self):
        return (f"{self.what} {self.id} {self.generation} {self.attempt} "
                f"{self.outcome or ''} at {self.ms}")


class Actor:
    """actor("cancel", "id") returns the result and what comes after it, as
    numbers."""

    def __init__(self, space, servers, environment=None):
        self.space = space
        self.servers = servers
        self.errors = tempfile.TemporaryFile()
        self.answers = []
        self.executions = []
        self.changed = threading.Condition()
        self.ended = False
        self.process = subprocess.Popen(
            [CLIENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.errors, preexec_fn=die_with_parent,
            env=environment)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    @property
    def pid(self):
        return self.process.pid

    def read(self):
        for line in self.process.stdout:
            words = line.decode().split()
            with self.changed:
                if words[0] in ("begin", "end"):
                    self.executions.append(Execution(words))
                else:
                    self.answers.append(words)
                self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def wait(self, what, limit=LIMIT):
        """Until what is true of the executions; returns that."""
        end = time.monotonic() + limit
        with self.changed:
            while True:
                answer = what(self.executions)
                if answer:
                    return answer
                left = end - time.monotonic()
                if left <= 0 or self.ended:
                    raise AssertionError(
                        f"{self.space}: not within {limit} s: "
                        f"{self.executions[-10:]} {self.said()}")
                self.changed.wait(left)

    def tell(self, *words):
        text = " ".join(map(str, words)) + "\n"
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def hear(self, word, limit=LIMIT):
        end = time.monotonic() + limit
        with self.changed:
            while not self.answers:
                left = end - time.monotonic()
                if left <= 0 or self.ended:
                    raise AssertionError(
                        f"{self.space}: no answer to {word}: {self.said()}")
                self.changed.wait(left)
            answer = self.answers.pop(0)
        assert answer[0] == word, answer
        return [int(each) for each in answer[1:]]

    def __call__(self, *words):
        self.tell(*words)
        return self.hear(words[0])

    def open(self, level=1, shards=2, slots=64, tick=20, timeout=5000,
             skew=0, replicas=0):
        return self("open", self.servers, self.space, level, shards, slots,
                    tick, timeout, skew, replicas)[0]

    def said(self):
        """What it has written to stderr."""
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")

    def begins(self, name):
        """The executions of a task that have begun, as (generation,
        attempt)."""
        return [each.key[1:] for each in list(self.executions)
                if each.what == "begin" and each.id == name]

    def end(self):
        """After a close: it ends by itself. The exit status."""
        self.process.stdin.close()
        status = self.process.wait(LIMIT)
        self.reader.join()
        return status

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.reader.join()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        self.errors.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


class Actors:
    """Of a TestCase whose space is self.space."""

    def open(self, servers, schedules=False, works=None, **options):
        """An actor with a handle, and with a scheduler and a worker. works:
        threads, visibility and limit in ms."""
        actor = Actor(self.space, servers)
        self.addCleanup(actor.kill)
        self.assertEqual(actor.open(**options), 0, actor.said())
        if schedules:
            self.assertEqual(actor("schedule"), [0])
        if works:
            self.assertEqual(actor("work", "q", *works), [0])
        return actor

    def stop_all(self, *actors):
        """Everybody ends as it should."""
        for actor in actors:
            for words in (["unwork", 60000], ["unschedule"], ["close"]):
                self.assertEqual(actor(*words), [0], (words, actor.said()))
            self.assertEqual(actor.end(), 0, actor.said())

    def is_whole(self, client, drained=False):
        """No invariant is broken."""
        self.assertEqual(Checker(client, self.space, routed=True)(
            drained=drained), [])
