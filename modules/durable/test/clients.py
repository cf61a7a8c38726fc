#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The clients of examples/durable/http, with a real server.

    clients.py [-v] [CLASS[.test]...]

Without Node its test is skipped, and says so."""

import http.client
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import unittest

from api import TOKEN, Api, Lost
from engine import LIMIT
from programs import ROOT, main, wait_until

FOLDER = os.path.join(ROOT, "examples/durable/http")
sys.path.insert(0, FOLDER)
import hwt_http  # noqa: E402


class Clients(Api):
    def client(self, *words, **options):
        self.serve(*words)
        host, port = self.address
        return hwt_http.Client(f"http://{host}:{port}", **options)

    def example(self, *command):
        """Runs it; its lines."""
        self.client()
        host, port = self.address
        done = subprocess.run(
            [*command, f"http://{host}:{port}"], timeout=LIMIT, check=False,
            capture_output=True)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        added, shown, moved, ended, queue = map(
            json.loads, done.stdout.splitlines())
        self.assertEqual(added["result"], "stored")
        self.assertEqual((shown["id"], shown["payload"], shown["state"]),
                         (added["id"], "close unless paid", "pending"))
        self.assertEqual((moved["state"], ended["state"], queue["depth"]),
                         ("pending", "cancelled", 0))
        self.assertEqual(self.state(added["id"]), "cancelled")

    def test_curl(self):
        self.example("sh", os.path.join(FOLDER, "tasks.sh"))

    @unittest.skipUnless(shutil.which("node"), "there is no node: nodejs")
    def test_node(self):
        self.example("node", os.path.join(FOLDER, "tasks.mjs"))

    def refused(self, name, call, *arguments):
        with self.assertRaises(hwt_http.Error) as caught:
            call(*arguments)
        self.assertEqual(caught.exception.name, name)
        return caught.exception

    def test_python_adds_shows_moves_and_cancels(self):
        client = self.client()
        name = b"a/\xff?"
        self.assertTrue(client.put(name, "q", b"\0\xff", 60, attempts=3))
        self.assertFalse(client.put(name, "q", b"", 60))
        shown = client.show(name)
        self.assertEqual((shown["id"], shown["payload"],
                          shown["max_attempts"]), (name, b"\0\xff", 3))
        client.reschedule(name, due=time.time() + 900)
        self.assertEqual(client.show(name)["generation"], 2)
        client.cancel(name)
        self.assertEqual(self.refused("EEXIST", client.put, name,
                                      "q").state, "cancelled")
        self.assertEqual(self.refused("ENOENT", client.show,
                                      "none").status, 404)
        self.refused("EINVAL", client.add, "no queue")
        made = client.add("q", "text", 60)
        self.assertEqual(client.show(made)["payload"], b"text")
        self.assertEqual({task["id"] for task in client.list(queue="q")},
                         {name, made})
        self.assertEqual([task["id"] for task in client.list(
            "pending", "q", 1)], [made])

    def test_python_has_schedules(self):
        client = self.client()
        self.assertGreater(client.put_schedule(
            "s", "q", b"\xff", cron="30 2 * * *", zone="Europe/Paris"),
            time.time())
        self.assertEqual([each["zone"] for each in client.schedules()],
                         ["Europe/Paris"])
        self.refused("EINVAL", client.put_schedule, "s", "q")
        client.drop_schedule("s")
        self.assertEqual(self.refused("ENOENT", client.drop_schedule,
                                      "s").status, 404)

    def test_python_has_dead_letters_and_queues(self):
        client = self.client()
        self.start("hwt-exec", "--queue=bad", "--fail-status=1", "--", "sh",
                   "-c", "echo why >&2; exit 1")
        client.put("d", "bad")
        client.put("e", "bad")
        wait_until(lambda: len(list(client.dead())) == 2)
        self.assertIn(b"why", next(client.dead())["error"])
        client.pause("bad")
        self.assertTrue(client.queue("bad")["paused"])
        client.replay("d")
        client.drop("e")
        self.refused("ENOENT", client.drop, "e")
        self.assertEqual(list(client.dead()), [])
        wait_until(lambda: [(each["queue"], each["depth"])
                            for each in client.queues()] == [("bad", 1)])
        client.resume("bad")
        wait_until(lambda: list(client.dead()))

    def test_python_sends_a_token(self):
        path = self.path("token", TOKEN.encode())
        client = self.client("--token-file", path, token=TOKEN)
        self.assertTrue(client.put("a", "q", seconds=60))
        client = hwt_http.Client(client.url, token=TOKEN + "x")
        self.assertEqual(self.refused("unauthorized", client.queues).status,
                         401)

    def test_python_repeats_a_put_whose_answer_was_lost(self):
        """On the way to the engine, and on the way to us."""
        with Lost(self.engine.port, b"first") as lost:
            self.made_of = lost
            client = self.client("--timeout=3")
            self.made_of = None
            client.put("first", "q", seconds=60)
        with Lost(self.address[1], b"PUT /") as lost:
            client = hwt_http.Client(f"http://127.0.0.1:{lost.port}")
            with self.assertRaises(hwt_http.Uncertain):
                client.put("second", "q", seconds=60, within=0)
        self.assertEqual(self.state("second"), "pending")
        self.assertEqual(self.stat()["added"], 2)

    def test_python_repeats_what_a_proxy_gave_up(self):
        """It has passed the request on, and says 502 in words of its own."""
        client = self.client()
        server = http.client.HTTPConnection(*self.address, LIMIT)
        self.addCleanup(server.close)
        answers = [(502, b"<html>Bad Gateway</html>"), (502, b"[]")]

        class Proxy(http.server.BaseHTTPRequestHandler):
            def do_PUT(self):  # pylint: disable=invalid-name
                body = self.rfile.read(int(self.headers["Content-Length"]))
                server.request("PUT", self.path, body, {
                    "Content-Type": self.headers["Content-Type"]})
                answer = server.getresponse()
                status, said = answer.status, answer.read()
                if answers:
                    status, said = answers.pop()
                self.send_response(status)
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *_):
                pass

        with http.server.HTTPServer(("127.0.0.1", 0), Proxy) as proxy:
            threading.Thread(target=proxy.serve_forever).start()
            client.url = f"http://127.0.0.1:{proxy.server_port}"
            try:
                with self.assertRaises(hwt_http.Uncertain):
                    client.put("a", "q", seconds=60, within=0)
                self.assertFalse(client.put("a", "q", seconds=60))
            finally:
                proxy.shutdown()
        self.assertEqual(self.state("a"), "pending")

    def test_python_waits_for_a_server(self):
        client = self.client("--timeout=1")
        self.engine.kill()
        with self.assertRaises(hwt_http.Error):
            client.put("a", "q", seconds=60, within=0)
        waits = threading.Thread(target=client.put, args=("a", "q", b"", 60))
        waits.start()
        self.engine.start()
        waits.join()
        self.assertEqual(self.state("a"), "pending")
        away = hwt_http.Client("http://127.0.0.1:1")
        self.refused("connection", away.queues)


if __name__ == "__main__":
    sys.exit(main())
