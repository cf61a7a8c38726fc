# SPDX-License-Identifier: Apache-2.0
"""How late a server closes idle connections, and what it takes for that.

CONNECTIONS, or half as many as descriptors are allowed, ask once each, spread
over SPREAD seconds, and are then idle; they are to be closed TIMEOUT seconds
after the answer. Late is a close after its time, as a client sees it. CPU time
and wake-ups are those of all threads, of /proc: closing is from the first close
to the last; waiting is WAIT seconds before, in which all are connected, and
nothing happens."""

import os
import pathlib
import resource
import selectors
import socket
import subprocess
import sys
import tempfile
import time

SPREAD = 12
TIMEOUT = 20
WAIT = 5
PATIENCE = 10
CONNECTIONS = 10000


class Server:
    """What a program's script says of it: the request, and how an answer
    begins."""
    request = b""
    answer = b""

    def command(self, folder, port, connections):
        """Writes what the program needs into the folder."""
        raise NotImplementedError


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start(server, folder, connections):
    port = free_port()
    process = subprocess.Popen(server.command(folder, port, connections))
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return process, port
        except OSError:
            time.sleep(0.05)
    process.kill()
    sys.exit(f"measure: {process.args[0]} does not answer")


def used(pid):
    """CPU time in seconds, and voluntary switches."""
    ran, slept = 0, 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        ran += int((task / "schedstat").read_text().split()[0]) / 1e9
        status = (task / "status").read_text()
        slept += int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])
    return ran, slept


class Load:
    """What the clients do, in one loop."""

    def __init__(self, server, process, port, connections):
        self.server = server
        self.pid = process.pid
        self.port = port
        self.connections = connections
        self.selector = selectors.DefaultSelector()
        self.late = []
        self.open = 0
        self.waiting = self.closing = (0, 0)

    def connect(self):
        one = socket.create_connection(("127.0.0.1", self.port))
        one.setblocking(False)
        one.send(self.server.request)
        self.selector.register(one, selectors.EVENT_READ, [None])

    def read(self, key, now):
        try:
            got = key.fileobj.recv(4096)
        except ConnectionError:
            got = b""
        if got:
            if not got.startswith(self.server.answer):
                sys.exit(f"measure: not an answer: {got[:60]}")
            key.data[0] = now
            return
        self.selector.unregister(key.fileobj)
        key.fileobj.close()
        if key.data[0] is None:
            sys.exit("measure: closed without an answer")
        self.late.append(now - key.data[0] - TIMEOUT)

    def turn(self, sleep):
        for key, _ in self.selector.select(sleep):
            self.read(key, time.monotonic())

    def run(self):
        begin = time.monotonic()
        while self.open < self.connections:
            due = (time.monotonic() - begin) / SPREAD * self.connections
            while self.open < min(self.connections, due):
                self.connect()
                self.open += 1
            self.turn(0.002)
        self.turn_until(time.monotonic() + 1.5)
        before = used(self.pid)
        self.turn_until(time.monotonic() + WAIT)
        if self.late:
            sys.exit("measure: the machine is too slow: one is closed while "
                     "all should wait")
        middle = used(self.pid)
        self.turn_until(begin + 2 * SPREAD + TIMEOUT + PATIENCE)
        after = used(self.pid)
        self.waiting = [b - a for a, b in zip(before, middle)]
        self.closing = [b - a for a, b in zip(middle, after)]

    def turn_until(self, end):
        while (len(self.late) < self.connections and
               time.monotonic() < end):
            self.turn(min(0.1, max(0, end - time.monotonic())))


def measure(server, connections):
    with tempfile.TemporaryDirectory() as folder:
        process, port = start(server, pathlib.Path(folder), connections)
        try:
            load = Load(server, process, port, connections)
            load.run()
        finally:
            process.terminate()
            process.wait()
    return load


def report(name, load):
    late = sorted(load.late)
    if len(late) < load.connections:
        print(f"{name}: only {len(late)} of {load.connections} were closed")
    if not late:
        sys.exit(f"measure: {name} closed none")
    if late[0] < -0.05:
        sys.exit(f"measure: {name} closed one {-late[0]:.3f} s early")
    p50, p99 = late[len(late) // 2], late[len(late) * 99 // 100]
    print(f"{name:8}{p50 * 1e3:8.0f}{p99 * 1e3:8.0f}{late[-1] * 1e3:8.0f}"
          f"{load.waiting[0] * 1e3:10.1f}{load.waiting[1]:10}"
          f"{load.closing[0] * 1e3:10.0f}{load.closing[1]:10}")


def main(servers):
    """servers: a Server by the name of its tree."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    connections = min(CONNECTIONS, files // 2)
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * connections, files))
    print(f"{connections} connections, idle for {TIMEOUT} s, "
          f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    print(f"                closed late, ms      waiting {WAIT} s        "
          "closing all")
    print("             p50     p99     max    CPU ms  wake-ups    "
          "CPU ms  wake-ups")
    for name, server in servers.items():
        report(name, measure(server, connections))
