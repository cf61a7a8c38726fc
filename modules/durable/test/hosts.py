# SPDX-License-Identifier: Apache-2.0
"""The machine in its two hosts: hwt.so in a real Redis, and the server on its
own store. Both get the same commands; both are killed under load.

    hosts.py [--seconds N] [--every N] [CLASS[.test] ...]

The last line counts. --seconds is for each run with kills; --every says at
which bytes a log is cut.
"""
import errno
import os
import random
import resource
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

BUILD = os.environ.get('BUILD', 'build/plain')
SECONDS = 6
EVERY = 229  # of the bytes at the end of a log that is cut


class Error(Exception):
    """An answer that is an error."""


class Client:
    """A connection: call() sends words and returns the answer."""

    def __init__(self, port, timeout=20):
        self.socket = socket.create_connection(('127.0.0.1', port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile('rb')

    @staticmethod
    def bytes(*words):
        data = b'*%d\r\n' % len(words)
        for word in words:
            if not isinstance(word, bytes):
                word = str(word).encode()
            data += b'$%d\r\n%s\r\n' % (len(word), word)
        return data

    def send(self, *words):
        self.socket.sendall(self.bytes(*words))

    def read(self):
        line = self.file.readline()
        if not line.endswith(b'\r\n'):
            raise ConnectionError('closed')
        kind, rest = line[:1], line[1:-2]
        if kind == b'-':
            return Error(rest.decode())
        if kind == b'+':
            return rest
        if kind == b':':
            return int(rest)
        if kind == b'$':
            if rest == b'-1':
                return None
            data = self.file.read(int(rest) + 2)
            if len(data) != int(rest) + 2:
                raise ConnectionError('closed')
            return data[:-2]
        if rest == b'-1':
            return None
        return [self.read() for _ in range(int(rest))]

    def call(self, *words):
        self.send(*words)
        answer = self.read()
        if isinstance(answer, Error):
            raise answer
        return answer

    def pairs(self, *words):
        answer = self.call(*words)
        return dict(zip((name.decode() for name in answer[::2]),
                        answer[1::2]))

    def close(self):
        self.file.close()
        self.socket.close()


def free_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


class Host:
    """A server in a scratch folder, on a port of its own."""

    def __init__(self, *more, faults=None):
        self.faults = faults
        self.folder = tempfile.mkdtemp(prefix='hwt-hosts-')
        self.port = free_port()
        self.more = more
        self.process = None
        self.start()

    def start(self):
        log = open(os.path.join(self.folder, 'log'), 'ab')
        self.process = subprocess.Popen(self.command(), stdout=log, stderr=log,
                                        env=self.environment())
        log.close()
        end = time.monotonic() + 30
        while True:
            try:
                client = self.connect()
                client.call('PING')
                client.close()
                return
            except (OSError, Error) as error:
                if 'NOAUTH' in str(error):
                    return
                if self.process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError('not started: ' + self.log()) from None
                time.sleep(0.02)

    def environment(self):
        return self.faults and {**os.environ, **self.faults.environment}

    def connect(self):
        return Client(self.port)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def restart(self):
        """After a kill. Returns a client."""
        self.kill()
        self.start()
        return self.connect()

    def stop(self):
        self.process.terminate()
        self.process.wait(30)

    def log(self):
        with open(os.path.join(self.folder, 'log'), errors='replace') as file:
            return file.read()[-2000:]

    def close(self):
        if self.process.poll() is None:
            self.kill()
        shutil.rmtree(self.folder)


class Redis(Host):
    def command(self):
        return ['redis-server', '--port', str(self.port), '--dir',
                self.folder, '--appendonly', 'yes', '--appendfsync', 'always',
                '--save', '', '--enable-debug-command', 'yes', '--loadmodule',
                os.path.abspath(BUILD + '/hwt.so'), *self.more]


class Server(Host):
    def command(self):
        return [BUILD + '/hwtd', '--data', self.folder + '/data',
                '--listen', str(self.port), *self.more]


class Faults:
    """What faults.so does to servers that were started with it."""

    def __init__(self):
        self.file = tempfile.NamedTemporaryFile()
        self.environment = {'HWT_FAULTS': self.file.name, 'LD_PRELOAD':
                            os.path.abspath('build/plain/faults.so')}
        self.set()

    def set(self, wall_s=0, write_error=0, sync_error=0, stall_s=0):
        self.file.seek(0)
        self.file.write(struct.pack('<qqqq', int(wall_s * 10**9), write_error,
                                    sync_error, int(stall_s * 10**9)))
        self.file.flush()


def take(client, key, limit=10, visibility=30000, *more):
    """A dictionary of what was taken, by id."""
    tasks = client.call('HWT.TAKE', key, 'w', limit, visibility, *more) or []
    return {task[0]: task for task in tasks}


class Hosted:
    """Tests that both hosts must pass."""

    def setUp(self):
        self.host = self.make()
        self.client = self.host.connect()

    def tearDown(self):
        self.client.close()
        self.host.close()

    def refused(self, code, *words):
        with self.assertRaises(Error) as caught:
            self.client.call(*words)
        self.assertEqual(str(caught.exception).split()[0], code)

    def test_a_blocked_take_gets_a_task_when_it_is_due(self):
        begin = time.monotonic()
        self.assertEqual(
            self.client.call('HWT.ADD', 'q', 'IN', 200, 'TASKS', 'a', 'x'),
            [0])
        task = take(self.client, 'q', 1, 30000, 'BLOCK', 5000)[b'a']
        self.assertGreaterEqual(time.monotonic() - begin, 0.2)
        self.assertEqual([task[2], task[5]], [1, b'x'])
        self.assertEqual(
            self.client.call('HWT.FINISH', 'q', 'DONE', 'TASKS', 'a', task[1]),
            [1])
        self.assertEqual(self.client.pairs('HWT.GET', 'q', 'a')['state'],
                         b'done')

    def test_a_take_that_ends_empty_makes_no_queue(self):
        for words in (('TAKE', 'none', 'w', 1, 30000, 'BLOCK', 30),
                      ('TAKE', 'none', 'w', 1, 30000), ('GET', 'none', 'a')):
            self.client.send('HWT.' + words[0], *words[1:])
        for _ in range(3):
            self.assertIsNone(self.client.read())
        self.assertEqual(self.client.call('HWT.QUEUES', 0, 100)[1], [])

    def test_five_hundred_blocked_clients_get_one_task_each(self):
        clients = [self.host.connect() for _ in range(500)]
        for client in clients:
            client.send('HWT.TAKE', 'q', 'w', 1, 30000, 'BLOCK', 10000)
        time.sleep(0.2)
        words = [word for i in range(500) for word in (f'id{i}', 'x')]
        self.client.call('HWT.ADD', 'q', 'IN', 100, 'TASKS', *words)
        ids = {client.read()[0][0] for client in clients}
        self.assertEqual(len(ids), 500)
        for client in clients:
            client.close()

    def test_a_client_that_is_gone_takes_nothing(self):
        other = self.host.connect()
        other.send('HWT.TAKE', 'q', 'w', 1, 30000, 'BLOCK', 0)
        time.sleep(0.1)
        other.close()
        time.sleep(0.1)
        self.client.call('HWT.ADD', 'q', 'IN', 0, 'TASKS', 'a', 'x')
        self.assertIn(b'a', take(self.client, 'q'))

    def test_a_paused_queue_gives_nothing_until_it_is_resumed(self):
        self.client.call('HWT.QUEUE', 'q', 'PAUSE')
        self.client.call('HWT.ADD', 'q', 'IN', 0, 'TASKS', 'a', 'x')
        self.refused('PAUSED', 'HWT.TAKE', 'q', 'w', 1, 30000)
        other = self.host.connect()
        other.send('HWT.TAKE', 'q', 'w', 1, 30000, 'BLOCK', 0)
        time.sleep(0.1)
        self.client.call('HWT.QUEUE', 'q', 'RESUME')
        self.assertEqual(other.read()[0][0], b'a')
        other.close()

    def test_lateness_counts_also_where_nobody_takes(self):
        self.client.call('HWT.ADD', 'q', 'RESULT', 1, 'IN', 0, 'TASKS', 'b',
                         'x')
        self.client.call('HWT.CANCEL', 'q', 'b')
        self.client.call('HWT.ADD', 'q', 'IN', 200, 'TASKS', 'a', 'x')
        time.sleep(0.1)
        self.assertEqual(self.client.pairs('HWT.STAT', 'q')['late'], 0)
        time.sleep(0.4)
        self.assertGreaterEqual(
            self.client.pairs('HWT.STAT', 'q')['late'], 290)

    def test_a_rate_is_kept_by_a_blocked_take(self):
        self.client.call('HWT.QUEUE', 'q', 'RATE', 20)
        words = [word for i in range(30) for word in (f'id{i}', 'x')]
        self.client.call('HWT.ADD', 'q', 'IN', 0, 'TASKS', *words)
        begin = time.monotonic()
        got = 0
        while got < 30:
            # Another rate gives nothing at once.
            for rate in (21, 0, 20):
                self.client.call('HWT.QUEUE', 'q', 'RATE', rate)
            got += len(take(self.client, 'q', 30, 30000, 'BLOCK', 5000))
        self.assertGreaterEqual(time.monotonic() - begin, 1.4)

    def test_bad_input_is_an_error_and_changes_nothing(self):
        self.client.call('HWT.ADD', 'q', 'IN', 60000, 'TASKS', 'a', 'x')
        for words in (
                ('HWT.ADD', 'q'),
                ('HWT.ADD', 'q', 'IN', 'NaN', 'TASKS', 'b', 'x'),
                ('HWT.ADD', 'q', 'IN', '-1', 'TASKS', 'b', 'x'),
                ('HWT.ADD', 'q', 'IN', 10**18, 'TASKS', 'b', 'x'),
                ('HWT.ADD', 'q', 'DUE', 10**18, 'TASKS', 'b', 'x'),
                ('HWT.ADD', 'q', 'IN', 1, 'DUE', 1, 'TASKS', 'b', 'x'),
                ('HWT.ADD', 'q', 'IN', 1, 'TASKS', 'b'),
                ('HWT.ADD', 'q', 'IN', 1, 'TASKS', '', 'x'),
                ('HWT.ADD', 'q', 'IN', 1, 'TASKS', 'b' * 65, 'x'),
                ('HWT.ADD', 'q', 'IN', 1, 'TASKS', 'b', 'x' * 65537),
                ('HWT.ADD', 'q', 'IN', 1, 'TASKS', *['b', 'x'] * 1025),
                ('HWT.ADD', 'q', 'ATTEMPTS', 0, 'IN', 1, 'TASKS', 'b', 'x'),
                ('HWT.TAKE', 'q', 'w', 0, 1000),
                ('HWT.TAKE', 'q', 'w', 1, 0),
                ('HWT.TAKE', 'q', 'w', 1, 1000, 'BLOCK'),
                ('HWT.FINISH', 'q', 'DONE', 'TASKS', 'a', 'x'),
                ('HWT.FINISH', 'q', 'MAYBE', 'TASKS', 'a', 1),
                ('HWT.LIST', 'q', 'nowhere', 0, 10),
                ('HWT.QUEUE', 'q', 'RATE', 'fast')):
            with self.subTest(words=words[:6]):
                self.refused('ARG', *words)
        self.assertEqual(self.client.pairs('HWT.STAT', 'q')['added-total'], 1)

    def test_a_kill_loses_nothing(self):
        # Ids and payloads may have any bytes.
        other, payload = b'\0\r\n"*\xff', b'$5\r\n\0' * 100
        self.client.call('HWT.ADD', 'q', 'IN', 0, 'TASKS', 'a', 'x', other,
                         payload)
        first = take(self.client, 'q', 1)[b'a']
        self.client.call('HWT.QUEUE', 'q', 'RATE', 1000)
        self.client = self.host.restart()
        second = take(self.client, 'q', 10, 30000, 'BLOCK', 5000)
        self.assertEqual([task[5] for task in second.values()], [payload])
        # A new epoch: fences have grown, and the lease is still the worker's.
        self.assertGreater(second[other][1], first[1] + 1000)
        self.assertEqual(self.client.call('HWT.FINISH', 'q', 'DONE', 'TASKS',
                                          'a', first[1]), [1])
        self.assertEqual(self.client.pairs('HWT.QUEUE', 'q')['rate'], 1000)

    def test_kills_under_load_lose_nothing(self):
        account = Account(self.host)
        account.run(SECONDS)
        self.assertEqual(account.judge(), [])
        print(f'  {type(self).__name__}: {account.kills} kills, '
              f'{len(account.added)} tasks acknowledged, '
              f'{account.begun} executions, lost 0, early 0')


class Account:
    """Producers and workers on a host that is killed; who was told what."""

    def __init__(self, host):
        self.host = host
        self.lock = threading.Lock()
        self.added = {}  # id: due, in unix ms
        self.cancelled = set()
        self.maybe_cancelled = set()  # until the answer
        self.attempts = {}  # id: [(fence, taken at)]
        self.ended = {}  # id: fence of the accepted end
        self.lost_ends = set()  # ids whose end was not answered
        self.wrong = []
        self.kills = 0
        self.begun = 0
        self.stopping = False

    def run(self, seconds):
        threads = [threading.Thread(target=self.produce, args=(i,))
                   for i in range(3)]
        workers = [threading.Thread(target=self.work, args=(i,))
                   for i in range(3)]
        for thread in threads + workers:
            thread.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(random.uniform(0.3, 0.9))
            self.host.kill()
            self.kills += 1
            self.host.start()
        self.stopping = True
        for thread in threads:
            thread.join()
        self.drain()
        for thread in workers:
            thread.join()

    def drain(self):
        end = time.monotonic() + 120
        while time.monotonic() < end:
            with self.lock:
                left = (set(self.added) - set(self.ended) - self.cancelled -
                        self.lost_ends - self.maybe_cancelled)
            if not left:
                break
            time.sleep(0.1)
        self.drained = True

    def client(self, old=None):
        if old is not None:
            old.close()
        while True:
            try:
                return self.host.connect()
            except OSError:
                time.sleep(0.02)

    def produce(self, number):
        client = self.client()
        count = 0
        while not self.stopping:
            ids = [f'p{number}-{count + i}' for i in range(5)]
            due = int(time.time() * 1000) + random.randrange(200)
            words = [word for i in ids for word in (i, 'x')]
            try:
                client.call('HWT.ADD', 'load', 'RETRY', 0, 0, 'DUE', due,
                            'TASKS', *words)
                with self.lock:
                    for identity in ids:
                        self.added[identity.encode()] = due
                count += 5
                if random.random() < 0.2:
                    self.cancel(client, ids[0].encode())
            except (OSError, Error):
                # Uncertain: the same ids again.
                client = self.client(client)
        client.close()

    def cancel(self, client, identity):
        with self.lock:
            self.maybe_cancelled.add(identity)
        answer = client.call('HWT.CANCEL', 'load', identity)
        with self.lock:
            self.maybe_cancelled.discard(identity)
            if answer == [1]:
                self.cancelled.add(identity)
                if identity in self.ended:
                    self.wrong.append(f'{identity} cancelled after its end')

    def work(self, number):
        client = self.client()
        while not getattr(self, 'drained', False):
            try:
                tasks = client.call('HWT.TAKE', 'load', f'w{number}', 16, 700,
                                    'BLOCK', 200) or []
                if tasks:
                    self.execute(client, tasks)
            except (OSError, Error):
                client = self.client(client)
        client.close()

    def execute(self, client, tasks):
        for identity, fence, _, _, due, _ in tasks:
            with self.lock:
                self.begun += 1
                past = self.attempts.setdefault(identity, [])
                if past and fence <= past[-1]:
                    self.wrong.append(f'{identity}: a fence has not grown')
                past.append(fence)
                if identity in self.ended:
                    self.wrong.append(f'{identity} begun after its end')
                if time.time() * 1000 < due:
                    self.wrong.append(f'{identity} early')
                self.lost_ends.add(identity)
        ended = client.call('HWT.FINISH', 'load', 'DONE', 'TASKS',
                            *[word for task in tasks for word in task[:2]])
        for (identity, fence, *_), accepted in zip(tasks, ended):
            with self.lock:
                self.lost_ends.discard(identity)
                if accepted and identity in self.ended:
                    self.wrong.append(f'{identity} has ended twice')
                if accepted:
                    self.ended[identity] = fence

    def judge(self):
        client = self.client()
        for identity in self.added:
            if identity in self.ended or identity in self.cancelled:
                continue
            state = client.pairs('HWT.GET', 'load', identity)
            # What was not answered may have happened.
            if state['state'] == b'cancelled':
                known = identity in self.maybe_cancelled
            else:
                known = identity in self.lost_ends
            if not known:
                self.wrong.append(f'{identity} lost: {state}')
        stat = client.pairs('HWT.STAT', 'load')
        states = sum(stat[name] for name in ('waiting', 'due', 'running',
                                             'done', 'dead', 'cancelled'))
        if stat['added-total'] != (states + stat['removed-total'] +
                                   stat['dropped-total']):
            self.wrong.append(f'the sum is wrong: {stat}')
        client.close()
        return self.wrong


class InRedis(Hosted, unittest.TestCase):
    def make(self):
        return Redis()

    def digest(self, client, key='q'):
        return client.call('DEBUG', 'DIGEST-VALUE', key)

    def fill(self):
        """Records in every state."""
        words = [word for i in range(3000)
                 for word in (f'id{i}', 'x' * (i % 90))]
        for i in range(0, len(words), 2000):
            self.client.call('HWT.ADD', 'q', 'IN', 0, 'TASKS',
                             *words[i:i + 2000])
        self.client.call('HWT.ADD', 'q', 'ATTEMPTS', 3, 'IN', 10**9, 'TASKS',
                         'late', 'x')
        tasks = list(take(self.client, 'q', 90).values())
        for words, part in (('DONE', tasks[:30]), ('FAIL broken', tasks[30:60]),
                            ('RETRY 5000', tasks[60:80])):
            self.client.call('HWT.FINISH', 'q', *words.split(), 'TASKS',
                             *[word for task in part for word in task[:2]])
        self.client.call('HWT.CANCEL', 'q', 'id2000')
        self.client.call('HWT.QUEUE', 'q', 'RUNNING', 1000, 'RATE', 5)

    def test_a_blocked_take_waits_for_a_task_whatever_becomes_of_its_key(self):
        def call(words):
            return self.client.call(*words.split())
        # Redis 7.0 aborts if a take that waits on has replicated anything.
        call('HWT.ADD other IN 1400 TASKS b x')
        dump = self.client.call('DUMP', 'other')
        call('HWT.ADD q RESULT 200 IN 0 TASKS a x')
        task = take(self.client, 'q', 1)[b'a']
        self.client.call('HWT.FINISH', 'q', 'DONE', 'TASKS', 'a', task[1])
        waiting = self.host.connect()
        waiting.send(*'HWT.TAKE q w 1 30000 BLOCK 9000'.split())
        time.sleep(0.5)
        self.assertEqual(
            self.client.pairs('HWT.STAT', 'q')['removed-total'], 1)
        call('HWT.QUEUE q PAUSE')
        call('HWT.ADD q EXPIRES 1 IN 0 TASKS expired x')
        time.sleep(0.01)
        for words in ('HWT.QUEUE q RESUME', 'DEL q', 'COPY other q',
                      'SWAPDB 0 1', 'SWAPDB 1 0', 'PEXPIRE q 10',
                      'RENAME other q', 'FLUSHALL'):
            call(words)
            time.sleep(0.05)
        self.client.call('RESTORE', 'q', 0, dump)
        call('CLIENT PAUSE 1000 WRITE')
        task, = waiting.read()
        self.assertEqual(task[0], b'b')
        self.assertLessEqual(task[4], time.time() * 1000)
        waiting.close()
        digest = self.digest(self.client)
        call('DEBUG LOADAOF')
        self.assertEqual(self.digest(self.client), digest)

    def test_a_task_that_expires_as_a_blocked_take_is_run_harms_nobody(self):
        faults = Faults()
        host = Redis(faults=faults)
        self.addCleanup(host.close)
        client, waiting = host.connect(), host.connect()
        faults.set(stall_s=0.004)
        for number in range(120):
            waiting.send(*f'HWT.TAKE q {number} 1 9000 BLOCK 60'.split())
            client.call('HWT.ADD', 'q', 'EXPIRES', 1 + number * 5 % 24, 'IN',
                        number % 4, 'TASKS', number, 'x')
            waiting.read()
        digest = self.digest(client)
        client.call('DEBUG', 'LOADAOF')
        self.assertEqual(self.digest(client), digest)
        for each in (client, waiting):
            each.close()

    def test_files_and_copies_have_the_same_queue(self):
        self.fill()
        digest = self.digest(self.client)
        for preamble in ('yes', 'no'):
            self.client.call('CONFIG', 'SET', 'aof-use-rdb-preamble', preamble)
            self.client.call('BGREWRITEAOF')
            time.sleep(0.1)
            while b'aof_rewrite_in_progress:0' not in self.client.call(
                    'INFO', 'persistence'):
                time.sleep(0.05)
            self.client.call('DEBUG', 'LOADAOF')
            self.assertEqual(self.digest(self.client), digest)
        self.client.call('DEBUG', 'RELOAD')
        self.assertEqual(self.digest(self.client), digest)
        self.client.call('COPY', 'q', 'copy')
        self.assertEqual(self.digest(self.client, 'copy'), digest)
        dump = self.client.call('DUMP', 'q')
        self.client.call('RESTORE', 'restored', 0, dump)
        self.assertEqual(self.digest(self.client, 'restored'), digest)
        self.client.call('UNLINK', 'q')
        self.assertEqual(self.client.call('EXISTS', 'q'), 0)

    def test_a_replica_has_the_same_queue_and_outlives_its_master(self):
        replica = Redis('--replicaof', '127.0.0.1 ' + str(self.host.port))
        try:
            self.follow(replica)
        finally:
            replica.close()

    def follow(self, replica):
        other = replica.connect()
        self.fill()
        fence = max(task[1] for task in take(self.client, 'q', 5, 30000,
                                             'BLOCK', 9000).values())
        random.seed(1)
        for i in range(2000):
            self.client.call('HWT.ADD', 'q', 'IN', random.randrange(50),
                             'RESULT', 10, 'TASKS', f'r{i}', 'x')
            if random.random() < 0.5:
                self.client.call('HWT.QUEUE', 'q', 'RATE', 0)
                for identity, task in take(self.client, 'q', 3, 20).items():
                    self.client.call('HWT.FINISH', 'q', 'RETRY', 1, 'TASKS',
                                     identity, task[1])
        self.client.call('WAIT', 1, 5000)
        self.assertEqual(self.digest(other), self.digest(self.client))
        with self.assertRaises(Error):
            other.call('HWT.TAKE', 'q', 'w', 1, 1000)
        self.host.kill()
        other.call('REPLICAOF', 'NO', 'ONE')
        fences = [task[1] for task in take(other, 'q', 5).values()]
        self.assertGreater(min(fences), fence + 10**6)
        other.close()

    def test_the_longest_add_is_in_the_file(self):
        for extra in range(12, 20):
            tasks = [word for i in range(1024)
                     for word in (f'{extra}-{i}', 10**12, '')]
            try:
                self.client.call('HWT.ADD', 'q', *['ATTEMPTS', 3] * extra,
                                 'EACH', 'TASKS', *tasks)
            except Error as error:
                self.assertEqual(str(error).split()[0], 'ARG')
        added = self.client.pairs('HWT.STAT', 'q')['added-total']
        self.assertGreater(added, 0)
        self.client = self.host.restart()
        self.assertEqual(
            self.client.pairs('HWT.STAT', 'q')['added-total'], added)

    def test_adds_are_refused_where_the_level_is_not_kept(self):
        self.client.call('CONFIG', 'SET', 'appendfsync', 'everysec')
        self.refused('DURABILITY', 'HWT.ADD', 'q', 'IN', 0, 'TASKS', 'a', 'x')
        self.client.call('HWT.QUEUE', 'q', 'LEVEL', 'memory')
        self.assertEqual(self.client.call('HWT.ADD', 'q', 'IN', 0, 'TASKS',
                                          'a', 'x'), [0])
        self.client.call('CONFIG', 'SET', 'appendfsync', 'always')
        self.client.call('HWT.ADD', 'other', 'IN', 0, 'TASKS', 'a', 'x')

    def test_other_types_and_internal_commands_are_refused(self):
        self.client.call('SET', 's', 1)
        self.refused('WRONGTYPE', 'HWT.ADD', 's', 'IN', 0, 'TASKS', 'a', 'x')
        words = ('HWT.X', 'q', 0, 0, 'EPOCH')
        self.refused('ARG', *words)
        self.refused('ARG', 'EVAL', 'return redis.call(unpack(ARGV))', 0,
                     *words)
        self.client.call('MULTI')
        self.client.call(*words)
        self.assertTrue(str(*self.client.call('EXEC')).startswith('ARG'))

    def test_a_take_in_a_transaction_does_not_block(self):
        self.client.call('MULTI')
        self.client.call('HWT.TAKE', 'q', 'w', 1, 1000, 'BLOCK', 0)
        self.assertEqual(self.client.call('EXEC'), [None])


class InServer(Hosted, unittest.TestCase):
    def make(self):
        return Server()

    def raw(self, data):
        """Sends bytes; True: the server has closed the connection."""
        with socket.create_connection(('127.0.0.1', self.host.port), 10) as s:
            s.sendall(data)
            s.settimeout(0.5)
            try:
                while s.recv(65536):
                    pass
                return True
            except socket.timeout:
                return False

    def test_requests_have_bounds(self):
        self.assertTrue(self.raw(b'*1000000000\r\n'))
        self.assertTrue(self.raw(b'*2\r\n$99999999999\r\n'))
        self.assertTrue(self.raw(b'*1\r\n:5\r\n'))
        self.assertTrue(self.raw(b'*' + b'1' * 100))
        self.assertFalse(self.raw(b'*2\r\n$4\r\nPING\r\n$3\r\nab'))
        for byte in self.client.bytes('HWT.CANCEL', 'q', 'a', '', ''):
            self.client.socket.send(bytes([byte]))
        self.assertTrue(str(self.client.read()).startswith('ARG'))
        self.assertEqual(self.client.call('PING'), b'PONG')

    def test_queues_are_listed_and_their_cursor_is_checked(self):
        for name in ('a', 'b', 'c'):
            self.client.call('HWT.ADD', name, 'IN', 10**7, 'TASKS', 'a', '')
        self.assertEqual(self.client.call('HWT.QUEUES', 0, 2),
                         [b'0', [b'a', b'b', b'c']])
        for words in ((), (0,), ('x', 1), (1, 1), (0, 0), (0, -1), (0, 1, 2)):
            self.refused('ARG', 'HWT.QUEUES', *words)

    def test_an_empty_queue_is_removed_and_its_fences_are_not_given_again(
            self):
        host, client, faults = self.faulty()

        def fence():
            client.call('HWT.ADD', 'q', 'RESULT', 0, 'IN', 0, 'TASKS', 'a',
                        'x')
            task = take(client, 'q', 1)[b'a']
            client.call('HWT.FINISH', 'q', 'DONE', 'TASKS', 'a', task[1])
            while client.pairs('HWT.STAT', 'q')['done']:
                time.sleep(0.05)
            return task[1]
        last = fence()
        client.call('HWT.QUEUE', 'limited', 'RATE', 5)
        for step in range(2):
            faults.set(wall_s=3700 * (step + 1))
            end = time.monotonic() + 10
            while client.call('HWT.QUEUES', 0, 10)[1] != [b'limited']:
                self.assertLess(time.monotonic(), end)
                time.sleep(0.05)
            if step == 1:
                client = host.restart()
            self.assertEqual(client.call('HWT.QUEUES', 0, 10)[1],
                             [b'limited'])
            self.assertGreater(fence() >> 40, last >> 40)
            last = fence()
        client.close()

    def test_tasks_that_are_forgotten_at_the_start_are_so_in_the_store(self):
        host, client, faults = self.faulty()
        client.call('HWT.ADD', 'q', 'RESULT', 30000, 'IN', 0, 'TASKS', 'a', '')
        client.call('HWT.CANCEL', 'q', 'a')
        host.kill()

        def wait(condition):
            end = time.monotonic() + 10
            while not condition():
                self.assertLess(time.monotonic(), end)
                time.sleep(0.05)
        faults.set(wall_s=60)
        host.start()
        client = host.connect()
        wait(lambda: client.pairs('HWT.STAT', 'q')['cancelled'] == 0)
        # The queue is removed when it was empty for an hour.
        faults.set(wall_s=3760)
        wait(lambda: client.call('HWT.QUEUES', 0, 10)[1] == [])
        client = host.restart()
        self.assertEqual(client.call('HWT.QUEUES', 0, 10)[1], [])
        client.close()

    def test_without_descriptors_it_does_not_spin(self):
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, limit[1]))
        try:
            host = Server()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)
        self.addCleanup(host.close)
        clients = [host.connect() for _ in range(100)]
        clients[0].call('PING')
        with open(f'/proc/{host.process.pid}/stat') as stat:
            before = sum(map(int, stat.read().split()[13:15]))
        time.sleep(2)
        with open(f'/proc/{host.process.pid}/stat') as stat:
            after = sum(map(int, stat.read().split()[13:15]))
        self.assertLess(after - before, 50)  # of 200 ticks
        for client in clients[:60]:
            client.close()
        # Those that are left have their turn.
        self.assertEqual(clients[99].call('PING'), b'PONG')
        for client in clients[60:]:
            client.close()

    def test_any_bytes_harm_nobody(self):
        seed = random.randrange(10**6)
        chance = random.Random(seed)
        words = [b'HWT.ADD', b'HWT.TAKE', b'q', b'IN', b'0', b'TASKS', b'a',
                 b'w', b'BLOCK', b'HWT.DEAD', b'LIST', b'INFO', b'AUTH']
        for _ in range(150):
            some = [chance.choice(words) for _ in range(chance.randrange(9))]
            data = bytearray(b'*%d\r\n' % len(some) + b''.join(
                b'$%d\r\n%s\r\n' % (len(word), word) for word in some))
            for _ in range(chance.randrange(4)):
                data[chance.randrange(len(data))] = chance.choice(
                    b'\0\r\n$*-1999')
            with socket.create_connection(('127.0.0.1', self.host.port)) as s:
                s.sendall(data * chance.choice([1, 1, 50]))
            self.assertIsNone(self.host.process.poll(), f'seed {seed}: {data}')
        self.assertEqual(self.client.call('PING'), b'PONG')

    def test_a_folder_or_file_of_others_is_refused(self):
        log = self.host.folder + '/log'
        for folder, address, error in (
                ('/data', str(free_port()), b'another process'),
                ('/other', 'unix:' + log, b'in use')):
            result = subprocess.run(
                [BUILD + '/hwtd', '--data', self.host.folder + folder,
                 '--listen', address], capture_output=True, timeout=30)
            self.assertEqual(result.returncode, 1)
            self.assertIn(error, result.stderr)
        self.assertTrue(os.path.isfile(log))

    def test_a_password_is_needed(self):
        path = self.host.folder + '/password'
        with open(path, 'w') as file:
            file.write('secret\n')
        host = Server('--password-file', path)
        # Before it little is read.
        with socket.create_connection(('127.0.0.1', host.port), 10) as raw:
            with self.assertRaises(OSError):
                for _ in range(100):
                    raw.sendall(b'*2\r\n$1048576\r\n' + b'x' * 10000)
                    time.sleep(0.01)
        client = host.connect()
        for words in (('HWT.QUEUES', 0, 10), ('AUTH', 'secreT'),
                      ('AUTH', ''), ('AUTH', 'secret2')):
            with self.assertRaises(Error):
                client.call(*words)
        self.assertEqual(client.call('AUTH', 'secret'), b'OK')
        self.assertEqual(client.call('HWT.QUEUES', 0, 10)[1], [])
        client.close()
        host.close()

    def test_a_backup_is_a_whole_store(self):
        self.client.call('HWT.ADD', 'q', 'IN', 0, 'TASKS', 'a', 'x')
        folder = tempfile.mkdtemp(dir=self.host.folder)
        self.client.call('HWT.BACKUP', folder + '/tasks.db')
        self.refused('ERR', 'HWT.BACKUP', folder + '/tasks.db')
        self.host.stop()
        shutil.rmtree(self.host.folder + '/data')
        os.rename(folder, self.host.folder + '/data')
        self.host.start()
        self.client = self.host.connect()
        self.assertIn(b'a', take(self.client, 'q'))

    def test_a_damaged_row_is_found_at_the_start(self):
        self.client.call('HWT.ADD', 'q', 'IN', 0, 'TASKS', 'a', 'payload-one')
        self.host.stop()
        path = self.host.folder + '/data/tasks.db'
        with open(path, 'r+b') as file:
            data = file.read()
            at = data.rindex(b'payload-one')
            file.seek(at)
            file.write(b'payload-two')
        with self.assertRaises(RuntimeError) as caught:
            self.host.start()
        self.assertIn('damaged', str(caught.exception))

    def test_old_rows_are_removed_and_what_is_still_there_is_kept(self):
        self.client.call('HWT.ADD', 'old', 'RESULT', 10**7, 'IN', 0, 'TASKS',
                         'held', 'x', 'dead', 'y', 'done', 'z', 'due', 'v' * 99)
        fence = {id: task[1] for id, task in take(
            self.client, 'old', 3, 10**7).items()}
        self.client.call('HWT.FINISH', 'old', 'FAIL', 'why', 'TASKS', 'dead',
                         fence[b'dead'])
        self.client.call('HWT.FINISH', 'old', 'DONE', 'TASKS', 'done',
                         fence[b'done'])
        self.client.call('HWT.QUEUE', 'limited', 'RATE', 5)

        def state():
            tasks = [self.client.pairs('HWT.GET', 'old', name)
                     for name in ('held', 'dead', 'done', 'due')]
            return tasks, self.client.call('HWT.QUEUE', 'limited')
        before = state()
        for step in range(400):
            self.client.call('HWT.ADD', 'q', 'IN', 10**7, 'TASKS', step,
                             'x' * 60000)
            self.client.call('HWT.CANCEL', 'q', step)
        self.host.kill()
        data = self.host.folder + '/data'
        store = sqlite3.connect(data + '/tasks.db')
        first, stored = store.execute(
            'SELECT min(key), sum(length(bytes)) FROM rows').fetchone()
        store.close()
        self.assertGreater(first, 100)
        self.assertLess(stored, 2 << 20)
        self.host.start()
        self.client = self.host.connect()
        self.assertEqual(state(), before)
        self.assertEqual(self.client.call(
            'HWT.FINISH', 'old', 'DONE', 'TASKS', 'held', fence[b'held']),
            [1])

    def test_a_log_that_is_cut_anywhere_gives_what_was_committed(self):
        for i in range(40):
            self.client.call('HWT.ADD', 'q', 'IN', 10**7, 'TASKS', f'a{i}',
                             'x' * 50)
        self.host.kill()
        log = self.host.folder + '/data/tasks.db-wal'
        with open(log, 'rb') as file:
            whole = file.read()
        saved = self.host.folder + '/saved'
        os.remove(self.host.folder + '/data/reserve')  # it is large
        shutil.copytree(self.host.folder + '/data', saved)
        last = 40
        for cut in range(0, 4096, EVERY):
            shutil.rmtree(self.host.folder + '/data')
            shutil.copytree(saved, self.host.folder + '/data')
            with open(log, 'wb') as file:
                file.write(whole[:len(whole) - cut])
            self.host.start()
            self.client = self.host.connect()
            stat = self.client.pairs('HWT.STAT', 'q')
            self.assertLessEqual(stat['waiting'], last)
            self.assertGreaterEqual(stat['waiting'], last - 3)
            self.assertEqual(stat['waiting'], stat['added-total'])
            last = stat['waiting']
            self.host.kill()

    def test_a_full_disk_refuses_adds_and_lets_finishes_through(self):
        host = Server.__new__(Server)
        host.folder = tempfile.mkdtemp(prefix='hwt-hosts-')
        os.mkdir(host.folder + '/data')
        if subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=40m', 'tmpfs',
                           host.folder + '/data']).returncode != 0:
            self.skipTest('no tmpfs can be mounted')
        host.port, host.more, host.faults = free_port(), (), None
        try:
            host.start()
            self.fill_disk(host)
        finally:
            host.kill()
            subprocess.run(['umount', host.folder + '/data'], check=True)
            host.close()

    def faulty(self):
        """A server with faults, a client of it, and the faults."""
        faults = Faults()
        host = Server(faults=faults)
        self.addCleanup(host.close)
        client = host.connect()
        self.addCleanup(client.close)
        return host, client, faults

    def test_a_batch_that_is_not_committed_is_undone(self):
        host, client, faults = self.faulty()
        large = b'y' * 5000
        client.call('HWT.ADD', 'q', 'IN', 0, 'TASKS', 'a', 'x', 'b', large)
        task = take(client, 'q', 1)[b'a']
        before = client.pairs('HWT.STAT', 'q')
        faults.set(write_error=errno.ENOSPC)
        requests = (('HWT.FINISH', 'q', 'DONE', 'TASKS', 'a', task[1]),
                    ('HWT.ADD', 'q', 'IN', 0, 'TASKS', 'c', 'z'),
                    ('HWT.ADD', 'new', 'IN', 0, 'TASKS', 'c', 'z'),
                    ('HWT.QUEUE', 'q', 'RATE', 7),
                    ('HWT.CANCEL', 'q', 'b'))
        for words in requests:
            client.send(*words)
        for words in requests:
            self.assertTrue(str(client.read()).startswith('FULL'), words)
        faults.set()
        after = client.pairs('HWT.STAT', 'q')
        for name in ('now', 'ahead', 'late', 'memory-bytes'):
            del before[name], after[name]
        self.assertEqual(after, before)
        self.assertEqual(client.pairs('HWT.GET', 'q', 'b')['payload'], large)
        self.assertEqual(client.call(*requests[0]), [1])
        # The disk has room again: that is seen within a second or two.
        end = time.monotonic() + 10
        while True:
            try:
                client.call('HWT.ADD', 'q', 'IN', 0, 'TASKS', 'd', 'z')
                break
            except Error:
                self.assertLess(time.monotonic(), end)
                time.sleep(0.1)
        # The log begins anew after 16 MiB.
        for i in range(0, 800, 40):
            client.call('HWT.ADD', 'other', 'IN', 0, 'TASKS',
                        *[word for j in range(40)
                          for word in (i + j, 'x' * 60000)])
        self.assertLess(os.path.getsize(host.folder + '/data/tasks.db-wal'),
                        32 << 20)
        client = host.restart()
        states = [client.pairs('HWT.GET', 'q', name)['state']
                  for name in ('a', 'b', 'd')]
        self.assertEqual(states, [b'done', b'due', b'due'])
        self.assertEqual(client.pairs('HWT.GET', 'q', 'b')['payload'], large)
        self.assertIsNone(client.call('HWT.GET', 'q', 'c'))
        client.close()

    def test_adds_before_a_backup_on_a_full_disk_are_refused(self):
        host, client, faults = self.faulty()
        faults.set(write_error=errno.ENOSPC)
        client.socket.sendall(
            client.bytes('HWT.GET', 'other', 'a') +
            client.bytes('HWT.ADD', 'q', 'IN', 0, 'TASKS', 'a', 'x') +
            client.bytes('HWT.BACKUP', host.folder + '/none/copy'))
        for code in ('None', 'FULL', 'ERR'):
            self.assertEqual(str(client.read()).split()[0], code)
        faults.set()
        self.assertIsNone(client.call('HWT.GET', 'q', 'a'))

    def test_a_disk_that_fails_ends_the_process(self):
        # At level memory only the copying of the log syncs.
        for level, fault in (('fsync', 'sync_error'), ('fsync', 'write_error'),
                             ('memory', 'sync_error')):
            with self.subTest(level=level, fault=fault):
                host, client, faults = self.faulty()
                client.call('HWT.QUEUE', 'q', 'LEVEL', level)
                client.call('HWT.ADD', 'q', 'IN', 0, 'TASKS', 'a', 'x')
                faults.set(**{fault: errno.EIO})
                with self.assertRaises(OSError):
                    for i in range(1 if level == 'fsync' else 2000):
                        client.call('HWT.ADD', 'q', 'IN', 0, 'TASKS', i,
                                    'x' * 60000)
                self.assertEqual(host.process.wait(10), 1)
                self.assertIn('hwtd: ends: the store: disk I/O', host.log())
                faults.set()
                host.start()
                client = host.connect()
                self.assertEqual(
                    client.pairs('HWT.GET', 'q', 'a')['state'], b'due')
                client.close()

    def test_a_server_that_is_held_up_between_two_clocks_is_not_early(self):
        _, client, faults = self.faulty()
        faults.set(stall_s=0.02)
        for number in range(40):
            client.call('HWT.ADD', 'q', 'IN', 30, 'TASKS', number, 'x')
            task, = take(client, 'q', 1, 9000, 'BLOCK', 20000).values()
            self.assertGreaterEqual(time.time() * 1000, task[4])

    def test_steps_of_the_clock_delay_nothing_and_end_no_lease(self):
        host, client, faults = self.faulty()
        client.call('HWT.ADD', 'q', 'IN', 0, 'TASKS', 'held', 'x')
        held = take(client, 'q', 1, 2000)[b'held']
        faults.set(wall_s=3600)
        client.call('HWT.ADD', 'q', 'IN', 300, 'TASKS', 'a', 'x')
        self.assertEqual(take(client, 'q', 1, 9000, 'BLOCK', 5000)[b'a'][2], 1)
        self.assertEqual(client.call('HWT.EXTEND', 'q', 9000, 'TASKS', 'held',
                                     held[1]), [1])
        faults.set()
        for name in ('b', 'c'):
            begin = time.monotonic()
            client.call('HWT.ADD', 'q', 'IN', 500, 'TASKS', name, 'x')
            self.assertIn(name.encode(),
                          take(client, 'q', 1, 9000, 'BLOCK', 20000))
            took = time.monotonic() - begin
            self.assertGreaterEqual(took, 0.5)
            # Nine tenths of the speed, and not the hour.
            self.assertLess(took, 60)
            client.call('HWT.QUEUE', 'q')
            stat = client.pairs('HWT.STAT', 'q')
            self.assertGreater(stat['now'], time.time() * 1000 + 3500000)
            self.assertGreater(stat['ahead'], 3500000)
            client = host.restart()
        faults.set(wall_s=-3600)
        client.call('HWT.ADD', 'q', 'IN', 300, 'TASKS', 'd', 'x')
        self.assertIn(b'd', take(client, 'q', 1, 9000, 'BLOCK', 20000))
        self.assertEqual(client.call('HWT.FINISH', 'q', 'DONE', 'TASKS',
                                     'held', held[1]), [1])
        client.close()

    def test_a_store_of_another_program_or_version_is_refused(self):
        self.host.stop()
        path = self.host.folder + '/data/tasks.db'
        for version in (7, 0x68777402):
            self.change_store(path, f'user_version = {version}')
            with self.assertRaises(RuntimeError) as caught:
                self.host.start()
            self.assertIn('another program or version', str(caught.exception))
            self.change_store(path, f'user_version = {0x68777401}')
        self.host.start()
        self.host.stop()
        for name in os.listdir(self.host.folder + '/data'):
            os.remove(f'{self.host.folder}/data/{name}')
        with open(path, 'wb') as file:
            file.write(b'no store' * 1000)
        with self.assertRaises(RuntimeError) as caught:
            self.host.start()
        self.assertIn('not a database', str(caught.exception))
        with open(path, 'rb') as file:
            self.assertEqual(file.read(), b'no store' * 1000)
        os.remove(path)
        os.mkdir(path)
        with self.assertRaises(RuntimeError) as caught:
            self.host.start()
        self.assertIn('unable to open', str(caught.exception))

    @staticmethod
    def change_store(path, setting):
        store = sqlite3.connect(path)
        store.execute('PRAGMA ' + setting)
        store.close()

    def test_requests_of_a_browser_are_not_run(self):
        body = b'HWT.ADD q IN 0 TASKS a x\r\n'
        for head in (b'POST / HTTP/1.1\r\n', b'GET / HTTP/1.1\r\nHost: x\r\n',
                     b'Host: x\r\n'):
            self.assertTrue(self.raw(head + b'\r\n' + body))
        self.assertEqual(self.client.call('HWT.QUEUES', 0, 10)[1], [])

    def test_what_clients_of_redis_send_is_understood(self):
        for words, answer in (
                (('ping',), b'PONG'), (('PING', 'x'), b'x'),
                (('SELECT', 0), b'OK'), (('QUIT',), b'OK')):
            self.assertEqual(self.client.call(*words), answer)
        self.client = self.host.connect()
        self.assertIn(b'hwtd_version:', self.client.call('INFO'))
        for words in (('SELECT', 1), ('SET', 'a', 1), ('HWT.ADD',),
                      ('HWT.BACKUP',), ('HWT.NOTHING', 'q'), ('AUTH', 'x')):
            with self.assertRaises(Error):
                self.client.call(*words)

    def test_redis_cli_and_a_unix_socket(self):
        self.host.stop()
        path = self.host.folder + '/socket'
        self.host.more = ('--listen', 'unix:' + path)
        self.host.start()
        for where in (['-p', str(self.host.port)], ['-s', path]):
            run = subprocess.run(
                ['redis-cli', *where, 'HWT.ADD', 'q', 'IN', '0', 'TASKS',
                 where[0], 'x'], capture_output=True, text=True, timeout=20)
            self.assertEqual(run.stdout, '0\n')
        run = subprocess.run(
            ['redis-cli', '-s', path, '--pipe'], timeout=20,
            input=b''.join(
                b'*3\r\n$10\r\nHWT.CANCEL\r\n$1\r\nq\r\n$2\r\n-%c\r\n' % name
                for name in b'ps' * 150), capture_output=True)
        self.assertIn(b'errors: 0, replies: 300', run.stdout)

    def fill_disk(self, host):
        client = host.connect()
        client.call('HWT.ADD', 'held', 'IN', 0, 'TASKS', 'a', 'x')
        held = take(client, 'held')[b'a']
        stored, answer = 0, [0]
        while answer == [0]:
            client.socket.sendall(
                client.bytes('HWT.ADD', 'q', 'IN', 0, 'TASKS', f'a{stored}',
                             'x' * 60000) +
                client.bytes('HWT.EXTEND', 'held', 30000, 'TASKS', 'a',
                             held[1]))
            answer = client.read()
            self.assertEqual(client.read(), [1])
            stored += answer == [0]
        self.assertTrue(str(answer).startswith('FULL'))
        self.assertGreater(stored, 50)
        # The reserve is for what ends tasks.
        with self.assertRaises(Error):
            client.call('HWT.ADD', 'q', 'IN', 0, 'TASKS', 'small', 'x')
        self.assertEqual(client.pairs('HWT.STAT', 'q')['added-total'], stored)
        done = 0
        while done < stored:
            tasks = take(client, 'q', 50)
            self.assertTrue(tasks)
            done += sum(client.call(
                'HWT.FINISH', 'q', 'DONE', 'TASKS',
                *[word for task in tasks.values() for word in task[:2]]))
        self.assertEqual(done, stored)
        client.close()


