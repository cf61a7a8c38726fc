#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What hwtd serves over HTTP, to clients that are many, idle, slow or hostile,
and while the engine hangs.

    serve.py [-v] [CLASS[.test]...]

See programs.py for HWT_BUILD and HWT_BEFORE."""

import contextlib
import http.client
import os
import re
import resource
import signal
import socket
import struct
import sys
import time

from engine import LIMIT
from programs import (BUILD, NO, USAGE, YES, Between, Programs, Running, call,
                      main, wait_until)

HEALTH = b"GET /health HTTP/1.0\r\n\r\n"
IDLE = 10000  # clients
IDLE_SECONDS = 3  # of what they have, 10


class Renamed(Between):
    """Of the first answers about queues, the names are such as no queue has:
    in so many of them Z is changed."""

    def __init__(self, port, names):
        super().__init__(port, b"", b"")
        self.left = names
        self.questions = 0

    def pass_on(self, source, sink, change):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if not change:
                    self.questions += data.count(b"_queues\r\n")
                elif self.questions > 0:
                    count = min(self.left, data.count(b"Z"))
                    data = data.replace(b"Z", b"/", count)
                    self.left -= count
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        source.close()


class Serve(Programs):
    def metrics(self, *words, option="--metrics"):
        """hwtd with a free port, and the address it tells."""
        running = self.start("hwtd", option, "0", *words)
        host, port = wait_until(lambda: re.search(
            "http://(.+):([0-9]+)/", running.err)).groups()
        return running, (host, int(port))

    @staticmethod
    def ask(address, text=b"GET /metrics HTTP/1.0\r\n\r\n"):
        with socket.create_connection(address, LIMIT) as connection:
            connection.sendall(text)
            answer = b""
            while True:
                part = connection.recv(65536)
                if not part:
                    break
                answer += part
        head, _, body = answer.partition(b"\r\n\r\n")
        return head.split(b"\r\n")[0].decode(), body.decode()

    def test_metrics_and_health_on_loopback(self):
        running, address = self.metrics()
        self.assertEqual(address[0], "127.0.0.1")
        self.add("--queue=q", "--in=60")
        status, body = self.ask(address)
        self.assertIn(" 200 ", status)
        self.assertIn(f'hwt_durable_added_total{{space="{self.space}"}} 1\n',
                      body)
        self.assertEqual(
            self.ask(address, b"GET /health?x HTTP/1.0\r\n\r\n")[1], "ok\n")
        self.assertIn(" 404 ", self.ask(
            address, b"GET /x HTTP/1.0\r\n\r\n")[0])
        self.assertIn(" 405 ", self.ask(
            address, b"POST /metrics HTTP/1.0\r\n\r\n")[0])
        self.assertEqual(running.end(), 0)

    def test_metrics_listen_where_they_are_told_to(self):
        for words, where, bound in (
                ("0", "127.0.0.1", "0100007F"),
                ("127.0.0.2:0", "127.0.0.2", "0200007F"),
                ("0.0.0.0:0", "0.0.0.0", "00000000"),
                ("[::1]:0", "[::1]", "00000000000000000000000001000000")):
            running = self.start("hwtd", "--metrics", words)
            # What comes before it serves ends by a signal as any program.
            said = wait_until(lambda: "serves" in running.err and
                              running.err)
            address = said.split("http://")[1].split("/metrics")[0]
            host, port = address.rsplit(":", 1)
            self.assertEqual(host, where)
            self.assertEqual(self.listening(int(port)), {bound})
            self.assertEqual(running.end(), 0)

    @staticmethod
    def listening(port):
        """The addresses, as the system has them: while sockets come and go, it
        may say one twice."""
        found = set()
        for name in ("tcp", "tcp6"):
            with open(f"/proc/net/{name}", encoding="ascii") as file:
                for words in map(str.split, list(file)[1:]):
                    address, _, number = words[1].partition(":")
                    if words[3] == "0A" and int(number, 16) == port:
                        found.add(address)
        return found

    def test_clients_that_are_slow_or_hostile_hold_up_nobody(self):
        running, address = self.metrics()
        crowd = [socket.create_connection(address) for _ in range(4)]
        crowd[0].sendall(b"GET /met")
        crowd[1].sendall(b"x" * 100000)
        crowd[2].sendall(b"\0\r\n\r\n")
        name = self.add("--queue=q", "--in=0")
        wait_until(lambda: self.state(name) == "delivered")
        self.assertIn(" 200 ", self.ask(address)[0])
        for each in crowd:
            each.close()
        for text in (b"\r\n\r\n", b"GET\r\n\r\n", b"GET /metrics\r\n\r\n",
                     b"GET  HTTP/1.0\r\n\r\n", b"\xff" * 50 + b"\n\n",
                     b"GET /%n%s%x HTTP/1.0\n\n"):
            with contextlib.suppress(OSError):
                self.ask(address, text)
        reader = socket.create_connection(address)
        reader.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                          struct.pack("ii", 1, 0))
        reader.close()
        self.assertIn(" 200 ", self.ask(address)[0])
        late = socket.create_connection(address)
        self.addCleanup(late.close)
        self.assertEqual(running.end(), 0)

    def test_the_engine_goes_and_comes(self):
        running, address = self.metrics("--timeout=1")
        health = b"GET /health HTTP/1.0\r\n\r\n"
        self.assertIn(" 200 ", self.ask(address, health)[0])
        self.engine.kill()
        body = wait_until(
            lambda: " 503 " in (answer := self.ask(address, health))[0] and
            answer[1])
        self.assertNotIn("ok", body.split())
        self.assertIn(f'hwt_durable_up{{space="{self.space}"}} 0',
                      self.ask(address)[1])
        self.engine.start()
        wait_until(lambda: " 200 " in self.ask(address, health)[0])
        name = self.add("--queue=q", "--in=0")
        wait_until(lambda: self.state(name) == "delivered")
        self.assertEqual(running.end(), 0)

    def test_a_port_that_is_in_use(self):
        """No mistake of the command line: a supervisor tries again."""
        with socket.create_server(("127.0.0.1", 0)) as other:
            result = call("hwtd", *self.where(), "--metrics",
                          str(other.getsockname()[1]))
        self.assertEqual(result.status, NO)
        self.assertIn("--metrics: Address already in use", result.err)

    def test_a_queue_that_nobody_serves(self):
        address = self.metrics("--queue-wait=1")[1]
        for _ in range(3):
            self.add("--queue=lonely", "--in=0")
        said = wait_until(
            lambda: " 503 " in (answer := self.ask(address, HEALTH))[0] and
            answer[1])
        self.assertRegex(said, r"^queue lonely: 3 wait for a worker, the "
                         r"oldest for \d+ s\n$")
        labels = f'{{space="{self.space}",queue="lonely"}}'
        body = self.ask(address)[1]
        self.assertIn(f"hwt_durable_queue_waiting{labels} 3\n", body)
        age = body.split(f"hwt_durable_queue_oldest_seconds{labels} ")[1]
        self.assertGreater(float(age.split("\n")[0]), 1)
        self.assertIn(f"hwt_durable_queue_in_flight{labels} 0\n", body)
        self.assertIn(f"hwt_durable_queue_limit_at_once{labels} 0\n", body)
        self.ctl("limit", "--queue=lonely", "--at-once=2", "--rate=0.75")
        wait_until(lambda: f"hwt_durable_queue_limit_at_once{labels} 2\n" in
                   (said := self.ask(address)[1]) and
                   f"hwt_durable_queue_limit_rate{labels} 0.75\n" in said)
        self.ctl("limit", "--queue=lonely", "--at-once=0")
        self.start("hwt-exec", "--queue=lonely", "--", "true")
        wait_until(lambda: " 200 " in self.ask(address, HEALTH)[0])
        wait_until(lambda: "hwt_durable_queue_waiting{" not in
                   self.ask(address)[1])
        # Where nobody minds.
        self.add("--queue=lonely2", "--in=0")
        address = self.metrics("--queue-wait=0")[1]
        wait_until(lambda: "lonely2" in self.ask(address)[1])
        self.assertIn(" 200 ", self.ask(address, HEALTH)[0])

    def health(self, address, status):
        """What is said, once it has this status."""
        return wait_until(
            lambda: f" {status} " in (answer := self.ask(address, HEALTH))[0]
            and answer[1])

    def test_queues_that_are_paused(self):
        """Their tasks wait because somebody wanted that; they hide no other
        queue."""
        self.ctl("init", "--shards=2")
        self.ctl("pause", "--queue=paused")
        address = self.metrics("--queue-wait=1")[1]
        self.add("--queue=paused", "--in=0")
        warning = r"warning: queue paused: paused in %d of 2 shards; 1 wait, " \
                  r"the oldest for [1-9]\d* s\n$"
        wait_until(lambda: re.search(r"oldest for (\d\d|[2-9])",
                                     self.health(address, 200)))
        self.assertRegex(self.health(address, 200), r"^ok\n" + warning % 2)
        self.add("--queue=lonely", "--in=0")
        said = self.health(address, 503)
        self.assertRegex(said, r"^queue lonely: 1 wait for a worker, the "
                         r"oldest for \d+ s\n" + warning % 2)
        # A pause that was cut short is none.
        space = self.scripts()
        space.client("ZREM", space.key(1, "paused"), "paused")
        said = wait_until(lambda: "in 1 of 2" in (
            said := self.health(address, 503)) and said)
        self.assertRegex(said, r"^queue paused: 1 wait .*\nqueue lonely: .*\n"
                         + warning % 1)

    def test_a_queue_at_its_limits(self):
        """Its tasks wait because somebody wanted that, while workers take as
        many as they may."""
        self.ctl("init", "--shards=1")
        self.ctl("limit", "--queue=q", "--at-once=1")
        address = self.metrics("--queue-wait=1")[1]
        worker = self.start("hwt-exec", "--queue=q", "--threads=2", "--",
                            "sleep", "60")
        for _ in range(3):
            self.add("--queue=q", "--in=0")
        wait_until(lambda: "at its limits" in self.health(address, 200))
        self.assertRegex(self.health(address, 200), r"^ok\nwarning: queue q: "
                         r"at its limits; 2 wait, the oldest for \d+ s\n$")
        self.ctl("limit", "--queue=q", "--at-once=4")
        self.assertRegex(self.health(address, 503),
                         r"^queue q: 1 wait for a worker, the oldest")
        worker.end(signal.SIGKILL)

    def test_a_place_that_is_free_for_a_moment(self):
        """Between two tasks, a queue at its limits is not at them."""
        self.ctl("init", "--shards=1")
        self.ctl("limit", "--queue=q", "--at-once=1")
        address = self.metrics("--queue-wait=1")[1]
        lines = b"".join(b'{"queue":"q","in":0,"id":"%d"}\n' % i
                         for i in range(4000))
        self.ctl("add", "--from=-", stdin=lines)
        worker = self.start("hwt-exec", "--queue=q", "--threads=2", "--",
                            "sleep", "0.003")
        wait_until(lambda: "at its limits" in self.health(address, 200))
        space = self.scripts()
        free = 0
        for _ in range(100):
            free += not space.client("ZCARD", space.key(0, "f:q"))
            self.assertIn(" 200 ", self.ask(address, HEALTH)[0])
            time.sleep(0.1)
        self.assertGreater(free, 0)
        worker.end(signal.SIGKILL)

    def test_queues_at_their_limits_that_hide_another(self):
        """No more than 64 are looked at: /health says that there are others."""
        self.ctl("init", "--shards=1")
        space = self.scripts()
        names = [f"q{i}" for i in range(64)]
        for name in names:
            space("queue", 0, "limit", name, 1, 0)
        self.ctl("add", "--from=-", stdin=b"".join(
            b'{"queue":"%s","in":0}\n' % name.encode()
            for name in 2 * names))
        address = self.metrics("--queue-wait=1")[1]
        wait_until(lambda: self.ctl("stat", "--json").json["delivered"] == 128)
        for name in names:
            space("take", 0, name, "w" + name, 1, 0, 10, 600000)
        wait_until(lambda: self.health(address, 200).count(
            "at its limits; 1 wait") == 64)
        others = "\nwarning: the 64 queues that are looked at all wait"
        self.assertNotIn(others, self.health(address, 200))
        self.add("--queue=lonely", "--in=0")
        said = wait_until(lambda: others in (
            said := self.health(address, 200)) and said)
        self.assertNotIn("lonely", said)

    def test_more_queues_than_are_told(self):
        """What is told of those is exact, also of shards where others are
        older."""
        self.ctl("init", "--shards=4")
        lines = b"".join(
            b'{"queue":"q%d","in":0,"id":"%d"}\n' % (i % 80, i)
            for i in range(1600))
        self.ctl("add", "--from=-", stdin=lines)
        address = self.metrics()[1]
        wait_until(lambda: self.ctl("stat", "--json").json["delivered"]
                   == 1600)
        stat = self.ctl("stat", "--json").json
        self.assertFalse(stat["all_queues"])
        self.assertEqual({each["waiting"] for each in stat["queues"]}, {20})
        self.assertEqual(len(stat["queues"]), 64)
        ages = [each["oldest_ns"] for each in stat["queues"]]
        self.assertEqual(ages, sorted(ages, reverse=True))
        said = self.ctl("stat").text
        self.assertRegex(said, r"\nq\d+ +20 +\d+\.\d{3} s\n")
        self.assertTrue(said.endswith("\nand others, whose oldest are "
                                      "younger\n"))
        wait_until(lambda: "hwt_durable_queues_left_out{space=\""
                   f"{self.space}\"}} 1\n" in self.ask(address)[1])

    def test_queues_that_all_have_no_name(self):
        """Two shards have more than are told, and of those that they tell none
        can be: it is not asked for all that there are in its place."""
        self.ctl("init", "--shards=2")
        self.ctl("add", "--from=-", stdin=b"".join(
            b'{"queue":"Z%d","in":0,"id":"%d"}\n' % (i, i)
            for i in range(300)))
        self.start("hwtd")
        wait_until(lambda: self.ctl("stat", "--json").json["delivered"] == 300)
        with Renamed(self.engine.port, 2 * 64) as between:
            said = call("hwtctl", "stat", "--json", "--redis",
                        f"127.0.0.1:{between.port}", "--space", self.space)
        self.assertEqual((said.status, between.left), (YES, 0), said.err)
        self.assertEqual((said.json["queues"], said.json["all_queues"]),
                         ([], False))

    def test_methods(self):
        address = self.metrics()[1]
        connection = http.client.HTTPConnection(*address, LIMIT)
        self.addCleanup(connection.close)
        for method, path, status, body in (
                ("GET", "/health", 200, b"ok\n"),
                ("HEAD", "/health", 200, b""),
                ("HEAD", "/metrics", 200, b""),
                ("POST", "/health", 405, b"Method Not Allowed\n"),
                ("HEAD", "/x", 404, b"")):
            # On one connection: so it stays open, and in step.
            connection.request(
                method, path, body=b"x" * 99999 if method == "POST" else None)
            answer = connection.getresponse()
            self.assertEqual((answer.status, answer.read()), (status, body))
            self.assertEqual(answer.headers["Allow"],
                             "GET, HEAD" if status == 405 else None)
            self.assertGreater(int(answer.headers["Content-Length"]), 0)

    def test_a_body_is_not_kept(self):
        """It is read to its end, however long it is, and answered."""
        address = self.metrics()[1]
        for length in (1 << 20, 2 << 20):
            self.assertIn(" 405 ", self.ask(
                address, b"POST /health HTTP/1.0\r\nContent-Length: "
                b"%d\r\n\r\n" % length + b"x" * length)[0])

    def test_two_servers_share_the_descriptors(self):
        """Together they leave some for the engine."""
        running = Running(
            self.folder, "/bin/sh", "-c", 'ulimit -n 300; exec "$@"', "sh",
            os.path.join(BUILD, "hwtd"), *self.where(), "--listen=0",
            "--metrics=0")
        self.addCleanup(running.close)
        said = wait_until(lambda: "serves" in running.err and running.err)
        for port in re.findall(r"http://127\.0\.0\.1:(\d+)/", said):
            self.crowd(("127.0.0.1", int(port)), 160)
        folder = f"/proc/{running.process.pid}/fd"
        wait_until(lambda: len(os.listdir(folder)) > 150)
        time.sleep(0.5)  # for more than there may be
        self.assertLess(len(os.listdir(folder)), 200)

    @staticmethod
    def is_open(connection):
        connection.setblocking(False)
        try:
            return connection.recv(1) != b""
        except BlockingIOError:
            return True
        except ConnectionError:
            return False

    def crowd(self, address, count, text=b""):
        made = []
        for _ in range(count):
            connection = socket.create_connection(address, LIMIT)
            self.addCleanup(connection.close)
            connection.sendall(text)
            made.append(connection)
        return made

    def test_idle_clients_delay_nobody_and_are_cut(self):
        running, address = self.metrics()
        crowd = self.crowd(address, 50) + \
            self.crowd(address, 50, b"GET /health HTTP/1.1\r\n")
        self.assertIn(" 200 ", self.ask(address, HEALTH)[0])
        # Nobody had to be cut for that.
        self.assertTrue(all(map(self.is_open, crowd)))
        wait_until(lambda: not any(map(self.is_open, crowd)))
        self.assertEqual(running.end(), 0)

    def test_a_client_that_sends_a_byte_at_a_time_is_cut(self):
        address = self.metrics()[1]
        slow = self.crowd(address, 1, b"GET /health HTTP/1.1\r\nX: ")[0]

        def is_cut():
            with contextlib.suppress(BlockingIOError):
                try:
                    slow.send(b"x")
                except ConnectionError:
                    return True
            return not self.is_open(slow)

        wait_until(is_cut)

    def allow_descriptors(self, count):
        """To this process and those that it starts, or the test is skipped."""
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit[0] >= count:
            return
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE,
                               (count, max(count, limit[1])))
        except (OSError, ValueError) as error:
            self.skipTest(f"needs {count} descriptors, and may have "
                          f"{limit[1]}: {error}")
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, limit)

    def idle(self, option):
        """10,000 clients that send nothing, in the 10 s that they have for
        it."""
        self.allow_descriptors(IDLE + 1000)
        running, address = self.metrics(option=option)
        memory, alone = running.memory(), running.cpu_in(IDLE_SECONDS)
        crowd = self.crowd(address, IDLE)
        wait_until(lambda: len(os.listdir(
            f"/proc/{running.process.pid}/fd")) > IDLE)
        beside = running.cpu_in(IDLE_SECONDS)
        self.assertIn(" 200 ", self.ask(address, HEALTH)[0])
        self.assertLess(running.memory() - memory, IDLE * 16384)
        self.assertTrue(all(map(self.is_open, crowd)))
        self.assertLess(beside - alone, 0.02 * IDLE_SECONDS)
        name = self.add("--queue=q", "--in=0")
        wait_until(lambda: self.state(name) == "delivered")
        for each in crowd:
            each.close()
        self.assertIn(" 200 ", self.ask(address, HEALTH)[0])
        self.assertEqual(running.end(), 0)

    def test_ten_thousand_idle_clients_of_metrics_cost_only_memory(self):
        self.idle("--metrics")

    def test_ten_thousand_idle_clients_of_listen_cost_only_memory(self):
        self.idle("--listen")

    def test_an_engine_that_hangs(self):
        """Whoever asks is answered, and SIGTERM ends hwtd, long before a call
        to the engine does."""
        running, address = self.metrics(f"--timeout={10 * LIMIT}")
        self.assertIn(" 200 ", self.ask(address, HEALTH)[0])
        self.engine.send_signal(signal.SIGSTOP)
        try:
            wait_until(lambda: " 503 " in self.ask(address, HEALTH)[0])
            self.assertIn("hwt_durable_up", self.ask(address)[1])
            asking = self.crowd(address, 20, HEALTH)
            self.assertEqual(running.end(), 0)
            for each in asking:
                each.setblocking(True)
                each.settimeout(LIMIT)
                with contextlib.suppress(ConnectionError):
                    while each.recv(4096):
                        pass
        finally:
            self.engine.send_signal(signal.SIGCONT)


if __name__ == "__main__":
    sys.exit(main())
