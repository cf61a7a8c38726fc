# SPDX-License-Identifier: Apache-2.0
"""hwt-http by the requests that a receiver gets, with real processes.

    webhooks.py [CLASS[.test] ...]

The last line counts."""
import base64
import email.utils
import hashlib
import hmac
import http.client
import socket
import subprocess
import threading
import time

from hosts import free_port, main
from programs import LIMIT, USAGE, Programs


class Receiver:
    """Counts each request whose head has come. answers: by path, a function
    that gets the connection and the request; without one, 200. Connections are
    kept open until the peer closes, unless the function closes them."""

    def __init__(self):
        self.requests = []
        self.connections = 0
        self.answers = {}
        self.server = socket.create_server(('127.0.0.1', 0))
        self.port = self.server.getsockname()[1]
        self.accepting = threading.Thread(target=self.accept, daemon=True)
        self.accepting.start()

    def accept(self):
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self.serve, args=(connection,),
                             daemon=True).start()

    def serve(self, connection):
        file = connection.makefile('rb')
        try:
            while True:
                line = file.readline().decode()
                if not line:
                    return
                method, target, _ = line.split(' ')
                headers = http.client.parse_headers(file)
                length = int(headers.get('Content-Length', 0))
                request = {'method': method, 'target': target,
                           'headers': headers, 'body': file.read(length),
                           'at': time.monotonic()}
                self.requests.append(request)
                answer = self.answers.get(target, self.say(200))
                answer(connection, request)
        except OSError:
            pass
        finally:
            file.close()
            connection.close()

    @staticmethod
    def say(status, *headers, body=b'', keep=True):
        """An answer."""
        text = ''.join(line + '\r\n' for line in (
            f'HTTP/1.1 {status} Said', f'Content-Length: {len(body)}',
            'Connection: ' + ('keep-alive' if keep else 'close'), *headers))

        def answer(connection, _):
            connection.sendall(text.encode() + b'\r\n' + body)
        return answer

    def close(self):
        """Not before the thread has left accept: it would accept what comes
        to the next socket of this number, and answer that."""
        self.server.shutdown(socket.SHUT_RDWR)
        self.accepting.join()
        self.server.close()


