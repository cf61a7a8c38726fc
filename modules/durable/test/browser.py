# SPDX-License-Identifier: Apache-2.0
"""Chromium without a window, spoken to over a pair of pipes."""
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

# It asks nobody for anything but what is opened in it.
COMMAND = ["chromium", "--headless", "--no-sandbox", "--disable-gpu",
           "--disable-quic", "--no-first-run", "--disable-sync",
           "--disable-background-networking", "--disable-component-update",
           "--disable-dev-shm-usage", "--hide-scrollbars",
           "--remote-debugging-pipe"]


class Browser:
    def __init__(self):
        self.folder = tempfile.mkdtemp()
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        shell = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "chromium"] + COMMAND +
            [f"--user-data-dir={self.folder}"],
            pass_fds=(theirs_in, theirs_out), stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.read = os.fdopen(ours_in, "rb")
        self.write = os.fdopen(ours_out, "wb", buffering=0)
        self.number, self.session, self.events = 0, None, []
        self.left = b""

    def close(self):
        self.process.kill()
        self.process.wait()
        self.read.close()
        self.write.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def message(self):
        while b"\0" not in self.left:
            more = os.read(self.read.fileno(), 1 << 16)
            if not more:
                raise RuntimeError("chromium has ended")
            self.left += more
        text, self.left = self.left.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **params):
        self.number += 1
        call = {"id": self.number, "method": method, "params": params}
        if self.session:
            call["sessionId"] = self.session
        self.write.write(json.dumps(call).encode() + b"\0")
        while True:
            message = self.message()
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message)

    def open(self, url, width=1280, height=900):
        target = self.call("Target.createTarget", url="about:blank")
        self.session = self.call("Target.attachToTarget", flatten=True,
                                 targetId=target["targetId"])["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(domain + ".enable")
        self.resize(width, height)
        self.call("Page.navigate", url=url)

    def resize(self, width, height=900):
        self.call("Emulation.setDeviceMetricsOverride", width=width,
                  height=height, deviceScaleFactor=1, mobile=False)

    def evaluate(self, script):
        result = self.call("Runtime.evaluate", expression=script,
                           returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"in the page: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, script, seconds=20):
        """Until the script gives something true, which is returned."""
        end = time.monotonic() + seconds
        while True:
            value = self.evaluate(script)
            if value:
                return value
            if time.monotonic() > end:
                raise AssertionError(f"never in the page: {script}")
            time.sleep(0.05)

    def save_picture(self, path):
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(data["data"]))
