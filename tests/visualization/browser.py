"""A real browser without any package: Chromium, spoken to over the two pipes of its debugging protocol."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SECONDS = 40.0
OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-extensions",
    "--remote-debugging-pipe",
]
# The browser reads from descriptor 3 and writes to 4, wherever the pipes are in this process.
LAUNCHER = """
import fcntl, os, sys
reader, writer = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 50) for number in sys.argv[1:3])
os.dup2(reader, 3)
os.dup2(writer, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find_browser() -> str | None:
    """Return the path of a browser, or None if this machine has none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One window of a running browser.

    Attributes:
        requests: Addresses that the page has asked for.
        errors: What its scripts have thrown.
    """

    def __init__(self, reader: int, writer: int) -> None:
        self._reader, self._writer = reader, writer
        self._received = b""
        self._events: deque[dict[str, Any]] = deque()
        self._count = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.errors: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        waiting = json.dumps(message).encode() + b"\0"
        while waiting:
            waiting = waiting[os.write(self._writer, waiting) :]
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result

    def open(self, path: Path, *, width: int = 1280, height: int = 800, dark: bool = False) -> None:
        """Load a file and wait until it is there."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=path.as_uri())
        self.wait_for(f"document.readyState === 'complete' && location.href.endsWith({json.dumps(path.name)})")
        self.settle()

    def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; promises are awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def text(self, element: str) -> str:
        """Return the text of an element by its id."""
        return str(self.value(f"document.getElementById({json.dumps(element)}).textContent"))

    def wait_for(self, condition: str) -> None:
        """Wait until a JavaScript expression is true."""
        end = time.monotonic() + SECONDS
        while not self.value(condition):
            assert time.monotonic() < end, f"never true: {condition}"
            time.sleep(0.02)

    def settle(self) -> None:
        """Wait until what has been asked for is drawn."""
        self.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """Send a mouse event, at a place of the window."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)
        self.settle()

    def click(self, x: float, y: float) -> None:
        """Click with the left button."""
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        """Press and release a key."""
        text = {"text": key} if len(key) == 1 else {}
        if key == "Enter":
            text = {"text": "\r"}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def write(self, text: str) -> None:
        """Type into what has the focus."""
        self.call("Input.insertText", text=text)
        self.settle()

    def screenshot(self) -> bytes:
        """Return the window as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot")["data"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._received:
            ready, _, _ = select.select([self._reader], [], [], SECONDS)
            assert ready, "the browser does not answer"
            part = os.read(self._reader, 1 << 16)
            assert part, "the browser has ended"
            self._received += part
        line, _, self._received = self._received.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        parameters = message.get("params", {})
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(str(parameters["exceptionDetails"]))
        elif message.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.errors.append(parameters["entry"]["text"])


@contextmanager
def running_browser(path: str, home: Path) -> Iterator[Browser]:
    """Start a browser and end it.

    Args:
        path: Its executable.
        home: An empty directory that it may fill.
    """
    to_read, to_child = os.pipe()
    from_child, to_write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-ISc", LAUNCHER, str(to_read), str(to_write), path, *OPTIONS, f"--user-data-dir={home}"],
        pass_fds=(to_read, to_write),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(home)},
        start_new_session=True,
    )
    os.close(to_read)
    os.close(to_write)
    try:
        browser = Browser(from_child, to_child)
        yield browser
        browser.call("Browser.close")
    finally:
        os.close(to_child)
        os.close(from_child)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
