# SPDX-License-Identifier: Apache-2.0
"""The page of hwtd --http in Chromium: what it shows, and what its buttons do,
which is looked up in the server.

    page.py [CLASS[.test] ...]

HWT_SHOTS names a folder that gets a picture at the end of each test. The exit
status is 77 where there is no Chromium.
"""
import json
import os
import shutil
import sys
import time
import unittest

import browser
from hosts import Server, free_port, main, take

SHOTS = os.environ.get("HWT_SHOTS")
MARKUP = "<img src=x onerror=document.title='cracked'>"
KEY = "{hwt:mail}"


class Page(unittest.TestCase):
    def setUp(self):
        self.browser = browser.Browser()
        self.addCleanup(self.browser.close)
        self.http = free_port()
        self.url = f"http://127.0.0.1:{self.http}/"
        self.host = Server("--http", f"127.0.0.1:{self.http}")
        self.addCleanup(self.host.close)
        self.client = self.host.connect()
        self.addCleanup(self.client.close)

    def tearDown(self):
        if SHOTS:
            name = self.id().split(".")[-1]
            self.browser.save_picture(f"{SHOTS}/{name}.png")
        for event in self.browser.events:
            method, params = event["method"], event["params"]
            self.assertNotEqual(method, "Runtime.exceptionThrown", params)
            if method == "Network.requestWillBeSent":
                url = params["request"]["url"]
                self.assertTrue(url.startswith((self.url, "data:", "about:")),
                                url)
            if method == "Log.entryAdded":  # of answers, the page tells
                self.assertEqual(params["entry"]["source"], "network", params)

    def says(self, name, words):
        self.browser.wait(
            f"(each => each?.checkVisibility() && each.innerText.includes("
            f"{json.dumps(words)}))(document.getElementById('{name}'))")

    def rows(self, name):
        return self.browser.evaluate(
            f"[...document.querySelectorAll('#{name}:not([hidden]) tbody tr')]"
            ".map(row => [...row.cells].map(cell => cell.innerText))")

    def press(self, label):
        """The button that has this label, or this text."""
        self.browser.wait(f"""(() => {{
            const found = [...document.querySelectorAll('button')].find(each =>
              (each.ariaLabel ?? each.innerText) === {json.dumps(label)} &&
              each.checkVisibility());
            found?.click();
            return found !== undefined;
        }})()""")

    def fail_tasks(self, names, reason="broken"):
        """They become dead letters."""
        for i in range(0, len(names), 1000):
            some = names[i:i + 1000]
            self.client.call("HWT.ADD", KEY, "IN", 0, "TASKS",
                             *[word for name in some for word in (name, "x")])
            tasks = take(self.client, KEY, 1000)
            self.client.call(
                "HWT.FINISH", KEY, "FAIL", reason, "TASKS",
                *[word for task in tasks.values() for word in task[:2]])

    def state(self, name):
        return self.client.pairs("HWT.GET", KEY, name)["state"].decode()

    def wait_state(self, name, state):
        end = time.monotonic() + 10
        while self.state(name) != state:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)

    def test_a_server_without_queues_says_so(self):
        self.browser.open(self.url)
        self.says("state", "live")
        self.says("no-queues", "There are none")
        self.assertEqual(self.rows("queues"), [])

    def test_counts_and_lateness_of_queues_are_shown(self):
        self.client.call("HWT.ADD", KEY, "IN", 0, "TASKS",
                         *[word for i in range(1234)
                           for word in (f"t{i}", "x")][:2000])
        self.client.call("HWT.ADD", "{hwt:later}", "IN", 10**6, "TASKS", "a",
                         "x")
        self.client.call("HWT.ADD", "{other:queue}", "IN", 0, "TASKS", "a",
                         "x")
        take(self.client, KEY, 10)
        self.client.call("HWT.QUEUE", KEY, "PAUSE")
        self.browser.open(self.url)
        self.browser.wait("document.querySelectorAll('#queues tbody tr')"
                          ".length === 2")
        later, mail = self.rows("queues")
        self.assertEqual(later[:6], ["later", "1", "0", "", "0", "0"])
        self.assertEqual(mail[:3], ["mail (paused)", "0", "990"])
        self.assertRegex(mail[3], r"^[0-9.]+ (ms|s)$")
        self.assertEqual(mail[4], "10")
        for width in (1280, 390):
            self.browser.resize(width)
            self.assertEqual(self.browser.evaluate(
                "document.documentElement.scrollWidth"), width)

    def test_the_page_says_that_the_server_is_gone_and_back(self):
        self.browser.open(self.url)
        self.says("state", "live")
        self.client.close()
        self.host.kill()
        self.says("state", "hwtd does not answer")
        self.assertEqual(self.browser.evaluate("document.body.className"),
                         "lost")
        self.host.start()
        self.says("state", "live")
        self.client = self.host.connect()

    def test_dead_letters_are_replayed_and_dropped(self):
        names = ["a/b?c#d", "%2e", " x", "é"]
        self.fail_tasks(names)
        self.browser.open(self.url)
        self.press("Replay a/b?c#d")
        self.wait_state("a/b?c#d", "due")
        self.browser.evaluate(
            "confirm = text => !(document.title = text).includes('%')")
        self.press("Drop %2e")
        self.assertEqual(self.browser.evaluate("document.title"),
                         "Drop %2e for good?")
        self.press("Drop é")
        self.browser.wait("document.querySelectorAll('#dead tbody tr')"
                          ".length === 2")
        self.assertIsNone(self.client.call("HWT.GET", KEY, "é"))
        self.assertEqual(self.state("%2e"), "dead")
        self.assertEqual({row[0].strip() for row in self.rows("dead")},
                         {"%2e", "x"})

    def test_a_letter_that_is_gone_is_a_message(self):
        self.fail_tasks(["a"])
        self.browser.open(self.url)
        self.browser.wait("document.querySelector('#dead tbody tr') !== null")
        # As it was at the last answer.
        self.browser.evaluate("readLetters = async () => {}")
        self.client.call("HWT.DEAD", KEY, "DROP", "a")
        self.press("Replay a")
        self.says("problem", "no such dead letter")

    def test_ids_and_reasons_are_text(self):
        self.fail_tasks([MARKUP], MARKUP * 20)
        self.browser.open(self.url)
        self.browser.wait("document.querySelector('#dead tbody tr') !== null")
        row = self.rows("dead")[0]
        self.assertEqual((row[0], row[2]), (MARKUP, "1"))
        self.assertEqual(row[3], MARKUP * 20)
        for width in (1280, 390):
            self.browser.resize(width)
            self.assertEqual(self.browser.evaluate(
                "[document.documentElement.scrollWidth, document.title, "
                "document.images.length]"), [width, "hwtd", 0])
        self.assertEqual(self.browser.evaluate(
            "getComputedStyle(document.querySelector('#dead td'), '::before')"
            ".content"), '"Died "')

    def test_ten_thousand_dead_letters_are_read_by_pages(self):
        self.fail_tasks([f"t{i:05}" for i in range(10000)])
        self.browser.open(self.url)
        self.says("dead-of", "mail (10,000)")
        seen = []
        for page in range(1, 5):
            self.says("page", f"page {page}")
            self.assertGreaterEqual(len(self.rows("dead")), 100)
            seen += [row[0] for row in self.rows("dead")]
            self.press("Next page")
        self.assertEqual(len(set(seen)), len(seen))
        self.press("First page")
        self.says("page", "page 1")
        self.press("Replay " + seen[0])
        self.wait_state(seen[0], "due")
        self.says("dead-of", "mail (9,999)")

    def test_it_works_with_a_password(self):
        path = self.host.folder + "/password"
        with open(path, "w") as file:
            file.write("secret\n")
        self.http = free_port()
        self.url = f"http://127.0.0.1:{self.http}/"
        host = Server("--http", f"127.0.0.1:{self.http}", "--password-file",
                      path)
        self.addCleanup(host.close)
        self.browser.open("about:blank")
        self.browser.call("Network.setExtraHTTPHeaders", headers={
            "Authorization": "Basic OnNlY3JldA=="})
        self.browser.call("Page.navigate", url=self.url)
        self.says("state", "live")


if __name__ == "__main__":
    if shutil.which("chromium") is None:
        print("skipped: there is no chromium")
        sys.exit(77)
    main()
