# SPDX-License-Identifier: Apache-2.0
"""What main.py compares: for each a server of its own in a scratch folder, and
the command of its client. sql.py has those with PostgreSQL."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))
sys.path.insert(0, os.path.join(ROOT, "modules/durable/test"))
sys.dont_write_bytecode = True
from engine import (  # noqa: E402 pylint: disable=C0413
    Engine, Space, die_with_parent, free_port)

PERF = os.path.join(ROOT, "modules/durable/perf")
BUILD = os.path.join(ROOT, "build/plain/modules/durable/perf")
PYTHON = "/usr/bin/python3"  # has Debian's modules
LIMIT = 120
TICK = os.sysconf("SC_CLK_TCK")
MEMORY, FSYNCED = 1, 2  # HWT_DURABLE_*


def cpu_of(pid):
    """Seconds of a process, of its children, and of those that have ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            words = file.read().rsplit(")", 1)[1].split()
        with open(f"/proc/{pid}/task/{pid}/children",
                  encoding="ascii") as file:
            children = file.read().split()
    except OSError:
        return 0
    return sum(map(int, words[11:15])) / TICK + sum(map(cpu_of, children))


def first_line(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True,
                          timeout=LIMIT).stdout.splitlines()[0]


class Server:
    """Started in a with, ended and removed after it."""

    process = None
    batches = True  # whether an add can have more than one task
    warms = False  # whether its client says when it begins: peer/phases.js
    leases = False  # whether make(lease=SECONDS) says when that is
    brief = False  # whether phases.BRIEF alone are measured
    patience = 3  # seconds until others have what a killed worker held

    def client_command(self):
        return [os.path.join(BUILD, self.client)]

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def cpu(self):
        time.sleep(0.1)  # until children that end have ended
        return cpu_of(self.process.pid)

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait(LIMIT)
            self.process = None

    def held(self):
        """The numbers of tasks that a killed worker holds still."""
        return set()

    def wait(self, answers):
        end = time.monotonic() + LIMIT
        while not answers():
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{self.name} does not start")
            time.sleep(0.01)


class Redis(Server):
    """hwt_durable."""

    name, title = "hwt", "durable"
    client = "client-hwt"
    fsync = "always"
    leases = True
    workers = 0  # 0: one, of all threads
    shards = slots = 0  # 0: the default
    more = {}  # configuration

    def __init__(self, memory=False, tick=0, lease=30):
        self.tick, self.lease, self.patience = tick, lease, lease + 3
        self.level = FSYNCED if self.fsync == "always" and not memory \
            else MEMORY
        config = {} if memory else \
            {"appendonly": "yes", "appendfsync": self.fsync}
        self.engine = Engine(start=False, **config, **self.more)

    @classmethod
    def version(cls):
        return "Redis " + first_line("redis-server", "-v").split()[2][2:]

    def start(self):
        self.engine.start()
        self.process = self.engine.process

    def close(self):
        self.engine.close()

    def kill(self):
        self.engine.kill()

    def address(self):
        return f"127.0.0.1:{self.engine.port},{self.shards},{self.slots},"\
            f"{self.level},{self.tick},{self.lease},{self.workers}"

    def size(self):
        with self.engine.client() as client:
            text = client("INFO", "memory").decode()
        return int(text.split("used_memory:")[1].split()[0])


class RedisEachSecond(Redis):
    """At the level memory."""

    name, title = "hwt-1s", "durable 1s"
    fsync = "everysec"
    brief = True


class Zset(Redis):
    """Of one's own."""

    name = title = "ZSET"
    client = "client-zset"

    def address(self):
        return f"{self.engine.port},{self.lease * 1000}"


class Expiry(Redis):
    """The naive way."""

    name, title = "expiry", "key expiry"
    client = "client-expiry"
    more = {"notify-keyspace-events": "Ex"}

    def address(self):
        return str(self.engine.port)


class Celery(Redis):
    """What was held longer than the visibility is looked for every 100 s."""

    name = title = "Celery"
    batches = leases = False

    def __init__(self, memory=False):
        super().__init__(memory=memory)
        self.patience = 120

    @classmethod
    def version(cls):
        found = subprocess.run(
            [PYTHON, "-c", "import celery, kombu, redis\n"
             "from redis.connection import HIREDIS_AVAILABLE as fast\n"
             "print(celery.__version__, 'of kombu', kombu.__version__,"
             "'and redis-py', redis.__version__,"
             "'with hiredis' if fast else 'without hiredis')"],
            capture_output=True, text=True, check=False, timeout=LIMIT)
        return f"Celery {found.stdout.strip()}" \
            if found.returncode == 0 else None

    def client_command(self):
        return [PYTHON, "-B", os.path.join(PERF, "celery_client.py")]

    def address(self):
        return str(self.engine.port)


