#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""hwt-http against servers that answer well, badly and not at all, with a real
engine. The server listens on the loopback, which is refused unless allowed.

    webhooks.py [-v] [CLASS[.test]...]

HWT_BUILD and HWT_BEFORE as for programs.py."""

import base64
import email.utils
import hashlib
import json
import os
import re
import resource
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time

from engine import free_port
from programs import USAGE, Programs, call, main, wait_until

ANSWER = b"HTTP/1.1 %s\r\nContent-Length: %d\r\n%s\r\n%s"
SECRET = b"0123456789abcdefghijklmnopqrstuv"


def hmac_sha256(key, text):
    """RFC 2104, without the module that knows it."""
    if len(key) > 64:
        key = hashlib.sha256(key).digest()
    key = key.ljust(64, b"\0")
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in key) + text)
    return hashlib.sha256(
        bytes(byte ^ 0x5c for byte in key) + inner.digest()).digest()


class Request:
    def __init__(self, head, body, at):
        first, *lines = head.decode("latin-1").split("\r\n")
        self.method, self.path, _ = first.split(" ")
        self.headers = {}
        for line in lines:
            name, value = line.split(":", 1)
            assert name.lower() not in self.headers, name
            self.headers[name.lower()] = value.strip()
        self.body, self.at = body, at


class Server:
    """A thread for each connection. A path names what it does: /NAME or
    /NAME/REST calls self.NAME(socket, rest); False: the connection ends, as it
    does after what CUT has for a name."""

    CUT = {"nothing": b"", "half": b"HTTP/1.1 200 OK\r\nContent-",
           "middle": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
           "garbage": b"\x00\xff\r\n\r\nSSH-2.0 \x80" * 99}

    def __init__(self, host="127.0.0.1", context=None):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.listener = socket.create_server(
            (host, 0), family=family, backlog=1024)
        self.port = self.listener.getsockname()[1]
        self.context = context
        self.requests, self.lock = [], threading.Lock()
        self.accepted = self.open = self.now = self.most = 0
        self.go, self.ended = threading.Event(), threading.Event()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            with self.lock:
                self.accepted += 1
                self.open += 1
            threading.Thread(
                target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        try:
            if self.context:
                client = self.context.wrap_socket(client, server_side=True)
            with client, client.makefile("rb") as file:
                while self.answer(client, file):
                    pass
        except (OSError, ValueError):
            pass
        finally:
            with self.lock:
                self.open -= 1

    def answer(self, client, file):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = file.readline()
            if not line:
                return False
            head += line
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        request = Request(head[:-4], file.read(
            int(length[1]) if length else 0), time.time())
        with self.lock:
            self.requests.append(request)
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            path = re.sub("^http://[^/]*", "", request.path)
            name, _, rest = path[1:].partition("/")
            if name in self.CUT:
                client.sendall(self.CUT[name])
                return False
            return getattr(self, name)(client, rest) is not False
        finally:
            with self.lock:
                self.now -= 1

    def close(self):
        self.ended.set()
        self.go.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def of(self, path):
        with self.lock:
            return [request for request in self.requests
                    if request.path.startswith(path)]

    # What it does.

    def status(self, client, rest, headers=b"", body=b""):
        code = rest.split("/")[0].encode()
        client.sendall(ANSWER % (code + b" X", len(body), headers, body))

    def says(self, client, rest):
        self.status(client, rest, body=b"no \x1b such\nthing")

    def long(self, client, rest):
        self.status(client, rest, body=b"y" * 5000)

    def after(self, client, rest):
        code, value = rest.split("/", 1)
        self.status(client, code, b"Retry-After: " +
                    value.replace("_", " ").encode() + b"\r\n")

    def to(self, client, rest):
        code, where = rest.split("/", 1)
        self.status(client, code, b"Location: " + where.encode() + b"\r\n")

    def loop(self, client, rest):
        self.to(client, f"307/{rest}x")

    def hold(self, client, _):
        self.go.wait(60)
        self.status(client, "200")

    def slow(self, client, rest):
        time.sleep(0.1)
        self.status(client, "200")

    def hang(self, client, _):
        self.ended.wait(60)
        return False

    def begins(self, client, _):
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        self.ended.wait(60)
        return False

    def drips(self, client, _):
        """Always something, and never the whole."""
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
        while not self.ended.wait(0.02):
            client.sendall(b"x")
        return False

    def reset(self, client, _):
        client.setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False

    def repeat(self, client, head, part):
        client.sendall(head)
        while not self.ended.is_set():
            client.sendall(part)
        return False

    def endless(self, client, rest):
        return self.repeat(client, b"HTTP/1.1 %s X\r\n\r\n" % rest.encode(),
                           b"x" * 65536)

    def header(self, client, rest):
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: " +
                       b"x" * int(rest) + b"\r\n\r\n")

    def headers(self, client, _):
        return self.repeat(client, b"HTTP/1.1 200 OK\r\n", b"A: b\r\n" * 1000)

    def continues(self, client, _):
        return self.repeat(
            client, b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)


class Webhooks(Programs):
    def setUp(self):
        super().setUp()
        self.scheduler = self.start("hwtd")
        self.server = Server()
        self.addCleanup(self.server.close)

    def work(self, *words, allow="127.0.0.1", **options):
        return self.start(
            "hwt-http", "--queue=q", *words,
            *([f"--allow={allow}"] if allow else []), **options)

    def url(self, path, host="127.0.0.1"):
        return f"http://{host}:{self.server.port}/{path}"

    def send(self, payload, *words, attempts=2):
        """Adds a task; a path stands for a call of it."""
        if isinstance(payload, str):
            payload = {"url": self.url(payload)}
        if isinstance(payload, dict):
            payload = json.dumps(payload).encode()
        return self.add("--queue=q", "--in=0", f"--attempts={attempts}",
                        "--payload=-", *words, stdin=payload)

    def ended(self, name):
        return wait_until(lambda: self.state(name) in (
            "succeeded", "failed") and self.show(name))

    def waits(self, name):
        """It has had an attempt and is to have another one."""
        def looked():
            shown = self.show(name)
            return shown["state"] == "pending" and shown["attempts"] and shown
        return wait_until(looked)

    @staticmethod
    def error(shown):
        return shown.get("error") or base64.b64decode(
            shown["error_base64"]).decode(errors="backslashreplace")

    def dead(self, cases, attempts):
        """Each becomes a dead letter with so many attempts (1: it was not
        tried again), and an error that matches."""
        names = [self.send(payload) for payload, _ in cases]
        for name, (payload, wanted) in zip(names, cases):
            with self.subTest(payload=payload):
                shown = self.ended(name)
                self.assertEqual(shown["state"], "failed")
                self.assertRegex(self.error(shown), f"^(?s:{wanted})$")
                self.assertEqual(shown["attempts"], attempts)


class Outcomes(Webhooks):
    def test_metrics(self):
        """A call lasts until its answer, not until the callback's return."""
        worker = self.work("--metrics=0")
        self.ends(self.send("slow"))
        _, text = worker.page()
        labels = f'queue="q",serial="1",space="{self.space}"'
        name = "hwt_durable_worker_execution_seconds"
        self.assertIn(f"\n{name}_count{{{labels}}} 1\n", text)
        self.assertIn(f'\n{name}_bucket{{{labels},le="0.067108863"}} 0\n',
                      text)
        self.assertEqual(worker.end(), 0)

    def test_what_is_sent(self):
        worker = self.work()
        before = time.time()
        name = "a.b\r\n%c_d"
        self.send(
            {"url": self.url("status/200/a?b=c"), "method": "PUT",
             "headers": {"X-Key": "é", "X-Empty": "", "User-Agent": "me",
                         "content-type": "text/plain"},
             "body": "b\r\n\u20ac"}, f"--id={name}")
        self.send("status/204")
        self.send({"url": self.url("status/200/get"), "method": "GET"})
        self.send({"url": self.url("status/200/head"), "method": "HEAD"})
        self.send({"url": self.url("status/200/delete"), "method": "DELETE",
                   "body": "x"})
        self.ends(name)
        put, = self.server.of("/status/200/a?b=c")
        self.assertEqual((put.method, put.body),
                         ("PUT", "b\r\n\u20ac".encode()))
        wanted = {
            "x-key": "Ã©", "x-empty": "", "user-agent": "me",
            "content-type": "text/plain", "hwt-attempt": "1",
            "hwt-generation": "1", "hwt-due": str(self.show(name)["due_ms"]),
            "webhook-id": "a%2Eb%0D%0A%25c_d",
            "host": f"127.0.0.1:{self.server.port}"}
        self.assertEqual({key: put.headers[key] for key in wanted}, wanted)
        self.assertGreater(int(put.headers["hwt-fence"]), before * 1e6)
        self.assertNotIn("webhook-signature", put.headers)
        self.assertTrue(before - 1 <= int(
            put.headers["webhook-timestamp"]) <= time.time())
        post = wait_until(lambda: self.server.of("/status/204"))[0]
        self.assertEqual((post.method, post.body), ("POST", b""))
        self.assertRegex(post.headers["user-agent"], r"^hwt-http/\d")
        for method in "GET", "HEAD", "DELETE":
            got = wait_until(lambda: self.server.of(
                f"/status/200/{method.lower()}"))[0]
            self.assertEqual(got.method, method)
        self.assertEqual(got.body, b"x")
        self.assertEqual(got.headers["content-type"], "application/json")
        self.assertEqual(worker.end(), 0)
        self.assertEqual(worker.err, "")
        self.check()

    def test_signatures(self):
        other = b"\0\xff" * 16
        lines = SECRET + b"\nwhsec_" + base64.b64encode(other) + b"\n"
        self.work("--secret-file", self.path("secrets", lines))
        self.send({"url": self.url("status/200"), "body": '{"a": 1}'},
                  "--id=order-1.paid")
        request = wait_until(lambda: self.server.of("/status"))[0]
        text = b".".join((request.headers["webhook-id"].encode(),
                          request.headers["webhook-timestamp"].encode(),
                          request.body))
        self.assertTrue(text.endswith(b'.{"a": 1}'))
        self.assertEqual(
            request.headers["webhook-signature"],
            " ".join("v1," + base64.b64encode(
                hmac_sha256(key, text)).decode() for key in (SECRET, other)))

    def test_secrets_that_are_none(self):
        for lines, wrong in (
                (b"", "it is empty"), (b"short\n", "at least 16 bytes"),
                (SECRET + b"\n\n", "at least 16 bytes"),
                (b"whsec_!!!!\n", "no base64"),
                (SECRET * 17, "too long"),
                ((SECRET + b"\n") * 5, "more than 4")):
            result = call("hwt-http", "--queue=q", "--secret-file",
                          self.path("secrets", lines))
            self.assertEqual(result.status, USAGE)
            self.assertIn(wrong, result.err)

    def test_the_status_decides(self):
        self.work("--limit=20", "--answer-max=4000")
        done = [self.send(path) for path in (
            "status/200", "status/201", "status/299", "endless/200")]
        self.dead([
            ("status/400", "status 400"), ("status/404", "status 404"),
            ("status/499", "status 499"),
            ("says/410", "status 410: no \x1b such\nthing"),
            ("long/404", "status 404: y{299}"),
            ("endless/404", "status 404: x{299}"),
        ], 1)
        self.dead([
            ("status/500", "status 500"), ("says/502",
                                           "status 502: no \x1b such\nthing"),
            ("status/503", "status 503"), ("status/429", "status 429"),
            ("status/304", "status 304"), ("status/302", "status 302"),
            ("status/600", "status 600"), ("status/999", "status 999"),
        ], 2)
        self.ends(*done)
        self.check()

    def test_answers_that_are_none_are_asked_for_again(self):
        worker = self.work("--headers-max=2000", "--connect-limit=5")
        closed = f"http://127.0.0.1:{free_port()}/"
        short = {"timeout": 0.2}
        self.dead([
            ({"url": self.url("hang"), **short}, ".*timed out.*"),
            ({"url": self.url("begins"), **short}, ".*timed out.*"),
            ({"url": self.url("drips"), **short}, ".*timed out.*"),
            ("garbage", "Received HTTP/0.9.*"),
            ("nothing", "Empty reply.*"), ("reset", ".*reset.*|Empty.*"),
            ("middle", "transfer closed.*"),
            ("half", "the answer ends within its headers"),
            ("header/2000", "the answer's headers have more than 2000 bytes"),
            ("headers", "the answer's headers have more than 2000 bytes"),
            ("continues", "the answer's headers have more than 2000 bytes"),
            ({"url": closed}, ".*[Cc]onnect.*"),
        ], 2)
        self.ends(self.send("header/1900"))
        self.assertEqual(worker.end(), 0)

    def test_the_option_bounds_a_task_s_timeout(self):
        self.work("--limit=0.2")
        self.dead([({"url": self.url("hang"), "timeout": 1000},
                    ".*timed out.*")], 2)

    def test_retry_after(self):
        self.work("--retry-after-max=9000")
        day = email.utils.formatdate(time.time() + 7200, usegmt=True)
        cases = [
            ("after/429/3600", 3500, 3600), ("after/503/3600", 3500, 3600),
            ("after/503/" + day.replace(" ", "_"), 7100, 7202),
            ("after/429/99999", 8900, 9000),
            ("after/429/" + "9" * 18, 8900, 9000),
            # These say nothing: the back-off.
            ("after/429/-5", -60, 60), ("after/503/soon", -60, 60),
            ("after/429/" + "9" * 40, -60, 60),
            ("after/503/Sun,_06_Nov_1994_08:49:37_GMT", -60, 60),
            ("after/500/3600", -60, 60)]
        names = [self.send(path, attempts=20) for path, _, _ in cases]
        for name, (path, least, most) in zip(names, cases):
            with self.subTest(path=path):
                due = self.waits(name)["due_ms"] / 1000 - time.time()
                self.assertTrue(least <= due <= most, due)

    def test_payloads_that_are_no_call(self):
        worker = self.work()
        url = self.url("status/200")

        def with_(**more):
            return {"url": url, **more}

        self.dead([
            (b"", "the payload is no call: .*"),
            (b"{", "the payload is no call: .*"),
            (b"[]", "the payload is no call: .*"),
            (b'"x"', "the payload is no call: .*"),
            (b"\xff\xfe", "the payload is no call: .*"),
            (b"[" * 60000, "the payload is no call: .*"),
            (b'{"url": "http://a/", "url": "http://b/"}',
             "the payload is no call: duplicate object key.*"),
            (b'{"url": "http://a/"} x', "the payload is no call: .*"),
            (b'{"url": "http://a/\\u0000"}', "the payload is no call: .*"),
            ({}, "the payload is no call: .*not found: url"),
            ({"url": 1}, "the payload is no call: .*"),
            (with_(more=1), "the payload is no call: .*unpacked: more"),
            (with_(body={}), "the payload is no call: .*"),
            (with_(method=None), "the payload is no call: .*"),
            (with_(method="get"), "method: want .*"),
            (with_(method="GET / HTTP/1.1\r\nX:"), "method: want .*"),
            (with_(method="CONNECT"), "method: want .*"),
            (with_(method="HEAD", body="x"), "body: .*"),
            (with_(headers=[]), "headers: want an object"),
            (with_(headers={"A": 1}), "headers: want texts"),
            (with_(headers={"A": "b\r\nC: d"}), "headers: a control .*"),
            (with_(headers={"A": "b\x7f"}), "headers: a control .*"),
            (with_(headers={"A\r\nB": "c"}), "headers: a name .*"),
            (with_(headers={"": "c"}), "headers: a name .*"),
            (with_(headers={"A:": "c"}), "headers: a name .*"),
            (with_(headers={"hOst": "x"}), "headers: one that .*"),
            (with_(headers={"Transfer-Encoding": "x"}), "headers: one .*"),
            (with_(headers={"Webhook-Id": "x"}), "headers: one that .*"),
            (with_(timeout="1"), "timeout: want .*"),
            (with_(timeout=0), "timeout: want .*"),
            (with_(timeout=-1), "timeout: want .*"),
            ({"url": ""}, "url: .*"), ({"url": "x"}, "url: .*"),
            ({"url": "/x"}, "url: .*"), ({"url": "http://"}, "url: .*"),
            ({"url": "ftp://127.0.0.1/"}, "url: .*neither http.*"),
            ({"url": "file:///etc/passwd"}, "url: .*"),
            ({"url": "gopher://127.0.0.1/"}, "url: .*neither http.*"),
            ({"url": "http://a b/"}, "url: .*"),
            ({"url": "http://a/\r\nX: y"}, "url: .*"),
            ({"url": "http://127.0.0.1:99999/"}, "url: .*"),
            ({"url": "http://b\u00fccher.example/"}, "url: .*ASCII.*"),
            ({"url": f"http://{'a' * 300}.example/"}, "url: .*too long"),
        ], 1)
        self.assertEqual(self.server.accepted, 0)
        self.ends(self.send(with_(timeout=1e300, body="x")))
        self.assertEqual(worker.end(), 0)
        self.check()


