# SPDX-License-Identifier: Apache-2.0
"""The engines that main.py and billion.py measure, each in a scratch folder."""
import contextlib
import glob
import json
import os
import pwd
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '../test'))
import hosts  # noqa: E402

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), '../../..'))
hosts.BUILD = os.path.join(ROOT, 'build/plain')
PERF = os.path.join(hosts.BUILD, 'modules/durable/perf')
MODULES = os.path.join(PERF, 'node_modules')
TICK = os.sysconf('SC_CLK_TCK')
PAGE = os.sysconf('SC_PAGE_SIZE')
LIMIT = 120


def first_line(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True,
                          timeout=LIMIT).stdout.splitlines()[0]


def children_of(pid):
    try:
        with open(f'/proc/{pid}/task/{pid}/children') as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def cpu_of(pid):
    """Seconds of a process, of its children, and of those that have ended."""
    try:
        with open(f'/proc/{pid}/stat') as file:
            words = file.read().rsplit(')', 1)[1].split()
    except OSError:
        return 0
    return (sum(map(int, words[11:15])) / TICK +
            sum(map(cpu_of, children_of(pid))))


class Measured:
    """What a hosts.Host needs to be measured. In a with."""
    fill = 500000  # tasks in the case bytes
    load = 'load-redis'
    cases = None  # all

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def cpu(self):
        return cpu_of(self.process.pid)

    def memory(self):
        with open(f'/proc/{self.process.pid}/statm') as file:
            return int(file.read().split()[1]) * PAGE

    def disk(self):
        return sum(os.path.getsize(os.path.join(folder, name))
                   for folder, _, names in os.walk(self.folder)
                   for name in names)

    def address(self):
        return str(self.port)

    def client(self):
        return [os.path.join(PERF, self.load), self.address()]


class OfNode:
    """An engine that is used from Node."""
    fill = 20000
    cases = 'add1 add16 add512 life16 life256 late1000 late5000 bytes'.split()

    def client(self):
        os.environ['NODE_PATH'] = MODULES
        return ['node', os.path.join(os.path.dirname(__file__), 'load.js'),
                self.name, self.address()]

    @classmethod
    def version(cls):
        with open(os.path.join(MODULES, cls.package, 'package.json')) as file:
            return f'{json.load(file)["version"]}, {super().version()}'


class Hwtd(Measured, hosts.Server):
    name = 'hwtd'

    @classmethod
    def version(cls):
        return first_line(os.path.join(hosts.BUILD, 'hwtd'), '--version')


class Redis(Measured, hosts.Redis):
    name = 'redis'

    @classmethod
    def version(cls):
        return first_line('redis-server', '-v') + ', appendfsync always'


class SortedSets(Redis):
    name = 'sorted-sets'

    def address(self):
        return f'sets:{self.port}'


class Postgresql(Measured, hosts.Host):
    """Not as root."""
    name, load = 'postgresql', 'load-postgresql'
    user = 'postgres' if os.getuid() == 0 else None
    table = ('CREATE TABLE perf (id bigint PRIMARY KEY, due bigint NOT NULL, '
             'payload text NOT NULL); CREATE INDEX ON perf (due)')

    @staticmethod
    def command(name, *words):
        folders = sorted(glob.glob('/usr/lib/postgresql/*/bin'))
        return [os.path.join(folders[-1], name), *words]

    def start(self):
        data = os.path.join(self.folder, 'data')
        if self.user:
            os.chown(self.folder, pwd.getpwnam(self.user).pw_uid, -1)
        if not os.path.exists(data):
            subprocess.run(
                self.command('initdb', '-D', data, '-U', 'perf', '-A', 'trust',
                             '--no-sync'), user=self.user, cwd='/',
                stdout=subprocess.DEVNULL, check=True, timeout=LIMIT)
        self.process = subprocess.Popen(
            self.command('postgres', '-D', data, '-p', str(self.port), '-h',
                         '127.0.0.1', '-k', data, '-c', 'shared_buffers=1GB',
                         '-c', 'max_wal_size=8GB',
                         '-c', 'synchronous_commit=on'),
            user=self.user, cwd='/', stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        end = time.monotonic() + LIMIT
        while self.ask('SELECT 1') != '1':
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError('PostgreSQL has not started')
            time.sleep(0.01)
        if self.ask("SELECT to_regclass('perf') IS NULL") == 't':
            self.ask(self.table)

    def ask(self, text):
        return subprocess.run(
            self.command('psql', self.address(), '-Atqc', text),
            capture_output=True, text=True, timeout=LIMIT,
            check=False).stdout.strip()

    def kill(self):
        for pid in children_of(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        super().kill()

    def address(self):
        return f'postgres://perf@127.0.0.1:{self.port}/postgres' \
            '?connect_timeout=5'

    def disk(self):
        return int(self.ask("SELECT pg_database_size('postgres')"))

    def memory(self):
        return 0  # its buffers have a fixed size

    @classmethod
    def version(cls):
        return first_line(*cls.command('postgres', '-V')) + \
            ', synchronous_commit on'


class BullMq(OfNode, SortedSets):
    name = package = 'bullmq'

    def address(self):
        return str(self.port)


class Graphile(OfNode, Postgresql):
    name, package = 'graphile', 'graphile-worker'


SERVERS = [Hwtd, Redis, Postgresql, SortedSets, BullMq, Graphile]
