# SPDX-License-Identifier: Apache-2.0
"""HTTP of hwtd, in front of its own queues and of those of a Redis.

    front.py [CLASS[.test] ...]
"""
import base64
import http.client
import json
import os
import socket
import subprocess
import tempfile
import time
import unittest
from urllib.parse import quote, unquote_to_bytes

from hosts import BUILD, Host, Redis, Server, free_port, main, take

KEY = '{hwt:mail}'
MAIL = '/queues/mail/tasks/'


class Front(Host):
    """hwtd without queues of its own, on a Redis."""

    def __init__(self, redis, *more):
        self.redis = redis
        self.starts = 0
        super().__init__(*more)

    def command(self):
        self.starts += 1
        return [BUILD + '/hwtd', '--redis', f'127.0.0.1:{self.redis.port}',
                *self.more]

    def connect(self):
        """Through which start() asks whether it is there."""
        if self.log().count('hwtd: ready') < self.starts:
            raise OSError('not yet')
        return self.redis.connect()


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.text = response.read().decode()
        self.json = (json.loads(self.text) if self.text and
                     'json' in self.headers['Content-Type'] else None)


class Paths:
    """Tests of both engines."""

    def setUp(self):
        self.http = free_port()
        self.hosts = []
        self.serve('--http', f'127.0.0.1:{self.http}')
        self.client = self.hosts[0].connect()
        self.connection = http.client.HTTPConnection('127.0.0.1', self.http,
                                                     timeout=20)

    def tearDown(self):
        self.connection.close()
        self.client.close()
        for host in reversed(self.hosts):
            host.close()

    def ask(self, method, path, body=None, **headers):
        names = {name.replace('_', '-'): value
                 for name, value in headers.items()}
        self.connection.request(method, path, body, names)
        return Answer(self.connection.getresponse())

    def stat(self):
        stat = self.client.pairs('HWT.STAT', KEY)
        for name in ('now', 'ahead', 'late', 'memory-bytes'):
            del stat[name]
        return stat

    def test_a_task_is_put_shown_listed_and_cancelled(self):
        before = time.time() * 1000
        answer = self.ask('PUT', MAIL + 'a?in=60000&attempts=7&retry=5,50'
                          '&expires=9&result=8', 'hello "é"\n'.encode())
        self.assertEqual((answer.status, answer.json),
                         (201, {'state': 'stored'}))
        again = self.ask('PUT', MAIL + 'a?in=0', 'other')
        self.assertEqual((again.status, again.json),
                         (200, {'state': 'waiting'}))
        task = self.ask('GET', MAIL + 'a').json
        self.assertGreaterEqual(task['due'], before + 60000)
        self.assertEqual(
            [task[name] for name in ('id', 'state', 'payload', 'attempts',
                                     'retry-first', 'retry-most', 'expires',
                                     'result')],
            ['a', 'waiting', 'hello "é"\n', 7, 5, 50, 9, 8])
        listed = self.ask('GET', '/queues/mail/tasks?state=waiting').json
        self.assertEqual(listed['tasks'][0]['id'], 'a')
        self.assertEqual(self.ask('DELETE', MAIL + 'a').status, 200)
        self.assertEqual(self.ask('GET', MAIL + 'a').json['state'],
                         'cancelled')
        self.assertEqual(self.ask('DELETE', MAIL + 'b').status, 404)
        self.assertEqual(self.ask('GET', MAIL + 'b').status, 404)
        due = int(time.time() * 1000) + 10**6
        self.ask('PUT', MAIL + f'c?due={due}', 'x')
        self.assertEqual(self.ask('GET', MAIL + 'c').json['due'], due)

    def test_ids_and_payloads_may_have_any_bytes(self):
        for name in (b'a/b?c#d&e=f', b'%2e', b' ', bytes(range(64)),
                     bytes(range(192, 256)), 'é'.encode(), b'.', b'..'):
            path = MAIL + quote(name, safe='')
            payload = name * 3
            self.assertEqual(self.ask('PUT', path + '?in=0', payload).status,
                             201, name)
            got = take(self.client, KEY)
            self.assertEqual(got[name][5], payload)
            task = self.ask('GET', path).json
            self.assertEqual(unquote_to_bytes(task['id']), name)
            if 'payload' in task:
                self.assertEqual(task['payload'].encode(), payload)
            else:
                self.assertEqual(unquote_to_bytes(task['payload-encoded']),
                                 payload)

    def test_a_payload_has_a_bound(self):
        for length, status in ((0, 201), (65536, 201), (65537, 413)):
            answer = self.ask('PUT', f'{MAIL}n{length}?in=0', b'x' * length)
            self.assertEqual(answer.status, status)
        # Without a length, in pieces.
        pieces = (b'x' * 10000 for _ in range(20))
        answer = self.ask('PUT', MAIL + 'pieces?in=0', pieces)
        self.assertEqual(answer.status, 413)
        pieces = (b'x' * 10000 for _ in range(6))
        answer = self.ask('PUT', MAIL + 'few?in=0', pieces)
        self.assertEqual(answer.status, 201)
        self.assertEqual(self.stat()['added-total'], 3)

    def test_bad_input_is_an_error_and_changes_nothing(self):
        self.ask('PUT', MAIL + 'a?in=60000', 'x')
        before = self.stat()
        for method, path, status in (
                ('PUT', MAIL + 'b', 400),
                ('PUT', MAIL + 'b?in=', 400),
                ('PUT', MAIL + 'b?in=-1', 400),
                ('PUT', MAIL + 'b?in=1e3', 400),
                ('PUT', MAIL + 'b?in=99999999999999', 400),
                ('PUT', MAIL + 'b?in=1&due=1', 400),
                ('PUT', MAIL + 'b?in=1&wrong=1', 400),
                ('PUT', MAIL + 'b?in=1&in', 400),
                ('PUT', MAIL + 'b?in=1&es=1', 400),
                ('PUT', MAIL + 'b?in=1&retry=5', 400),
                ('PUT', MAIL + 'b?in=1&retry=5,4', 400),
                ('PUT', MAIL + 'b?in=1&attempts=0', 400),
                ('PUT', MAIL + 'b?in=1,1&due=1,1&attempts=1,1&retry=1,1'
                 '&expires=1,1&result=1,1', 400),
                ('PUT', MAIL + 'b?in=1&attempts=1%30', 400),
                ('PUT', MAIL + '?in=1', 404),
                ('PUT', MAIL + 'b%?in=1', 404),
                ('PUT', MAIL + 'b%2?in=1', 404),
                ('PUT', MAIL + 'b%gg?in=1', 404),
                ('PUT', MAIL + 'b' * 65 + '?in=1', 404),
                ('PUT', '/queues/' + 'q' * 65 + '/tasks/b?in=1', 404),
                ('PUT', '/queues/a%20b/tasks/b?in=1', 404),
                ('PUT', '/queues/mail%00/tasks/b?in=1', 404),
                ('PUT', MAIL + 'b/b?in=1', 404),
                ('PUT', '/queues//tasks/b?in=1', 404),
                ('PUT', '/queues/mail/task/b?in=1', 404),
                ('PUT', '/queues/mail/dead/a', 404),
                ('DELETE', '/queues/mail/dead/a', 404),
                ('DELETE', '/queues/mail/tasks', 405),
                ('POST', MAIL + 'b?in=1', 405),
                ('OPTIONS', MAIL + 'b?in=1', 405),
                ('GET', '/queues?count=0', 400),
                ('GET', '/queues?count=501', 400),
                ('GET', '/queues?cursor=0', 400),
                ('GET', '/queues/mail/tasks?state=nowhere', 400),
                ('GET', '/queues/mail/tasks?cursor=-1', 400),
                ('GET', '/queues/mail/dead?count=x', 400),
                ('GET', '/metrics?x=1', 400),
                ('GET', '/favicon.ico', 404)):
            with self.subTest(method=method, path=path):
                answer = self.ask(method, path)
                self.assertEqual(answer.status, status, answer.text)
                self.assertGreater(len(answer.json['error']), 10)
        self.assertEqual(self.ask('POST', '/health').headers['Allow'], 'GET')
        self.assertEqual(self.stat(), before)

    def test_what_is_no_http_harms_nobody(self):
        for data in (b'\0' * 5000, b'GET\r\n\r\n', b'GET / HTTP/9.9\r\n\r\n',
                     b'PUT ' + MAIL.encode() + b'b?in=1 HTTP/1.1\r\nHost: '
                     b'localhost\r\nContent-Length: -5\r\n\r\nx',
                     b'PUT ' + MAIL.encode() + b'b?in=1 HTTP/1.1\r\nHost: '
                     b'localhost\r\nContent-Length: 9999999999999\r\n\r\nx',
                     b'GET / HTTP/1.1\r\n' + b'X: y\r\n' * 20000):
            with socket.create_connection(('127.0.0.1', self.http)) as raw:
                raw.settimeout(2)
                try:
                    raw.sendall(data)
                    raw.shutdown(socket.SHUT_WR)
                    answer = raw.recv(100)
                except OSError:
                    answer = b''
                self.assertNotIn(b' 2', answer.split(b'\r\n')[0], data[:60])
        self.assertEqual(self.ask('GET', '/health').status, 200)

    def test_lists_are_read_by_pages(self):
        names = [f't{i}' for i in range(1000)]
        self.client.call('HWT.ADD', KEY, 'IN', 10**6, 'TASKS',
                         *[word for name in names for word in (name, 'x')])
        seen, cursor = [], '0'
        while True:
            page = self.ask('GET', '/queues/mail/tasks?state=waiting&count=90'
                            f'&cursor={cursor}').json
            seen += [task['id'] for task in page['tasks']]
            cursor = page['cursor']
            if cursor == '0':
                break
        self.assertEqual(sorted(seen), sorted(names))

    def test_dead_letters_are_listed_replayed_and_dropped(self):
        self.client.call('HWT.ADD', KEY, 'IN', 0, 'TASKS', 'a', 'x', 'b', 'y')
        for name, task in take(self.client, KEY).items():
            self.client.call('HWT.FINISH', KEY, 'FAIL', b'why \xff"\n',
                             'TASKS', name, task[1])
        letters = self.ask('GET', '/queues/mail/dead').json['tasks']
        self.assertEqual({each['id'] for each in letters}, {'a', 'b'})
        self.assertEqual(letters[0]['reason'], 'why \ufffd"\n')
        self.assertEqual(self.ask('PUT', '/queues/mail/dead/a').status, 200)
        self.assertEqual(self.ask('DELETE', '/queues/mail/dead/b').status, 200)
        self.assertEqual(self.ask('DELETE', '/queues/mail/dead/b').status, 404)
        self.assertEqual(self.ask('GET', MAIL + 'a').json['state'], 'due')
        self.assertEqual(self.ask('GET', MAIL + 'b').status, 404)

    def test_queues_of_the_space_are_read_by_pages(self):
        for i in range(120):
            self.client.call('HWT.ADD', '{hwt:q%03d}' % i, 'IN', 10**6,
                             'TASKS', 'a', 'x')
        for key in ('{other:q}', 'hwt:q', '{hwt:}', '{hwt:a b}', '{hwt:q', 'q',
                    b'{hwt:\0}'):
            self.client.call('HWT.ADD', key, 'IN', 10**6, 'TASKS', 'a', 'x')
        first = self.ask('GET', '/queues').json
        self.assertEqual((first['space'], first['more']), ('hwt', True))
        rest = self.ask('GET', '/queues?count=500&after=' +
                        first['queues'][-1]['name']).json
        self.assertFalse(rest['more'])
        self.assertEqual(
            [each['name'] for each in first['queues'] + rest['queues']],
            [f'q{i:03}' for i in range(120)])
        self.assertEqual(rest['queues'][0]['waiting'], 1)

    def test_lateness_counts_also_where_nobody_takes(self):
        self.ask('PUT', MAIL + 'a?in=0', 'x')
        self.ask('PUT', MAIL + 'b?in=50', 'x')
        time.sleep(0.3)
        mail = self.ask('GET', '/queues').json['queues'][0]
        self.assertEqual((mail['due'], mail['waiting']), (2, 0))
        self.assertGreaterEqual(mail['late'], 300)

    def test_metrics_have_the_format_of_prometheus(self):
        self.ask('PUT', MAIL + 'a?in=0', 'x')
        self.ask('PUT', MAIL + 'b?in=100000', 'x')
        take(self.client, KEY)
        self.ask('PUT', MAIL + 'c?in=0', 'x')
        time.sleep(0.2)
        answer = self.ask('GET', '/metrics')
        self.assertTrue(answer.headers['Content-Type'].startswith(
            'text/plain; version=0.0.4'))
        subprocess.run(['promtool', 'check', 'metrics'], check=True,
                       input=answer.text.encode(), capture_output=True)
        samples = {name: float(value) for name, value in (
            line.rsplit(' ', 1) for line in answer.text.splitlines()
            if not line.startswith('#'))}
        for name, count in (('running', 1), ('waiting', 1), ('due', 1),
                            ('dead', 0), ('added_total', 3)):
            self.assertEqual(
                samples[f'hwt_durable_{name}{{queue="mail"}}'], count)
        late = samples['hwt_durable_late_seconds{queue="mail"}']
        self.assertGreaterEqual(late, 0.2)
        self.assertLess(late, 60)

    def test_only_this_host_is_answered_without_a_token(self):
        for host, status in (('localhost', 200), ('LOCALHOST:99', 200),
                             ('127.0.0.1', 200), ('127.0.0.1:99', 200),
                             ('evil.example', 403), ('127.0.0.1.nip.io', 403),
                             ('localhost:80@evil.example', 403), ('', 403),
                             ('localhost.evil.example', 403), ('[::1]:9', 200),
                             ('127.1', 403), ('2130706433', 403),
                             ('[evil.example]', 403)):
            with self.subTest(host=host):
                answer = self.ask('GET', '/queues', Host=host)
                self.assertEqual(answer.status, status)
                answer = self.ask('PUT', MAIL + 'a?in=0', 'x', Host=host)
                self.assertEqual(answer.status >= 400, status >= 400)
        self.assertEqual(self.ask('GET', '/', Host='evil.example').status, 403)