def reset(connection, _):
    """The connection dies, with RST, and no answer."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                          b'\1\0\0\0\0\0\0\0')
    raise ConnectionError


class Webhooks(Programs):

    def setUp(self):
        super().setUp()
        self.receiver = Receiver()
        self.addCleanup(self.receiver.close)
        self.root = f'http://127.0.0.1:{self.receiver.port}'
        self.requests = self.receiver.requests

    def http(self, *options, allow=None):
        return self.start('hwt-http', '--queue', 'hooks', '--allow',
                          allow or self.root, *options)

    def hook(self, name, payload, *options):
        if isinstance(payload, str):
            payload = payload.encode()
        self.ctl('add', 'hooks', '-', '--id', name, '--retry', '1ms:1ms',
                 *options, given=payload)

    def reason(self, name):
        self.until_state('hooks', name, 'dead')
        return self.shown('hooks', name)['reason']

    def paths(self):
        return [request['target'] for request in self.requests]


class Calls(Webhooks):

    def test_a_task_is_a_post_with_its_headers_and_body(self):
        self.hook('a/b', self.root + '/hook?x=1\r\nContent-Type: text/plain\r\n'
                  'X-One: two words\r\n\r\nthe body\n\0\xff', '--at',
                  '@1700000000')
        worker = self.http()
        self.until_state('hooks', 'a/b', 'done')
        self.end(worker)
        request, = self.requests
        self.assertEqual(request['method'], 'POST')
        self.assertEqual(request['target'], '/hook?x=1')
        self.assertEqual(request['body'], 'the body\n\0\xff'.encode())
        headers = request['headers']
        self.assertEqual(
            [headers[name] for name in (
                'Host', 'Content-Type', 'X-One', 'Webhook-Id', 'Hwt-Attempt',
                'Hwt-Due', 'Expect', 'Webhook-Signature')],
            [f'127.0.0.1:{self.receiver.port}', 'text/plain', 'two words',
             'a%2Fb', '1', '1700000000000', None, None])
        self.assertLess(abs(int(headers['Webhook-Timestamp']) - time.time()),
                        LIMIT)

    def test_a_url_alone_is_a_post_without_a_body(self):
        self.hook('a', self.root + '/')
        worker = self.http()
        self.until_state('hooks', 'a', 'done')
        self.end(worker)
        self.assertEqual(self.requests[0]['body'], b'')
        self.assertEqual(self.requests[0]['headers']['Content-Length'], '0')

    def test_a_call_is_signed_over_id_time_and_body(self):
        with open(self.path('secret'), 'w') as file:
            file.write('a secret\n')
        self.hook('a', self.root + '/\n\nbody')
        worker = self.http('--secret-file', self.path('secret'))
        self.until_state('hooks', 'a', 'done')
        self.end(worker)
        headers = self.requests[0]['headers']
        digest = hmac.new(
            b'a secret', f'a.{headers["Webhook-Timestamp"]}.body'.encode(),
            hashlib.sha256).digest()
        self.assertEqual(headers['Webhook-Signature'],
                         'v1,' + base64.b64encode(digest).decode())

    def test_answers_decide_what_becomes_of_the_task(self):
        outcomes = (
            (200, 1, 'done'), (202, 1, 'done'), (204, 1, 'done'),
            (400, 1, 'dead'), (404, 1, 'dead'), (410, 1, 'dead'),
            (408, 2, 'dead'), (425, 2, 'dead'), (429, 2, 'dead'),
            (500, 2, 'dead'), (503, 2, 'dead'), (417, 1, 'dead'))
        for status, _, _ in outcomes:
            self.receiver.answers[f'/{status}'] = self.receiver.say(
                status, body=b'' if status == 204 else b'because\n')
            self.hook(str(status), f'{self.root}/{status}', '--attempts', '2')
        worker = self.http()
        for status, attempts, state in outcomes:
            with self.subTest(status):
                self.until_state('hooks', str(status), state)
                self.assertEqual(self.paths().count(f'/{status}'), attempts)
        self.assertEqual(self.reason('404'), r'404 because\x0a')
        self.assertEqual(self.reason('503'), r'503 because\x0a')
        self.assertIn('hwt-http: 503: attempt 2: 503 because\\x0a\n',
                      self.end(worker)[1])

    def test_redirects_are_not_followed(self):
        for status in (301, 302, 303, 307, 308):
            self.receiver.answers[f'/{status}'] = self.receiver.say(
                status, f'Location: {self.root}/elsewhere')
            self.hook(str(status), f'{self.root}/{status}')
        worker = self.http()
        for status in (301, 302, 303, 307, 308):
            self.assertIn('redirects are not followed',
                          self.reason(str(status)))
        self.end(worker)
        self.assertEqual(len(self.requests), 5)
        self.assertNotIn('/elsewhere', self.paths())

    def test_retry_after_is_waited_for_in_seconds_and_as_a_date(self):
        date = email.utils.formatdate(time.time() + 3, usegmt=True)
        for name, header in (('seconds', '2'), ('date', date)):
            self.receiver.answers['/' + name] = self.receiver.say(
                503, 'Retry-After: ' + header)
            self.hook(name, f'{self.root}/{name}', '--attempts', '2')
        worker = self.http()
        for name, least in (('seconds', 2), ('date', 1)):
            self.until_state('hooks', name, 'dead')
            first, second = [request['at'] for request in self.requests
                             if request['target'] == '/' + name]
            self.assertGreaterEqual(second - first, least, name)
        self.end(worker)

    def test_a_retry_after_of_years_is_a_day(self):
        self.receiver.answers['/'] = self.receiver.say(
            503, 'Retry-After: 999999999')
        self.hook('a', self.root + '/')
        begin = time.time()
        worker = self.http()
        self.until(lambda: self.requests, 'no call')
        self.until_state('hooks', 'a', 'waiting')
        self.end(worker)
        client = self.host.connect()
        due = client.pairs('HWT.GET', '{hwt:hooks}', 'a')['time'] / 1000
        client.close()
        self.assertLess(abs(due - begin - 86400), LIMIT)

    def test_an_attempt_is_one_post_when_the_connection_dies(self):
        self.receiver.answers['/dies'] = reset
        for i in range(3):
            self.hook(f'good{i}', f'{self.root}/good')
        worker = self.http()
        for i in range(3):
            self.until_state('hooks', f'good{i}', 'done')
        self.hook('a', f'{self.root}/dies', '--attempts', '2')
        self.until_state('hooks', 'a', 'dead')
        self.end(worker)
        self.assertEqual(
            [request['headers']['Hwt-Attempt'] for request in self.requests
             if request['target'] == '/dies'], ['1', '2'])

    def test_an_attempt_is_one_post_when_a_kept_connection_dies(self):
        """It answers, keeps the connection, and resets it when the next
        request of another task comes over it."""
        def once(connection, request):
            self.receiver.say(200)(connection, request)
            self.receiver.answers['/next'] = reset
        self.receiver.answers['/first'] = once
        worker = self.http('--calls', '1')
        self.hook('first', f'{self.root}/first')
        self.until_state('hooks', 'first', 'done')
        self.hook('next', f'{self.root}/next', '--attempts', '1')
        self.until_state('hooks', 'next', 'dead')
        self.end(worker)
        self.assertEqual(self.paths(), ['/first', '/next'])

    def test_calls_are_made_at_the_same_time(self):
        barrier = threading.Barrier(4)

        def together(connection, request):
            barrier.wait(LIMIT)
            self.receiver.say(200)(connection, request)
        self.receiver.answers['/'] = together
        for i in range(4):
            self.hook(str(i), self.root + '/')
        worker = self.http('--calls', '4')
        for i in range(4):
            self.until_state('hooks', str(i), 'done')
        self.end(worker)

    def test_a_call_over_its_limit_is_tried_again(self):
        self.receiver.answers['/'] = lambda *_: time.sleep(2)
        self.hook('a', self.root + '/', '--attempts', '2')
        worker = self.http('--limit', '200ms')
        self.until_state('hooks', 'a', 'dead')
        self.assertIn('Timeout', self.end(worker)[1])
        self.assertEqual(len(self.requests), 2)

    def test_of_an_answer_that_does_not_end_the_status_counts(self):
        def endless(connection, _):
            connection.sendall(b'HTTP/1.1 200 OK\r\n\r\n')
            while True:
                connection.sendall(b'x' * 65536)
        self.receiver.answers['/'] = endless
        self.hook('a', self.root + '/', '--attempts', '1')
        worker = self.http()
        self.until_state('hooks', 'a', 'done')
        self.end(worker)
        self.assertEqual(len(self.requests), 1)

    def test_a_host_that_refuses_is_tried_again(self):
        closed = f'http://127.0.0.1:{free_port()}'
        self.hook('a', closed, '--attempts', '3')
        worker = self.http(allow=closed)
        self.until_state('hooks', 'a', 'dead')
        errors = self.end(worker)[1]
        self.assertIn("attempt 3: Couldn't connect", errors)

    def test_what_is_under_way_at_sigterm_ends(self):
        def slow(connection, request):
            time.sleep(1)
            self.receiver.say(200)(connection, request)
        self.receiver.answers['/'] = slow
        self.hook('a', self.root + '/')
        worker = self.http()
        self.until(lambda: self.requests, 'no call')
        self.end(worker)
        self.assertEqual(self.shown('hooks', 'a')['state'], 'done')

    def test_after_the_grace_a_call_is_broken_off_and_tried_again(self):
        self.receiver.answers['/'] = lambda *_: time.sleep(LIMIT)
        self.hook('a', self.root + '/')
        worker = self.http('--grace', '200ms')
        self.until(lambda: self.requests, 'no call')
        self.assertIn('broken off', self.end(worker)[1])
        self.assertIn(self.shown('hooks', 'a')['state'], ('waiting', 'due'))


class Allowed(Webhooks):

    def refused(self, allow, payloads, why='none that is allowed'):
        """All are dead letters after one attempt, and nothing is called."""
        for i, payload in enumerate(payloads):
            self.hook(str(i), payload)
        worker = self.http(allow=allow)
        for i, payload in enumerate(payloads):
            with self.subTest(payload):
                self.assertIn(why, self.reason(str(i)))
        self.end(worker)
        self.assertEqual(self.paths(), [])

    def test_another_host_port_or_scheme_is_refused(self):
        port = self.receiver.port
        self.refused(f'http://127.0.0.1:{port}/', [
            f'http://127.0.0.2:{port}/', f'http://127.0.0.1:{free_port()}/',
            'http://127.0.0.1/', f'https://127.0.0.1:{port}/',
            f'http://127.0.0.1.example:{port}/',
            f'http://127.0.0.1:{port % 6553}0/', f'http://localhost:{port}/',
            'http:///hooks',
            f'http://example.org:{port}/http://127.0.0.1:{port}/'])

    def test_a_user_in_a_url_is_refused(self):
        port = self.receiver.port
        self.refused(f'http://allowed:{port}', [
            f'http://allowed:{port}@127.0.0.1:{port}/',
            f'http://allowed@127.0.0.1:{port}/',
            f'http://user:word@allowed:{port}/'], 'does not begin with a URL')

    def test_a_way_out_of_the_path_is_refused(self):
        self.refused(self.root + '/hooks/', [
            self.root + path for path in (
                '/', '/hook', '/hooks', '/HOOKS/a', '/hooksevil',
                '/hooks/../admin', '/hooks/a/../../admin',
                '/hooks/%2e%2e/admin', '/hooks/.%2E/admin', '/hooks/..%2fadmin',
                '/hooks/..%5cadmin', '/admin?/hooks/', '/hooks/..\\admin')])

    def test_what_is_no_url_of_http_is_refused(self):
        self.refused(self.root, [
            '', '\n', ' ', 'none', 'file:///etc/passwd', 'ftp://127.0.0.1/',
            'gopher://127.0.0.1/', '//127.0.0.1/', 'http://',
            f'{self.root}/\0', f'{self.root}/ x', '{"url": "x"}'],
            'does not begin with a URL')

    def test_headers_that_change_the_request_are_refused(self):
        self.refused(self.root, [
            f'{self.root}/\n{line}\n\nbody' for line in (
                'Host: elsewhere', 'Content-Length: 1', 'content-length: 1',
                'Transfer-Encoding: chunked', 'Connection: close', 'Expect: x',
                'Webhook-Signature: v1,x', 'webhook-id: x', 'Hwt-Attempt: 1',
                'Proxy-Authorization: x', 'none', ': x', 'a b: x', ' a: x',
                'A:', 'A: ', 'A: b\rHost: x', 'A: \x01')],
            'the payload has a header')

    def test_whole_segments_under_an_allowed_path_are_called(self):
        paths = ['/hooks', '/hooks/', '/hooks/a', '/hooks?q=%2e%2e']
        self.hook('dot', f'{self.root}/hooks/./a/../b')
        for path in paths:
            self.hook(path.replace('/', '.'), self.root + path)
        self.hook('no', self.root + '/hooksevil')
        worker = self.http(allow=self.root + '/hooks')
        self.assertIn('none that is allowed', self.reason('no'))
        for path in paths:
            self.until_state('hooks', path.replace('/', '.'), 'done')
        self.until_state('hooks', 'dot', 'done')
        self.end(worker)
        self.assertEqual(sorted(self.paths()), sorted(paths + ['/hooks/b']))

    def test_scheme_and_host_are_compared_without_case(self):
        port = self.receiver.port
        self.hook('a', f'HTTP://LocalHost:{port}/')
        worker = self.http(allow=f'http://localhost:{port}')
        self.until_state('hooks', 'a', 'done')
        self.end(worker)

    def test_one_of_several_prefixes_is_enough(self):
        self.hook('a', self.root + '/two/x')
        self.hook('b', self.root + '/three')
        worker = self.http('--allow', self.root + '/two',
                           allow=self.root + '/one')
        self.until_state('hooks', 'a', 'done')
        self.reason('b')
        self.end(worker)

    def test_a_proxy_of_the_environment_is_not_used(self):
        proxy = Receiver()
        self.addCleanup(proxy.close)
        self.hook('a', self.root + '/')
        worker = self.start(
            'hwt-http', '--queue', 'hooks', '--allow', self.root,
            env={'http_proxy': f'http://127.0.0.1:{proxy.port}',
                 'all_proxy': f'http://127.0.0.1:{proxy.port}'})
        self.until_state('hooks', 'a', 'done')
        self.end(worker)
        self.assertEqual(proxy.connections, 0)

    def test_bad_input_ends_with_usage(self):
        good = ['--queue', 'q', '--allow', 'http://h']
        with open(self.path('empty'), 'w'):
            pass
        for words in ([], ['--queue', 'q'], ['--allow', 'http://h'],
                      good + ['more'], good + ['--calls', '0'],
                      good + ['--calls', '4097'], good + ['--limit', 'x'],
                      good + ['--allow', 'ftp://h'],
                      good + ['--allow', 'http://u@h'],
                      good + ['--allow', 'http://h/?q'],
                      good + ['--allow', 'http://h/#f'],
                      good + ['--allow', 'h'],
                      good + ['--secret-file', self.path('none')],
                      good + ['--secret-file', self.path('empty')],
                      good + ['--queue', 'a/b'], good + ['--none']):
            with self.subTest(words):
                worker = self.start('hwt-http', *words)
                try:
                    worker.communicate(timeout=LIMIT)
                except subprocess.TimeoutExpired:
                    self.fail('it runs')
                self.assertEqual(worker.returncode, USAGE)


if __name__ == '__main__':
    main()
