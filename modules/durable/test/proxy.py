#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The connection between library and engine breaks after each byte of a small
scenario, in both directions.

    proxy.py [--sample N | --every STEP] [--seed N] [--parallel N]

A proxy counts the bytes that go up to the engine, or down from it, and at a
certain one it

    cuts   that connection; new ones work
    goes   cuts all connections, and refuses new ones until it is told
    hangs  delays everything from there on, until it is told

Bytes that went up before the cut arrive at the engine: a command that was whole
is executed, and its reply is lost.

Then the outcome must be one that the header allows: 0; -ETIMEDOUT, and the
call is repeated; -ECONNREFUSED, and nothing has happened. In the end each task
has been executed just as often as it asked for, none early, none after its
cancel, and the checker finds nothing. --sample: the end of each command and of
each reply, the bytes beside it, and N others; --every 1: each byte."""

import argparse
import concurrent.futures
import errno
import itertools
import os
import random
import selectors
import socket
import struct
import sys
import threading
import time
import traceback

from actor import Actor
from checker import Checker, Record, scan
from engine import LIMIT, Engine, shard_of

UP, DOWN = "up", "down"
CUT, GO, HANG = "cuts", "goes", "hangs"
AWAY = 0.2  # seconds
SHARDS = 2
DURING = {0, -errno.ETIMEDOUT, -errno.ECONNREFUSED}


def element_end(data, at):
    """Where the element of the protocol that begins there ends; None if it is
    not whole."""
    line = data.find(b"\r\n", at)
    if line < 0:
        return None
    kind, rest = data[at:at + 1], data[at + 1:line]
    end = line + 2
    if kind == b"$" and int(rest) >= 0:
        end += int(rest) + 2
        return end if end <= len(data) else None
    if kind == b"*":
        for _ in range(max(int(rest), 0)):
            end = element_end(data, end)
            if end is None:
                return None
    return end


class Stream:
    """One direction of a connection."""

    def __init__(self, source, target, way):
        self.source = source
        self.target = target
        self.way = way
        self.data = b""
        self.drains = False

    def ends(self, data):
        """Where elements end, from the beginning of data."""
        base = len(self.data)
        self.data += data
        at, found = 0, []
        while (end := element_end(self.data, at)) is not None:
            at = end
            found.append(at - base)
        self.data = self.data[at:]
        return found


class Proxy(threading.Thread):
    """Listens on a free port; a thread forwards. way, at, what: the byte, and
    what happens there."""

    def __init__(self, target, way=None, at=0, what=CUT):
        super().__init__(daemon=True)
        self.address = target
        self.way, self.at, self.what = way, at, what
        self.count = {UP: 0, DOWN: 0}
        self.marks = {UP: [], DOWN: []}
        self.happened = threading.Event()
        self.away = False  # goes or hangs, now
        self.held = []  # what hangs: (stream, data)
        self.selector = selectors.DefaultSelector()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.wake_read, self.wake_write = os.pipe()
        self.selector.register(self.wake_read, selectors.EVENT_READ)
        self.start()

    def run(self):
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is self.listener:
                    self.accept()
                elif key.fileobj == self.wake_read:
                    if os.read(self.wake_read, 1) == b"x":
                        self.end()
                        return
                    self.come_back()
                elif self.is_open(key.fileobj):
                    self.forward(key.data)

    def accept(self):
        client = self.listener.accept()[0]
        if self.away and self.what == GO:
            self.reset(client)
            return
        engine = socket.create_connection(self.address)
        for each in (client, engine):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        up, down = Stream(client, engine, UP), Stream(engine, client, DOWN)
        self.selector.register(client, selectors.EVENT_READ, up)
        self.selector.register(engine, selectors.EVENT_READ, down)

    @staticmethod
    def reset(end):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                       struct.pack("ii", 1, 0))
        end.close()

    def is_open(self, end):
        return end.fileno() >= 0 and end in self.selector.get_map()

    def drop(self, end):
        if self.is_open(end):
            self.selector.unregister(end)
            end.close()

    def close_both(self, stream):
        self.drop(stream.source)
        self.drop(stream.target)

    def forward(self, stream):
        try:
            data = stream.source.recv(1 << 16)
        except OSError:
            data = b""
        if not data or stream.drains:
            if not data:
                self.close_both(stream)
            return
        if self.away:
            self.held.append((stream, data))
            return
        self.pass_on(stream, data)

    def pass_on(self, stream, data):
        before = self.count[stream.way]
        breaks = stream.way == self.way and \
            not self.happened.is_set() and before + len(data) >= self.at
        if breaks:
            data, rest = data[:self.at - before], data[self.at - before:]
        self.count[stream.way] += len(data)
        self.marks[stream.way] += [
            before + end for end in stream.ends(data)]
        try:
            stream.target.sendall(data)
        except OSError:
            self.close_both(stream)
        if breaks:
            self.break_here(stream, rest)

    def break_here(self, stream, rest):
        self.away = self.what != CUT
        if self.what == HANG:
            self.held.append((stream, rest))
        elif self.what == CUT:
            self.cut(stream)
        else:
            for key in list(self.selector.get_map().values()):
                if isinstance(key.data, Stream) and key.data.way == UP and \
                        self.is_open(key.fileobj):
                    self.cut(key.data)
        self.happened.set()

    def cut(self, stream):
        """The client sees an end or a reset, in turn; the engine gets what was
        sent, and an end."""
        client, engine = (stream.source, stream.target)[
            ::1 if stream.way == UP else -1]
        if self.is_open(client):
            self.selector.unregister(client)
            if self.at % 2:
                self.reset(client)
            else:
                client.close()
        if self.is_open(engine):
            self.selector.get_key(engine).data.drains = True
            try:
                engine.shutdown(socket.SHUT_WR)
            except OSError:
                self.drop(engine)

    def come_back(self):
        self.away = False
        held, self.held = self.held, []
        for stream, data in held:
            if self.is_open(stream.source) and data:
                self.pass_on(stream, data)

    def resume(self):
        os.write(self.wake_write, b"r")

    def end(self):
        for key in list(self.selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self.selector.close()

    def close(self):
        os.write(self.wake_write, b"x")
        self.join()
        os.close(self.wake_read)
        os.close(self.wake_write)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Scenario:
    """One run of it, in a space of its own. The engine is also asked past the
    proxy."""

    numbers = itertools.count()

    def __init__(self, engine, way=None, at=0, what=CUT):
        self.engine = engine
        self.space = f"s{next(self.numbers)}"
        self.case = way, at, what
        self.actor = None
        self.proxy = None
        self.client = None
        self.generation = {}
        self.tries = 0
        self.broke = False

    def check(self, condition, text):
        if not condition:
            raise AssertionError(
                f"{self.case}: {text}; {self.actor.executions}; "
                f"{self.actor.said()}")

    def record(self, name):
        key = b"{%s:%d}:r:%s" % (
            self.space.encode(), shard_of(name.encode(), SHARDS),
            name.encode())
        data = self.client("GET", key)
        return Record(data, 64) if data else None

    def see(self, names):
        """What the engine has of them."""
        records = [self.record(name) for name in names]
        return [record and (record.state, record.generation, record.due)
                for record in records]

    def call(self, *words, names=()):
        """Until it has had an effect. What says that nothing has happened is
        not to lie; with a proxy that only cuts, no call fails."""
        what = self.case[2]
        known = True  # what there was of it has been executed, or never will
        end = time.monotonic() + LIMIT
        self.tries = 0
        while True:
            self.tries += 1
            before = self.see(names)
            answer = self.actor(*words)
            if answer[0] == 0:
                return answer
            # A call of 150 ms may fail of itself on a busy machine.
            self.check(what != CUT and answer[0] in DURING,
                       f"{words}: {answer}")
            known = known and answer[0] != -errno.ETIMEDOUT
            if answer[0] == -errno.ECONNREFUSED and known:
                self.check(self.see(names) == before,
                           f"{words}: {answer}, and {before} has become "
                           f"{self.see(names)}")
            self.check(time.monotonic() < end,
                       f"{words} fails for ever: {answer}")
            self.proxy.resume()

    def add(self, payload, *names):
        results = self.call("add", "q", 600000, 5, payload, *names,
                            names=names)[1:]
        self.check(set(results) <= {0, 1}, f"{names}: {results}")
        self.check(all(state == ("pending", 1) for state in
                       [each and each[:2] for each in self.see(names)]),
                   f"{names} are not there: {self.see(names)}")

    def cancel(self, name):
        self.call("cancel", name, names=[name])
        self.check(self.record(name).state == "cancelled",
                   f"{name} is not cancelled")

    def reschedule(self, name):
        self.call("reschedule", name, 0, names=[name])
        generation = self.record(name).generation
        # The engine may have executed each try, and one more was lost.
        self.check(2 <= generation <= self.tries + (2 if self.case[0] else 1),
                   f"{name}: generation {generation}")
        self.generation[name] = generation

    def execute(self):
        """Nothing waits for longer than a second, or a few after a break."""
        self.call("schedule")
        self.call("work", "q", 2, 30000, 0)
        end = time.monotonic() + LIMIT
        while any(self.record(name).state != "succeeded" for name in "ab"):
            if self.proxy.happened.is_set() and self.proxy.away:
                time.sleep(AWAY)
                self.proxy.resume()
            self.check(time.monotonic() < end, "not executed: "
                       f"{self.see('ab')}")
            time.sleep(0.01)
        self.call("unwork", 30000)
        self.call("unschedule")

    def check_executions(self):
        """With leases of 30 s, no break excuses one more."""
        wanted = {"a": [(self.generation["a"], 1)],
                  "b": [(self.generation["b"], 1), (self.generation["b"], 2)],
                  "c": [], "x": []}
        for name, runs in wanted.items():
            self.check(self.actor.begins(name) == runs,
                       f"{name}: executed {self.actor.begins(name)}")
        for each in self.actor.executions:
            self.check(each.what == "end" or each.ms >= each.due,
                       f"{each} is early")

    def check_space(self):
        broken = Checker(self.client, self.space, routed=True)(drained=True)
        self.check(not broken, broken)
        names = self.see("abcx")
        self.check([each[0] for each in names] ==
                   ["succeeded"] * 2 + ["cancelled"] * 2, names)

    def steps(self):
        timeout = 5000 if self.case[2] == CUT else 150
        self.call("open", self.actor.servers, self.space, 1, SHARDS, 64, 20,
                  timeout, 0)
        self.add("done", "a", "c", "x")
        self.add("retry", "b")
        self.cancel("c")
        self.reschedule("a")
        self.reschedule("b")
        self.execute()
        self.check(self.call("get", "a")[1] == 4, "get")
        self.cancel("x")
        self.call("close")
        self.check(self.actor.end() == 0, "exit status")
        self.check_executions()
        self.check_space()

    def run(self):
        with Proxy(self.engine.address, *self.case) as self.proxy, \
                self.engine.client() as self.client, \
                Actor(self.space, f"127.0.0.1:{self.proxy.port}") \
                as self.actor:
            self.steps()
            keys = scan(self.client, b"{" + self.space.encode() + b"[:}]*")
            self.client("DEL", *keys)
            self.broke = self.proxy.happened.is_set()
            return self


def places(options, count, marks):
    """All (way, at, what) that are tried."""
    chosen = []
    rng = random.Random(options.seed)
    for way in (UP, DOWN):
        if options.every:
            at = set(range(0, count[way] + 1, options.every))
        else:
            at = {mark + by for mark in marks[way] for by in (-1, 0, 1)}
            at |= {rng.randrange(count[way]) for _ in range(options.sample)}
        chosen += [(way, each, CUT) for each in sorted(at)]
        if options.every:
            others = sorted(at)
        else:
            others = sorted({*rng.sample(sorted(at),
                                         min(len(at), options.sample)),
                             *marks[way]})
        chosen += [(way, each, rng.choice((GO, HANG))) for each in others]
    rng.shuffle(chosen)
    return chosen


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--sample", type=int, default=20)
    parser.add_argument("--every", type=int, default=0)
    parser.add_argument("--seed", type=int,
                        default=int.from_bytes(os.urandom(4), "big"))
    parser.add_argument("--parallel", type=int, default=16)
    parser.add_argument("--at", nargs=3, metavar=("WAY", "BYTE", "WHAT"))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    passed = failed = reached = 0
    with Engine() as engine, concurrent.futures.ThreadPoolExecutor(
            options.parallel) as pool:
        Scenario(engine).run()  # loads the scripts
        proxy = Scenario(engine).run().proxy
        count, marks = proxy.count, proxy.marks
        print(f"{count[UP]} bytes up in {len(marks[UP])} commands, "
              f"{count[DOWN]} down in {len(marks[DOWN])} replies", flush=True)
        chosen = places(options, count, marks)
        if options.at:
            chosen = [(options.at[0], int(options.at[1]), options.at[2])]
        for done in concurrent.futures.as_completed(
                pool.submit(Scenario(engine, *each).run) for each in chosen):
            error = done.exception()
            passed += error is None
            failed += error is not None
            reached += error is None and done.result().broke
            if error is not None and failed <= 10:
                traceback.print_exception(error)
    # The last bytes of one run may not be those of another.
    print(f"broken off {reached} times in {passed} runs that passed")
    failed += reached < passed // 2
    print("tally", passed, failed, 0)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
