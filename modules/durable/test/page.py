#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The page of hwtd --listen in Chromium: what it shows, and what its buttons
do, which is looked up in the engine.

    page.py [-v] [CLASS[.test]...]

HWT_SHOTS is a folder that gets a picture at the end of each test. See
programs.py for HWT_BUILD and HWT_BEFORE."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import browser
from api import TOKEN, Api
from engine import held
from programs import ROOT, main, wait_until

SHOTS = os.environ.get("HWT_SHOTS")
MARKUP = "<script>document.title='cracked'</script><img src=x onerror=alert(1)>"


class Page(Api):
    """Each test has a browser with the page of a server."""

    def setUp(self):
        super().setUp()
        self.ctl("init", "--shards=2")
        self.browser = browser.Browser()
        self.addCleanup(self.browser.__exit__)
        self.browser.__enter__()

    def open(self, *words, scheme="light"):
        running = self.serve(*words)
        self.url = f"http://127.0.0.1:{self.address[1]}/"
        self.browser.open(self.url)
        self.browser.call("Log.enable")
        self.browser.scheme(scheme)
        return running

    def tearDown(self):
        if SHOTS and self.browser.session:
            self.browser.shot().save(os.path.join(
                SHOTS, self._testMethodName + ".png"))
        if self.browser.session:
            self.look_at_events()
        super().tearDown()

    def look_at_events(self):
        """Nothing was asked of another host, and the page's program made no
        error."""
        self.browser.evaluate("1")
        for event in self.browser.events:
            method, params = event["method"], event["params"]
            if method == "Network.requestWillBeSent":
                url = params["request"]["url"]
                self.assertTrue(
                    url.startswith((self.url, "data:", "about:")), url)
            self.assertNotEqual(method, "Runtime.exceptionThrown", params)
            self.assertNotEqual(method, "Runtime.consoleAPICalled", params)
            if method == "Log.entryAdded":  # of answers, the page tells
                self.assertEqual(params["entry"]["source"], "network", params)

    def has(self, script):
        """Waits until it is true in the page, and returns its value."""
        return wait_until(lambda: self.browser.evaluate(script))

    def text(self, name):
        """What is seen of an element; "" if it is hidden."""
        return self.browser.evaluate(
            f"(each => each.checkVisibility() ? each.innerText : '')"
            f"(document.getElementById({json.dumps(name)}))")

    def says(self, name, words):
        wait_until(lambda: words in self.text(name))

    def rows(self, name):
        return self.browser.evaluate(
            f"[...document.querySelectorAll('#{name}:not([hidden]) tbody tr')]"
            ".map(row => [...row.cells].map(cell => cell.innerText))")

    def press(self, label):
        """The button that has this label, or this text."""
        self.has(f"""(() => {{
            const wanted = {json.dumps(label)};
            const found = [...document.querySelectorAll('button')].find(each =>
              (each.ariaLabel ?? each.innerText) === wanted &&
              each.checkVisibility() && !each.disabled);
            found?.click();
            return found !== undefined;
        }})()""")

    def add_bad(self, names):
        self.feed(*({"queue": "bad", "in": 0, "id": name} for name in names))

    def kill_tasks(self, names, error="why"):
        """They become dead letters."""
        path = self.path("error", error.encode())
        running = self.start("hwt-exec", "--queue=bad", "--threads=8",
                             "--fail-status=3", "--", "sh", "-c",
                             f"cat {path} >&2; exit 3")
        self.add_bad(names)
        wait_until(lambda: self.ask("GET", "/v1/stat").json["dead"] ==
                   len(names))
        self.assertEqual(running.end(), 0)