class InServer(Paths, unittest.TestCase):
    def serve(self, *more):
        self.hosts.append(Server(*more))

    def test_what_cannot_be_started_says_why(self):
        for words, status, why in (
                (('--http', 'nowhere.invalid:1'), 1, 'not known'),
                (('--http', '127.0.0.1:x'), 1, 'not supported'),
                (('--http', '0.0.0.0:0'), 1, 'needs --password-file'),
                (('--http', '[::]:0'), 1, 'needs --password-file'),
                (('--http', f'127.0.0.1:{self.http}'), 1, 'in use'),
                (('--password-file', '/nonexistent'), 2, 'want a first line'),
                (('--space', 'a b'), 2, 'outside its range'),
                (('--payload', '0'), 2, 'is not a number'),
                (('--redis', '127.0.0.1:1'), 2, 'usage')):
            with self.subTest(words=words):
                with tempfile.TemporaryDirectory() as folder:
                    run = subprocess.run(
                        [BUILD + '/hwtd', '--data', folder + '/data',
                         '--listen', str(free_port()), *words],
                        capture_output=True, text=True, timeout=20)
                self.assertEqual(run.returncode, status, run.stderr)
                self.assertIn(why, run.stderr)

    def test_a_password_is_needed_where_there_is_one(self):
        with tempfile.NamedTemporaryFile('w') as file:
            file.write('secret\nmore\n')
            file.flush()
            self.http = free_port()
            self.serve('--http', f'127.0.0.1:{self.http}', '--password-file',
                       file.name)
        self.connection.close()
        self.connection = http.client.HTTPConnection('127.0.0.1', self.http)
        for words, status in ((None, 401), ('any:secret', 200),
                              (':secret', 200), ('any:secret2', 401),
                              ('any:secre', 401), ('any:', 401),
                              ('secret', 401)):
            headers = {'Authorization': 'Basic ' + base64.b64encode(
                words.encode()).decode()} if words else {}
            for path in ('/', '/metrics', '/queues'):
                answer = self.ask('GET', path, Host='any', **headers)
                self.assertEqual(answer.status, status, words)
        self.assertIn('Basic', self.ask('GET', '/').headers[
            'WWW-Authenticate'])
        headers = {'Authorization': 'Basic OnNlY3JldA=='}
        self.assertEqual(
            self.ask('PUT', MAIL + 'a?in=0', 'x', **headers).status, 201)

    def test_a_first_request_is_answered_also_while_the_server_tidies(self):
        end = time.monotonic() + 5
        while time.monotonic() < end:
            client = self.hosts[0].connect()
            self.assertEqual(client.call('PING'), b'PONG')
            client.close()

    def test_it_ends_while_requests_are_answered(self):
        busy = subprocess.Popen(
            ['sh', '-c', 'while :; do curl -sm5 -o /dev/null '
             f'http://127.0.0.1:{self.http}/metrics || exit 0; done'])
        time.sleep(0.2)
        begin = time.monotonic()
        self.hosts[0].stop()
        self.assertEqual(self.hosts[0].process.returncode, 0)
        self.assertLess(time.monotonic() - begin, 10)
        busy.wait(20)


