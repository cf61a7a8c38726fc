#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""openapi.json against hwtd --listen: each path, status and field of the file
occurs, and nothing else is served. Each answer that a test of api.py gets is
compared, too: see contract.py.

    openapi.py [-v] [CLASS[.test]...]"""

import concurrent.futures
import contextlib
import os
import re
import socket
import sys
import time
import unittest

from api import TOKEN, Api, task_path
from contract import CONTRACT
from programs import ROOT, YES, Between, main, wait_until

SOURCE = os.path.join(ROOT, "modules/durable/programs/hwtd-serve.c")

# The scripts that an operation calls; hwtd calls some of them by itself, too.
CALL = re.compile(rb"\r\nFCALL\r\n\$\d+\r\n\w+_(add|cancel|dead|get|list|"
                  rb"queues?|reschedule|schedules?|stat)\r\n")


class Silent(Between):
    """The engine gets all; once it has been sent such a call, nothing of what
    it answers on that connection comes back."""

    def __init__(self, port):
        super().__init__(port, b"", b"")
        self.silent = set()

    def pass_on(self, source, sink, change):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if not change and CALL.search(data):
                    self.silent.add(sink)
                if source not in self.silent:
                    sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        source.close()


class OpenApi(Api):
    @staticmethod
    def request(operation, path):
        """A path and a body for an operation, which do no harm."""
        body = b'{"queue":"q","in":60}' if "requestBody" in operation else None
        if path.endswith("/reschedule"):
            body = b'{"in":60}'
        if path.endswith("/schedules/{name}") and body:
            body = b'{"queue":"q","every":60}'
        if path.endswith("/limits"):
            body = b'{"rate":60}'
        return re.sub(r"\{\w+\}", "x", path), body

    def ask_all(self, status, **headers):
        """Each operation is answered so, sooner or later."""
        def one(each):
            method, path, operation = each
            path, body = self.request(operation, path)
            more = {"Content_Type": "application/json"} if body else {}
            wait_until(lambda: self.ask(
                method, path, body, **more, **headers).status == status)

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            list(pool.map(one, CONTRACT.operations()))

    def test_each_path_and_method_is_served_and_no_other(self):
        self.serve()
        with open(SOURCE, encoding="utf-8") as file:
            served = set(re.findall(
                r'^    \{"([A-Z]+)", "(/v1/[^"]*)",', file.read(), re.M))
        self.assertGreater(len(served), 5)
        said = {(method, re.sub(r"\{(queue|name)\}", "{id}", path))
                for method, path, _ in CONTRACT.operations()}
        self.assertEqual(said, served)
        for path in CONTRACT.text["paths"]:
            methods = {method for method, each, _ in CONTRACT.operations()
                       if each == path}
            answer = self.ask("OPTIONS", re.sub(r"\{\w+\}", "x", path))
            self.assertEqual(answer.status, 405)
            self.assertEqual(set(answer.headers["Allow"].split(", ")) -
                             {"HEAD"}, methods)

    def test_each_member_of_a_task_is_taken(self):
        self.serve()
        schemas = CONTRACT.text["components"]["schemas"]
        examples = {name: each["example"]
                    for name, each in schemas["NewTask"]["properties"].items()}
        for name, example in examples.items():
            task = {"queue": "q", name: example}
            if name != "at":
                task["in"] = 60
            if name == "expires_at":
                task[name] = int(time.time()) + 900
            self.assertEqual(self.send("POST", "/v1/tasks", task).status,
                             201, task)
        self.send("PUT", task_path("t"), {"queue": "q", "in": 60})
        for name in schemas["Time"]["properties"]:
            self.assertEqual(self.send("POST", task_path("t", "/reschedule"),
                                       {name: examples[name]}).status, 200)

    def test_each_member_of_a_schedule_is_taken(self):
        self.serve()
        members = CONTRACT.text["components"]["schemas"]["NewSchedule"][
            "properties"]
        for name, member in members.items():
            schedule = {"queue": "q", name: member["example"]}
            if name == "zone":
                schedule["cron"] = members["cron"]["example"]
            elif name not in ("every", "cron"):
                schedule["every"] = 60
            self.assertEqual(self.send("PUT", "/v1/schedules/s",
                                       schedule).status, 200, schedule)

    def test_each_limit_is_taken(self):
        self.serve()
        schemas = CONTRACT.text["components"]["schemas"]
        for name, each in schemas["NewLimits"]["properties"].items():
            self.assertEqual(self.send("POST", "/v1/queues/q/limits", {
                name: each["example"]}).json[name], each["example"])

    def add_in_all_ways(self):
        task = {"queue": "q", "in": 60}
        for method, path, name in (("POST", "/v1/tasks", {"id": "one"}),
                                   ("PUT", task_path("two"), {})):
            for status in (201, 200):
                self.assertEqual(self.send(
                    method, path, {**task, **name}).status, status)
            self.ask("POST", task_path(name.get("id", "two"), "/cancel"))
            self.assertEqual(self.send(
                method, path, {**task, **name}).status, 409)
            for body, kind, status in (
                    (b"{", "application/json", 400), (b"{}", "text/plain", 415),
                    (b"x" * (2 << 20), "application/json", 413)):
                self.assertEqual(self.ask(
                    method, path, body, Content_Type=kind).status, status)
        self.send("POST", "/v1/tasks", [
            {**task, "id": "two"}, {**task, "id": "three"},
            {**task, "id": "three"}, {**task, "id_base64": "/w=="}])
        self.send("PUT", task_path(b"\xff"), {
            **task, "expires_in": 900, "retry_first": 9,
            "priority": "high",
            "payload_base64": "/w=="})
        self.ask("POST", task_path(b"\xff", "/reschedule"), b"{}",
                 Content_Type="application/json")
        self.send("PUT", task_path(b"\xfe"), {
            **task, "expires_in": 900, "retry_first": 9,
            "priority": "high",
            "payload_base64": "/w=="})
        for name in (b"\xfe", b"\xff", "%"):
            self.ask("GET", task_path(name))
        self.ask("GET", "/v1/tasks/%")
        self.ask("GET", "/v1/tasks?queue=q")
        self.ask("GET", "/v1/tasks?state=x")

    def dead_letters(self):
        """One has said what is no UTF-8."""
        self.start("hwt-exec", "--queue=bad", "--fail-status=1", "--",
                   "sh", "-c", 'printf "$(cat)" >&2; exit 1')
        for name, said in (("dead", "why"), ("worse", "\\377")):
            self.send("PUT", task_path(name), {
                "queue": "bad", "in": 0, "payload": said})
            wait_until(lambda n=name: self.ask(
                "GET", task_path(n)).json["state"] == "failed")
        for query in ("", "?cursor=x"):
            self.ask("GET", "/v1/dead" + query)
        for name in ("dead", "worse"):
            for rest in ("/cancel", "/reschedule"):
                self.assertEqual(self.ask(
                    "POST", task_path(name, rest), b'{"in":1}',
                    Content_Type="application/json").status, 409)
        for name, verb in (("dead", "replay"), ("worse", "drop")):
            for path in (f"{name}/{verb}", f"{name}/{verb}", "%/" + verb):
                self.ask("POST", "/v1/dead/" + path)

    def end_in_all_ways(self):
        self.send("PUT", task_path(b"\xf0"), {"queue": "q", "in": 60})
        for rest in ("/reschedule", "/cancel"):
            for name in ("%FF", "%FB", "none", "%", "%F0"):
                for kind, body in (("application/json", b'{"in":1}'),
                                   ("text/plain", b"{}"),
                                   ("text/plain", b"x" * (2 << 20))):
                    if rest != "/cancel" or body == b'{"in":1}':
                        self.ask("POST", "/v1/tasks/" + name + rest, body,
                                 Content_Type=kind)

    def queues(self):
        for name in ("q", "%"):
            for method, rest in (("GET", ""), ("POST", "/pause"),
                                 ("POST", "/resume")):
                self.ask(method, f"/v1/queues/{name}{rest}")
                if rest == "/pause":
                    wait_until(lambda: self.ask(
                        "GET", "/v1/queues").json["queues"])
        for kind, body in (("application/json", b'{"rate":60}'),
                           ("application/json", b"{}"), ("text/plain", b"{}"),
                           ("application/json", b"x" * (2 << 20))):
            self.ask("POST", "/v1/queues/q/limits", body, Content_Type=kind)
        wait_until(lambda: self.ask("GET", "/v1/stat").json["added"])
        wait_until(lambda: self.ask("GET", "/v1/queues").json["work"])

    def schedules(self):
        path = "/v1/schedules/s"
        daily = {"queue": "q", "cron": "30 2 * * *", "zone": "Asia/Tokyo",
                 "payload_base64": "/w=="}
        hourly = {"queue": "q", "every": 3600, "payload": "p",
                  "expires_in": 60, "retry_first": 9, "priority": "low"}
        for body, kind, status in (
                (b"{}", "application/json", 400), (b"{}", "text/plain", 415),
                (b"x" * (2 << 20), "application/json", 413)):
            self.assertEqual(self.ask("PUT", path, body,
                                      Content_Type=kind).status, status)
        for schedule in (daily, hourly):
            self.assertEqual(self.send("PUT", path, schedule).status, 200)
            for each in (path, "/v1/schedules"):
                self.ask("GET", each)
        for method in ("GET", "DELETE"):
            for each in (path, path, "/v1/schedules/%"):
                self.ask(method, each)
            self.ask("GET", "/v1/schedules/none")

    def engines(self):
        """They refuse, are full, and are away."""
        client = self.engine.client()
        self.addCleanup(client.close)
        client("CONFIG", "SET", "maxmemory", "1")
        for method, path in (("POST", "/v1/tasks"), ("PUT", task_path("f"))):
            self.assertEqual(self.send(method, path, {
                "queue": "q", "in": 1}).status, 507)
        client("CONFIG", "SET", "maxmemory", "0")
        client("CONFIG", "SET", "appendfsync", "everysec")
        self.ask_all(502)
        client("CONFIG", "SET", "appendfsync", "always")
        self.engine.kill()
        self.ask_all(503)
        self.engine.start()

    def uncertain(self):
        """Calls that are sent, and whose answers do not come."""
        with Silent(self.engine.port) as self.made_of:
            self.serve("--timeout=1")
            self.ask_all(504)

    def test_each_status_and_field_occurs(self):
        running = self.serve("--timeout=1", "--token-file",
                             self.path("token", TOKEN.encode()))
        self.ask_all(401)
        self.assertEqual(running.end(), YES)
        self.serve("--timeout=1")
        self.ask_all(403, Host="evil.example")
        self.add_in_all_ways()
        self.end_in_all_ways()
        self.dead_letters()
        self.queues()
        self.schedules()
        self.engines()
        self.uncertain()
        self.assertEqual(CONTRACT.unseen(), (set(), set()))


if __name__ == "__main__":
    sys.exit(main())
