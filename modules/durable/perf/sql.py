# SPDX-License-Identifier: Apache-2.0
"""What main.py compares that stands on PostgreSQL."""

import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time

from servers import (
    BUILD, LIMIT, Node, Server, die_with_parent, first_line, free_port)


class Postgresql(Server):
    """It does not run as root. One cluster serves all phases, with a table for
    each."""

    name = title = "PostgreSQL"
    client = "client-postgresql"
    folders = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
    cluster = None
    tables = 0
    drop = "DROP TABLE IF EXISTS {}"

    def __init__(self, memory=False):
        self.memory = memory
        self.user = pwd.getpwnam("postgres") if os.getuid() == 0 else None
        cls = Postgresql
        if cls.cluster is None:
            cls.cluster = tempfile.mkdtemp(prefix="hwt-postgresql-")
            if self.user:
                os.chown(cls.cluster, self.user.pw_uid, self.user.pw_gid)
            subprocess.run(
                self.command("initdb", "-U", "perf", "-A", "trust",
                             "--no-sync"),
                cwd="/", preexec_fn=self.become, check=True, timeout=LIMIT,
                stdout=subprocess.DEVNULL)
        self.port = free_port()
        self.table = "none"

    @classmethod
    def version(cls):
        client = os.path.join(BUILD, cls.client)
        if not cls.folders or not os.path.exists(client):
            return None
        return " ".join(first_line(
            os.path.join(cls.folders[-1], "postgres"), "-V").split()[1:3])

    def command(self, name, *words):
        return [os.path.join(self.folders[-1], name), "-D", self.cluster,
                *words]

    def become(self):
        if self.user:
            os.setgroups([])
            os.setgid(self.user.pw_gid)
            os.setuid(self.user.pw_uid)
        die_with_parent()

    def start(self):
        self.process = subprocess.Popen(
            self.command("postgres", "-p", str(self.port), "-h", "127.0.0.1",
                         "-k", self.cluster, "-c", "synchronous_commit="
                         + ("off" if self.memory else "on")),
            cwd="/", preexec_fn=self.become, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.wait(lambda: self.ask("SELECT 1") == "1")

    def ask(self, text):
        return subprocess.run(
            [os.path.join(self.folders[-1], "psql"), "-h", "127.0.0.1", "-p",
             str(self.port), "-U", "perf", "-d", "postgres", "-Atc", text],
            capture_output=True, text=True, check=False,
            timeout=LIMIT).stdout.strip()

    def close(self):
        if self.process is not None:
            self.ask(self.drop.format(self.table))
            self.process.send_signal(signal.SIGINT)
            self.process.wait(LIMIT)
            self.process = None

    @classmethod
    def clean(cls):
        if cls.cluster is not None:
            shutil.rmtree(cls.cluster, ignore_errors=True)

    def kill(self):
        """The server is the leader and its children: kill -9 of all."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children",
                  encoding="ascii") as file:
            children = file.read().split()
        super().kill()
        for child in map(int, children):
            try:
                os.kill(child, signal.SIGKILL)
                self.wait_gone(child)
            except OSError:
                pass

    @staticmethod
    def wait_gone(pid):
        """Ends with an OSError, or with a process that is no more than its
        exit status."""
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return
            time.sleep(0.005)

    def address(self):
        """With a new table."""
        Postgresql.tables += 1
        self.table = f"task{self.tables}"
        return (f"host=127.0.0.1 port={self.port} user=perf dbname=postgres,"
                f"{self.table}{',UNLOGGED' if self.memory else ''}")

    def size(self):
        found = self.ask(f"SELECT pg_total_relation_size('{self.table}')")
        return int(found or 0)


class Graphile(Node, Postgresql):
    """In a schema of its own for each phase."""

    name = title = "Graphile"
    script = "graphile.js"
    drop = "DROP SCHEMA IF EXISTS {} CASCADE"

    @classmethod
    def version(cls):
        return cls.version_of("graphile-worker", "pg") if cls.folders else None

    def address(self):
        Postgresql.tables += 1
        self.table = f"schema{Postgresql.tables}"
        return (f"postgres://perf@127.0.0.1:{self.port}/postgres,{self.table}"
                f"{',UNLOGGED' if self.memory else ''}")

    def size(self):
        found = self.ask("SELECT pg_total_relation_size"
                         f"('{self.table}._private_jobs')")
        return int(found or 0)

    def held(self):
        return set(self.ask(
            f"SELECT substr(key, 2) FROM {self.table}._private_jobs "
            "WHERE locked_by IS NOT NULL").split())