class Shows(Page):
    def test_empty(self):
        self.open()
        self.says("state", "live")
        self.says("space", self.space)
        self.assertIn("no queue is paused",
                      self.text("no-queues").replace("\n", " "))
        self.assertEqual(self.text("no-dead"), "There are none.")
        self.assertEqual((self.rows("queues"), self.rows("dead")), ([], []))

    def row(self, queue):
        """Of the table of queues, by the heads of the columns."""
        heads = self.browser.evaluate(
            "[...document.querySelectorAll('#queues th[scope=col]')]"
            ".map(each => each.innerText)")
        return next((dict(zip(heads, row)) for row in self.rows("queues")
                     if row[0] == queue), {})

    def choose(self, queue):
        """Whose lateness is drawn."""
        self.has("[...document.getElementById('late-of').options]"
                 f".some(each => each.value === {json.dumps(queue)})")
        self.browser.evaluate(f"""(() => {{
            const choice = document.getElementById('late-of');
            choice.value = {json.dumps(queue)};
            choice.dispatchEvent(new Event('change'));
        }})()""")

    def late(self, words):
        """What the picture of lateness says, and that it has a line."""
        self.has(f"/{words}/.test(document.querySelector('#late').ariaLabel)")
        for each in "ad":
            self.has(f"document.querySelector('#late .{each}')"
                     ".getAttribute('d').includes('L')")

    def test_load(self):
        self.open(scheme="dark")
        running = [
            self.start("hwt-exec", "--queue=work", "--threads=4", "--",
                       "sleep", "0.2"),
            self.start("hwt-exec", "--queue=quick", "--", "true")]
        self.send("POST", "/v1/tasks", [
            {"queue": "quick", "in": i / 10} for i in range(500)])
        for _ in range(8):
            self.send("POST", "/v1/tasks", [
                {"queue": queue, "in": i / 100}
                for queue in ("work", "backlog") for i in range(100)])
            time.sleep(0.5)
        wait_until(lambda: self.row("backlog").get("Waiting") == "800")
        self.assertEqual(list(self.row("backlog").values())[-2:],
                         ["active", "Pause"])
        self.has("document.querySelector('#rates .a').getAttribute('d')"
                 ".includes('L')")
        self.has("Math.max(...rates('added')) > 0")
        self.has("/running [1-9]/.test("
                 "document.querySelector('#depths').ariaLabel)")
        # 4 threads with 0.2 s each, for 800: they are late by seconds.
        self.late("p99 [0-9.]+ (s|min)$")
        self.choose("quick")
        self.late("^p50 [0-9]+ ms, ")
        self.choose("work")
        self.late("^p50 [0-9.]+ s, p99 [0-9.]+ (s|min)$")
        wait_until(lambda: re.fullmatch(
            "[0-9.]+ s / [0-9.]+ (s|min)",
            self.row("work").get("Late, p50 / p99", "")))
        wait_until(lambda: float(self.row("work").get("Done/s") or 0) > 0)
        self.assertEqual((self.row("backlog")["Late, p50 / p99"],
                          self.row("backlog")["Done/s"]), ("", "0"))
        self.assertEqual(self.row("work")["Limits"], "")
        self.send("POST", "/v1/queues/backlog/limits",
                  {"at_once": 1500, "rate": 2.5})
        wait_until(lambda: self.row("backlog")["Limits"] ==
                   "1,500 at once, 2.5/s")
        self.assertEqual(self.browser.evaluate(
            "document.getElementById('late-of').value"), "work")
        for each in running:
            each.end(signal.SIGKILL)

    def test_names_and_errors_are_text(self):
        self.open()
        self.kill_tasks([MARKUP[:64]], MARKUP)
        self.has("document.querySelectorAll('#dead tbody tr').length === 1")
        row = self.rows("dead")[0]
        self.assertEqual(row[:2], [MARKUP[:64], "bad"])
        self.assertIn(MARKUP, row[4])
        self.browser.resize(420, 900)
        self.assertEqual(self.browser.evaluate(
            "document.documentElement.scrollWidth"), 420)
        self.assertEqual(self.browser.evaluate(
            "[document.title, document.querySelectorAll('main img, "
            "main script').length]"), ["hwtd", 0])

    def test_the_engine_goes_and_comes_back(self):
        self.open()
        self.says("state", "live")
        self.engine.kill()
        self.says("state", "the engine does not answer")
        self.assertEqual(
            self.browser.evaluate("document.body.className"), "lost")
        self.engine.start()
        self.says("state", "live")
        self.assertEqual(
            self.browser.evaluate("document.body.className"), "live")

    def test_hwtd_goes(self):
        running = self.open()
        self.says("state", "live")
        running.end()
        self.says("state", "hwtd does not answer")

    def test_a_token_is_asked_for(self):
        self.open("--token-file", self.path("token", TOKEN.encode()))
        self.says("state", "a token is needed")
        self.assertEqual(self.text("main"), "")
        for token, words in (("wrong é", "not the right token"),
                             (TOKEN, "live")):
            self.browser.evaluate(
                f"document.getElementById('token').value = "
                f"{json.dumps(token)}")
            self.press("Enter")
            self.says("state", words)
        self.assertEqual(self.browser.evaluate("localStorage.length"), 0)


