# SPDX-License-Identifier: Apache-2.0
"""The client and its worker, in processes of their own (client.c): against
hwtd, Redis with hwt.so, the server in the process, a cluster, a Sentinel, and
servers that answer what they should not.

    client.py [--seconds N] [CLASS[.test] ...]

The last line counts.
"""
import collections
import os
import queue
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import hosts
from hosts import BUILD, Client, Error, Host, Redis, Server, free_port

KEY = '{hwt:%s}'
CLIENT = os.environ.get('CLIENT', BUILD + '/modules/durable/test/client')


class Process:
    """A process with a handle; runs: what its worker has begun."""

    def __init__(self):
        self.process = subprocess.Popen(
            [*os.environ.get('HWT_BEFORE', '').split(), CLIENT],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answers = queue.Queue()
        self.runs = []
        self.changed = threading.Condition()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            words = line.split()
            if words[0] != 'run':
                self.answers.put(line.strip())
                continue
            with self.changed:
                self.runs.append(tuple(words[1:]))
                self.changed.notify_all()
        self.answers.put('ended')

    def send(self, *words):
        self.process.stdin.write(' '.join(map(str, words)) + '\n')
        self.process.stdin.flush()

    def call(self, *words, timeout=60):
        """What follows the command in its answer."""
        self.send(*words)
        answer = self.answers.get(timeout=timeout)
        name, _, rest = answer.partition(' ')
        if name != words[0]:
            raise RuntimeError(f'{words}: {answer}')
        return rest

    def ids(self):
        """How often each task was begun."""
        with self.changed:
            return collections.Counter(run[1] for run in self.runs)

    def wait(self, count, timeout=60):
        """Until so many callbacks have begun."""
        with self.changed:
            return self.changed.wait_for(
                lambda: len(self.runs) >= count, timeout)

    def end(self, status=0):
        """Its standard input ends, and so does it."""
        self.process.stdin.close()
        got = self.process.wait(60)
        self.reader.join()
        self.process.stdout.close()
        if status is not None and got != status:
            raise RuntimeError(f'the client ended with {got}')

    def kill(self):
        self.process.kill()
        self.end(None)


def until(condition, timeout=60):
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


class Scratch(unittest.TestCase):
    """Closes what a test has made."""

    def made(self, thing):
        self.addCleanup(thing.close)
        return thing

    def process(self, servers, timeout=5000, *more):
        process = Process()
        self.addCleanup(
            lambda: process.process.poll() is None and process.kill())
        # Not even a short timeout is to end it before it has begun.
        self.assertTrue(until(
            lambda: process.call('open', servers, timeout, *more) == '0'))
        return process

    def stats(self, process, name):
        words = process.call('stat', name).split()
        self.assertEqual(words[0], '0')
        return {key: int(value) for key, value in
                (word.split('=') for word in words[1:])}


class Driven:
    """Tests that each kind of server must pass."""

    def test_each_function_answers(self):
        client = self.opened()
        self.assertEqual(client.call('add', 'q', 'a', 60000, 'x'), '0')
        self.assertEqual(client.call('add', 'q', 'a', 60000, 'x'), '1')
        self.assertEqual(client.call('add', 'q', 'b', 0, 'x'), '0')
        self.assertEqual(client.call('add', 'q', 'b', 0, 'x'), '2')
        self.assertEqual(client.call('get', 'q', 'a'), '0 1 0 20 1 x|')
        self.assertEqual(client.call('get', 'q', 'none'), '-ENOENT')
        self.assertEqual(client.call('reschedule', 'q', 'a', 5), '0')
        self.assertEqual(client.call('reschedule', 'q', 'none', 5), '-ENOENT')
        self.assertEqual(client.call('cancel', 'q', 'b'), '0')
        self.assertEqual(client.call('cancel', 'q', 'b'), '0')
        self.assertEqual(client.call('cancel', 'q', 'none'), '-ENOENT')
        self.assertEqual(client.call('add', 'q', 'b', 0, 'x'), '6')
        stats = self.stats(client, 'q')
        self.assertEqual([stats['added'], stats['cancelled']], [2, 1])
        self.assertEqual(self.stats(client, 'none')['added'], 0)
        self.assertEqual(client.call('close'), '0')
        client.end()

    def test_arguments_that_are_wrong_are_refused(self):
        client = self.opened()
        for words in (
                ('add', 'q{', 'a', 0, 'x'), ('add', 'q' * 65, 'a', 0, 'x'),
                ('add', 'q', 'a' * 65, 0, 'x'),
                ('add', 'q', 'a', 400000000000, 'x'),
                ('add', 'q', 'a', 0, 'x', 1001), ('add', 'q', 'a'
                                                  , 0, 'x', 1, 400000000000),
                ('cancel', 'q'), ('cancel', 'q', 'a' * 65), ('get', ''),
                ('reschedule', 'q', 'a', 400000000000), ('stat', 'q,'),
                ('work', 'q,q'), ('work', 'q,'), ('work', 'q', 2000),
                ('work', 'q', 1, 999), ('work', 'q', 4, 1000, 3),
                ('work', 'q', 1, 1000, 65537)):
            self.assertEqual(client.call(*words), '-EINVAL', words)
        self.assertEqual(self.stats(client, 'q')['added'], 0)
        client.end()

    def test_an_add_with_an_invalid_element_stores_nothing(self):
        client = self.opened()
        self.assertEqual(client.call('addbatch', 'q', 'a', 60, 59),
                         'EINVAL 0 -22')
        self.assertEqual(self.stats(client, 'q')['added'], 0)
        self.assertEqual(client.call('addbatch', 'q', 'a', 60), '0 60 0')
        self.assertEqual([self.stats(client, name)['added']
                          for name in ('q', 'q.2')], [30, 30])
        client.end()

    def test_each_outcome_of_a_callback(self):
        client = self.opened()
        for name, payload in (
                ('done', 'done'), ('soon', 'retry,1'), ('policy', 'retry'),
                ('fail', 'fail,why'), ('now', 'now'), ('later', 'later'),
                ('again', 'later')):
            client.call('add', 'q', name, 0, payload, 3, 20)
        # Those that fail for one reason are ended together.
        for i in range(40):
            client.call('add', 'p', f'x{i}', 0, f'fail,why{i % 3}')
        client.call('work', 'q,p', 4, 5000, 16)
        self.assertTrue(client.wait(51))
        self.assertTrue(until(
            lambda: client.call('finish', 'later', 0) == '0'))
        self.assertEqual(client.call('finish', 'later', 0), '-ESTALE')
        self.assertTrue(until(
            lambda: client.call('finish', 'again', 2, 0, 'bad') == '0'))
        self.assertEqual(client.call('finish', 'again', 4), '-EINVAL')
        self.assertEqual(client.call('stop', 20000), '0')
        for i in range(40):
            self.assertTrue(client.call('get', 'p', f'x{i}').endswith(
                f'|why{i % 3}'), i)
        self.assertEqual({name: count for name, count in client.ids().items()
                          if name[0] != 'x'},
                         {'done': 1, 'soon': 3, 'policy': 3, 'fail': 1,
                          'now': 1, 'later': 1, 'again': 1})
        self.assertEqual(client.call('get', 'q', 'fail'),
                         '0 5 1 3 8 fail why|why')
        self.assertEqual(client.call('get', 'q', 'again'),
                         '0 5 1 3 5 later|bad')
        stats = self.stats(client, 'q')
        self.assertEqual([stats['done'], stats['dead'], stats['leases_ended']],
                         [5, 2, 0])
        client.end()

    def test_a_higher_queue_is_emptied_first(self):
        client = self.opened()
        client.call('addmany', 'low', 'l', 50, 1, 0, 'done')
        client.call('addmany', 'high', 'h', 50, 1, 0, 'done')
        client.call('work', 'high,low', 1, 5000, 4)
        self.assertTrue(client.wait(100))
        self.assertEqual(client.call('stop', 20000), '0')
        names = [run[0] for run in client.runs]
        self.assertEqual(names, ['high'] * 50 + ['low'] * 50)
        client.end()

    def test_a_worker_that_was_idle_gets_what_is_added_to_each_queue(self):
        client = self.opened()
        client.call('work', 'a,b,c', 2, 5000)
        for i in range(5):
            for name in 'cba':
                client.call('add', name, f'{name}{i}', 5, 'done')
            self.assertTrue(client.wait(3 * i + 3), i)
        self.assertEqual(client.call('stop', 20000), '0')
        self.assertEqual(len(client.ids()), 15)
        client.end()

    def test_a_lease_is_extended_while_a_callback_runs_or_is_left_open(self):
        client = self.opened()
        client.call('add', 'q', 'long', 0, 'sleep,2500,done')
        client.call('add', 'q', 'open', 0, 'later')
        client.call('work', 'q', 2, 1000)
        self.assertTrue(client.wait(2))
        time.sleep(2.2)
        self.assertEqual(client.call('finish', 'open', 0), '0')
        self.assertEqual(client.call('stop', 20000), '0')
        stats = self.stats(client, 'q')
        self.assertEqual([stats['done'], stats['leases_ended']], [2, 0])
        self.assertEqual(len(client.runs), 2)
        client.end()

    def test_a_task_that_is_cancelled_while_it_runs_cannot_be_ended(self):
        client = self.opened()
        client.call('add', 'q', 'a', 0, 'later')
        client.call('work', 'q', 1, 1000)
        self.assertTrue(client.wait(1))
        self.assertEqual(client.call('cancel', 'q', 'a'), '0')
        self.assertTrue(until(
            lambda: client.call('finish', 'a', 0) == '-ESTALE'))
        self.assertEqual(client.call('stop', 20000), '0')
        self.assertEqual(client.call('get', 'q', 'a')[:4], '0 6 ')
        client.end()

    def test_a_stop_waits_for_callbacks_and_takes_no_more(self):
        client = self.opened()
        client.call('add', 'q', 'a', 0, 'sleep,1000,done')
        client.call('work', 'q', 1, 5000, 1)
        self.assertTrue(client.wait(1))
        client.call('add', 'q', 'b', 0, 'done')
        self.assertEqual(client.call('stop', 1), '-EBUSY')
        self.assertEqual(client.call('close'), '-EBUSY')
        self.assertEqual(client.call('stop', 20000), '0')
        stats = self.stats(client, 'q')
        self.assertEqual([stats['done'], stats['due'], stats['running']],
                         [1, 1, 0])
        self.assertEqual(client.call('close'), '0')
        client.end()

    def test_nothing_of_a_handle_works_in_a_child(self):
        client = self.opened()
        client.call('add', 'q', 'a', 0, 'sleep,300,done')
        client.call('work', 'q', 1, 5000)
        self.assertTrue(client.wait(1))
        self.assertEqual(client.call('fork'), '0')
        self.assertEqual(client.call('stop', 20000), '0')
        self.assertEqual(client.call('fork'), '0')
        client.end()

    def test_many_threads_add_and_all_is_executed_once(self):
        client = self.opened()
        client.call('work', 'q', 4, 30000, 64)
        self.assertEqual(
            client.call('addmany', 'q', 'a', 4000, 16, 5, 'done'), '4000 0 0 0')
        self.assertTrue(client.wait(4000))
        self.assertEqual(client.call('stop', 20000), '0')
        self.assertEqual(set(client.ids().values()), {1})
        self.assertEqual(self.stats(client, 'q')['done'], 4000)
        client.end()


class InServer(Driven, Scratch):
    def opened(self):
        self.host = self.made(Server())
        return self.process(f'127.0.0.1:{self.host.port}')

    def test_a_queue_that_is_paused_does_not_hold_up_those_behind_it(self):
        client = self.opened()
        direct = self.host.connect()
        client.call('add', 'high', 'h', 0, 'done')
        direct.call('HWT.QUEUE', KEY % 'high', 'PAUSE')
        client.call('work', 'high,low', 1, 5000)
        for i in range(5):
            client.call('add', 'low', f'l{i}', 0, 'done')
            self.assertTrue(client.wait(i + 1), i)
        self.assertEqual(set(client.ids()), {f'l{i}' for i in range(5)})
        direct.call('HWT.QUEUE', KEY % 'high', 'RESUME')
        self.assertTrue(client.wait(6))
        self.assertEqual(client.call('stop', 20000), '0')
        direct.close()
        client.end()


class InRedis(Driven, Scratch):
    def opened(self):
        return self.process(f'127.0.0.1:{self.made(Redis()).port}')


class InProcess(Driven, Scratch):
    def opened(self):
        self.folder = tempfile.mkdtemp(prefix='hwt-client-')
        self.addCleanup(shutil.rmtree, self.folder, True)
        return self.process('file:' + self.folder)

    def test_a_second_process_is_refused_until_the_first_has_closed_it(self):
        client = self.opened()
        client.call('add', 'q', 'a', 60000, 'x')
        other = Process()
        self.assertEqual(other.call('open', 'file:' + self.folder, 5000),
                         '-EBUSY')
        self.assertEqual(client.call('close'), '0')
        self.assertEqual(other.call('open', 'file:' + self.folder, 5000), '0')
        self.assertEqual(other.call('get', 'q', 'a')[:2], '0 ')
        other.end()
        client.end()

    def test_what_was_acknowledged_survives_a_kill(self):
        client = self.opened()
        self.assertEqual(client.call('addmany', 'q', 'a', 500, 8, 0, 'done'),
                         '500 0 0 0')
        client.kill()
        client = self.process('file:' + self.folder)
        self.assertEqual(self.stats(client, 'q')['due'], 500)
        client.end()


class Fake:
    """A server whose answers a function makes: bytes, pieces of them, or None
    for none."""

    def __init__(self, answer):
        self.answer = answer
        self.requests = []
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.port = self.listener.getsockname()[1]
        self.sockets = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                one = self.listener.accept()[0]
            except OSError:
                return
            self.sockets.append(one)
            threading.Thread(target=self.serve, args=(one,),
                             daemon=True).start()

    def serve(self, one):
        file = one.makefile('rb')
        try:
            while True:
                line = file.readline()
                if not line:
                    break
                words = []
                for _ in range(int(line[1:])):
                    length = int(file.readline()[1:])
                    words.append(file.read(length + 2)[:-2])
                self.requests.append(words)
                answer = self.answer(words)
                if isinstance(answer, bytes):
                    answer = [answer]
                for piece in answer or ():
                    one.sendall(piece)
        except (OSError, ValueError):
            pass
        finally:
            one.close()

    def close(self):
        # Ends accept as well.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for one in self.sockets:
            one.close()


MASTER = b'*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n'
GREETING = b'*2\r\n$1\r\n0\r\n*0\r\n'
STORED = b'*1\r\n:0\r\n'


def slots_of(*ports):
    """An answer to CLUSTER SLOTS: all of them have equal parts."""
    text = f'*{len(ports)}\r\n'
    for i, port in enumerate(ports):
        first, last = (16384 * j // len(ports) for j in (i, i + 1))
        text += f'*3\r\n:{first}\r\n:{last - 1}\r\n' \
                f'*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n'
    return text.encode()


class Fakes(Scratch):
    """Servers that answer what a test says."""

    def fake(self, answer):
        """It is one of hwt; answer: to what follows the greeting."""
        def with_greeting(words):
            if words[0] == b'ROLE':
                return MASTER
            if words[0] == b'HWT.QUEUES':
                return GREETING
            return answer(words)
        return self.made(Fake(with_greeting))

    def test_concurrent_adds_are_one_command(self):
        held = threading.Event()
        seen = threading.Event()

        def answer(words):
            seen.set()
            held.wait(20)
            count = (len(words) - words.index(b'TASKS') - 1) // 2
            return b'*%d\r\n' % count + b':0\r\n' * count
        fake = self.fake(answer)
        client = self.process(f'127.0.0.1:{fake.port}', 20000)
        client.send('addmany', 'q', 'a', 16, 16, 0, 'x')
        self.assertTrue(seen.wait(20))
        time.sleep(0.5)  # the other fifteen wait for the answer of the first
        held.set()
        self.assertEqual(client.answers.get(timeout=20), 'addmany 16 0 0 0')
        # One if they come at once, two if the first comes before the others.
        adds = [words for words in fake.requests if words[0] == b'HWT.ADD']
        self.assertLessEqual(len(adds), 2)
        client.end()

    def test_a_refusal_of_a_merged_add_is_only_of_those_that_it_is_about(self):
        held = threading.Event()
        seen = threading.Event()

        def answer(words):
            seen.set()
            held.wait(20)
            if b'a3' in words:
                return b'-ARG not this one\r\n'
            count = (len(words) - words.index(b'TASKS') - 1) // 2
            return b'*%d\r\n' % count + b':0\r\n' * count
        client = self.process(
            f'127.0.0.1:{self.fake(answer).port}', 20000)
        client.send('addmany', 'q', 'a', 8, 8, 0, 'x')
        self.assertTrue(seen.wait(20))
        time.sleep(0.3)
        held.set()
        self.assertEqual(client.answers.get(timeout=20), 'addmany 7 0 0 1')
        client.end()

    def test_errors_of_the_server_are_told_as_what_they_are(self):
        answers = {b'arg': b'-ARG bad', b'full': b'-FULL disk',
                   b'oom': b'-OOM memory', b'level': b'-DURABILITY none',
                   b'paused': b'-PAUSED it is', b'type': b'-WRONGTYPE other',
                   b'perm': b'-NOPERM no', b'auth': b'-NOAUTH log in',
                   b'odd': b'-ERR odd'}
        client = self.process('127.0.0.1:%d' % self.fake(
            lambda words: answers[words[words.index(b'TASKS') + 1]] +
            b'\r\n').port)
        for name, error in (
                ('arg', 'EINVAL'), ('full', 'ENOSPC'), ('oom', 'ENOSPC'),
                ('level', 'EOPNOTSUPP'), ('paused', 'EAGAIN'),
                ('type', 'EPROTO'), ('perm', 'EACCES'), ('auth', 'EACCES'),
                ('odd', 'EPROTO')):
            self.assertEqual(client.call('add', 'q', name, 0, 'x'),
                             '-' + error, name)
        client.end()

    def test_a_server_that_is_not_ready_is_asked_again(self):
        for text in ('LOADING it', 'TRYAGAIN it', 'BUSY it', 'CLUSTERDOWN it',
                     'MASTERDOWN it', 'READONLY it',
                     'ERR max number of clients reached'):
            left = [3]

            def answer(words, left=left, text=text):
                left[0] -= 1
                return f'-{text}\r\n'.encode() if left[0] >= 0 else STORED
            client = self.process(f'127.0.0.1:{self.fake(answer).port}')
            self.assertEqual(client.call('add', 'q', 'a', 0, 'x'), '0', text)
            client.end()
        client = self.process(f'127.0.0.1:{self.fake(answer).port}', 300)
        left[0] = 10 ** 6
        # The latter if its time is over while it is asked once more.
        self.assertIn(client.call('add', 'q', 'a', 0, 'x'),
                      ('-EAGAIN', '-ETIMEDOUT'))
        client.end()

    def test_an_answer_that_does_not_come_is_uncertain(self):
        client = self.process(
            f'127.0.0.1:{self.fake(lambda words: None).port}', 300)
        self.assertEqual(client.call('add', 'q', 'a', 0, 'x'), '-ETIMEDOUT')
        self.assertEqual(client.call('cancel', 'q', 'a'), '-ETIMEDOUT')
        self.assertEqual(
            client.call('addmany', 'q', 'a', 8, 8, 0, 'x').split()[0], '0')
        client.end()

    def test_an_answer_that_comes_late_is_no_others(self):
        """Whose time is over while others wait for the same server leaves its
        place: what is answered then is still everybody's own."""
        def answer(words):
            tasks = words[words.index(b'TASKS') + 1:]
            if tasks[0] == b'quick':
                return b'*1\r\n:2\r\n'
            time.sleep(0.25)
            return b'*%d\r\n' % (len(tasks) // 2) + \
                b':0\r\n' * (len(tasks) // 2)
        client = self.process(
            f'127.0.0.1:{self.fake(answer).port}', 300)
        client.send('addmany', 'q', 'slow', 3, 3, 0, 'x')
        self.assertEqual(client.answers.get(timeout=60).split()[0], 'addmany')
        self.assertTrue(until(
            lambda: client.call('add', 'p', 'quick', 0, 'x') == '2'))
        client.end()

    def test_a_port_that_nobody_listens_on_and_one_that_never_accepts(self):
        client = Process()
        self.assertEqual(client.call('open', f'127.0.0.1:{free_port()}', 500),
                         '-ECONNREFUSED')
        with socket.create_server(('127.0.0.1', 0), backlog=0) as full:
            port = full.getsockname()[1]
            taken = []
            for _ in range(3):
                one = socket.socket()
                one.setblocking(False)
                one.connect_ex(('127.0.0.1', port))
                taken.append(one)
            time.sleep(0.1)
            self.assertEqual(client.call('open', f'127.0.0.1:{port}', 300),
                             '-ECONNREFUSED')
            for one in taken:
                one.close()
        client.end()

    def test_garbage_is_an_error(self):
        dice = random.Random(5)
        for text in (
                b'*1000000000\r\n', b'*-7\r\n', b'$99999999999\r\nx',
                b'*2\r\n:0\r\n:0\r\n', b'*1\r\n:7\r\n', b'*1\r\n:-1\r\n',
                b'*1\r\n$1\r\n0\r\n', b'*1\r\n*1\r\n:0\r\n', b':0\r\n',
                b'$-1\r\n', b'+OK\r\n', b'*0\r\n', b'*-1\r\n', b'\0' * 99,
                b'*1\r\n' * 50, b'*1\r\n:\r\n', b'-\r\n', b'-MOVED\r\n',
                b'-MOVED 1\r\n', b'-MOVED 99999 a:1\r\n', b'-ASK x y\r\n',
                b'-MOVED 1 ' + b'h' * 300 + b':1\r\n',
                *(bytes(dice.choice(b'*$:+-\r\n0123456789a') for _ in
                        range(dice.randrange(1, 40))) for _ in range(40))):
            fake = self.fake(lambda words, text=text: text)
            client = self.process(f'127.0.0.1:{fake.port}', 200)
            for words in (('add', 'q', 'a', 0, 'x'), ('cancel', 'q', 'a'),
                          ('get', 'q', 'a'), ('stat', 'q')):
                answer = client.call(*words)
                self.assertTrue(
                    answer.startswith('-E') or text[:1] in (b'$', b'*', b':'),
                    (text, answer))
            client.end()

    def test_hwtctl_survives_garbage(self):
        for text in (b':0\r\n', b'$-1\r\n', b'+OK\r\n', b'*0\r\n',
                     b'*1\r\n:7\r\n', b'*1\r\n*1\r\n:0\r\n',
                     b'*2\r\n:0\r\n:0\r\n',
                     b'*3\r\n$1\r\n0\r\n:0\r\n:1\r\n'):
            fake = self.fake(lambda words, text=text: text)
            for words in (('add', 'q'), ('cancel', 'q', 'a'), ('stat', 'q'),
                          ('show', 'q', 'a'), ('list', 'q', 'due')):
                ended = subprocess.run(
                    [BUILD + '/hwtctl', '--server', f'127.0.0.1:{fake.port}',
                     *words], capture_output=True, timeout=60, check=False)
                self.assertIn(ended.returncode, (0, 1, 3), (text, words))

    def test_an_answer_without_end_is_not_gathered(self):
        """It is cut off long before the client has no more time."""
        mib = b'x' * 1048576
        for name, pieces in (
                ('bulk', [b'$2147483647\r\n'] + 9 * [mib]),
                ('line', [b'+'] + 9 * [mib]),
                ('bulks', [b'*999\r\n'] + 300 * [
                    b'$1048576\r\n', mib, b'\r\n']),
                ('depth', [b'*1\r\n' * 1000])):
            fake = self.fake(lambda words, pieces=pieces:
                             STORED if b'good' in words else pieces)
            client = self.process(f'127.0.0.1:{fake.port}', 60000)
            try:
                answer = client.call('add', 'q', 'bad', 0, 'x', timeout=20)
            except queue.Empty:
                answer = 'nothing'
            self.assertEqual(answer, '-ETIMEDOUT', name)
            self.assertEqual(client.call('add', 'q', 'good', 0, 'x'), '0')
            client.end()

    def test_an_answer_that_comes_twice_is_not_that_of_the_next_call(self):
        client = self.process('127.0.0.1:%d' % self.fake(
            lambda words: b'*1\r\n:%d\r\n' % (b'a' in words) * 2).port)
        for name, state in (('a', '1'), ('b', '0'), ('a', '1')):
            self.assertEqual(client.call('add', 'q', name, 0, 'x'), state)
        client.end()

    def test_a_worker_survives_garbage(self):
        dice = random.Random(6)
        pieces = (b'*-1\r\n', b'*1\r\n*6\r\n$1\r\na\r\n:1\r\n:1\r\n:1\r\n:1\r\n'
                  b'$4\r\ndone\r\n', b'*1\r\n:1\r\n', b'*1\r\n*0\r\n',
                  b'*300\r\n' + b'*0\r\n' * 300, b'+OK\r\n', b'-PAUSED x\r\n',
                  b'-ASK 1 127.0.0.1:1\r\n', b'*9999999999\r\n', b'junk')

        def answer(words):
            if dice.random() < 0.5:
                return dice.choice(pieces)
            if words[0] == b'HWT.TAKE':
                return pieces[1]
            takes = b'TAKE' in words
            end = words.index(b'TAKE') if takes else len(words)
            count = (end - words.index(b'TASKS') - 1) // 2
            return b'*%d\r\n' % (count + takes) + b':1\r\n' * count + \
                b'*-1\r\n' * takes
        fake = self.fake(answer)
        client = self.process(f'127.0.0.1:{fake.port}', 300)
        client.call('work', 'q,r', 2, 1000)
        self.assertTrue(client.wait(10))
        self.assertIn(client.call('stop', 3000), ('0', '-EBUSY'))
        client.kill()

    def test_redirections(self):
        asked = []

        def second(words):
            asked.append(words[0])
            return b'+OK\r\n' if words[0] == b'ASKING' else STORED
        other = self.fake(second)

        def first(words):
            if words[0] == b'CLUSTER':
                return slots_of(fake.port)
            kind = b'ASK' if b'ask' in words else b'MOVED'
            return b'-%s 1 127.0.0.1:%d\r\n' % (kind, other.port)
        fake = self.fake(first)
        client = self.process(f'cluster:127.0.0.1:{fake.port}')
        self.assertEqual(client.call('add', 'q', 'ask', 0, 'x'), '0')
        self.assertEqual(asked, [b'ASKING', b'HWT.ADD'])
        self.assertEqual(client.call('add', 'q', 'moved', 0, 'x'), '0')
        self.assertEqual(asked[2:], [b'HWT.ADD'])
        client.end()

    def test_a_cluster_whose_nodes_are_loading_is_waited_for(self):
        left = [3, 3]

        def answer(words):
            slots = words[0] == b'CLUSTER'
            left[slots] -= 1
            if left[slots] >= 0:
                return b'-LOADING it\r\n'
            return slots_of(fake.port) if slots else GREETING
        fake = self.made(Fake(lambda words: MASTER if words[0] == b'ROLE'
                              else answer(words)))
        client = Process()
        self.assertEqual(
            client.call('open', f'cluster:127.0.0.1:{fake.port}', 20000), '0')
        self.assertEqual(left, [-1, -1])
        client.end()

    def test_a_finish_that_is_answered_in_another_form_is_repeated(self):
        odd = [b'*1\r\n$1\r\n1\r\n', b'*1\r\n$-1\r\n', b':1\r\n']
        took = []

        def answer(words):
            if words[0] == b'HWT.TAKE':
                took.append(words)
                return b'*-1\r\n' if len(took) > 1 else \
                    b'*1\r\n*6\r\n$1\r\na\r\n:1\r\n:1\r\n:9\r\n:1\r\n' \
                    b'$4\r\ndone\r\n'
            if words[0] != b'HWT.FINISH' or b'TAKE' in words:
                return b'-ERR not now\r\n'
            return odd.pop() if odd else b'*1\r\n:1\r\n'
        client = self.process(f'127.0.0.1:{self.fake(answer).port}')
        client.call('work', 'q', 1, 30000, 1)
        self.assertTrue(client.wait(1))
        self.assertEqual(client.call('stop', 20000), '0')
        self.assertEqual(odd, [])
        client.end()

    def test_servers_that_name_each_other_for_ever(self):
        ports = []

        def answer(words):
            if words[0] == b'CLUSTER':
                return slots_of(ports[0])
            return b'-MOVED 1 127.0.0.1:%d\r\n' % ports[
                random.randrange(2)]
        for _ in range(2):
            ports.append(self.fake(answer).port)
        client = self.process(f'cluster:127.0.0.1:{ports[0]}', 400)
        self.assertIn(client.call('add', 'q', 'a', 0, 'x'),
                      ('-EAGAIN', '-ETIMEDOUT'))
        client.end()


class Proxy:
    """Between a client and a server. cut: after so many bytes in a direction,
    counted from when it is set, all connections are cut, once."""

    def __init__(self, port):
        self.to = port
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.port = self.listener.getsockname()[1]
        self.lock = threading.Lock()
        self.pairs = []
        self.direction = self.left = None
        threading.Thread(target=self.accept, daemon=True).start()

    def cut(self, direction, count):
        with self.lock:
            self.direction, self.left = direction, count

    def was_cut(self):
        with self.lock:
            return self.left is None

    def accept(self):
        while True:
            try:
                one = self.listener.accept()[0]
            except OSError:
                return
            try:
                other = socket.create_connection(('127.0.0.1', self.to))
            except OSError:
                one.close()
                continue
            pair = (one, other)
            with self.lock:
                self.pairs.append(pair)
            for direction in (0, 1):
                threading.Thread(target=self.copy, args=(pair, direction),
                                 daemon=True).start()

    def copy(self, pair, direction):
        try:
            while True:
                data = pair[direction].recv(65536)
                if not data:
                    break
                with self.lock:
                    ends = self.direction == direction and \
                        self.left is not None and len(data) >= self.left
                    if ends:
                        data = data[:self.left]
                        self.left = None
                    elif self.direction == direction and self.left:
                        self.left -= len(data)
                pair[1 - direction].sendall(data)
                if ends:
                    break
        except OSError:
            pass
        for one in pair:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for pair in self.pairs:
            for one in pair:
                one.close()


class Cut(Scratch):
    """A connection that is cut after each byte."""

    def test_of_an_add(self):
        host = self.made(Server())
        proxy = self.made(Proxy(host.port))
        direct = host.connect()
        client = self.process(f'127.0.0.1:{proxy.port}')
        for direction in (0, 1):
            for count in range(130):
                name = f'{direction}.{count}'
                # The end of the last connection may be seen only now.
                self.assertTrue(until(
                    lambda: client.call('stat', 'q')[:2] == '0 '))
                proxy.cut(direction, count)
                answer = client.call('add', 'q', name, 60000, 'x')
                state = direct.call('HWT.GET', KEY % 'q', name)
                if answer == '0':
                    self.assertIsNotNone(state, name)
                elif answer == '-ECONNREFUSED':
                    self.assertIsNone(state, name)
                else:
                    self.assertEqual(answer, '-ETIMEDOUT', name)
                if not proxy.was_cut():
                    break
                self.assertTrue(until(lambda: client.call(
                    'add', 'q', name, 60000, 'x') in ('0', '1')))
            self.assertGreater(count, 3)
        direct.close()
        client.end()

    def test_of_a_worker_which_then_executes_each_task_once(self):
        host = self.made(Server())
        proxy = self.made(Proxy(host.port))
        direct = host.connect()
        client = self.process(f'127.0.0.1:{proxy.port}')
        client.call('work', 'q', 2, 30000, 2)
        total = 0
        for direction in (0, 1):
            for count in range(0, 260, 1):
                proxy.cut(direction, count)
                ids = [f'{direction}.{count}.{i}' for i in range(3)]
                words = [word for name in ids for word in (name, 'done')]
                direct.call('HWT.ADD', KEY % 'q', 'IN', 0, 'TASKS', *words)
                total += 3
                self.assertTrue(client.wait(total, 20), (direction, count))
        self.assertTrue(until(
            lambda: direct.pairs('HWT.STAT', KEY % 'q')['done'] == total, 20))
        self.assertEqual(client.call('stop', 20000), '0')
        self.assertEqual(set(client.ids().values()), {1})
        self.assertEqual(len(client.ids()), total)
        stats = direct.pairs('HWT.STAT', KEY % 'q')
        self.assertEqual([stats['begun-total'], stats['retried-total']],
                         [total, 0])
        direct.close()
        client.end()


class Killed(Scratch):
    """Servers and workers that die under load: all that was acknowledged is
    executed."""

    def run_kills(self, host):
        self.made(host)
        worker = self.process(f'127.0.0.1:{host.port}', 1000)
        adder = self.process(f'127.0.0.1:{host.port}', 1000)
        worker.call('work', 'q', 4, 2000, 32)
        stored = uncertain = rounds = 0
        end = time.monotonic() + hosts.SECONDS
        while time.monotonic() < end:
            adder.send('addmany', 'q', f'a{rounds}.', 4000, 8, 20, 'done')
            time.sleep(random.uniform(0.05, 0.4))
            host.kill()
            host.start()
            got = adder.answers.get(timeout=120).split()
            stored += int(got[1])
            uncertain += int(got[3])
            rounds += 1
        direct = host.connect()

        def ended():
            stats = direct.pairs('HWT.STAT', KEY % 'q')
            return stats['done'] + stats['removed-total'] == \
                stats['added-total']
        self.assertTrue(until(ended))
        stats = direct.pairs('HWT.STAT', KEY % 'q')
        self.assertGreaterEqual(stats['added-total'], stored)
        self.assertLessEqual(stats['added-total'], stored + uncertain)
        self.assertEqual(worker.call('stop', 20000), '0')
        ids = worker.ids()
        self.assertEqual(len(ids), stats['added-total'])
        # Each further execution is an attempt that the server has counted.
        self.assertLessEqual(sum(ids.values()), stats['begun-total'])
        direct.close()
        adder.end()
        worker.end()

    def test_hwtd(self):
        self.run_kills(Server())

    def test_redis(self):
        self.run_kills(Redis())

    def test_a_worker_that_is_killed_or_hangs_is_replaced(self):
        host = self.made(Server())
        first = self.process(f'127.0.0.1:{host.port}')
        first.call('addmany', 'q', 'a', 20, 1, 0, 'sleep,50,done')
        first.call('add', 'q', 'long', 0, 'sleep,500,done')
        first.call('work', 'q', 2, 1000, 8)
        self.assertTrue(first.wait(3))
        first.process.send_signal(signal.SIGSTOP)
        second = self.process(f'127.0.0.1:{host.port}')
        second.call('work', 'q', 2, 1000, 8)
        self.assertTrue(until(
            lambda: self.stats(second, 'q')['done'] == 21))
        begun = len(first.runs)
        first.process.send_signal(signal.SIGCONT)
        self.assertEqual(first.call('stop', 20000), '0')
        stats = self.stats(second, 'q')
        self.assertEqual(stats['done'], 21)
        self.assertEqual(len(set(first.ids()) | set(second.ids())), 21)
        # What waited for a thread in the one that hung is not begun late:
        # each thread may have been on its way into a callback when it hung.
        self.assertLessEqual(len(first.runs), begun + 2)
        self.assertEqual(second.call('stop', 20000), '0')
        first.end()
        second.end()


class Cluster(Scratch):
    def cluster(self):
        ports = [free_port() for _ in range(3)]
        many = [self.made(Redis('--cluster-enabled', 'yes', '--cluster-port',
                                str(port), '--cluster-node-timeout', '1000'))
                for port in ports]
        clients = [host.connect() for host in many]
        for i, client in enumerate(clients):
            first, last = (16384 * j // 3 for j in (i, i + 1))
            client.call('CLUSTER', 'ADDSLOTSRANGE', first, last - 1)
            client.call('CLUSTER', 'SET-CONFIG-EPOCH', i + 1)
            client.call('CLUSTER', 'MEET', '127.0.0.1', many[0].port,
                        ports[0])
        self.assertTrue(until(lambda: all(
            b'cluster_state:ok' in client.call('CLUSTER', 'INFO') and
            b'cluster_known_nodes:3' in client.call('CLUSTER', 'INFO')
            for client in clients)))
        for client in clients:
            self.addCleanup(client.close)
        return many, clients

    def test_queues_of_all_nodes_and_one_that_moves_under_load(self):
        many, clients = self.cluster()
        client = self.process(f'cluster:127.0.0.1:{many[1].port}')
        names = [f'q{i}' for i in range(8)]
        slots = {name: clients[0].call('CLUSTER', 'KEYSLOT', KEY % name)
                 for name in names}
        self.assertEqual(len({slot * 3 // 16384 for slot in slots.values()}), 3)
        client.call('work', ','.join(names), 4, 5000, 32)
        for name in names:
            self.assertEqual(client.call('addmany', name, name + '.', 100, 4,
                                         5, 'done'), '100 0 0 0')
        self.assertTrue(client.wait(800))
        name = names[0]
        slot = slots[name]
        source = slot * 3 // 16384
        target = (source + 1) % 3
        ids = [one.call('CLUSTER', 'MYID') for one in clients]
        client.send('addmany', name, 'moved.', 3000, 4, 50, 'done')
        clients[target].call('CLUSTER', 'SETSLOT', slot, 'IMPORTING',
                             ids[source])
        clients[source].call('CLUSTER', 'SETSLOT', slot, 'MIGRATING',
                             ids[target])
        self.assertTrue(until(lambda: clients[source].call(
            'CLUSTER', 'COUNTKEYSINSLOT', slot) == 1))
        clients[source].call('MIGRATE', '127.0.0.1', many[target].port,
                             KEY % name, 0, 5000)
        time.sleep(0.1)
        for one in (target, source, 3 - target - source):
            clients[one].call('CLUSTER', 'SETSLOT', slot, 'NODE', ids[target])
        stored, known, uncertain, failed = map(
            int, client.answers.get(timeout=60).split()[1:])
        self.assertEqual([stored + known, uncertain, failed], [3000, 0, 0])
        self.assertTrue(client.wait(3800))
        self.assertEqual(client.call('stop', 20000), '0')
        self.assertEqual(set(client.ids().values()), {1})
        client.end()

    def test_hwtctl_lists_the_queues_of_all_nodes(self):
        many, clients = self.cluster()
        names = [f'q{i:04}' for i in range(4000)]
        for client in clients:
            client.call('CONFIG', 'SET', 'appendfsync', 'no')
        for name in names:
            key = KEY % name
            slot = clients[0].call('CLUSTER', 'KEYSLOT', key)
            clients[(slot * 3 + 2) // 16384].call(
                'HWT.QUEUE', key, 'LEVEL', 'memory')
        said = subprocess.check_output(
            [BUILD + '/hwtctl', '--server',
             f'cluster:127.0.0.1:{many[0].port}', 'stat'], text=True)
        self.assertEqual(re.findall('q[0-9]{4}$', said, re.M), names)

    def test_a_node_that_dies_leaves_the_others_queues_alone(self):
        many, clients = self.cluster()
        client = self.process(f'cluster:127.0.0.1:{many[0].port}', 500)
        names = [f'q{i}' for i in range(6)]
        clients[0].call('CONFIG', 'SET', 'cluster-require-full-coverage', 'no')
        clients[2].call('CONFIG', 'SET', 'cluster-require-full-coverage', 'no')
        node = {name: clients[0].call('CLUSTER', 'KEYSLOT', KEY % name) * 3 //
                16384 for name in names}
        self.assertEqual(set(node.values()), {0, 1, 2})
        many[1].kill()
        for name in names:
            answer = client.call('add', name, 'a', 0, 'x')
            if node[name] != 1:
                self.assertEqual(answer, '0')
            else:
                self.assertIn(answer,
                              ('-ECONNREFUSED', '-ETIMEDOUT', '-EAGAIN'))
        many[1].start()
        self.assertTrue(until(lambda: all(
            client.call('add', name, 'b', 0, 'x') in ('0', '2')
            for name in names)))
        client.end()


class Sentinel(Host):
    """A Sentinel of one master."""

    def __init__(self, master):
        self.master = master
        super().__init__()

    def command(self):
        path = os.path.join(self.folder, 'sentinel.conf')
        with open(path, 'w') as file:
            file.write(f'port {self.port}\ndir {self.folder}\n'
                       f'sentinel monitor m 127.0.0.1 {self.master} 1\n'
                       'sentinel down-after-milliseconds m 1000\n'
                       'sentinel failover-timeout m 3000\n')
        return ['redis-server', path, '--sentinel']


class Replicas(Scratch):
    def pair(self):
        master = self.made(Redis())
        replica = self.made(Redis('--replicaof', f'127.0.0.1 {master.port}'))
        self.assertTrue(until(lambda: self.connected(master) == 1))
        return master, replica

    def connected(self, host):
        client = host.connect()
        role = client.call('ROLE')
        client.close()
        return len(role[2]) if role[0] == b'master' else -1

    def test_all_replicas_must_be_waited_for(self):
        master, replica = self.pair()
        address = f'127.0.0.1:{master.port}'
        one = self.process(address, 20000, 1)
        two = self.process(address, 20000, 2)
        self.assertEqual(one.call('add', 'q', 'a', 0, 'x'), '0')
        self.assertEqual(two.call('add', 'q', 'b', 0, 'x'), '-EOPNOTSUPP')
        self.assertEqual(two.call('cancel', 'q', 'a'), '-EOPNOTSUPP')
        client = replica.connect()
        self.assertEqual(client.pairs('HWT.STAT', KEY % 'q')['added-total'], 1)
        client.close()
        # A second one, which is not waited for.
        more = self.made(Redis('--replicaof', f'127.0.0.1 {master.port}'))
        self.assertTrue(until(lambda: self.connected(master) == 2))
        self.assertIn(one.call('add', 'q', 'c', 0, 'x'),
                      ('-ETIMEDOUT', '-EOPNOTSUPP'))
        self.assertEqual(one.call('add', 'q', 'd', 0, 'x'), '-EOPNOTSUPP')
        self.assertTrue(until(
            lambda: two.call('add', 'q', 'e', 0, 'x') == '0'))
        more.kill()
        self.assertTrue(until(lambda: self.connected(master) == 1))
        self.assertEqual(two.call('add', 'q', 'f', 0, 'x'), '-ETIMEDOUT')
        one.end()
        two.end()

    def test_a_fail_over_loses_nothing_that_was_acknowledged(self):
        master, replica = self.pair()
        sentinel = self.made(Sentinel(master.port))
        control = sentinel.connect()
        self.assertTrue(until(lambda: control.call(
            'SENTINEL', 'REPLICAS', 'm') and
            b'slave' in control.call('SENTINEL', 'REPLICAS', 'm')[0]))
        servers = f'sentinel:127.0.0.1:{sentinel.port},m'
        adder = self.process(servers, 2000, 1)
        worker = self.process(servers, 2000)
        worker.call('work', 'q', 2, 3000, 16)
        adder.send('addmany', 'q', 'a', 6000, 8, 20, 'done')
        direct = master.connect()
        self.assertTrue(until(lambda: direct.pairs(
            'HWT.STAT', KEY % 'q')['added-total'] > 500))
        direct.close()
        master.kill()
        stored, _, uncertain, _ = map(
            int, adder.answers.get(timeout=120).split()[1:])
        self.assertGreater(stored, 0)
        self.assertTrue(until(lambda: self.connected(replica) == 0, 30))
        direct = replica.connect()

        def ended():
            stats = direct.pairs('HWT.STAT', KEY % 'q')
            return stats['done'] == stats['added-total']
        self.assertTrue(until(ended))
        added = direct.pairs('HWT.STAT', KEY % 'q')['added-total']
        self.assertGreaterEqual(added, stored)
        self.assertLessEqual(added, stored + uncertain)
        self.assertEqual(worker.call('stop', 20000), '0')
        self.assertGreaterEqual(len(worker.ids()), added)
        control.close()
        direct.close()
        adder.end()
        worker.end()


class Access(Scratch):
    def test_passwords(self):
        folder = tempfile.mkdtemp(prefix='hwt-client-')
        self.addCleanup(shutil.rmtree, folder)
        for name, text in (('right', 'secret\n'), ('wrong', 'other\n'),
                           ('empty', ''), ('long', 'x' * 600)):
            with open(f'{folder}/{name}', 'w') as file:
                file.write(text)
        password = f'{folder}/right'
        hwtd = self.made(Server('--password-file', password))
        redis = self.made(Redis('--requirepass', 'secret'))
        for host in (hwtd, redis):
            address = f'127.0.0.1:{host.port}'
            for file, answer in (('right', '0'), ('wrong', '-EACCES'),
                                 ('empty', '-ENOENT'), ('none', '-ENOENT'),
                                 ('long', '-EINVAL'), (None, '-EACCES')):
                client = Process()
                self.assertEqual(
                    client.call('open', address, 2000, 0,
                                *([f'{folder}/{file}'] if file else [])),
                    answer, (address, file))
                client.end()

    def test_a_redis_without_the_module_is_no_server_of_hwt(self):
        class Plain(Redis):
            def command(self):
                return super().command()[:-2]
        client = Process()
        self.assertEqual(
            client.call('open', f'127.0.0.1:{self.made(Plain()).port}', 2000),
            '-EOPNOTSUPP')
        client.end()

    def test_texts_that_name_no_server(self):
        client = Process()
        for text in ('', 'host', 'host:', 'host:0', 'host:65536', ':1',
                     'unix:', 'file:', 'sentinel:', 'sentinel:h:1',
                     'sentinel:h:1,', 'cluster:', 'cluster:h:1,',
                     'cluster:h', 'unix:' + 'x' * 108, 'h' * 256 + ':1'):
            if text:
                self.assertEqual(client.call('open', text, 100), '-EINVAL',
                                 text)
        self.assertEqual(client.call('open', 'unix:/nowhere', 100),
                         '-ECONNREFUSED')
        client.end()


if __name__ == '__main__':
    hosts.main()
