#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The HTTP API of hwtd --listen: who may ask, and what is answered.

    api.py [-v] [CLASS[.test]...]

See programs.py for HWT_BUILD and HWT_BEFORE, and serve.py for clients that
are slow, idle or many."""

import http.client
import json
import socket
import sys

from engine import LIMIT
from programs import USAGE, YES, Programs, call, main, wait_until

TOKEN = "a-token-of-32-characters-or-so-!"


class Answer:
    def __init__(self, answer):
        self.status = answer.status
        self.headers = answer.headers
        self.body = answer.read()

    @property
    def json(self):
        return json.loads(self.body)


class Api(Programs):
    """Each test has a server, unless it starts one itself."""

    def serve(self, *words, where="0"):
        """hwtd, and the address that it tells."""
        running = self.start("hwtd", "--listen", where, *words)
        said = wait_until(lambda: "serves" in running.err and running.err)
        host, port = said.split("http://")[1].split("/\n")[0].rsplit(":", 1)
        self.address = (host.strip("[]"), int(port))
        return running

    def ask(self, method, path, body=None, **headers):
        """Members of headers have _ for -."""
        connection = http.client.HTTPConnection(*self.address, LIMIT)
        try:
            connection.request(method, path, body, {
                name.replace("_", "-"): text
                for name, text in headers.items()})
            return Answer(connection.getresponse())
        finally:
            connection.close()

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
        for path in ("/health", "/metrics", "/v1/x", "/x"):
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
        self.refused(401, "unauthorized", "POST", "/health", b"x" * (2 << 20))

    def test_token_files(self):
        for text in (b"", b"\n" + TOKEN.encode(), b"x" * 15, b"x" * 257,
                     b"x" * 1000, b"with a blank 123", b"\xff" * 20,
                     b"x" * 20 + b"\0", b"x" * 20 + b"\t"):
            said = call("hwtd", *self.where(), "--listen=0", "--token-file",
                        self.path("token", text))
            self.assertEqual(said.status, USAGE)
            self.assertIn("--token-file: its first line", said.err)
        said = call("hwtd", *self.where(), "--listen=0", "--token-file",
                    self.path("token") + "x")
        self.assertEqual(said.status, USAGE)
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
                     f":{port}", "x:1"):
            self.refused(403, "forbidden", "GET", "/health", Host=name)
        for name in (own, f"localhost:{port}", "LOCALHOST", "[::1]",
                     f"[::1]:{port}", "127.0.0.1"):
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

    def test_bodies_together_have_a_limit(self):
        """Many clients with all but the end of a body do not fill the
        memory."""
        self.serve()
        length = 1 << 20
        crowd = []
        for _ in range(70):
            client = socket.create_connection(self.address, LIMIT)
            self.addCleanup(client.close)
            client.sendall(b"POST /health HTTP/1.1\r\nHost: localhost\r\n"
                           b"Content-Length: %d\r\n\r\n" % length +
                           b"x" * (length - 1))
            crowd.append(client)
        wait_until(self.is_read)
        answers = []
        for client in crowd:
            client.sendall(b"x")
            answers.append(client.recv(12)[9:])
        self.assertGreaterEqual(answers.count(b"503"), 6)
        self.assertGreaterEqual(answers.count(b"405"), 50)
        self.assertEqual(len(answers), answers.count(b"503") +
                         answers.count(b"405"))
        # What they had is free again.
        for client in crowd:
            client.close()
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


if __name__ == "__main__":
    sys.exit(main())
