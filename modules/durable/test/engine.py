# SPDX-License-Identifier: Apache-2.0
"""Real engines for tests: starts redis-server on a free port of the loopback
in a scratch folder, kills and restarts it, speaks its protocol, calls the
scripts by name. checker.py checks what a space keeps.

    with Engine(appendonly="yes", appendfsync="always") as engine:
        space = Space(engine.client(), "test", shards=2)
        space("add", 0, "id", "queue", "in", 5, 1, "payload", "")
        engine.restart(signal.SIGKILL)
        assert Checker(engine.client(), "test")() == []

Whatever happens, the server is ended and its folder removed at the end of the
with; if this process dies, the kernel ends the server.
"""

import contextlib
import ctypes
import hashlib
import multiprocessing
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = os.path.join(os.path.dirname(HERE), "scripts")
SERVER = os.environ.get("REDIS_SERVER") or shutil.which(
    "redis-server", path="/usr/bin:/usr/local/bin:" + os.environ["PATH"])
CHECK_AOF = os.path.join(os.path.dirname(SERVER or ""), "redis-check-aof")
BUILD = os.path.abspath(os.environ.get(
    "HWT_BUILD", os.path.join(HERE, "../../../build/plain")))
LIMIT = 60  # seconds that anything may take
CLOCK = os.path.join(HERE, "../../../build/durable/clock.so")


scratch, servers = {}, {}  # folders and processes: who has made them


def scratch_folder(prefix):
    folder = tempfile.mkdtemp(prefix=prefix)
    scratch[folder] = os.getpid()
    return folder


def clean_up_and_die(number, _):
    """Not by SystemExit: unittest would take it for the failure of a test, and
    go on with the next one."""
    for child in multiprocessing.active_children():
        child.terminate()
    for server, owner in servers.items():
        if owner == os.getpid():
            server.kill()
    for folder, owner in scratch.items():
        if owner == os.getpid():
            shutil.rmtree(folder, ignore_errors=True)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


signal.signal(signal.SIGTERM, clean_up_and_die)


def wait_until(what, limit=LIMIT):
    """Calls what until its answer is true, and returns that."""
    end = time.monotonic() + limit
    while True:
        answer = what()
        if answer:
            return answer
        if time.monotonic() > end:
            raise AssertionError(f"not within {limit} s: {what}")
        time.sleep(0.02)


class Error(Exception):
    """An error reply; code is its first word."""

    def __init__(self, text):
        super().__init__(text)
        self.text = text
        self.code = text.split(" ", 1)[0]