class InRedis(Paths, unittest.TestCase):
    def serve(self, *more):
        if not self.hosts:
            self.hosts.append(Redis())
        self.hosts.append(Front(self.hosts[0], *more))

    def test_the_engine_goes_and_comes_back(self):
        self.assertEqual(self.ask('GET', '/health').status, 200)
        self.hosts[0].kill()
        for path in ('/health', '/queues', '/metrics', MAIL + 'a'):
            answer = self.ask('GET', path)
            self.assertEqual(answer.status, 503)
            self.assertIn('the engine', answer.json['error'])
        self.hosts[0].start()
        self.assertEqual(self.ask('GET', '/health').status, 200)
        # Nobody has noticed that it was gone.
        self.hosts[0].kill()
        self.hosts[0].start()
        self.assertEqual(self.ask('PUT', MAIL + 'a?in=0', 'x').status, 201)
        self.client = self.hosts[0].connect()

    def test_errors_of_the_engine_have_a_status(self):
        self.client.call('SET', KEY, 'x')
        answer = self.ask('PUT', MAIL + 'a?in=0', 'x')
        self.assertEqual(answer.status, 409)
        self.assertIn('WRONGTYPE', answer.json['error'])
        self.client.call('DEL', KEY)
        self.client.call('HWT.QUEUE', KEY, 'MAX', 1)
        self.assertEqual(self.ask('PUT', MAIL + 'a?in=0', 'x').status, 201)
        self.assertEqual(self.ask('PUT', MAIL + 'b?in=0', 'x').status, 507)
        self.client.call('CONFIG', 'SET', 'appendfsync', 'everysec')
        self.assertEqual(self.ask('PUT', MAIL + 'b?in=0', 'x').status, 503)
        self.client.call('CONFIG', 'SET', 'requirepass', 'secret')
        self.hosts[1].stop()
        with self.assertRaises(RuntimeError) as caught:
            self.hosts[1].start()
        self.assertIn('wrong user or password', str(caught.exception))


if __name__ == '__main__':
    main()
