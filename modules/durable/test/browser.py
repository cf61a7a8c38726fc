# SPDX-License-Identifier: Apache-2.0
"""Chromium without a window, spoken to over a pair of pipes."""
import base64
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile

from PIL import Image

# It asks nobody for anything but what is opened in it.
COMMAND = ["chromium", "--headless", "--no-sandbox", "--disable-gpu",
           "--disable-quic", "--no-first-run", "--disable-sync",
           "--disable-background-networking", "--disable-component-update",
           "--disable-dev-shm-usage", "--hide-scrollbars",
           "--remote-debugging-pipe"]


class Browser:
    def __enter__(self):
        self.folder = tempfile.mkdtemp()
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        command = COMMAND + [f"--user-data-dir={self.folder}"]
        shell = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        log = os.path.join(self.folder, "log")
        self.log = open(log, "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "chromium"] + command,
            pass_fds=(theirs_in, theirs_out), stderr=self.log)
        os.close(theirs_in)
        os.close(theirs_out)
        self.read = os.fdopen(ours_in, "rb")
        self.write = os.fdopen(ours_out, "wb", buffering=0)
        self.number, self.session, self.events = 0, None, []
        self.left = b""
        return self

    def __exit__(self, *_):
        self.session = None
        self.process.kill()
        self.process.wait()
        for file in (self.read, self.write, self.log):
            file.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def message(self):
        while b"\0" not in self.left:
            more = os.read(self.read.fileno(), 1 << 16)
            if not more:
                self.log.seek(0)
                sys.exit("chromium has ended\n" + self.log.read())
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
                    sys.exit(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message)

    def open(self, url, width=1100, height=900, script=""):
        """The script runs before those of the page."""
        target = self.call("Target.createTarget", url="about:blank")
        self.session = self.call("Target.attachToTarget", flatten=True,
                                 targetId=target["targetId"])["sessionId"]
        for domain in ("Page", "Network", "Runtime"):
            self.call(domain + ".enable")
        self.resize(width, height)
        self.call("Page.addScriptToEvaluateOnNewDocument", source=script)
        self.call("Page.navigate", url=url)

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width,
                  height=height, deviceScaleFactor=1, mobile=False)

    def evaluate(self, script):
        result = self.call("Runtime.evaluate", expression=script,
                           returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            sys.exit(f"in the page: {result['exceptionDetails']}")
        return result["result"].get("value")

    def scheme(self, name):
        feature = {"name": "prefers-color-scheme", "value": name}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def shot(self):
        data = self.call("Page.captureScreenshot",
                         captureBeyondViewport=True)["data"]
        return Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")


def count_colours(image):
    """How many pixels have which colour."""
    return {colour: n for n, colour in
            image.getcolors(image.width * image.height)}


def contrast(one, other):
    """Of two colours, as WCAG 2 defines it: 1 to 21; text wants 4.5."""
    def luminance(colour):
        parts = [part / 255 for part in colour]
        linear = [part / 12.92 if part <= .04045 else
                  ((part + .055) / 1.055) ** 2.4 for part in parts]
        return .2126 * linear[0] + .7152 * linear[1] + .0722 * linear[2]
    low, high = sorted([luminance(one), luminance(other)])
    return (high + .05) / (low + .05)