class Does(Page):
    def test_pause_and_resume(self):
        self.open()
        self.ctl("add", "--queue=mail", "--in=0")
        self.press("Pause queue mail")
        wait_until(lambda: self.queue("mail")["paused"])
        self.has("document.querySelector('#queues tbody').innerText"
                 ".includes('paused')")
        self.press("Resume queue mail")
        wait_until(lambda: not self.queue("mail")["paused"])
        self.press("Pause queue mail")
        wait_until(lambda: self.queue("mail")["paused"])

    def queue(self, name):
        return self.ask("GET", f"/v1/queues/{name}").json

    def test_replay_and_drop(self):
        self.open()
        names = ["a/b?c#d", "%2e", " x", "é"]
        self.kill_tasks(names)
        self.press("Replay a/b?c#d")
        wait_until(lambda: self.state("a/b?c#d") != "failed")
        self.press("Drop %2e")
        self.says("question", "Drop %2e for good")
        self.press("Keep")
        self.press("Drop é")
        self.says("question", "Drop é for good")
        self.press("Drop")
        wait_until(
            lambda: self.ask("GET", "/v1/tasks/%C3%A9").status == 404)
        wait_until(lambda: {row[0] for row in self.rows("dead")} ==
                   {"%2e", "x"})
        self.assertEqual(self.state("%2e"), "failed")

    def test_one_that_is_gone(self):
        self.open()
        self.kill_tasks(["a"])
        self.has("document.querySelectorAll('#dead tbody tr').length === 1")
        self.browser.evaluate("ask = async () => { throw new Refused(404, "
                              "{message: 'not found'}) }")
        self.press("Replay a")
        self.says("problem", "not found")

    def test_ten_thousand_dead_letters(self):
        self.open()
        names = [f"t{i:05}" for i in range(10000)]
        self.fill_dead(names)
        self.says("dead-count", "(10,000)")
        self.has("lettersOf === 10000")  # the list is read less often
        seen = []
        for page in range(1, 4):
            self.says("page", f"page {page}")
            self.has("document.querySelectorAll('#dead tbody tr').length "
                     "=== 100")
            seen += [row[0] for row in self.rows("dead")]
            self.press("Next page")
        self.assertEqual(len(set(seen)), 300)
        self.press("First page")
        self.says("page", "page 1")
        self.press("Replay " + seen[0])
        wait_until(lambda: self.state(seen[0]) != "failed")
        self.says("dead-count", "(9,999)")

    def fill_dead(self, names):
        """As a worker does, without one."""
        self.add_bad(names)
        space, token, left = self.scripts(), 0, len(names)
        while left > 0:
            for shard in range(space.shards):
                token += 1
                taken = space("take", shard, "bad", "w", token, token - 1,
                              256, 30000)
                words = [word for task in taken for word in
                         (*held(task), "fail w exit status 3", 0)]
                space("finish", shard, *words)
                left -= len(taken)


class Demo(Page):
    def test_the_page_of_make_demo_durable(self):
        """While its parts are killed, and when all is done."""
        demo = subprocess.Popen(
            [os.path.join(ROOT, "examples/durable/demo"), "--seconds=9",
             "--rate=300", "--stay=9"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(demo.stdout.close)
        self.addCleanup(demo.wait)
        self.addCleanup(demo.terminate)
        self.url = next(line.split()[-1] for line in demo.stdout
                        if line.startswith("a browser shows it: "))
        self.browser.open(self.url)
        self.browser.call("Log.enable")
        self.has("document.querySelectorAll('#queues tbody tr').length === 1")
        self.assertEqual(self.rows("queues")[0][0], "orders")
        self.has("Math.max(...rates('added')) > 0")
        next(line for line in demo.stdout if "the page stays" in line)
        self.has("/running 0/.test("
                 "document.querySelector('#depths').ariaLabel)")
        self.assertIn("all adds up\n", demo.stdout.readlines())
        self.assertEqual(demo.wait(), 0)


if __name__ == "__main__":
    sys.exit(main())