class Node:
    """A client in peer/, with packages of npm, which are installed once, below
    build, as peer/package-lock.json has them."""

    warms = True
    node, npm = shutil.which("node"), shutil.which("npm")
    peer = os.path.join(PERF, "peer")
    folder = os.path.join(ROOT, "build/npm")
    modules = os.path.join(folder, "node_modules")
    wrong = None  # why they are not there, once it has been tried

    def client_command(self):
        return ["env", f"NODE_PATH={self.modules}", self.node,
                os.path.join(self.peer, self.script)]

    @classmethod
    def version_of(cls, *names):
        """None: it is not there, and standard output says why."""
        if Node.wrong is None:
            Node.wrong = cls.install()
        if Node.wrong:
            print(f"{cls.name}: {Node.wrong}")
            return None

        def version(name):
            path = os.path.join(cls.modules, name, "package.json")
            with open(path, encoding="utf-8") as file:
                return f"{name} {json.load(file)['version']}"
        return ", ".join([*map(version, names),
                          "Node " + first_line(cls.node, "-v")[1:]])

    @classmethod
    def install(cls):
        """Returns what is wrong, or an empty string."""
        if not cls.node or not cls.npm:
            return "there is no node or no npm here"
        given = [os.path.join(cls.peer, name)
                 for name in ("package.json", "package-lock.json")]
        done = os.path.join(cls.folder, "installed")  # a copy of the latter
        with open(given[1], "rb") as file:
            wanted = file.read()
        if os.path.exists(done):
            with open(done, "rb") as file:
                if file.read() == wanted:
                    return ""
        with open(given[0], encoding="utf-8") as file:
            packages = json.load(file)["dependencies"]
        print("npm installs, with what they need, below build/npm:",
              ", ".join(f"{name} {version}"
                        for name, version in packages.items()), flush=True)
        os.makedirs(cls.folder, exist_ok=True)
        for path in given:
            shutil.copy(path, cls.folder)
        try:
            found = subprocess.run(
                [cls.npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund",
                 "--fetch-retries=1", "--fetch-timeout=20000"],
                cwd=cls.folder, capture_output=True, text=True, check=False,
                timeout=LIMIT)
        except subprocess.TimeoutExpired:
            return f"npm ci has not ended after {LIMIT} s"
        if found.returncode != 0:
            errors = found.stderr.strip().splitlines() or ["no message"]
            return f"npm ci failed: {errors[0]}"
        with open(done, "wb") as file:
            file.write(wanted)
        return ""


class Bullmq(Node, Redis):
    name = title = "BullMQ"
    script = "bullmq.js"

    @classmethod
    def version(cls):
        return cls.version_of("bullmq", "ioredis")

    def address(self):
        return f"{self.engine.port},{self.lease * 1000}"


class BullmqEachSecond(Bullmq):
    """As its manual advises."""

    name, title = "BullMQ-1s", "BullMQ 1s"
    fsync = "everysec"
    brief = True


class Beanstalkd(Server):
    name = title = "beanstalkd"
    client = "client-beanstalkd"
    program = shutil.which("beanstalkd")

    def __init__(self, memory=False):
        self.memory = memory
        self.folder = tempfile.mkdtemp(prefix="hwt-beanstalkd-")
        self.port = free_port()

    @classmethod
    def version(cls):
        return first_line(cls.program, "-v") if cls.program else None

    def start(self):
        self.process = subprocess.Popen(
            [self.program, "-l", "127.0.0.1", "-p", str(self.port),
             *([] if self.memory else ["-b", self.folder, "-f", "0"])],
            preexec_fn=die_with_parent)
        self.wait(lambda: subprocess.run(
            ["bash", "-c", f": </dev/tcp/127.0.0.1/{self.port}"],
            stderr=subprocess.DEVNULL, check=False).returncode == 0)

    def close(self):
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def address(self):
        return str(self.port)

    def size(self):
        with open(f"/proc/{self.process.pid}/statm",
                  encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