class Client:
    """A connection. Replies are int, bytes, None, list or, in lists and
    pipelines, Error; an error to a single call is raised."""

    def __init__(self, address, timeout=LIMIT):
        if isinstance(address, str):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(timeout)
            self.socket.connect(address)
        else:
            self.socket = socket.create_connection(address, timeout)
            self.socket.setsockopt(
                socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb", 1 << 16)

    def send(self, *words):
        self.socket.sendall(self.encode(words))

    @staticmethod
    def encode(words):
        parts = [b"*%d\r\n" % len(words)]
        for word in words:
            if isinstance(word, str):
                word = word.encode()
            elif not isinstance(word, bytes):
                word = str(word).encode()
            parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
        return b"".join(parts)

    def read(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the engine has closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest
        if kind == b"-":
            return Error(rest.decode(errors="replace"))
        if kind == b":":
            return int(rest)
        length = int(rest)
        if length < 0:
            return None
        if kind == b"$":
            data = self.file.read(length + 2)
            if len(data) != length + 2:
                raise ConnectionError("the engine has gone")
            return data[:-2]
        return [self.read() for _ in range(length)]

    def __call__(self, *words):
        self.send(*words)
        reply = self.read()
        if isinstance(reply, Error):
            raise reply
        return reply

    def pipeline(self, commands):
        self.socket.sendall(b"".join(self.encode(c) for c in commands))
        return [self.read() for _ in commands]

    def close(self):
        self.file.close()
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Clock:
    """The real-time clock of an engine that clock.so is preloaded into: off by
    some milliseconds, or standing still at a time until it is moved."""

    def __init__(self, path):
        if not os.path.exists(CLOCK):
            raise RuntimeError("first: make build/durable/clock.so")
        self.path = path
        self.write(0, 0)

    def write(self, mode, ms):
        self.mode, self.ms = mode, ms
        with open(self.path, "r+b" if os.path.exists(self.path) else "wb",
                  buffering=0) as file:
            os.pwrite(file.fileno(), struct.pack("<q", round(ms * 1000)), 8)
            os.pwrite(file.fileno(), struct.pack("<q", mode), 0)

    def set_off(self, ms):
        self.write(0, ms)

    def stop_at(self, ms):
        self.write(1, ms)

    def move(self, ms):
        self.write(self.mode, self.ms + ms)


def free_port(below=55000):
    """The bus of a cluster's node has this plus 10,000."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        if port < below:
            return port


def listens(port):
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    return False


def repaired(folder):
    """Cuts what is not whole from the end of the append-only file. The engine
    itself, with aof-load-truncated yes, cuts within a transaction and not
    before it: the next start after that executes the half."""
    files = os.path.join(folder, "appendonlydir")
    if os.path.exists(files):
        subprocess.run([os.path.join(BUILD, "hwt-aof-repair"), files],
                       stderr=subprocess.DEVNULL, check=True, timeout=LIMIT)


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Engine:
    """A redis-server. Keywords are its configuration, with _ for -; a list
    gives a directive more than once. clock: its clock is the engine's own,
    engine.clock (test/clock.c)."""

    def __init__(self, folder=None, port=None, start=True, clock=False,
                 **config):
        self.own_folder = folder is None
        self.folder = folder or scratch_folder("hwt-durable-")
        self.port = port or free_port()
        self.socket_path = os.path.join(self.folder, "socket")
        self.config = {"appendonly": "no", "save": '""',
                       "aof-load-truncated": "no",
                       **{name.replace("_", "-"): value
                          for name, value in config.items()}}
        self.clock = Clock(os.path.join(self.folder, "clock")) \
            if clock else None
        self.process = None
        if start:
            try:
                self.start()
            except BaseException:
                self.close()
                raise

    @property
    def address(self):
        return ("127.0.0.1", self.port)

    @property
    def servers(self):
        """As the library and --redis have it."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self):
        return self.process.pid

    def write_config(self):
        lines = [
            "bind 127.0.0.1", f"port {self.port}", f"dir {self.folder}",
            f"unixsocket {self.socket_path}", "daemonize no",
            "logfile log", "enable-debug-command local",
            "auto-aof-rewrite-percentage 0",
        ]
        for name, values in self.config.items():
            if not isinstance(values, (list, tuple)):
                values = [values]
            for value in values:
                lines.append(f"{name} {value}")
        path = os.path.join(self.folder, "redis.conf")
        with open(path, "w", encoding="ascii") as file:
            file.write("\n".join(lines) + "\n")
        return path

    def start(self, wait=True, repair=True, **config):
        """Starts it, on what the folder has. wait: until it answers."""
        assert self.process is None
        self.config.update({name.replace("_", "-"): value
                            for name, value in config.items()})
        if repair:
            repaired(self.folder)
        environment = dict(os.environ)
        if self.clock:
            environment["LD_PRELOAD"] = CLOCK
            environment["HWT_CLOCK_FILE"] = self.clock.path
        self.process = subprocess.Popen(
            [SERVER, self.write_config()], env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, preexec_fn=die_with_parent)
        servers[self.process] = os.getpid()
        if wait:
            self.wait()
        return self

    def wait(self):
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise RuntimeError("redis-server: " + self.log()[-2000:])
            try:
                with self.client() as client:
                    client("PING")
                return
            except (OSError, Error):
                time.sleep(0.005)
        raise RuntimeError("redis-server does not answer")

    def log(self):
        try:
            with open(os.path.join(self.folder, "log"),
                      encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            return ""

    def client(self, timeout=LIMIT):
        return Client(self.address, timeout)

    def kill(self, which=signal.SIGKILL):
        """Sends a signal and waits for the end."""
        process, self.process = self.process, None
        if process is not None:
            servers.pop(process, None)
            process.send_signal(which)
            if which == signal.SIGTERM:
                process.send_signal(signal.SIGCONT)
            try:
                process.wait(LIMIT)
            finally:
                process.kill()
                process.wait()

    def send_signal(self, which):
        self.process.send_signal(which)

    def restart(self, which=signal.SIGKILL, **config):
        self.kill(which)
        return self.start(**config)

    def append_only_files(self):
        folder = os.path.join(self.folder, "appendonlydir")
        return sorted((os.path.join(folder, name)
                       for name in os.listdir(folder)
                       if name.endswith(".incr.aof")),
                      key=lambda path: int(path.split(".")[-3]))

    def close(self):
        try:
            self.kill()
        finally:
            if self.own_folder:
                shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def is_joined(client, nodes):
    """A node of a cluster of so many has heard of all of them, and of all
    slots."""
    said = client("CLUSTER", "INFO")
    return b"cluster_state:ok" in said and \
        b"cluster_slots_ok:16384" in said and \
        b"cluster_known_nodes:%d\r" % nodes in said


def join(engines):
    """Makes a cluster of them, with as many slots in each; their clients."""
    clients = [engine.client() for engine in engines]
    for i, client in enumerate(clients):
        client("CLUSTER", "ADDSLOTSRANGE", i * 16384 // len(clients),
               (i + 1) * 16384 // len(clients) - 1)
        client("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        if i > 0:
            client("CLUSTER", "MEET", *engines[0].address)
    wait_until(lambda: all(is_joined(client, len(clients))
                           for client in clients))
    return clients


def start_sentinel(folder, master, quorum, *settings):
    """A Sentinel, which calls the master "first": its port and its process."""
    port = free_port()
    path = os.path.join(folder, "sentinel.conf")
    with open(path, "w", encoding="ascii") as file:
        print(f"port {port}", "bind 127.0.0.1", f"dir {folder}",
              "logfile sentinel.log",
              f"sentinel monitor first 127.0.0.1 {master.port} {quorum}",
              *settings, sep="\n", file=file)
    return port, subprocess.Popen(
        [SERVER, path, "--sentinel"], stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, preexec_fn=die_with_parent)


def script_names():
    return sorted(name[:-4] for name in os.listdir(SCRIPTS)
                  if name.endswith(".lua") and name != "common.lua")


def read_script_file(name):
    with open(os.path.join(SCRIPTS, name + ".lua"),
              encoding="ascii") as file:
        return file.read()


def commands_of_scripts():
    """Those that they call."""
    return {command for name in [*script_names(), "common"]
            for command in re.findall(
                r'\b(?:call|try|sure|size)\("([A-Z]+)"',
                read_script_file(name))}


def read_library(name, change=lambda name, text: text):
    """The text for the engine: see ../embed."""
    text = f"#!lua name={name}\n" + change(
        "common", read_script_file("common"))
    for script in script_names():
        first, rest = change(script, read_script_file(script)).split("\n", 1)
        flags = first.partition(" flags=")[2]
        flags = f'"{flags}"' if flags else ""
        text += f'register("{name}_{script}", {{{flags}}}, function()\n' \
            f"{rest}end)\n"
    return text


def library_name(change=lambda name, text: text):
    digest = hashlib.sha1(read_library("hwt", change).encode())
    return "hwt_" + digest.hexdigest()[:16]


class Scripts:
    """All scripts, loaded; change(file, text) may alter them first."""

    def __init__(self, client, change=lambda name, text: text):
        self.library = library_name(change)
        self.text = read_library(self.library, change)
        self.names = {name: f"{self.library}_{name}"
                      for name in script_names()}
        self.load(client)

    def load(self, client):
        try:
            client("FUNCTION", "LOAD", self.text)
        except Error as error:
            if "already exists" not in error.text:
                raise

    def command(self, name, key, *arguments, trusted_time=2**53, identity=""):
        """trusted_time: whatever the clock says is believed."""
        return ("FCALL", self.names[name], 1, key, *arguments, trusted_time,
                identity)


class Space:
    """Calls scripts: space("add", shard, ...) with the arguments after the
    clock and the skew, which are not compared unless clock and skew are
    given. shards and the rest: the shape; 0 keeps what is there. What is called
    may be any space of this name, but with identity."""

    def __init__(self, client, name="test", shards=0, slots=0, tick=0,
                 level=0, retention=0, change=lambda name, text: text,
                 scripts=None, init=True):
        self.client = client
        self.name = name
        self.scripts = scripts or Scripts(client, change)
        self.identity = ""
        if init:
            made = self("init", 0, shards, slots, tick, level, retention,
                        random.randrange(1, 1 << 64), "")
            self.shards, self.slots, self.tick = made[:3]
            self.retention = made[4]
            for shard in range(1, self.shards):
                self("init", shard, *made[:5], made[6], "")
            self("init", 0, *made[:5], "", 1)

    def key(self, shard, rest="meta"):
        if isinstance(rest, str):
            rest = rest.encode()
        return b"{%s:%d}:%s" % (self.name.encode(), shard, rest)

    def command(self, script, shard, *arguments, clock="", skew="",
                trusted_time=2**53):
        key = "{%s}:hosts" % self.name if script in ("hosts", "notify") \
            else self.key(shard)
        return self.scripts.command(
            script, key, clock, skew, *arguments, trusted_time=trusted_time,
            identity=self.identity)

    def __call__(self, script, shard, *arguments, **header):
        words = self.command(script, shard, *arguments, **header)
        try:
            return self.client(*words)
        except Error as error:
            if error.text != "ERR Function not found":
                raise
        self.scripts.load(self.client)
        return self.client(*words)

    def meta(self, shard):
        """Its fields, and the sizes of sets."""
        flat = self.client("HGETALL", self.key(shard))
        meta = {flat[i].decode(): int(flat[i + 1])
                for i in range(0, len(flat), 2)
                if flat[i] not in (b"turn", b"schedule")}
        for name, place in (("running", "fly"), ("dead", "dead"),
                            ("quarantined", "bad")):
            meta[name] = self.client("ZCARD", self.key(shard, place))
        return meta

    def member(self, record, name):
        """Of a bucket."""
        return record.queue + struct.pack(">Q", record.due)[1:] + (
            name if isinstance(name, bytes) else name.encode())


def held(task):
    """What finish and extend ask of a task that take has answered: its id and
    the fence."""
    return task[0], task[6]


def shard_of(identity, shards):
    """FNV-1a of 64 bits of the id's bytes, modulo the number of shards."""
    value = 0xcbf29ce484222325
    for byte in identity:
        value = (value ^ byte) * 0x100000001b3 % (1 << 64)
    return value % shards
