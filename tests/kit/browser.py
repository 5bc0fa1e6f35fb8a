# SPDX-License-Identifier: MIT
"""browser.py - a headless Chromium, driven over a pipe by its DevTools protocol."""
import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


def find():
    """The program, or None"""
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        if shutil.which(name):
            return shutil.which(name)
    return None


class Browser:
    """One page; ends with the block. `said`: what its console and its exceptions said."""

    KEYS = {"Enter": (13, "\r"), "Tab": (9, ""), "Escape": (27, ""), " ": (32, " "),
            "ArrowDown": (40, ""), "ArrowUp": (38, "")}

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="browser-")
        self.said = []
        self.ids = itertools.count(1)
        self.rest = b""
        to_r, self.to = os.pipe()
        self.come, come_w = os.pipe()

        def place():  # the program reads descriptor 3 and writes 4
            high = [os.dup(to_r), os.dup(come_w)]
            high = [os.dup2(fd, 100 + i) for i, fd in enumerate(high)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.p = subprocess.Popen(
            [find(), "--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu",
             "--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking",
             "--user-data-dir=" + self.folder.name, "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=place,
            close_fds=False, env={**os.environ, "HOME": self.folder.name})
        os.close(to_r)
        os.close(come_w)
        self.session = None
        target = self.do("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.do("Target.attachToTarget", targetId=target,
                               flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "DOM"):
            self.do(domain + ".enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.p.kill()
        self.p.wait()
        os.close(self.to)
        os.close(self.come)
        for _ in range(50):  # its children may still write
            try:
                self.folder.cleanup()
                return
            except OSError:
                time.sleep(0.1)

    # ---- the protocol ----

    def receive(self, until):
        while b"\0" not in self.rest:
            if not select.select([self.come], [], [], max(0, until - time.time()))[0]:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self.come, 1 << 16)
            if not piece:
                raise EOFError("the browser has ended")
            self.rest += piece
        one, self.rest = self.rest.split(b"\0", 1)
        return json.loads(one)

    def note(self, m):
        p = m.get("params", {})
        if m.get("method") == "Runtime.exceptionThrown":
            self.said.append(json.dumps(p["exceptionDetails"])[:500])
        elif m.get("method") == "Log.entryAdded" and p["entry"]["level"] == "error":
            self.said.append(p["entry"]["text"] + " " + p["entry"].get("url", ""))
        elif m.get("method") == "Runtime.consoleAPICalled" and p["type"] == "error":
            self.said.append(json.dumps(p["args"])[:500])

    def do(self, method, **params):
        number = next(self.ids)
        m = {"id": number, "method": method, "params": params}
        if self.session:
            m["sessionId"] = self.session
        os.write(self.to, json.dumps(m).encode() + b"\0")
        while True:
            m = self.receive(time.time() + 60)
            if m.get("id") == number:
                assert "error" not in m, (method, m["error"])
                return m["result"]
            self.note(m)

    # ---- what a person does ----

    def open(self, url):
        self.do("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def js(self, text):
        """The value of an expression, which may be a promise"""
        r = self.do("Runtime.evaluate", expression=text, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in r, (text, r["exceptionDetails"])
        return r["result"].get("value")

    def wait(self, text, timeout_s=60):
        until = time.time() + timeout_s
        while time.time() < until:
            if self.js(f"!!({text})"):
                return
            time.sleep(0.02)
        raise AssertionError(f"never came: {text}; the page says "
                             f"{self.js('document.body.innerText')!r}")

    def key(self, name, alt=False, shift=False):
        code, text = self.KEYS.get(name, (ord(name.upper()[0]), name))
        letter = name.isalpha() and len(name) == 1
        event = {"key": name, "code": "Key" + name.upper() if letter else name,
                 "windowsVirtualKeyCode": code, "modifiers": alt * 1 + shift * 8}
        if text and not alt:
            event["text"] = text
        self.do("Input.dispatchKeyEvent", type="keyDown", **event)
        self.do("Input.dispatchKeyEvent", type="keyUp",
                **{k: v for k, v in event.items() if k != "text"})

    def type(self, text):
        self.do("Input.insertText", text=text)

    def click(self, selector):
        box = self.js(f"""(() => {{ const n = document.querySelector({json.dumps(selector)});
            n.scrollIntoView({{block: 'nearest'}}); const r = n.getBoundingClientRect();
            return [r.x + r.width / 2, r.y + r.height / 2]; }})()""")
        for kind in ("mousePressed", "mouseReleased"):
            self.do("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left",
                    clickCount=1)

    def files(self, selector, paths):
        root = self.do("DOM.getDocument")["root"]["nodeId"]
        node = self.do("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.do("DOM.setFileInputFiles", nodeId=node, files=paths)

    def size(self, width, height):
        self.do("Emulation.setDeviceMetricsOverride", width=width, height=height,
                deviceScaleFactor=1, mobile=width < 600)

    def media(self, **features):
        self.do("Emulation.setEmulatedMedia",
                features=[{"name": "prefers-" + k.replace("_", "-"), "value": v}
                          for k, v in features.items()])

    def picture(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.do("Page.captureScreenshot")["data"]))
