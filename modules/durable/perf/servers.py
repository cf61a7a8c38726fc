# SPDX-License-Identifier: Apache-2.0
"""The engines that main.py and billion.py measure, each in a scratch folder."""
import contextlib
import glob
import os
import subprocess
import sys
import types

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '../test'))
import hosts  # noqa: E402

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), '../../..'))
hosts.BUILD = os.path.join(ROOT, 'build/plain')
PERF = os.path.join(hosts.BUILD, 'modules/durable/perf')
MODULES = os.path.join(PERF, 'node_modules')
TICK = os.sysconf('SC_CLK_TCK')
PAGE = os.sysconf('SC_PAGE_SIZE')
LIMIT = 120


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
    killed = True  # in the case kill

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
    fill, killed = 20000, False

    def client(self):
        os.environ['NODE_PATH'] = MODULES
        return ['node', os.path.join(os.path.dirname(__file__), 'load.js'),
                self.name, self.address()]


class Hwtd(Measured, hosts.Server):
    name = 'hwtd'


class Redis(Measured, hosts.Redis):
    name = 'redis'


class SortedSets(Redis):
    name = 'sorted-sets'

    def address(self):
        return f'sets:{self.port}'


class Postgresql(Measured, hosts.Host):
    """Not as root."""
    name, load = 'postgresql', 'load-postgresql'
    table = ('CREATE TABLE IF NOT EXISTS perf (id bigint PRIMARY KEY, due '
             'bigint NOT NULL, payload text NOT NULL);'
             'CREATE INDEX IF NOT EXISTS perf_due ON perf (due)')

    @staticmethod
    def program(name, *words):
        folders = sorted(glob.glob('/usr/lib/postgresql/*/bin'))
        user = ['setpriv', '--reuid=postgres', '--clear-groups'] \
            if os.getuid() == 0 else []
        return [*user, os.path.join(folders[-1], name), *words]

    def command(self):
        data = os.path.join(self.folder, 'data')
        if not os.path.exists(data):
            os.chmod(self.folder, 0o777)
            subprocess.run(
                self.program('initdb', '-D', data, '-U', 'perf', '-A', 'trust',
                             '--no-sync'), check=True, timeout=LIMIT,
                cwd='/', stdout=subprocess.DEVNULL)
        return self.program(
            'postgres', '-D', data, '-p', str(self.port), '-h', '127.0.0.1',
            '-k', data, '-c', 'shared_buffers=1GB', '-c', 'max_wal_size=8GB',
            '-c', 'synchronous_commit=on')

    def connect(self):
        """Which start() repeats until it works."""
        if self.ask(self.table) is None:
            raise ConnectionError
        return types.SimpleNamespace(call=self.ask, close=str)

    def ask(self, text):
        """None: an error."""
        found = subprocess.run(
            ['psql', self.address(), '-Atqc', text], capture_output=True,
            text=True, timeout=LIMIT, check=False)
        return found.stdout if found.returncode == 0 else None

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


class BullMq(OfNode, SortedSets):
    name = 'bullmq'

    def address(self):
        return str(self.port)


class Graphile(OfNode, Postgresql):
    name = 'graphile'


SERVERS = [Hwtd, Redis, Postgresql, SortedSets]
if os.path.exists(MODULES):
    SERVERS += [BullMq, Graphile]
