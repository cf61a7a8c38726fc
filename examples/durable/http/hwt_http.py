# SPDX-License-Identifier: Apache-2.0
"""A client of hwtd --listen in one file, with Python's library alone.

    client = hwt_http.Client("http://127.0.0.1:8080")
    client.put("order-1-close", "orders", b"if unpaid", seconds=1800)
    client.cancel("order-1-close")

Ids and payloads are bytes; what is given as str is encoded as UTF-8. Any thread
may call everything here. openapi.json has all that is sent and answered.

WHAT MAY HAVE HAPPENED. put() repeats what is uncertain, and what is refused for
now, until seconds are over: the task is added once, whatever was lost. All else
is sent once, and raises Uncertain if it may have happened: repeat a cancel or a
reschedule, and look with show() before you repeat a replay.
"""

import base64
import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request


class Error(Exception):
    """Nothing has happened. status is of HTTP, name as ENOENT."""

    def __init__(self, status, answer):
        super().__init__(f"{answer.get('error')}: {answer.get('message')}")
        self.status = status
        self.name = answer.get("error")
        self.state = answer.get("state")  # of an id that was there already


class Uncertain(Error):
    """It may have happened or not."""


def _bytes(text):
    return text.encode() if isinstance(text, str) else bytes(text)


def _task(queue, payload, when):
    return {"queue": queue, **when,
            "payload_base64": base64.b64encode(_bytes(payload)).decode()}


def _when(seconds, due):
    return {"in": seconds} if due is None else {"at": due}


def _read(task):
    """A task as it was answered, with id and payload as bytes."""
    task = dict(task)
    for key in ("id", "payload", "error"):
        if key + "_base64" in task:
            task[key] = base64.b64decode(task.pop(key + "_base64"))
        elif key in task:
            task[key] = task[key].encode()
    return task


class Client:
    def __init__(self, url="http://127.0.0.1:8080", token=None, timeout=10):
        self.url = url.rstrip("/")
        self.timeout = timeout  # seconds, of one request
        self.headers = {"Content-Type": "application/json"}
        if token is not None:
            self.headers["Authorization"] = "Bearer " + token
        # No proxy: what is asked is near.
        self.opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}))

    def ask(self, method, path, value=None):
        """What is answered. An id in a path is quoted: see path()."""
        body = None if value is None else json.dumps(value).encode()
        request = urllib.request.Request(
            self.url + path, body, self.headers, method=method)
        try:
            with self.opener.open(request, timeout=self.timeout) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                said = self._said(error)
            # Without a name of hwtd's, it is a proxy that gave up.
            uncertain = error.code == 504 or said.get("error") == "EPROTO" \
                or (error.code >= 500 and "error" not in said)
            raise (Uncertain if uncertain else Error)(
                error.code, said) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            refused = isinstance(getattr(error, "reason", error),
                                 ConnectionRefusedError)
            raise (Error if refused else Uncertain)(
                0, {"error": "connection", "message": str(error)}) from None

    @staticmethod
    def _said(error):
        try:
            said = json.load(error)
        except (OSError, ValueError):
            said = None
        return said if isinstance(said, dict) else {"message": str(error)}

    @staticmethod
    def path(kind, name, verb=""):
        return f"/v1/{kind}/{urllib.parse.quote(_bytes(name), safe='')}{verb}"

    def put(self, name, queue, payload=b"", seconds=0, due=None, *,
            within=30, **more):
        """Adds a task, and repeats that for so many seconds until it is known
        to be there. False: it was there, maybe by an earlier try of this call.
        more: attempts, replace, priority, expires_in, expires_at. Error
        EEXIST: it has failed or was cancelled, and is not executed."""
        task = {**_task(queue, payload, _when(seconds, due)), **more}
        end = time.monotonic() + within
        pause = 0.1
        uncertain = None  # what was, of the tries
        while True:
            try:
                said = self.ask("PUT", self.path("tasks", name), task)
                return said["result"] == "stored"
            except Error as error:
                if isinstance(error, Uncertain):
                    uncertain = error
                elif error.status not in (0, 503):
                    raise uncertain if uncertain and error.status > 500 \
                        else error
                if time.monotonic() + pause > end:
                    raise uncertain or error
            time.sleep(pause)
            pause = min(2 * pause, 2)

    def add(self, queue, payload=b"", seconds=0, due=None, **more):
        """Adds a task with an id that the server makes, and returns that. After
        Uncertain nobody knows it: use put() for what must not be there twice.
        """
        return _read(self.ask("POST", "/v1/tasks", {
            **_task(queue, payload, _when(seconds, due)), **more}))["id"]

    def cancel(self, name):
        self.ask("POST", self.path("tasks", name, "/cancel"))

    def reschedule(self, name, seconds=0, due=None):
        self.ask("POST", self.path("tasks", name, "/reschedule"),
                 _when(seconds, due))

    def put_schedule(self, name, queue, payload=b"", **more):
        """Adds a task again and again: every=SECONDS, or cron=LINE and maybe
        zone. More: missed, attempts, priority, expires_in, retry_first and so
        on. Makes it or changes it, and can be repeated, also after Uncertain.
        Returns when it occurs next."""
        return self.ask("PUT", self.path("schedules", name), {
            **_task(queue, payload, more)})["next_ms"] / 1000

    def drop_schedule(self, name):
        self.ask("DELETE", self.path("schedules", name))

    def schedules(self):
        """Up to 1000, without their payloads."""
        return self.ask("GET", "/v1/schedules")["schedules"]

    def show(self, name):
        return _read(self.ask("GET", self.path("tasks", name)))

    def _pages(self, path, **query):
        cursor = ""
        while cursor is not None:
            wanted = {key: value for key, value in {
                **query, "cursor": cursor}.items() if value}
            page = self.ask("GET", path + "?" + urllib.parse.urlencode(wanted))
            yield from map(_read, page["tasks"])
            cursor = page["cursor"]

    def list(self, state=None, queue=None, limit=None):
        """All tasks of a state and queue, page by page; some maybe twice."""
        return self._pages("/v1/tasks", state=state, queue=queue, limit=limit)

    def dead(self):
        return self._pages("/v1/dead")

    def replay(self, name):
        self.ask("POST", self.path("dead", name, "/replay"))

    def drop(self, name):
        self.ask("POST", self.path("dead", name, "/drop"))

    def queues(self):
        return self.ask("GET", "/v1/queues")["queues"]

    def queue(self, name):
        return self.ask("GET", self.path("queues", name))

    def pause(self, queue):
        self.ask("POST", self.path("queues", queue, "/pause"))

    def resume(self, queue):
        self.ask("POST", self.path("queues", queue, "/resume"))