class Addresses(Webhooks):
    # Each is somebody's own, and none of the public internet.
    OWN = """127.0.0.1 127.255.0.9 localhost a.localhost [::1] 0x7f.1 0177.1
        2130706433 127.1 [::ffff:127.0.0.1] [::127.0.0.1] 0.0.0.0 [::]
        10.1.2.3 172.16.0.1 172.31.255.255 192.168.0.1 169.254.169.254
        100.64.0.1 100.100.100.200 168.63.129.16 192.0.0.192 198.18.0.1
        192.0.2.1 224.0.0.1 239.1.1.1 255.255.255.255 [fe80::1] [fc00::1]
        [fd00:ec2::254] [fec0::1] [ff02::1] [2001:db8::1] [2002:7f00:1::]
        [2001::1] [64:ff9b::7f00:1] [64:ff9b::10.0.0.1] [64:ff9b:1::1]
        [::ffff:10.0.0.1] [100::1]""".split()

    def refused(self, hosts, path="status/200", attempts=1):
        self.dead([({"url": self.url(path, host)}, ".*is not allowed")
                   for host in hosts], attempts)

    def test_what_is_not_public_is_refused(self):
        self.work(allow=None)
        six = Server("::1")
        self.addCleanup(six.close)
        self.refused(self.OWN)
        self.dead([({"url": f"http://[::1]:{six.port}/status/200"},
                    "::1 of .* is not allowed")], 1)
        self.assertEqual((self.server.accepted, six.accepted), (0, 0))
        self.check()

    def test_allow_and_deny(self):
        """allow, deny; hosts that may be called, hosts that may not."""
        cases = (
            ("127.0.0.0/8", None, ["127.0.0.1", "localhost", "2130706433",
                                   "[::ffff:127.0.0.1]"], ["10.0.0.1"]),
            ("127.0.0.1,10.0.0.0/8", "10.0.0.1", ["127.0.0.1"],
             ["127.0.0.2", "10.0.0.1"]),
            ("0.0.0.0/0,::/0", None, [], ["127.0.0.1", "[::1]"]),
            ("127.0.0.1", "127.0.0.0/8", ["127.0.0.1"], ["127.0.0.2"]),
            ("127.0.0.0/8", "127.0.0.1", [], ["127.0.0.1"]),
            ("127.0.0.1", "127.0.0.1", [], ["127.0.0.1"]),
            ("localhost", None, ["localhost", "LOCALHOST"],
             ["127.0.0.1", "a.localhost"]),
            (".localhost", None, ["a.localhost", "a.b.localhost"],
             ["localhost"]),
            ("127.0.0.0/8", "localhost", ["127.0.0.1", "a.localhost"],
             ["localhost", "LocalHost"]),
            (None, "0.0.0.0/0,::/0", [], ["1.1.1.1", "[2606:4700::1]"]),
            (None, "1.0.0.0/8", [], ["1.1.1.1", "[::ffff:1.1.1.1]",
                                     "[64:ff9b::1.1.1.1]"]),
        )
        for allow, deny, good, bad in cases:
            with self.subTest(allow=allow, deny=deny):
                worker = self.work(
                    *([f"--deny={deny}"] if deny else []), allow=allow)
                names = [self.send({"url": self.url("status/200", host)})
                         for host in good]
                self.refused(bad)
                self.ends(*names)
                self.assertEqual(worker.end(), 0)

    def test_after_a_redirect_too(self):
        self.work()
        where = self.url("status/200", "127.0.0.2")
        names = self.url("status/200", "a.localhost")
        self.dead([(f"to/302/{where}", "127.0.0.2 of .*not allowed"),
                   (f"to/307/http://169.254.169.254/latest", ".*not allowed"),
                   (f"to/307/http://[::1]/", ".*not allowed")], 1)
        self.ends(self.send(f"to/302/{names}"))
        self.assertEqual(len(self.server.of("/status")), 1)

    def test_a_name_that_may_does_not_speak_for_where_it_redirects(self):
        self.work(allow="localhost")
        where = self.url("status/200")
        self.dead([({"url": self.url(f"to/302/{where}", "localhost")},
                    "127.0.0.1 of 127.0.0.1 is not allowed")], 1)
        other = self.url("status/200", "a.localhost")
        self.dead([({"url": self.url(f"to/302/{other}", "localhost")},
                    ".*a.localhost.* is not allowed")], 1)
        self.assertEqual(self.server.of("/status"), [])

    def test_a_connection_that_is_there_is_not_another_host_s(self):
        """localhost may, and has a connection; 127.0.0.1 may not use it."""
        self.work(allow="localhost")
        self.ends(self.send({"url": self.url("status/200", "localhost")}))
        self.refused(["127.0.0.1"])

    def test_proxies(self):
        """That of the environment is not used. That of the option is, and
        decides about addresses."""
        closed = f"http://127.0.0.1:{free_port()}"
        env = {**os.environ, "http_proxy": closed, "all_proxy": closed,
               "ALL_PROXY": closed}
        worker = self.work(env=env)
        self.ends(self.send("status/200"))
        self.assertEqual(worker.end(), 0)
        self.work(f"--proxy=http://127.0.0.1:{self.server.port}", allow=None,
                  env={**os.environ, "no_proxy": "*"})
        self.ends(self.send({"url": "http://10.0.0.1/status/201"}))
        self.assertEqual(self.server.requests[-1].path,
                         "http://10.0.0.1/status/201")

    def test_options(self):
        for words, wrong in (
                ([], "want --queue"), (["--queue=q", "x"], "options alone"),
                (["--queue=q", "--allow=1.2.3"], "--allow: 1.2.3 is no host"),
                (["--queue=q", "--allow=a,,b"], "--allow: "),
                (["--queue=q", "--allow="], "--allow: "),
                (["--queue=q", "--deny=10.0.0.0/33"], "--deny: "),
                (["--queue=q", "--deny=10.0.0.1/8"], "--deny: "),
                (["--queue=q", "--deny=::1/129"], "--deny: "),
                (["--queue=q", "--deny=fe80::1/64"], "--deny: "),
                (["--queue=q", "--deny=a b"], "--deny: a b is no host"),
                (["--queue=q", "--concurrency=0"], "--concurrency"),
                (["--queue=q", "--per-host=0"], "--per-host"),
                (["--queue=q", "--limit=0"], "--limit: want 0.001 to"),
                (["--queue=q", "--connect-limit=x"], "--connect-limit"),
                (["--queue=q", "--visibility=0.5"], "--visibility: want 1"),
                (["--queue=q", "--redirects=51"], "--redirects"),
                (["--queue=q", "--secret-file=/nowhere"], "No such file"),
                (["--queue=q", "--ca-file=/nowhere"], "No such file"),
                (["--queue=q", "--proxy=x"], "--proxy: want"),
                (["--queue=q", "--proxy=http://a", "--allow=b"],
                 "--proxy excludes")):
            with self.subTest(words=words):
                result = call("hwt-http", *words)
                self.assertEqual(result.status, USAGE)
                self.assertIn(wrong, result.err)


