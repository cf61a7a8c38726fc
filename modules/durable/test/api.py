#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The HTTP API of hwtd --listen: who may ask, and what is answered.

    api.py [-v] [CLASS[.test]...]

See programs.py for HWT_BUILD and HWT_BEFORE, and serve.py for clients that
are slow, idle or many."""

import base64
import contextlib
import http.client
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
import urllib.parse

from contract import CONTRACT
from engine import LIMIT, held, shard_of
from programs import (BUILD, NASTY, NO, UNREACHABLE, USAGE, YES, Between,
                      Programs, call, main, wait_until)

TOKEN = "a-token-of-32-characters-or-so-!"


class Answer:
    def __init__(self, answer):
        self.status = answer.status
        self.headers = answer.headers
        self.body = answer.read()

    @property
    def json(self):
        return json.loads(self.body)


class Lost(Between):
    """Cuts the connection on which the answer comes to what has certain words,
    once, and before it all others: what is sent again is so on a new one."""

    def __init__(self, port, words, then=lambda: None):
        super().__init__(port, b"", b"")
        self.words = words
        self.then = then  # before it is cut
        self.cut = None
        self.sinks = []

    def cut_others(self, last):
        for sink in self.sinks:
            with contextlib.suppress(OSError):
                if sink is not last:
                    sink.shutdown(socket.SHUT_RDWR)

    def pass_on(self, source, sink, change):
        self.sinks.append(sink)
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if not change and self.words and self.words in data:
                    self.words = None
                    self.cut = sink
                if change and source is self.cut:
                    self.then()
                    self.cut_others(sink)
                    break
                sink.sendall(data)
            sink.shutdown(socket.SHUT_RDWR)
        source.close()


class Api(Programs):
    """Each test has a server, unless it starts one itself."""

    made_of = None  # the engine, if it is another one

    def where(self):
        where = super().where()
        if self.made_of is not None:
            where[1] = f"127.0.0.1:{self.made_of.port}"
        return where

    def serve(self, *words, where="0"):
        """hwtd, and the address that it tells."""
        running = self.start("hwtd", "--listen", where, *words)
        said = wait_until(lambda: "serves" in running.err and running.err)
        host, port = said.split("http://")[1].split("/\n")[0].rsplit(":", 1)
        self.address = (host.strip("[]"), int(port))
        return running

    def ask(self, method, path, body=None, **headers):
        """body: bytes, or a value, which is sent as JSON. Members of headers
        have _ for -."""
        if body is not None and not isinstance(body, bytes):
            return self.send(method, path, body, **headers)
        return self.end_ask(method, path,
                            self.begin_ask(method, path, body, **headers))

    def begin_ask(self, method, path, body, **headers):
        """Sends it. The answer is for end_ask() to read."""
        connection = http.client.HTTPConnection(*self.address, LIMIT)
        connection.request(method, path, body, {
            name.replace("_", "-"): text for name, text in headers.items()})
        return connection

    @staticmethod
    def end_ask(method, path, connection):
        try:
            answer = Answer(connection.getresponse())
            CONTRACT.answer(method, path, answer)
            return answer
        finally:
            connection.close()

    def send(self, method, path, value, **headers):
        """A body of JSON."""
        return self.ask(method, path, json.dumps(value).encode(),
                        Content_Type="application/json", **headers)

    def put_task(self, name, **task):
        """One that is due in a minute, unless task says something else."""
        return self.send("PUT", task_path(name),
                         {"queue": "q", "in": 60, **task})

    def refused(self, status, error, method, path, body=None, **headers):
        answer = self.ask(method, path, body, **headers)
        self.assertEqual(answer.status, status, answer.body)
        self.assertEqual(answer.headers["Content-Type"], "application/json")
        if method != "HEAD":
            self.assertEqual(answer.json["error"], error)
        return answer


class Access(Api):
    def test_metrics_and_health_are_there(self):
        running = self.serve()
        self.assertEqual(self.ask("GET", "/health").body, b"ok\n")
        answer = self.ask("GET", "/metrics")
        self.assertEqual(answer.status, 200)
        self.assertIn(b"hwt_durable_up", answer.body)
        self.assertEqual(answer.headers["Cache-Control"], "no-store")
        self.assertEqual(running.end(), YES)

    def test_other_machines_need_a_token(self):
        path = self.path("token", TOKEN.encode() + b"\n")
        for where in ("0.0.0.0:0", "[::]:0", "126.255.255.255:0",
                      "128.0.0.1:0", "[::ffff:127.0.0.1]:0", "[fe80::1]:0"):
            said = call("hwtd", *self.where(), "--listen", where)
            self.assertEqual(said.status, USAGE)
            self.assertIn("needs --token-file", said.err)
        for where in ("127.0.0.2:0", "[::1]:0"):
            self.assertEqual(self.serve(where=where).end(), YES)
        self.serve("--token-file", path, where="0.0.0.0:0")
        self.assertEqual(self.ask("GET", "/health", Authorization="Bearer "
                                  + TOKEN).status, 200)

    def test_a_listen_address_that_makes_no_sense(self):
        for where in ("", "x", "localhost:0", "65536", "1.2.3:0", "::1:0"):
            said = call("hwtd", *self.where(), "--listen", where)
            self.assertEqual((said.status, "want PORT" in said.err),
                             (USAGE, True))

    def test_a_token_is_asked_for(self):
        self.serve("--token-file", self.path("token", TOKEN.encode()))
        for path in ("/", "/page.js", "/page.css"):  # it has no data
            self.assertEqual(self.ask("GET", path).status, 200)
        for path in ("/health", "/metrics", "/v1/x", "/x", "/page.js/"):
            answer = self.refused(401, "unauthorized", "GET", path)
            self.assertEqual(answer.headers["WWW-Authenticate"], "Bearer")
        for text in ("", "Bearer", "Bearer ", TOKEN, "Basic " + TOKEN,
                     "Bearer " + TOKEN[:-1], "Bearer " + TOKEN + "x",
                     "Bearer x" + TOKEN[1:], "Bearer " + TOKEN[:-1] + "?",
                     "Bearer " + TOKEN.upper(), "Bearer " + 2 * TOKEN,
                     "Bearer " + 500 * TOKEN[:16]):
            self.refused(401, "unauthorized", "GET", "/health",
                         Authorization=text)
        for scheme in ("Bearer ", "bearer "):
            self.assertEqual(self.ask("GET", "/health", Authorization=scheme +
                                      TOKEN).status, 200)
        # The body of somebody without a token is not even kept.
        for path in ("/", "/health"):
            self.refused(401, "unauthorized", "POST", path, b"x" * (2 << 20))

    def test_token_files(self):
        for text in (b"", b"\n" + TOKEN.encode(), b"x" * 15, b"x" * 257,
                     b"x" * 1000, b"with a blank 123", b"\xff" * 20,
                     b"x" * 20 + b"\0", b"x" * 20 + b"\t"):
            said = call("hwtd", *self.where(), "--listen=0", "--token-file",
                        self.path("token", text))
            self.assertEqual(said.status, USAGE)
            self.assertIn("--token-file: its first line", said.err)
        for path in (self.path("token") + "x", self.folder):
            said = call("hwtd", *self.where(), "--listen=0", "--token-file",
                        path)
            self.assertEqual(said.status, USAGE)
            self.assertRegex(said.err, "--token-file .*: (No such|Is a dir)")
        said = call("hwtd", *self.where(), "--token-file",
                    self.path("token", b"x" * 16))
        self.assertIn("there is no --listen", said.err)
        for text in (b"x" * 16, b"x" * 256 + b"\n", b"x" * 20 + b"\r\n\xff"):
            running = self.serve("--token-file", self.path("token", text))
            token = text.split()[0].decode()
            self.assertEqual(self.ask("GET", "/health", Authorization=
                                      "Bearer " + token).status, 200)
            self.assertEqual(running.end(), YES)

    def test_a_browser_asks_for_pages_of_others(self):
        """A page of another origin can send requests to this machine, and one
        whose name was given this address can read the answers."""
        self.serve()
        host, port = self.address
        own = f"{host}:{port}"
        for origin in ("http://evil.example", "null", "https://" + own,
                       "http://" + own + "0", "http://127.0.0.1", ""):
            self.refused(403, "forbidden", "POST", "/v1/x", b"{}",
                         Origin=origin)
        for name in ("evil.example", f"evil.example:{port}", "",
                     f"localhost.evil.example:{port}", f"localhostx:{port}",
                     "127.0.0.1.evil.example", "[::1", "[x]", "[::1]x",
                     f":{port}", "x:1", "[::1]", "127.1", "2130706433",
                     "0.0.0.0", f"127.0.0.2:{port}", f"127.0.0.1:{port}x",
                     "localhost:", "localhost:80@evil.example"):
            self.refused(403, "forbidden", "GET", "/health", Host=name)
        for name in (own, f"localhost:{port}", "LOCALHOST", "127.0.0.1",
                     "localhost:1"):
            self.assertEqual(
                self.ask("GET", "/health", Host=name).status, 200)
            self.assertEqual(
                self.ask("GET", "/health", Host=name,
                         Origin="http://" + name).status, 200)

    def test_what_is_not_there(self):
        self.serve()
        for path in ("/x", "//", "/v1", "/v1/", "/health/", "/metrics/x",
                     "/%68ealth", "/v1/x%00"):
            self.refused(404, "not_found", "GET", path)
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH", "FOO"):
            answer = self.refused(405, "method_not_allowed", method,
                                  "/health")
            self.assertEqual(answer.headers["Allow"], "GET, HEAD")
        self.refused(404, "not_found", "HEAD", "/x")
        self.assertEqual(self.ask("HEAD", "/health").status, 200)

    def test_bodies_have_a_limit(self):
        self.serve()
        for length, status in ((1 << 20, 405), ((1 << 20) + 1, 413),
                               (3 << 20, 413)):
            self.assertEqual(self.ask("POST", "/health", b"x" *
                                      length).status, status)
        self.refused(413, "too_large", "POST", "/health", b"x" * (2 << 20))

    def fill(self, length):
        """What clients are answered that send a body at the same time; None:
        one of them has taken longer than it may."""
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            crowd = []
            for _ in range(70):
                client = stack.enter_context(
                    socket.create_connection(self.address, LIMIT))
                client.sendall(b"POST /health HTTP/1.1\r\nHost: localhost\r\n"
                               b"Content-Length: %d\r\n\r\n" % length +
                               b"x" * (length - 1))
                crowd.append(client)
            wait_until(self.is_read)
            answers = []
            for client in crowd:
                client.sendall(b"x")
                answers.append(client.recv(12)[9:])
            if b"" not in answers:
                return answers
        return None

    def test_bodies_together_have_a_limit(self):
        """Many clients with all but the end of a body do not fill the
        memory."""
        self.serve()
        length = 1 << 20
        answers = wait_until(lambda: self.fill(length))
        self.assertEqual(set(answers), {b"503", b"405"})
        self.assertGreaterEqual(answers.count(b"503"), 6)
        self.assertGreaterEqual(answers.count(b"405"), 32)
        # What they had is free again.
        wait_until(lambda: self.ask("POST", "/health", b"x" *
                                    length).status == 405)

    def is_read(self):
        """Whether the server has read all that was sent to it."""
        with open("/proc/net/tcp", encoding="ascii") as file:
            for words in map(str.split, list(file)[1:]):
                ports = [int(each.split(":")[1], 16) for each in words[1:3]]
                if self.address[1] in ports and words[4] != \
                        "00000000:00000000":
                    return False
        return True

    def test_a_head_has_a_limit(self):
        self.serve()
        self.assertEqual(self.ask("GET", "/health", X="x" * 9000).status, 200)
        self.assertIn(self.ask("GET", "/health", X="x" * 20000).status,
                      (413, 431))
        self.assertIn(self.ask("GET", "/" + "x" * 20000).status, (414, 431))
        for length in (*range(15000, 17000, 50), *range(32200, 32800, 20)):
            self.assertIn(self.ask("GET", "/health", X="x" * length).status,
                          (200,) if length < 16200 else
                          (431,) if length > 16400 else (200, 431))
        for count in (*range(150, 250), *range(450, 500)):
            self.assertIn(self.ask("GET", "/health", **{
                f"X{i}": "" for i in range(count)}).status,
                          (200,) if count < 190 else (200, 431))


class Answers(Api):
    """Clients ask, and do not read what they are answered."""

    ROOM = 64 << 20

    def setUp(self):
        super().setUp()
        self.server = self.serve()
        self.send("PUT", task_path("long"), {
            "queue": "q", "in": 3600, "payload": "\1" * 65536})
        self.length = len(self.ask("GET", task_path("long")).body)
        self.assertGreater(self.length, 6 * 65536)

    def ask_and_leave(self):
        """Little of the answer finds room between it and the server."""
        client = socket.socket()
        client.settimeout(LIMIT)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
        client.connect(self.address)
        client.sendall(b"GET /v1/tasks/long HTTP/1.1\r\n"
                       b"Host: localhost\r\n\r\n")
        return client

    def fill(self, stack):
        """The clients that have an answer by its status, of as many as ask
        for a quarter more than there is room for. None: some have been cut.
        """
        answers = {b"200": [], b"503": [], b"": []}
        crowd = [stack.enter_context(self.ask_and_leave())
                 for _ in range(self.ROOM // self.length * 5 // 4)]
        for client in crowd:
            try:
                answers[client.recv(12)[9:]].append(client)
            except ConnectionError:
                answers[b""].append(client)
        return answers if not answers[b""] else None

    def has_all_room(self):
        with contextlib.ExitStack() as stack:
            answers = self.fill(stack)
            return answers and len(answers[b"200"]) == \
                self.ROOM // self.length

    def test_they_have_a_limit_together(self):
        with contextlib.ExitStack() as stack:
            answers = wait_until(lambda: self.fill(stack))
            self.assertEqual(len(answers[b"200"]), self.ROOM // self.length)
            answer = self.send("PUT", task_path("x"), {"queue": "q", "in": 1})
            self.assertEqual((answer.status, answer.json["error"]),
                             (503, "busy"))
            self.assertEqual(self.ask("GET", task_path("x")).status, 404)
        wait_until(self.has_all_room)

    def test_what_has_been_sent_is_freed(self):
        """AddressSanitizer keeps what is freed, and tells what is not."""
        before = self.server.memory()
        for _ in range(300):
            self.assertEqual(self.ask("GET", task_path("long")).status, 200)
        if "asan" not in BUILD:
            self.assertLess(self.server.memory() - before, 50 * self.length)
        self.assertEqual(self.server.end(), 0)

    def test_who_does_not_read_is_cut(self):
        with contextlib.ExitStack() as stack:
            answers = wait_until(lambda: self.fill(stack))
            self.assertIsNotNone(answers[b"200"])
            wait_until(lambda: self.send("PUT", task_path("x"), {
                "queue": "q", "in": 3600}).status == 201)
            wait_until(self.has_all_room)


def task_path(name, rest=""):
    """name: text, or bytes."""
    return "/v1/tasks/" + urllib.parse.quote(name, safe="") + rest


class Tasks(Api):
    """Tasks are added, shown, moved and cancelled."""

    def setUp(self):
        super().setUp()
        self.server = self.serve()

    def shown(self, name):
        answer = self.ask("GET", task_path(name))
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(answer.headers["Content-Type"], "application/json")
        return answer.json

    def test_one_task_is_added(self):
        answer = self.send("POST", "/v1/tasks", {
            "queue": "mail", "in": 60, "id": "a", "payload": "x"})
        self.assertEqual((answer.status, answer.json),
                         (201, {"id": "a", "result": "stored"}))
        shown = self.shown("a")
        due = shown.pop("due_ms")
        self.assertAlmostEqual(due / 1000, time.time() + 60, delta=LIMIT)
        self.assertEqual(shown, {
            "id": "a", "state": "pending", "queue": "mail", "attempts": 0,
            "max_attempts": 20, "generation": 1, "payload": "x"})
        self.assertEqual(self.show("a"), self.shown("a"))
        answer = self.send("POST", "/v1/tasks", {"queue": "q", "in": 0})
        self.assertRegex(answer.json["id"], "^[0-9a-f]{32}$")
        self.check()

    def test_a_put_can_be_repeated(self):
        task = {"queue": "q", "in": 60, "payload": "x"}
        answer = self.send("PUT", task_path("a"), task)
        self.assertEqual((answer.status, answer.json),
                         (201, {"id": "a", "result": "stored"}))
        before = self.shown("a")
        for body in (task, {"queue": "other", "in": 1}):
            answer = self.send("PUT", task_path("a"), body)
            self.assertEqual((answer.status, answer.json), (
                200, {"id": "a", "result": "exists", "state": "pending"}))
        self.assertEqual(self.shown("a"), before)
        self.refused(400, "EINVAL", "PUT", task_path("a"), {
            "queue": "q", "in": 1, "id": "a"})

    def test_what_a_task_says_of_itself(self):
        until = int(time.time()) + 900
        answer = self.put_task("a", expires_at=until)
        self.assertEqual(answer.status, 201)
        self.assertEqual(self.show("a")["expires_ms"], until * 1000)
        self.put_task("b", expires_in=90)
        shown = self.show("b")
        self.assertEqual(shown["expires_ms"] - shown["due_ms"], 30000)
        self.put_task("d", retry_first=9, retry_factor=1.5, retry_most=60)
        shown = self.show("d")
        self.assertEqual((shown["retry_first_ms"], shown["retry_factor"],
                          shown["retry_most_ms"]), (9000, 1.5, 60000))
        for priority in ("high", "normal", "low"):
            self.put_task(priority, priority=priority)
            self.assertEqual(self.show(priority).get("priority", "normal"),
                             priority)
        for wrong in ({"expires_in": 59}, {"expires_in": 0},
                      {"priority": "highest"},
                      {"retry_first": 9, "retry_most": 8},
                      {"expires_in": 9, "expires_at": 4e9}):
            self.refused(400, "EINVAL", "PUT", task_path("c"),
                         {"queue": "q", "in": 60, **wrong})
        self.refused(400, "EINVAL", "POST", task_path("b", "/reschedule"),
                     {"in": 91})

    def test_what_has_ended_is_added_with_replace_alone(self):
        task = {"queue": "q", "in": 60}
        self.send("PUT", task_path("a"), task)
        self.assertEqual(self.ask("POST", task_path("a", "/cancel")).json,
                         {"id": "a", "state": "cancelled"})
        answer = self.send("PUT", task_path("a"), task)
        self.assertEqual((answer.status, answer.json["error"],
                          answer.json["state"]), (409, "EEXIST", "cancelled"))
        answer = self.send("PUT", task_path("a"), {**task, "replace": True})
        self.assertEqual(answer.status, 201)
        self.assertEqual(self.shown("a")["generation"], 2)

    def test_many_are_added_at_once(self):
        answer = self.send("POST", "/v1/tasks", [
            {"queue": "q", "in": 60, "id": f"t{i}"} for i in range(512)])
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.json["results"], [
            {"status": 201, "id": f"t{i}", "result": "stored"}
            for i in range(512)])
        self.ask("POST", task_path("t1", "/cancel"))
        answer = self.send("POST", "/v1/tasks", [
            {"queue": "q", "in": 60, "id": name}
            for name in ("t0", "t1", "new")])
        self.assertEqual(answer.status, 200)
        self.assertEqual([(each["status"], each.get("state"))
                          for each in answer.json["results"]],
                         [(200, "pending"), (409, "cancelled"), (201, None)])
        self.assertEqual(self.send("POST", "/v1/tasks", []).json,
                         {"results": []})
        self.check()

    def test_an_array_with_one_that_is_invalid_adds_nothing(self):
        good = {"queue": "q", "in": 60}
        for bad in (1, None, [], {}, {"queue": "q"}, {**good, "x": 1}):
            answer = self.send("POST", "/v1/tasks", [good, bad, good])
            self.assertEqual((answer.status, answer.json["error"]),
                             (400, "EINVAL"))
            self.assertIn("task 1, from 0: ", answer.json["message"])
        self.assertEqual(self.send("POST", "/v1/tasks", [good] * 513).status,
                         400)
        # What only the library sees.
        answer = self.send("POST", "/v1/tasks", [
            good, {"queue": "q", "at": 8999999999}])
        self.assertEqual(answer.status, 400)
        self.assertEqual([each["error"] for each in answer.json["results"]],
                         ["ECANCELED", "EINVAL"])
        self.assertEqual(self.ctl("stat", "--json").json["added"], 0)

    def test_bodies_that_make_no_sense(self):
        for path, method in (("/v1/tasks", "POST"), (task_path("a"), "PUT"),
                             (task_path("a", "/reschedule"), "POST")):
            for body in (b"", b"x", b"{", b"{}", b"1", b"null", b'"x"',
                         b'{"in":1}{}', b'{"in":-1,"queue":"q"}', b"\xff",
                         b'{"in":1,"in":1,"queue":"q"}', b"[" * 100000,
                         b'{"\\u00\xc3\xa9":1}',
                         b'{"in":1,"at":1,"queue":"q"}', b'{"\0":1}',
                         b'{"queue":"q"}', b'{"in":1e999,"queue":"q"}'):
                self.refused(400, "EINVAL", method, path, body,
                             Content_Type="application/json")
            for kind in ("text/plain", "", "application/jsonx",
                         "application/x-www-form-urlencoded"):
                self.refused(415, "unsupported_media_type", method, path,
                             b'{"queue":"q","in":1}', Content_Type=kind)
        self.assertEqual(self.ask(
            "PUT", task_path("a"), b'{"queue":"q","in":1}',
            Content_Type="Application/JSON; charset=utf-8").status, 201)
        self.assertEqual(self.ctl("stat", "--json").json["added"], 1)

    def test_a_body_of_many_small_values_takes_no_memory(self):
        """Parsed, it had 80 times its size."""
        def peak():
            with open(f"/proc/{self.server.process.pid}/status",
                      encoding="ascii") as file:
                return int(file.read().split("VmHWM:")[1].split()[0])

        task = b'{"queue":"q","in":60,"attempts":3,"payload":",,[[{\\"x"}'
        self.assertEqual(self.ask(
            "POST", "/v1/tasks", b"[" + b",".join([task] * 512) + b"]",
            Content_Type="application/json").status, 200)
        before = peak()
        for body in (b"[" + b"1," * 500000 + b"1]", b"[" * 100000,
                     b"[" + b"{}," * 300000 + b"{}]",
                     b'{"in":[' + b"1," * 500000 + b"1]}"):
            self.refused(400, "EINVAL", "POST", "/v1/tasks", body,
                         Content_Type="application/json")
        self.assertLess(peak() - before, 20000)  # KiB

    def test_ids_of_all_bytes(self):
        names = [name.encode() for name in NASTY] + [
            b"\0", b"/", b"a/b", b"%", b"%2f", b"+", b"\xff", b"?x", b"#",
            bytes(range(64)), bytes(range(192, 256))]
        for name in names:
            self.assertEqual(self.put_task(name).status, 201, name)
            shown = self.shown(name)
            said = shown["id"].encode() if "id" in shown else \
                base64.b64decode(shown["id_base64"])
            self.assertEqual(said, name)
            self.assertEqual(self.ask(
                "POST", task_path(name, "/cancel")).status, 200)
        for path in ("%", "%4", "%4x", "%x4", "a%", "%%30", "x" * 65,
                     "%41" * 65):
            self.refused(400, "EINVAL", "GET", "/v1/tasks/" + path)
        self.refused(400, "EINVAL", "GET", "/v1/tasks/")
        self.check()

    def test_payloads_of_all_bytes(self):
        for payload in (b"", b"\0", bytes(range(256)), b"\xff" * 65536,
                        "é🎉</script>".encode()):
            self.put_task("a", replace=True, payload_base64=base64.b64encode(
                payload).decode())
            shown = self.shown("a")
            said = shown["payload"].encode() if "payload" in shown else \
                base64.b64decode(shown["payload_base64"])
            self.assertEqual(said, payload)
            self.ask("POST", task_path("a", "/cancel"))

    def test_reschedule(self):
        self.put_task("a")
        at = int(time.time()) + 5000
        answer = self.send("POST", task_path("a", "/reschedule"),
                           {"at": at + 0.5})
        self.assertEqual((answer.status, answer.json),
                         (200, {"id": "a", "state": "pending"}))
        shown = self.shown("a")
        self.assertEqual((shown["due_ms"], shown["generation"]),
                         (at * 1000 + 500, 2))
        self.send("POST", task_path("a", "/reschedule"), {"in": 0})
        wait_until(lambda: self.shown("a")["state"] == "delivered")
        self.refused(400, "EINVAL", "POST", task_path("a", "/reschedule"),
                     {"in": 1, "queue": "q"})

    def test_what_cannot_be_done(self):
        self.refused(404, "ENOENT", "GET", task_path("x"))
        self.refused(404, "ENOENT", "POST", task_path("x", "/cancel"))
        self.refused(404, "ENOENT", "POST", task_path("x", "/reschedule"),
                     {"in": 1})
        ready = self.path("go")
        self.start("hwt-exec", "--queue=run", "--", "sh", "-c",
                   f"until [ -s {ready} ]; do sleep 0.05; done")
        self.send("PUT", task_path("r"), {"queue": "run", "in": 0})
        wait_until(lambda: self.shown("r")["state"] == "running")
        for rest in ("/cancel", "/reschedule"):
            answer = self.refused(409, "EINPROGRESS", "POST",
                                  task_path("r", rest), {"in": 1})
            self.assertEqual(answer.json["id"], "r")
        self.path("go", b"x")
        wait_until(lambda: self.shown("r")["state"] == "succeeded")
        for rest in ("/cancel", "/reschedule"):
            self.refused(409, "EALREADY", "POST", task_path("r", rest),
                         {"in": 1})
        self.assertEqual(self.shown("r")["payload"], "")

    def test_a_dead_letter_is_shown_with_its_error(self):
        self.start("hwt-exec", "--queue=bad", "--fail-status=3", "--", "sh",
                   "-c", "echo '<b>why</b>' >&2; exit 3")
        self.send("PUT", task_path("d"), {"queue": "bad", "in": 0,
                                          "payload": "kept"})
        wait_until(lambda: self.shown("d")["state"] == "failed")
        shown = self.shown("d")
        self.assertIn("<b>why</b>", shown["error"])
        self.assertEqual(shown["payload"], "kept")
        self.assertEqual(shown, self.show("d"))


class Dead(Api):
    """Dead letters, queues and counters."""

    def setUp(self):
        super().setUp()
        self.ctl("init", "--shards=2")
        self.serve()

    def kill(self, names):
        """They become dead letters."""
        running = self.start("hwt-exec", "--queue=bad", "--threads=8",
                             "--fail-status=3", "--", "sh", "-c",
                             "echo '<b>why</b>' >&2; exit 3")
        self.send("POST", "/v1/tasks", [
            {"queue": "bad", "in": 0, "id": name} for name in names])
        wait_until(lambda: self.ask("GET", "/v1/stat").json["dead"] ==
                   len(names))
        self.assertEqual(running.end(), YES)

    def pages(self, between=lambda page: None):
        """The ids of all pages."""
        told = []
        cursor = ""
        while cursor is not None:
            answer = self.ask("GET", "/v1/dead" + cursor)
            self.assertEqual(answer.status, 200, answer.body)
            page = [task["id"] for task in answer.json["tasks"]]
            self.assertLessEqual(len(page), 100)
            told += page
            between(page)
            cursor = answer.json["cursor"]
            cursor = cursor and "?cursor=" + cursor
        return told

    def test_they_are_listed_replayed_and_dropped(self):
        self.assertEqual(self.ask("GET", "/v1/dead").json,
                         {"tasks": [], "cursor": None})
        self.kill(["a", "b"])
        tasks = self.ask("GET", "/v1/dead").json["tasks"]
        self.assertEqual({task["id"] for task in tasks}, {"a", "b"})
        for task in tasks:
            self.assertEqual({**task, "payload": ""}, self.show(task["id"]))
            self.assertIn("<b>why</b>", task["error"])
        for verb, name, state in (("replay", "a", "pending"),
                                  ("drop", "b", "dropped")):
            path = f"/v1/dead/{name}/{verb}"
            self.assertEqual(self.ask("POST", path).json,
                             {"id": name, "state": state})
            self.refused(404, "ENOENT", "POST", path)
        self.assertEqual(self.ask("GET", task_path("b")).status, 404)
        self.assertEqual(self.show("a")["generation"], 2)
        self.assertEqual(self.pages(), [])
        self.check()

    def test_pages_leave_nothing_out_while_others_go(self):
        names = [f"t{i:03}" for i in range(250)]
        # That many of one time, of which the order is that of their ids.
        self.kill(names)
        client = self.connect()
        for shard in range(2):
            key = "{%s:%d}:dead" % (self.space, shard)
            for name in client("ZRANGE", key, 0, -1):
                client("ZADD", key, 1000, name)
        self.assertEqual(sorted(self.pages()), names)

        def drop(page):
            for name in page:
                self.assertEqual(self.ask(
                    "POST", f"/v1/dead/{name}/drop").status, 200)

        self.assertEqual(sorted(self.pages(drop)), names)
        self.assertEqual(self.pages(), [])

    def test_cursors_that_make_no_sense(self):
        for text in ("", "x", "1", "1-", "-1-1-", "1-1-6", "1-1-6X", "1-1-6z",
                     "1-1-61-", "9999999999-1-", "1--61", "0x1-1-",
                     "1-1-" + "61" * 65, "0-99999999999999999999-"):
            self.refused(400, "EINVAL", "GET", "/v1/dead?cursor=" + text)
        self.assertEqual(self.ask("GET", "/v1/dead?cursor=7-1-").json,
                         {"tasks": [], "cursor": None})

class Schedules(Api):
    """They are put, listed, shown and dropped."""

    def setUp(self):
        super().setUp()
        self.ctl("init", "--shards=2")
        self.serve()

    def put(self, name, **schedule):
        return self.send("PUT", "/v1/schedules/" + name,
                         {"queue": "q", **schedule})

    def shown(self, name):
        answer = self.ask("GET", "/v1/schedules/" + name)
        self.assertEqual(answer.status, 200, answer.body)
        return answer.json

    def test_one_is_there_until_it_is_dropped(self):
        before = time.time() * 1000
        answer = self.put("daily", cron="30 2 * * mon-fri",
                          zone="Europe/Paris", missed="all", attempts=3,
                          payload="p")
        self.assertEqual((answer.status, answer.json["name"]), (200, "daily"))
        shown = self.shown("daily")
        self.assertEqual(shown["next_ms"], answer.json["next_ms"])
        self.assertLess(before, shown.pop("next_ms"))
        self.assertEqual(shown, {
            "name": "daily", "cron": "30 2 * * mon-fri",
            "zone": "Europe/Paris", "missed": "all", "queue": "q",
            "attempts": 3, "payload": "p", "last_ms": 0})
        self.assertEqual(self.ctl("schedule", "list", "daily").json,
                         self.shown("daily"))
        self.put("hourly", every=3600)
        listed = self.ask("GET", "/v1/schedules").json
        self.assertTrue(listed["all_schedules"])
        names = {each["name"]: each for each in listed["schedules"]}
        self.assertEqual(set(names), {"daily", "hourly"})
        self.assertEqual({**names["daily"], "payload": "p"},
                         self.shown("daily"))
        self.assertEqual(self.ask("DELETE", "/v1/schedules/daily").json,
                         {"name": "daily"})
        for method in ("GET", "DELETE"):
            self.refused(404, "ENOENT", method, "/v1/schedules/daily")
        self.check()

    def test_a_put_can_be_repeated(self):
        """It changes nothing: a change has another version."""
        client = self.connect()

        def versions():
            return [client("HGET", "{%s:%d}:s:s" % (self.space, shard),
                           "version") for shard in range(2)]

        self.put("s", every=3600, payload="p")
        before = versions()
        self.assertEqual(self.put("s", every=3600, payload="p").status, 200)
        self.assertEqual(versions(), before)
        self.assertEqual(self.put("s", every=3600, payload="x").status, 200)
        self.assertNotEqual(versions(), before)
        self.assertEqual(self.shown("s")["payload"], "x")

    def test_one_that_cannot_be_read_is_an_error(self):
        client = self.connect()
        self.put("bad", every=3600)
        client("HSET", "{%s:%d}:s:bad" % (self.space, shard_of(b"bad", 2)),
               "attempts", 1001)
        self.refused(502, "EPROTO", "GET", "/v1/schedules/bad")
        self.assertEqual(
            self.ask("GET", "/v1/schedules").json["schedules"], [])
        self.assertEqual(self.ask("DELETE", "/v1/schedules/bad").status, 200)

    def test_it_occurs(self):
        self.put("tick", every=1, payload="p")
        tasks = wait_until(lambda: self.ask(
            "GET", "/v1/tasks?queue=q").json["tasks"])
        self.assertRegex(tasks[0]["id"], r"^tick@\d{4}-\d\d-\d\dT\d")
        wait_until(lambda: self.shown("tick")["last_ms"] % 1000 == 0 <
                   self.shown("tick")["last_ms"])

    def test_what_its_tasks_say_of_themselves(self):
        self.put("tick", every=1, expires_in=90.5, retry_first=9,
                 retry_factor=1.5, priority="high")
        shown = self.shown("tick")
        options = {"expires_in_ms": 90500, "retry_first_ms": 9000,
                   "retry_factor": 1.5, "retry_most_ms": 600000,
                   "priority": "high"}
        self.assertEqual({**shown, **options}, shown)
        task = wait_until(lambda: self.ask(
            "GET", "/v1/tasks?queue=q").json["tasks"])[0]
        self.assertEqual(task["expires_ms"] - task["due_ms"], 90500)
        self.assertEqual((task["retry_first_ms"], task["retry_factor"],
                          task["retry_most_ms"], task["priority"]),
                         (9000, 1.5, 600000, "high"))
        self.put("tick", every=1, priority="normal")
        self.assertEqual(set(self.shown("tick")) & set(options), set())

    def test_more_than_are_listed(self):
        """All are in the engine: hwtctl lists them."""
        space = self.scripts()
        for i in range(1001):
            space("schedule", i % 2, "put", f"s{i}", 3600, "", "", "last",
                  "q", 20, "p" * 1000, 0, 0, 0, 0, 0)
        answer = self.ask("GET", "/v1/schedules")
        self.assertFalse(answer.json["all_schedules"])
        self.assertEqual(len({each["name"] for each in
                              answer.json["schedules"]}), 1000)
        self.assertLess(len(answer.body), 700 * 1000)

    def test_what_makes_no_sense(self):
        for schedule, why in (
                ({}, "every"), ({"every": 60, "cron": "* * * * *"}, "every"),
                ({"every": 0}, "every"), ({"every": 1.5}, "every"),
                ({"every": "60"}, "every"), ({"every": 315360001}, "every"),
                ({"cron": 1}, "cron"), ({"cron": "* * * * *\0"}, "cron"),
                ({"cron": "60 * * * *"}, "minute: 60 is not 0 to 59"),
                ({"cron": "0 0 30 2 *"}, "no month"),
                ({"cron": "* * * * *", "zone": "Nowhere"}, "there is no"),
                ({"every": 60, "zone": "UTC"}, "zone"),
                ({"every": 60, "missed": "some"}, "missed"),
                ({"every": 60, "in": 1}, "not known"),
                ({"every": 60, "id": "x"}, "not known"),
                ({"every": 60, "queue": "a b"}, "queue"),
                ({"every": 60, "expires_in": 0}, "expires_in"),
                ({"every": 60, "expires_at": 4e9}, "expires_at"),
                ({"every": 60, "expires_at": 4e9, "priority": "low"},
                 "expires_at"),
                ({"every": 60, "priority": "highest"}, "priority"),
                ({"every": 60, "retry_factor": 0.5}, "retry_factor"),
                ({"every": 60, "retry_first": 9, "retry_most": 8}, ""),
                ({"every": 60, "attempts": 0}, "attempts")):
            answer = self.put("s", **schedule)
            self.assertEqual((answer.status, answer.json["error"]),
                             (400, "EINVAL"), schedule)
            self.assertIn(why, answer.json["message"])
        for body in (b"", b"[]", b"{", b'{"every":60}'):
            self.refused(400, "EINVAL", "PUT", "/v1/schedules/s", body,
                         Content_Type="application/json")
        for name in ("", "%41", "a@b", "x" * 44, "x" * 65):
            self.assertEqual(self.put(name, every=60).status, 400, name)
            for method in ("GET", "DELETE"):
                self.refused(400, "EINVAL", method, "/v1/schedules/" + name)
        self.assertEqual(self.ask("GET", "/v1/schedules").json,
                         {"schedules": [], "all_schedules": True})

    def test_other_methods(self):
        for path, allow in (("", "GET, HEAD"),
                            ("/s", "GET, HEAD, PUT, DELETE")):
            answer = self.refused(405, "method_not_allowed", "POST",
                                  "/v1/schedules" + path, b"{}")
            self.assertEqual(answer.headers["Allow"], allow)


class Work(Api):
    """What workers publish."""

    def work(self):
        return {each["queue"]: each
                for each in self.ask("GET", "/v1/queues").json["work"]}

    def test_it_is_added_up_by_queue(self):
        self.ctl("init", "--shards=2")
        self.serve()
        self.assertEqual(self.work(), {})
        # Until somebody hears it.
        self.start("hwt-exec", "--queue=a", "--queue=b", "--fail-status=3",
                   "--", "sh", "-c", 'exit "$(cat)"')

        def add(queue, said, **task):
            self.send("POST", "/v1/tasks", {
                "queue": queue, "payload": said, **(task or {"in": 0})})

        wait_until(lambda: "a" in self.work() or add("a", "0"))
        before = self.work()["a"]["done"]
        for _ in range(5):
            add("a", "0")
        add("a", "3")
        add("b", "1", at=time.time() - 100, retry_first=600)
        wait_until(lambda: (work := self.work().get("a")) and
                   work["failed"] == 1 and work["done"] >= before + 5 and
                   sum(work["lateness"]) == work["done"] + 1)
        done = wait_until(lambda: (work := self.work()).get(
            "b", {}).get("retried") == 1 and work)
        self.assertEqual(done["b"]["done"], 0)
        for work in done.values():
            self.assertEqual(len(work["lateness"]), 27)
        # 100 s are between 2^36 and 2^37 ns.
        self.assertEqual(done["b"]["lateness"][36 - 17], 1)
        of = f'{{space="{self.space}",queue="%s"'
        lines = self.ask("GET", "/metrics").body.decode().split("\n")
        for line in (
                f"hwt_durable_queue_done_total{of}}} {done['a']['done']}",
                f"hwt_durable_queue_failed_total{of}}} 1"):
            self.assertIn(line % "a", lines)
        for line in (
                f"hwt_durable_queue_done_total{of}}} 0",
                f"hwt_durable_queue_retried_total{of}}} 1",
                f"hwt_durable_queue_lateness_seconds_count{of}}} 1"):
            self.assertIn(line % "b", lines)
        name = f"hwt_durable_queue_lateness_seconds_bucket{of},le=" % "b"
        late = [line[len(name):] for line in lines if line.startswith(name)]
        self.assertEqual([late[0], late[-1]], ['"0.000262144"} 0', '"+Inf"} 1'])
        self.assertIn('"68.719476736"} 0', late)
        self.assertIn('"137.438953472"} 1', late)

    def test_what_makes_no_sense_is_not_added(self):
        self.serve()
        client = self.connect()
        channel = self.space + ":stats"
        for text in ("", "x", "a b c d", "a/b 1 1 1", "q 1 1", "q 1 1 -",
                     "x" * 65 + " 1 1 1", b"\xff 1 1 1", "q" * 100000,
                     "ok 1 2 3 99:1 0:1 x:1"):
            wait_until(lambda t=text: client("PUBLISH", channel, t))
        work = wait_until(self.work)
        self.assertEqual(set(work), {"ok"})
        self.assertEqual((work["ok"]["done"], work["ok"]["lateness"]),
                         (1, [1] + [0] * 25 + [1]))
        for i in range(100):
            client("PUBLISH", channel, f"q{i} 1 1 1")
        wait_until(lambda: len(self.work()) == 64)


class Lists(Api):
    """Tasks by state and queue, page by page."""

    def page(self, query=""):
        answer = self.ask("GET", "/v1/tasks" + query)
        self.assertEqual(answer.status, 200, answer.body)
        return answer.json

    def pages(self, query="", between=lambda: None):
        """All pages: lists of tasks."""
        told = []
        cursor = ""
        while cursor is not None:
            page = self.page(f"?{query}{cursor and '&cursor=' + cursor}")
            told.append(page["tasks"])
            between()
            cursor = page["cursor"]
        return told

    def ids(self, *query):
        """Of all pages; without a change, nothing comes twice."""
        return sorted(task["id"] for task in sum(self.pages(*query), []))

    def add_many(self, names, **task):
        for at in range(0, len(names), 512):
            answer = self.send("POST", "/v1/tasks", [
                {"queue": "q", "in": 60, **task, "id": name}
                for name in names[at:at + 512]])
            self.assertEqual(answer.status, 200, answer.body)

    def in_all_states(self):
        """By state, a task of it."""
        self.ctl("init", "--shards=2")
        space = self.scripts()
        for name, outcome in (("ok", "done"), ("bad", "fail")):
            self.add("--queue=q", "--in=0", f"--id={name}")
            self.execute(space, name, outcome)
        self.add("--queue=q", "--in=0", "--id=r")
        shard = shard_of(b"r", 2)
        wait_until(lambda: space("pump", shard, 100, "")[0])
        space("take", shard, "q", "w", 1, 0, 10, 60000)
        self.serve()
        self.add_many(["d"], **{"in": 0})
        wait_until(lambda: self.show("d")["state"] == "delivered")
        self.add_many(["p", "c"])
        self.ask("POST", task_path("c", "/cancel"))
        self.add_many(["other"], queue="other")
        return {"pending": "p", "delivered": "d", "running": "r",
                "succeeded": "ok", "failed": "bad", "cancelled": "c"}

    def test_by_state_and_queue(self):
        states = self.in_all_states()
        self.assertEqual(self.ids(""), sorted([*states.values(), "other"]))
        self.assertEqual(self.ids("queue=q"), sorted(states.values()))
        self.assertEqual(self.ids("queue=none"), [])
        self.assertEqual(self.ids("state=quarantined"), [])
        for state, name in states.items():
            query = f"queue=q&state={state}"
            self.assertEqual(self.ids(query), [name])
            self.assertEqual(self.ids(f"queue=none&state={state}"), [])
            task, = sum(self.pages(query), [])
            self.assertEqual({**task, "payload": ""}, self.show(name))
        self.assertEqual(self.ids("state=pending"), ["other", "p"])
        self.connect()("SET", "{%s:0}:r:x" % self.space, "no record")
        self.assertIn("x", self.ids(""))

    def test_nothing_is_missed_while_others_come_and_go(self):
        """And what is told twice was put elsewhere meanwhile."""
        self.serve()
        stay = [f"s{i}" for i in range(1500)]
        go = [f"g{i}" for i in range(300)]
        come = [f"c{i}" for i in range(2000)]
        self.add_many(stay + go)
        steps = iter(range(100))

        def between():
            step = next(steps)
            self.add_many(come[step * 100:step * 100 + 100])
            for i in range(10 * step, 10 * step + 10):
                self.ask("POST", task_path(f"g{i}", "/cancel"))
                self.send("POST", task_path(f"s{i}", "/reschedule"),
                          {"in": 90})

        told = self.pages("limit=100&state=pending&queue=q", between)
        self.assertGreater(len(told), 3)
        self.assertLess(max(map(len, told)), 1000)
        told = {task["id"] for task in sum(told, [])}
        self.assertEqual(set(stay) - told, set())
        self.assertEqual(told - set(stay + go + come), set())

    def test_a_page_takes_a_bounded_time(self):
        """However few tasks are wanted: it may be empty, with a cursor."""
        self.serve()
        self.add_many([str(i) for i in range(7000)])
        self.add_many(["rare"], queue="rare")
        client = self.connect()
        client("CONFIG", "RESETSTAT")
        page = self.page("?queue=none")
        self.assertIsNotNone(page["cursor"])
        self.assertEqual(page["tasks"], [])
        scans = client("INFO", "commandstats").decode().split(
            "cmdstat_scan:calls=")[1].split(",")[0]
        self.assertLess(int(scans), 20)  # the janitor scans too
        self.assertEqual(self.ids("queue=rare"), ["rare"])

    def test_a_page_of_many_shards_takes_few_calls(self):
        self.ctl("init", "--shards=1024")
        self.serve("--shards=0-1")
        names = [str(i) for i in range(4096)]
        self.add_many(names)
        client = self.connect()
        client("CONFIG", "RESETSTAT")
        page = self.page("?queue=none")
        self.assertIsNotNone(page["cursor"])
        calls = client("INFO", "commandstats").decode().split(
            "cmdstat_fcall:calls=")[1].split(",")[0]
        self.assertLess(int(calls), 1500)
        self.assertEqual(self.ids(""), sorted(names))

    def take_many(self, count):
        """So many that run, of a space of one shard."""
        self.ctl("init", "--shards=1")
        space = self.scripts()
        names = [f"r{i:03}" for i in range(count)]
        for name in names:
            space("add", 0, name, "q", "in", 0, 3, "", "")
        while space("pump", 0, 1000, "")[5]:
            pass
        taken = space("take", 0, "q", "w", 1, 0, 512, 60000)
        self.assertEqual(len(taken), count)
        return space, names, taken

    def test_pages_of_what_runs(self):
        """The leases are extended meanwhile, and attempts end."""
        space, names, taken = self.take_many(350)
        self.serve()
        self.assertEqual([len(page) for page in self.pages(
            "state=running&limit=150")], [150, 150, 50])
        self.assertEqual(self.ids("state=running"), names)
        left = list(taken)

        def between():
            for _ in range(20):
                if len(left) > 100:
                    space("finish", 0, *held(left.pop(0)), "done", 0)
            space("extend", 0, 70000, *held(left[-1]), *held(left[0]))

        told = self.ids("state=running&limit=50", between)
        self.assertLessEqual({task[0].decode() for task in left}, set(told))

    def test_a_page_with_few_of_a_set(self):
        """So much is looked at, and no more."""
        self.take_many(512)
        client = self.connect()
        client("ZADD", "{%s:0}:fly" % self.space, *sum((
            [(1 << 42) + i, f"gone{i}"] for i in range(2500)), []))
        self.serve()
        page = self.page("?state=running&queue=none")
        self.assertEqual(page["tasks"], [])
        self.assertIsNotNone(page["cursor"])
        self.assertEqual(len(self.ids("state=running")), 512)

    def test_what_makes_no_sense(self):
        self.serve()
        for query in ("state=", "state=Pending", "state=x", "queue=",
                      "queue=a%20b", "queue=" + "x" * 65, "limit=0", "limit=",
                      "limit=501", "limit=-1", "limit=1x", "cursor=",
                      "cursor=x", "cursor=1", "cursor=0.", "cursor=.0",
                      "cursor=0.x", "cursor=0.99999999999999999999",
                      "cursor=0-0-", "state=failed&cursor=0.0",
                      "state=running&cursor=x", "cursor=4294967296.0"):
            self.refused(400, "EINVAL", "GET", "/v1/tasks?" + query)
        self.assertEqual(self.page("?cursor=4294967295.7")["tasks"], [])


class Queues(Api):
    """What waits and runs in which queue; pauses."""

    def setUp(self):
        super().setUp()
        self.ctl("init", "--shards=2")
        self.serve()

    def queue(self, name):
        answer = self.ask("GET", "/v1/queues/" + name)
        self.assertEqual(answer.status, 200, answer.body)
        return answer.json

    def listed(self, count):
        """All queues by their names, once there are so many."""
        return wait_until(lambda: len(found := {
            each["queue"]: each
            for each in self.ask("GET", "/v1/queues").json["queues"]}) ==
            count and [found])[0]

    def test_none(self):
        self.assertEqual(self.ask("GET", "/v1/queues").json,
                         {"queues": [], "all_queues": True, "work": []})
        self.assertEqual(self.queue("any"), {
            "queue": "any", "depth": 0, "oldest_age_ms": 0, "in_flight": 0,
            "paused": False, "paused_shards": 0, "shards": 2,
            "paused_since_ms": None, "at_once": 0, "rate": 0})

    def test_what_waits(self):
        for name, count in (("old", 3), ("new", 1)):
            for _ in range(count):
                self.send("POST", "/v1/tasks", {"queue": name, "in": 0})
            wait_until(lambda n=name, c=count: self.queue(n)["depth"] == c)
        before = self.queue("old")["oldest_age_ms"]
        time.sleep(0.02)
        age = self.queue("old")["oldest_age_ms"]
        self.assertGreaterEqual(age, before + 20)
        self.assertLess(self.queue("new")["oldest_age_ms"], age)
        listed = self.listed(2)
        self.assertEqual(list(listed), ["old", "new"])
        for name, each in listed.items():
            self.assertEqual({**each, "oldest_age_ms": 0},
                             {**self.queue(name), "oldest_age_ms": 0})
            self.assertEqual(each["in_flight"], 0)

    def test_what_runs(self):
        """Also if nothing waits in that queue."""
        ready = self.path("go")
        self.start("hwt-exec", "--queue=run", "--threads=3", "--", "sh", "-c",
                   f"until [ -s {ready} ]; do sleep 0.05; done")
        for _ in range(3):
            self.send("POST", "/v1/tasks", {"queue": "run", "in": 0})
        wait_until(lambda: self.queue("run")["in_flight"] == 3)
        self.assertEqual(self.queue("run")["depth"], 0)
        wait_until(lambda: self.listed(1)["run"]["in_flight"] == 3)
        self.path("go", b"x")
        wait_until(lambda: self.queue("run")["in_flight"] == 0)
        self.listed(0)

    def test_limits(self):
        for given, said in (({"at_once": 3, "rate": 0.5}, (3, 0.5)),
                            ({"rate": 10}, (0, 10)),
                            ({"rate": 0.0014}, (0, 0.001)),
                            ({"rate": 0.0016}, (0, 0.002)),
                            ({"at_once": 2}, (2, 0)), ({"rate": 0}, (0, 0))):
            answer = self.send("POST", "/v1/queues/q/limits", given)
            self.assertEqual((answer.status, answer.json), (
                200, {"queue": "q", "at_once": said[0], "rate": said[1]}))
            self.assertEqual(self.queue("q"), {
                **self.queue("none"), "queue": "q", **answer.json})
            self.assertEqual((answer.status, len(self.listed(any(said)))),
                             (200, any(said)))
        for wrong in ({}, [], {"at_once": -1}, {"at_once": 1}, {"rate": -1},
                      {"at_once": 2.5}, {"at_once": "2"}, {"rate": None},
                      {"rate": 1000001}, {"rate": 1e-9}, {"at_once": 1e99},
                      {"rate": 1, "more": 1}):
            self.refused(400, "EINVAL", "POST", "/v1/queues/q/limits", wrong)

    def test_pause_and_resume(self):
        before = time.time()
        for verb, paused in (("pause", True), ("resume", False)):
            for _ in range(2):
                self.assertEqual(
                    self.ask("POST", f"/v1/queues/q/{verb}").json,
                    {"queue": "q", "paused": paused})
            said = self.queue("q")
            self.assertEqual((said["paused"], said["paused_shards"]),
                             (paused, 2 if paused else 0))
            if paused:
                self.assertAlmostEqual(said["paused_since_ms"] / 1000,
                                       before, delta=LIMIT)
                self.assertEqual(self.listed(1), {"q": said})
        self.assertIsNone(self.queue("q")["paused_since_ms"])

    def test_a_pause_that_was_cut_short(self):
        client = self.connect()
        client("ZADD", "{%s:1}:paused" % self.space, 1500, "q")
        said = self.queue("q")
        self.assertEqual((said["paused"], said["paused_shards"],
                          said["paused_since_ms"]), (False, 1, 1500))

    def test_names_that_are_none(self):
        for name in ("a%20b", "", "x" * 65, "%71"):
            self.refused(400, "EINVAL", "GET", f"/v1/queues/{name}")
            for verb in ("pause", "resume"):
                self.refused(400, "EINVAL", "POST",
                             f"/v1/queues/{name}/{verb}")

    def test_they_are_in_the_counters_too(self):
        self.send("POST", "/v1/tasks", {"queue": "q", "in": 0})
        stat = wait_until(lambda: (
            said := self.ask("GET", "/v1/stat").json)["delivered"] == 1 and
            said)
        self.assertEqual([(each["queue"], each["waiting"])
                          for each in stat["queues"]], [("q", 1)])


class Engines(Api):
    """The engine is away, full or hangs."""

    def test_requests_under_way_are_answered_at_SIGTERM(self):
        """Of 40, 16 are with the engine, which hangs; the others have not
        begun."""
        running = self.serve("--timeout=60")
        self.put_task("before")
        folder = f"/proc/{running.process.pid}/fd"
        before = len(os.listdir(folder))
        body = json.dumps({"queue": "q", "in": 60}).encode()

        def is_stopping():
            return self.ask("GET", "/v1/queues/q").status == 503

        self.engine.send_signal(signal.SIGSTOP)
        try:
            crowd = {str(i): self.begin_ask("PUT", task_path(str(i)), body,
                                            Content_Type="application/json")
                     for i in range(40)}
            # Some that were open before may be closed meanwhile.
            wait_until(lambda: len(os.listdir(folder)) >= before + 36)
            running.process.send_signal(signal.SIGTERM)
            # It is accepted after all of the crowd.
            wait_until(is_stopping)
        finally:
            self.engine.send_signal(signal.SIGCONT)
        answers = {name: self.end_ask("PUT", task_path(name), each).status
                   for name, each in crowd.items()}
        self.assertEqual(running.wait(), YES)
        self.assertEqual(set(answers.values()), {201, 503})
        for name, status in answers.items():
            self.ctl("show", name, status=YES if status == 201 else NO)

    def test_an_engine_that_hangs_makes_an_add_uncertain(self):
        """And those who wait for a thread for too long have lost nothing."""
        running = self.serve("--timeout=2")
        self.put_task("before")
        answers = []

        def add(number):
            answers.append(self.put_task(str(number)))

        self.engine.send_signal(signal.SIGSTOP)
        try:
            crowd = [threading.Thread(target=add, args=(i,))
                     for i in range(100)]
            for each in crowd:
                each.start()
            for each in crowd:
                each.join()
        finally:
            self.engine.send_signal(signal.SIGCONT)
        seen = {(each.status, each.json["error"]) for each in answers}
        self.assertIn((504, "ETIMEDOUT"), seen)
        self.assertIn((503, "busy"), seen)
        self.assertLessEqual(seen, {(504, "ETIMEDOUT"), (503, "busy"),
                                    (503, "ECONNREFUSED")})
        for each in answers:
            if each.status == 504:
                self.assertIn("id", each.json)
            else:
                self.assertEqual(each.headers["Retry-After"], "1")
        # The same id may come again.
        wait_until(lambda: self.put_task("0").status in (200, 201))
        self.assertEqual(running.end(), YES)

    def test_an_engine_that_is_away(self):
        self.serve("--timeout=1")
        self.engine.kill()
        try:
            for method, path in (("GET", ""), ("POST", "/cancel")):
                wait_until(lambda m=method, p=path: self.ask(
                    m, task_path("a", p)).status == 503)
            answer = self.send("POST", "/v1/tasks", [
                {"queue": "q", "in": 1, "id": "a"}])
            self.assertEqual(answer.status, 503)
            self.assertEqual(answer.json["results"][0]["error"],
                             "ECONNREFUSED")
            self.assertEqual(answer.headers["Retry-After"], "1")
        finally:
            self.engine.start()

    def test_an_engine_that_is_full(self):
        self.serve()
        self.put_task("a")
        client = self.connect()
        client("CONFIG", "SET", "maxmemory", "1")
        try:
            answer = self.send("PUT", task_path("b"), {"queue": "q", "in": 1})
            self.assertEqual((answer.status, answer.json["error"]),
                             (507, "ENOSPC"))
            self.assertEqual(self.ask(
                "POST", task_path("a", "/cancel")).status, 200)
        finally:
            client("CONFIG", "SET", "maxmemory", "0")

    def test_a_shard_that_is_paused(self):
        self.ctl("init", "--shards=1")
        self.serve("--timeout=1")
        self.ctl("pause", "0")
        answer = self.send("PUT", task_path("a"), {"queue": "q", "in": 1})
        self.assertEqual((answer.status, answer.json["error"],
                          answer.headers["Retry-After"]),
                         (503, "EAGAIN", "1"))
        self.assertEqual(answer.json["id"], "a")

    def test_an_array_that_is_stored_in_part(self):
        """Who is told to send it again would store tasks without ids twice.
        """
        self.ctl("init", "--shards=2")
        self.serve("--timeout=1")
        self.ctl("pause", "1")
        names = [[name for name in map(str, range(99))
                  if shard_of(name.encode(), 2) == shard][:3]
                 for shard in (0, 1)]
        tasks = [[{"queue": "q", "in": 60, "id": name} for name in each]
                 for each in names]
        answer = self.send("POST", "/v1/tasks", tasks[1] + tasks[0])
        self.assertEqual((answer.status, answer.headers["Retry-After"]),
                         (200, None))
        self.assertEqual([(each["status"], each["id"])
                          for each in answer.json["results"]],
                         [(503, name) for name in names[1]] +
                         [(201, name) for name in names[0]])
        answer = self.send("POST", "/v1/tasks", tasks[1])
        self.assertEqual((answer.status, answer.headers["Retry-After"]),
                         (503, "1"))
        self.assertEqual(self.ctl("stat", "--json").json["added"], 3)

    def test_an_array_of_which_a_part_is_uncertain(self):
        self.ctl("init", "--shards=2", "--level=replicated")
        self.serve("--timeout=1")
        self.ctl("pause", "1")
        names = sorted(map(str, range(9)),
                       key=lambda name: -shard_of(name.encode(), 2))
        answer = self.send("POST", "/v1/tasks", [
            {"queue": "q", "in": 60, "id": name} for name in names])
        self.assertEqual(answer.status, 504)
        self.assertEqual([each["status"] for each in answer.json["results"]],
                         [503 if shard_of(name.encode(), 2) else 504
                          for name in names])

    def through(self, *words, **options):
        """A server whose engine is behind a proxy that loses an answer."""
        lost = self.enterContext(Lost(self.engine.port, *words, **options))
        self.made_of = lost
        running = self.serve("--timeout=3")
        self.made_of = None
        return running

    def fail_one(self, name, **options):
        """It is a dead letter, of a space of one shard."""
        self.ctl("add", "--queue=q", "--in=0", "--timeout=1", f"--id={name}",
                 **options)
        self.execute(self.scripts(), name, "fail")

    def test_a_lost_answer_about_a_dead_letter(self):
        """It is not asked for again, to find that there is none any more."""
        self.ctl("init", "--shards=1")
        self.fail_one("d")
        running = self.through(b"\r\nreplay\r\n")
        self.refused(504, "ETIMEDOUT", "POST", "/v1/dead/d/replay")
        self.assertEqual(self.show("d")["generation"], 2)
        self.refused(404, "ENOENT", "POST", "/v1/dead/d/replay")
        self.assertEqual(running.end(), YES)

    def test_a_reschedule_that_is_asked_again_and_then_refused(self):
        """Its delay counts anew, and the task expires before that: the first
        one has happened all the same."""
        self.ctl("init", "--shards=1")
        self.add("--queue=q", "--in=60", "--expires-in=900", "--id=a")
        client = self.connect()
        self.through(b"\r\na\r\n$2\r\nin\r\n", then=lambda: client(
            "SETRANGE", "{%s:0}:r:a" % self.space, 57,
            struct.pack("<Q", round(time.time() * 1000))))
        answer = self.send("POST", task_path("a", "/reschedule"), {"in": 90})
        self.assertEqual((answer.status, answer.json["error"]),
                         (504, "ETIMEDOUT"))
        self.assertEqual(self.show("a")["generation"], 2)

    def test_a_call_under_way_holds_up_no_end(self):
        """However long it may take."""
        running = self.serve(f"--timeout={30 * LIMIT}")
        self.engine.send_signal(signal.SIGSTOP)
        try:
            with socket.create_connection(self.address, LIMIT) as client:
                client.sendall(b"GET /v1/tasks/x HTTP/1.1\r\n"
                               b"Host: localhost\r\n\r\n")
                # Whoever comes later is answered by another thread.
                self.assertEqual(self.ask("GET", "/").status, 200)
                self.assertEqual(running.end(), UNREACHABLE)
                self.assertEqual(client.recv(1), b"")
        finally:
            self.engine.send_signal(signal.SIGCONT)

    def test_hwtctl_does_not_ask_again_either(self):
        self.ctl("init", "--shards=1")
        self.fail_one("d")
        self.made_of = self.enterContext(
            Lost(self.engine.port, b"\r\nreplay\r\n"))
        self.ctl("dead", "replay", "d", status=UNREACHABLE)
        self.assertEqual(self.show("d")["generation"], 2)

    def test_a_read_whose_answer_is_lost_is_not_uncertain(self):
        """The engine is away by then: nothing has happened."""
        self.ctl("init", "--shards=1")
        for path, words in (("/v1/tasks/look", b"look"),
                            ("/v1/queues/look", b"look"),
                            ("/v1/tasks", b"SCAN"),
                            ("/v1/dead", b"ZRANGE")):
            running = self.through(words, then=self.engine.kill)
            self.refused(503, "ECONNREFUSED", "GET", path)
            self.engine.start()
            self.assertEqual(running.end(), YES)

    def test_dead_letters_wait_for_replicas(self):
        """There are none."""
        self.ctl("init", "--shards=1", "--level=replicated")
        for name in ("a", "b", "c", "d"):
            self.fail_one(name, status=UNREACHABLE)
        self.serve("--timeout=1")
        for path in ("a/replay", "b/drop"):
            self.refused(504, "ETIMEDOUT", "POST", "/v1/dead/" + path)
        self.ctl("dead", "drop", "c", "--timeout=1", status=UNREACHABLE)
        self.ctl("dead", "drop", "--all", "--timeout=1", status=UNREACHABLE)
        self.assertEqual(self.ask("GET", "/v1/dead").json["tasks"], [])

    def test_an_engine_that_is_weak_after_a_lost_answer(self):
        """That it does not serve says nothing about what was sent before."""
        self.ctl("init", "--shards=1")
        client = self.connect()
        self.addCleanup(client, "CONFIG", "SET", "appendfsync", "always")
        self.through(b"the payload", then=lambda: client(
            "CONFIG", "SET", "appendfsync", "everysec"))
        answer = self.put_task("a", payload="the payload")
        self.assertEqual((answer.status, answer.json["error"]),
                         (504, "ETIMEDOUT"))
        client("CONFIG", "SET", "appendfsync", "always")
        self.assertEqual(self.show("a")["state"], "pending")

    def test_a_space_that_is_gone(self):
        self.serve("--timeout=1")
        client = self.connect()
        client("FLUSHALL")
        answer = self.send("PUT", task_path("a"), {"queue": "q", "in": 1})
        self.assertEqual((answer.status, answer.json["error"]),
                         (503, "ESTALE"))


if __name__ == "__main__":
    sys.exit(main())
