#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What man hwt-durable-operation (8) and the units for systemd say, done with
real engines: a disk that is full, a backup, a restore, a move.

    operation.py [-v] [CLASS[.test]...]

HWT_BUILD is the folder of the programs; build/plain without it."""

import contextlib
import errno
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time

from actor import Actor, Actors
from engine import BUILD, LIMIT, Engine, free_port, listens, repaired
from programs import DURABLE, NO, ROOT, Programs, main, wait_until

SUCCEEDED = 4
UNITS = os.path.join(ROOT, "modules/durable/systemd")
PAGE = os.path.join(ROOT, "modules/durable/man/hwt-durable-operation.8")
REDIS_UNIT = "/lib/systemd/system/redis-server.service"


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def unit(name):
    return read(os.path.join(UNITS, name))


def setting(text, name):
    return re.search(f"^{name}=(.*)$", text, re.M)[1]


class Operation(Actors, Programs):
    """Each test has an engine, and actors."""

    @classmethod
    def setUpClass(cls):
        pass

    def setUp(self):
        super().setUp()
        self.data = os.path.join(self.folder, "data")
        os.mkdir(self.data)
        self.engine = self.engine_in(self.data)

    def engine_in(self, folder, **config):
        engine = Engine(folder=folder, start=False, **DURABLE, **config)
        self.addCleanup(engine.close)
        return engine

    def actor(self, engine=None, **options):
        return self.open((engine or self.engine).servers, level=2, **options)

    def no_invariant_is_broken(self, engine):
        with engine.client() as client:
            self.is_whole(client)


class Units(Operation):
    def place(self, **changes):
        """All of them as they are installed, in a folder of their own."""
        folder = os.path.join(self.folder, "units")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(os.path.join(folder, "redis-server.service.d"))
        for name in ("hwtd", "hwt-exec", "hwt-http"):
            text = unit(f"{name}@.service.in").replace("@BINDIR@", BUILD)
            for old, new in changes.items():
                text = text.replace(old, new)
            with open(os.path.join(folder, f"{name}@test.service"), "w",
                      encoding="ascii") as file:
                file.write(text)
        shutil.copy(REDIS_UNIT, folder)
        with open(os.path.join(
                folder, "redis-server.service.d/hwt.conf"), "w",
                encoding="ascii") as file:
            file.write(unit("redis-server.conf").replace(
                "/usr/bin/", BUILD + "/"))
        return [os.path.join(folder, name)
                for name in sorted(os.listdir(folder))
                if name.endswith(".service")]

    def test_systemd_understands_them(self):
        if not shutil.which("systemd-analyze") or \
                not os.path.exists(REDIS_UNIT):
            self.skipTest("without systemd, or Redis' unit")
        for changes, says in (({}, ""), ({"RestartSec": "Restartsec"},
                                         "Unknown key")):
            paths = self.place(**changes)
            self.assertEqual(len(paths), 4)
            done = subprocess.run(
                ["systemd-analyze", "verify", "--man=no", *paths],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                timeout=LIMIT, check=False)
            if says:
                self.assertIn(says, done.stdout)
            else:
                self.assertEqual((done.returncode, done.stdout), (0, ""))

    @staticmethod
    def system_calls(name):
        """What a name in SystemCallFilter stands for."""
        if not name.startswith("@"):
            return {name}
        text = subprocess.run(
            ["systemd-analyze", "syscall-filter", name], check=True,
            stdout=subprocess.PIPE, text=True).stdout
        words = [line.strip() for line in text.splitlines()[1:]]
        return set().union(*(
            Units.system_calls(word) for word in words
            if word and not word.startswith("#")))

    def test_the_repair_may_do_what_it_does_in_the_unit_of_redis(self):
        """A system call that the unit filters out would end it."""
        if not shutil.which("systemd-analyze") or not shutil.which("strace") \
                or not os.path.exists(REDIS_UNIT):
            self.skipTest("without systemd, strace, or Redis' unit")
        allowed = set()
        for line in re.findall("^SystemCallFilter=(.*)$", read(REDIS_UNIT),
                               re.M):
            names = set().union(*map(
                self.system_calls, line.lstrip("~").split()))
            allowed = allowed - names if line.startswith("~") \
                else allowed | names
        self.assertIn("fsync", allowed)
        self.assertNotIn("fchown", allowed)
        self.engine.start()
        with self.engine.client() as client:
            client.pipeline([("MULTI",), ("SET", "a", "1"), ("SET", "b", "2"),
                             ("EXEC",)])
        self.engine.kill()
        path = self.engine.append_only_files()[-1]
        os.truncate(path, os.path.getsize(path) - 3)
        trace = os.path.join(self.folder, "trace")
        done = subprocess.run(
            ["strace", "-o", trace, os.path.join(BUILD, "hwt-aof-repair"),
             os.path.dirname(path)], stderr=subprocess.PIPE, text=True,
            env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}, check=False)
        self.assertIn("what was cut is in", done.stderr)
        made = set(re.findall(r"^([a-z0-9_]+)\(", read(trace), re.M))
        self.assertIn("ftruncate", made)
        self.assertEqual(made - allowed, set())

    def started(self, name, instance, **environment):
        """Runs what a unit starts, as systemd does: %i is the instance, a
        variable is split at spaces."""
        words = []
        for word in setting(unit(name), "ExecStart").split():
            if word.startswith("$"):
                words += environment[word[1:]].split()
            else:
                words.append(word.replace("%i", instance)
                             .replace("@BINDIR@", BUILD))
        process = subprocess.Popen(
            words, env={}, cwd="/", stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_they_start_the_programs(self):
        self.engine.start()
        where = f"--redis {self.engine.servers}"
        self.ctl("init")
        out = os.path.join(self.folder, "out")
        programs = [
            self.started("hwtd@.service.in", self.space, HWT_OPTIONS=where),
            self.started("hwt-exec@.service.in", "mail",
                         HWT_OPTIONS=f"{where} --space {self.space}",
                         HWT_COMMAND=f"tee -a {out}")]
        programs.append(self.started(
            "hwt-http@.service.in", "hooks",
            HWT_OPTIONS=f"{where} --space {self.space}"))
        self.add("--queue=mail", "--in=0", "--id=a", "--payload=text")
        self.add("--queue=hooks", "--in=0", "--id=b",
                 '--payload={"url": "http://127.0.0.1/"}')
        self.ends("a")
        self.ends("b", state="failed")
        self.assertIn("not allowed", str(self.show("b")))
        self.assertEqual(read(out), "text")
        for program in programs:
            program.terminate()
            self.assertEqual(program.wait(LIMIT), 0)


class Health(Operation):
    def test_an_engine_that_is_set_to_keep_less(self):
        """It is told, by the log too, and all goes on when it is set back."""
        self.engine.start()
        self.ctl("init")
        hwtd = self.start("hwtd", "--metrics=0")
        worker = self.start("hwt-exec", "--queue=q", "--", "true")

        def health():
            return hwtd.page("health")

        def executes():
            self.ends(self.add("--queue=q", "--in=0"))
        wait_until(lambda: health() == (200, "ok\n"))
        # A worker that starts with such an engine ends.
        executes()
        with self.engine.client() as client:
            client("CONFIG", "SET", "appendonly", "no")
            wait_until(lambda: health()[0] == 503)
            self.assertIn("persistence is below the level", health()[1])
            wait_until(lambda: "appendonly yes, appendfsync" in hwtd.err)
            self.ctl("add", "--queue=q", "--in=0", status=NO)
            client("CONFIG", "SET", "appendonly", "yes")
        wait_until(lambda: health() == (200, "ok\n"))
        executes()
        self.assertEqual((hwtd.end(), worker.end()), (0, 0))


class Disk(Operation):
    def unit_starts_it(self):
        """What the unit does, with the lines that are added to it. False: a
        command before it has failed, so it is not started."""
        lines = unit("redis-server.conf")
        self.assertEqual(setting(lines, "Restart"), "always")
        self.assertEqual(setting(lines, "StartLimitIntervalSec"), "0")
        before = setting(lines, "ExecStartPre").replace(
            "/usr/bin", BUILD).replace("/var/lib/redis", self.data)
        if subprocess.run(shlex.split(before), env={}, check=False,
                          stderr=subprocess.DEVNULL).returncode != 0:
            return False
        self.engine.kill()
        self.engine.start(wait=False, repair=False)
        return True

    @contextlib.contextmanager
    def small_disk(self, path, size):
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path],
            stderr=subprocess.DEVNULL, check=False)
        if mounted.returncode != 0:
            self.skipTest("must be root to mount")
        try:
            yield
        finally:
            self.engine.kill()
            subprocess.run(["umount", path], check=True)

    def test_a_full_disk_loses_nothing_and_it_comes_back(self):
        """Nobody does anything but make room."""
        log = os.path.join(self.folder, "log")
        with self.small_disk(self.data, 1 << 20):
            self.engine.start(logfile=log)
            worker = self.actor(schedules=True, works=(2, 30000, 0))
            producer = self.actor(timeout=1000)
            filler = os.path.join(self.data, "filler")
            with open(filler, "wb") as file:
                file.write(b"\0" * (768 << 10))
            acked = []

            def add(name):
                """Until it cannot. What the answer was."""
                said = producer("add", "q", 3000, 5, "done", name)[0]
                if said == 0:
                    acked.append(name)
                return said
            number = 0
            while add(f"t{number}") == 0:
                number += 1
                self.assertLess(number, 5000)
            self.assertGreater(number, 20)
            self.engine.process.wait(LIMIT)
            self.assertIn("Can't recover from AOF write error", read(log))
            # As long as it is full it is started, and ends.
            for _ in range(3):
                if self.unit_starts_it():
                    end = time.monotonic() + LIMIT
                    while self.engine.process.poll() is None:
                        number += 1
                        add(f"t{number}")
                        self.assertLess(time.monotonic(), end)
            os.unlink(filler)
            self.assertTrue(self.unit_starts_it())
            self.engine.wait()
            wait_until(lambda: add("last") == 0)
            for name in acked:
                wait_until(lambda: worker("get", name)[:2] == [0, SUCCEEDED])
                self.assertEqual(len(worker.begins(name)), 1, name)
            self.no_invariant_is_broken(self.engine)
            self.stop_all(worker)


class Pages(Operation):
    def script(self, section):
        """The first example of a section of the page."""
        text = read(PAGE)
        text = text[text.index(f".Ss {section}\n"):]
        return re.search(r"^\.Bd -literal\n(.*?)^\.Ed$", text,
                         re.S | re.M)[1]

    def test_the_settings_of_the_page_are_enough(self):
        self.engine.kill()
        lines = self.script("Redis").splitlines()
        engine = Engine(**dict(line.split(" ", 1) for line in lines))
        self.addCleanup(engine.close)
        self.actor(engine)

    def certificates(self, *names):
        """name.key and name.pem, which sign themselves, for localhost."""
        for name in names:
            path = os.path.join(self.folder, name)
            subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes",
                 "-subj", "/CN=localhost", "-addext",
                 "subjectAltName=DNS:localhost", "-keyout", path + ".key",
                 "-out", path + ".pem"], check=True,
                stderr=subprocess.DEVNULL)

    def tunnel(self, tls_port, authority, host="localhost"):
        """A stunnel of the page's settings; its port."""
        port = free_port()
        text = self.script("TLS")
        for old, new in (
                ("127.0.0.1:6379", f"127.0.0.1:{port}"),
                ("connect = redis.example.com:6380",
                 f"connect = 127.0.0.1:{tls_port}"),
                ("/etc/hwt/redis-ca.pem",
                 os.path.join(self.folder, authority + ".pem")),
                ("redis.example.com", host)):
            self.assertIn(old, text)
            text = text.replace(old, new)
        path = os.path.join(self.folder, "stunnel.conf")
        with open(path, "w", encoding="ascii") as file:
            file.write("foreground = yes\npid =\n" + text)
        process = subprocess.Popen(
            ["stunnel", path], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        wait_until(lambda: listens(port))
        return port, process

    def test_a_tunnel_encrypts_and_knows_the_engine(self):
        if not shutil.which("stunnel") or not shutil.which("openssl"):
            self.skipTest("without stunnel, or openssl")
        self.certificates("redis", "another")
        path = os.path.join(self.folder, "redis")
        tls_port = free_port()
        self.engine.start(
            tls_port=tls_port, tls_cert_file=path + ".pem",
            tls_key_file=path + ".key", tls_auth_clients="no")
        for refused in (("another",), ("redis", "redis.example.com")):
            port, _ = self.tunnel(tls_port, *refused)
            actor = Actor(self.space, f"127.0.0.1:{port}")
            self.addCleanup(actor.kill)
            self.assertIn(actor.open(level=2, timeout=500),
                          (-errno.ECONNREFUSED, -errno.ETIMEDOUT))
        port, process = self.tunnel(tls_port, "redis")
        actor = self.open(f"127.0.0.1:{port}", level=2, schedules=True,
                          works=(2, 30000, 0))
        self.assertEqual(actor("add", "q", 0, 5, "done", "a")[0], 0)
        wait_until(lambda: actor("get", "a")[1:2] == [SUCCEEDED])
        process.kill()
        self.assertIn(actor("add", "q", 0, 5, "done", "b")[0],
                      (-errno.ECONNREFUSED, -errno.ETIMEDOUT))

    def test_a_backup_while_all_goes_on_and_its_restore(self):
        self.engine.start(auto_aof_rewrite_percentage=100)
        producer = self.actor()
        acked, stop = [], threading.Event()

        def produce():
            while not stop.is_set():
                names = [f"t{len(acked)}-{i}" for i in range(4)]
                if producer("add", "q", 600000, 5, "done", *names)[0] == 0:
                    acked.extend(names)
        thread = threading.Thread(target=produce)
        thread.start()
        backup = os.path.join(self.folder, "backup")
        try:
            wait_until(lambda: len(acked) > 200)
            with self.engine.client() as client:
                client("BGREWRITEAOF")
                before = list(acked)
                done = subprocess.run(
                    ["sh", "-e", "-c", self.script("Backup")], check=False,
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                    timeout=LIMIT, env={
                        **os.environ, "PORT": str(self.engine.port),
                        "DATA": self.data, "BACKUP": backup})
                self.assertEqual(done.returncode, 0, done.stdout)
                self.assertEqual(client(
                    "CONFIG", "GET", "auto-aof-rewrite-percentage")[1],
                    b"100")
            time.sleep(0.2)
        finally:
            stop.set()
            thread.join()
        self.assertGreater(len(acked), len(before))
        self.engine.kill()
        restored = os.path.join(self.folder, "restored")
        os.mkdir(restored)
        shutil.copytree(backup, os.path.join(restored, "appendonlydir"))
        repaired(restored)
        engine = self.engine_in(restored).start()
        actor = self.actor(engine)
        for name in before:
            self.assertEqual(actor("get", name)[0], 0, name)
        self.no_invariant_is_broken(engine)
        # The old one has all, as before.
        self.engine.start()
        actor = self.actor()
        for name in acked:
            self.assertEqual(actor("get", name)[0], 0, name)

    def test_a_move_to_another_engine(self):
        """As the page counts: what is acknowledged before, meanwhile and after
        is executed once."""
        self.engine.start()
        old = self.engine
        producer = self.actor(timeout=60000)
        names = [f"a{i}" for i in range(100)]
        self.assertEqual(producer("add", "q", 2000, 5, "done", *names)[0], 0)
        folder = os.path.join(self.folder, "new")
        os.mkdir(folder)
        new = self.engine_in(
            folder, replicaof=f"127.0.0.1 {old.port}",
            repl_diskless_sync_delay=0).start()

        def offset(engine, name):
            with engine.client() as client:
                found = re.search(name + rb":(\w+)",
                                  client("INFO", "replication"))
            return found and found[1]
        wait_until(lambda: offset(new, b"master_link_status") == b"up")
        for shard in (0, 1):
            self.ctl("pause", str(shard))
        wait_until(lambda: offset(new, b"slave_repl_offset") ==
                   offset(old, b"master_repl_offset"))
        with new.client() as client:
            client("REPLICAOF", "NO", "ONE")
        with old.client() as client:
            client("REPLICAOF", "127.0.0.1", new.port)
        self.engine = new
        for shard in (0, 1):
            self.ctl("resume", str(shard))
        worker = self.actor(new, schedules=True, works=(2, 30000, 0))
        self.assertEqual(worker("add", "q", 0, 5, "done", "b")[0], 0)
        for name in [*names, "b"]:
            wait_until(lambda: worker("get", name)[:2] == [0, SUCCEEDED])
            self.assertEqual(len(worker.begins(name)), 1)
        self.stop_all(worker)
        self.check()
        # Nobody goes on with the old one.
        self.engine = old
        self.ctl("stat", status=NO)


if __name__ == "__main__":
    sys.exit(main())