class Redirects(Webhooks):
    def test_methods_and_bodies(self):
        self.work()
        for status, method, after, body in (
                (301, "POST", "GET", b""), (302, "POST", "GET", b""),
                (303, "POST", "GET", b""), (307, "POST", "POST", b"x"),
                (308, "POST", "POST", b"x"), (302, "PUT", "PUT", b"x"),
                (303, "PUT", "GET", b"")):
            with self.subTest(status=status, method=method):
                path = f"/status/200/{status}{method}"
                name = self.send({"url": self.url(f"to/{status}/{path}"),
                                  "method": method, "body": "x",
                                  "headers": {"Authorization": "me"}})
                self.ends(name)
                request, = self.server.of(path)
                self.assertEqual((request.method, request.body), (after, body))
                self.assertEqual(request.headers["authorization"], "me")
                self.assertIn("webhook-id", request.headers)

    def test_another_host_gets_no_header_that_could_be_secret(self):
        self.work("--secret-file", self.path("secret", SECRET))
        other = Server()
        self.addCleanup(other.close)
        back = self.url("status/200/back")
        name = self.send({
            "url": self.url(
                f"to/307/http://127.0.0.1:{other.port}/to/307/{back}"),
            "body": "x", "headers": {
                "Authorization": "me", "Cookie": "a=b", "X-Key": "secret",
                "Content-Type": "text/plain", "User-Agent": "me"}})
        self.ends(name)
        for request in (other.of("/to")[0], self.server.of("/status")[0]):
            self.assertEqual(request.body, b"x")
            self.assertEqual(sorted(request.headers), [
                "accept", "content-length", "content-type", "host",
                "user-agent"])
        self.assertIn("webhook-signature", self.server.requests[0].headers)

    def test_redirects_that_are_not_followed(self):
        self.work("--redirects=3")
        self.dead([
            ("loop/loop/", "a redirect, status 307, .*: there are too many"),
            ("to/302/file:///etc/passwd", "a redirect, .*"),
            ("to/302/ftp://127.0.0.1/", "a redirect, .*neither http nor.*"),
            ("to/302/http://a:b:c/", ".*"),
        ], 2)
        self.assertEqual(len(self.server.of("/loop")), 2 * 4)

    def test_none_at_all(self):
        self.work("--redirects=0")
        self.dead([("to/302/status/200", "status 302")], 2)