class InServerSlowly(unittest.TestCase):
    make = InServer.make
    setUp, tearDown = Hosted.setUp, Hosted.tearDown

    def test_answers_of_more_bytes_than_may_wait_are_sent(self):
        host = Server('--payload', '1048576')
        self.addCleanup(host.close)
        client = host.connect()
        for at in range(0, 150, 50):
            words = [word for i in range(at, at + 50)
                     for word in (f'id{i}', 'x' * 2**20)]
            client.call('HWT.ADD', 'q', 'IN', 0, 'TASKS', *words)
        # A take ends after 8 MiB.
        for _ in range(19):
            client.send('HWT.TAKE', 'q', 'w', 75, 30000)
        client.send('PING')
        time.sleep(1)
        self.assertEqual([len(client.read()) for _ in range(20)],
                         [8] * 18 + [6, 4])
        client.close()

    def test_a_client_that_does_not_read_is_closed(self):
        self.client.call('HWT.ADD', 'q', 'IN', 10**6, 'TASKS', 'a',
                         'x' * 65536)
        with socket.create_connection(('127.0.0.1', self.host.port)) as raw:
            request = b'*3\r\n$7\r\nHWT.GET\r\n$1\r\nq\r\n$1\r\na\r\n'
            raw.settimeout(20)
            with self.assertRaises(OSError):
                for _ in range(2000):
                    raw.sendall(request * 100)
                    time.sleep(0.01)
        self.assertEqual(self.client.call('PING'), b'PONG')


def main():
    global SECONDS, EVERY
    words = sys.argv[1:]
    while words[:1] in (['--seconds'], ['--every']):
        if words[0] == '--every':
            EVERY = int(words[1])
        else:
            SECONDS = float(words[1])
        words = words[2:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    loader = unittest.defaultTestLoader
    module = sys.modules['__main__']
    suite = (loader.loadTestsFromNames(words, module) if words
             else loader.loadTestsFromModule(module))
    result = unittest.TextTestRunner(verbosity=1).run(suite)
    failed = len(result.failures) + len(result.errors)
    print(f'{result.testsRun - failed - len(result.skipped)} passed, '
          f'{failed} failed, {len(result.skipped)} skipped')
    sys.exit(failed > 0 or result.testsRun == 0)


if __name__ == '__main__':
    main()