class Ends(Webhooks):
    def test_no_more_than_that_are_under_way(self):
        self.work("--concurrency=9", "--per-host=5")
        other = Server()
        self.addCleanup(other.close)
        names = [self.send("slow") for _ in range(30)]
        names += [self.send({"url": f"http://127.0.0.1:{other.port}/slow"})
                  for _ in range(30)]
        self.ends(*names)
        self.assertLessEqual(self.server.most, 5)
        self.assertLessEqual(other.most, 5)

    def test_idle_connections_make_room(self):
        self.work("--concurrency=2")
        idle, held = ([Server(), Server()] for _ in range(2))
        for server in idle + held:
            self.addCleanup(server.close)
        for server in idle:
            name = self.send(
                {"url": f"http://127.0.0.1:{server.port}/status/200"})
            self.assertEqual(self.ended(name)["state"], "succeeded")
        self.assertEqual([server.open for server in idle], [1, 1])
        for server in held:
            self.send({"url": f"http://127.0.0.1:{server.port}/hold"})
        wait_until(lambda: [server.now for server in held] == [1, 1])
        wait_until(lambda: [server.open for server in idle] == [0, 0])

    def test_calls_that_could_run_out_of_descriptors_are_not_begun(self):
        result = call(
            "hwt-http", "--queue=q", "--concurrency=102",
            preexec_fn=lambda: resource.setrlimit(
                resource.RLIMIT_NOFILE, (500, 500)))
        self.assertEqual(result.status, USAGE)
        self.assertIn("102 calls need 504 descriptors", result.err)

    def test_a_host_that_hangs_does_not_stop_another(self):
        self.work("--per-host=4", "--concurrency=50")
        held = [self.send("hold") for _ in range(20)]
        wait_until(lambda: self.server.most == 4)
        self.ends(self.send({"url": self.url("status/200", "localhost")}))
        self.server.go.set()
        self.ends(*held)

    def test_sigterm_waits_for_calls_and_releases_what_waits(self):
        worker = self.work("--per-host=4")
        names = [self.send("hold") for _ in range(12)]
        wait_until(lambda: self.stat()["running"] == 12)
        worker.process.send_signal(signal.SIGTERM)
        wait_until(lambda: self.stat()["running"] == 4)
        self.assertIsNone(worker.process.poll())
        self.server.go.set()
        self.assertEqual(worker.wait(), 0)
        shown = [self.show(name) for name in names]
        self.assertEqual(
            sorted(task["attempts"] for task in shown), [0] * 8 + [1] * 4)
        self.assertEqual(
            sum(task["state"] == "succeeded" for task in shown), 4)
        self.check()

    def test_after_the_grace_they_are_tried_again(self):
        worker = self.work("--grace=0.2")
        name = self.send("hang", attempts=20)
        wait_until(lambda: self.server.most)
        self.assertEqual(worker.end(), 0)
        self.assertIn(self.state(name), ("pending", "delivered"))
        self.assertEqual(self.show(name)["attempts"], 1)

    def test_many_failures_do_not_flood_the_log(self):
        """Twenty lines a second; how many more there were is told later."""
        worker = self.work()
        payload = json.dumps({"url": self.url("status/404")})
        began = time.monotonic()
        self.feed(*[{"queue": "q", "in": 0, "payload": payload}] * 200)
        wait_until(lambda: len(self.ctl("dead", "list").lines) == 200)
        seconds = time.monotonic() - began
        time.sleep(1)
        self.ended(self.send("status/404"))
        self.assertEqual(worker.end(), 0)
        told = worker.err.count("attempt 1: status 404")
        self.assertLessEqual(told, 20 * (seconds + 2) + 1)
        self.assertEqual(told + sum(map(int, re.findall(
            r"^hwt-http: (\d+) more failures$", worker.err, re.M))), 201)


class Https(Webhooks):
    def setUp(self):
        super().setUp()
        key, self.cert = self.path("key"), self.path("cert")
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
             "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out",
             self.cert, "-days", "2", "-subj", "/CN=a", "-addext",
             "subjectAltName=DNS:localhost"], check=True,
            stderr=subprocess.DEVNULL)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert, key)
        self.tls = Server(context=context)
        self.addCleanup(self.tls.close)

    def test_servers_are_verified(self):
        url = f"https://localhost:{self.tls.port}/status/200"
        worker = self.work()
        self.dead([({"url": url}, ".*certificate.*")], 2)
        self.assertEqual(worker.end(), 0)
        self.work("--ca-file", self.cert)
        self.ends(self.send({"url": url}))
        down = self.url("status/200")
        self.dead([
            ({"url": url.replace("localhost", "127.0.0.1")}, ".*name.*"),
            ({"url": url.replace("status/200", f"to/307/{down}")},
             "a redirect, .*https to http"),
        ], 2)
        self.assertEqual(self.server.accepted, 0)


if __name__ == "__main__":
    sys.exit(main())
