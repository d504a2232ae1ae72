"""Headless Chromium over a pipe (the DevTools protocol): no port, no package, no network."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = ["Browser", "Page", "find_chromium"]

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--force-color-profile=srgb", "--remote-debugging-pipe",
)  # fmt: skip
_SECONDS = 60.0


def find_chromium() -> str | None:
    """The browser's program: $ASSAY_CHROMIUM, or the first of the usual names on the path."""
    named = os.environ.get("ASSAY_CHROMIUM")
    return named or next((found for name in _NAMES if (found := shutil.which(name))), None)


@dataclass
class Page:
    """One tab, and everything that it has told: console, exceptions, requests."""

    browser: Browser
    session: str
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    is_loaded: bool = False

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of this tab."""
        return self.browser.send(method, session=self.session, **parameters)

    def show(self, *, width: int = 1280, height: int = 900, dark: bool = False,
             media: str = "") -> None:  # fmt: skip
        """Set the window's size, the colour scheme and the medium."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 500)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def load(self, url: str) -> None:
        """Open an address and wait until everything is there."""
        self.complaints.clear()
        self.requests.clear()
        self.is_loaded = False
        self.send("Page.navigate", url=url)
        self.browser.wait(lambda: self.is_loaded)
        time.sleep(0.05)  # a late request or complaint
        self.ask("1")

    def ask(self, expression: str) -> Any:
        """The value of an expression of JavaScript in the page."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def photograph(self, file: Path) -> None:
        """The whole page as PNG."""
        shot = self.send("Page.captureScreenshot", captureBeyondViewport=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(shot["data"]))

    def hear(self, method: str, told: dict[str, Any]) -> None:
        """Keep what the tab tells."""
        if method == "Page.loadEventFired":
            self.is_loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(told["exceptionDetails"]["text"])
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(json.dumps(told["args"]))
        elif method == "Log.entryAdded":
            self.complaints.append(told["entry"]["text"])


class Browser:
    """A browser with an empty profile, for as long as the `with` lasts."""

    def __init__(self, program: str, profile: Path) -> None:
        to_child, self._out = _open_pipe()
        self._in, from_child = _open_pipe()

        def connect() -> None:
            os.dup2(to_child, 3)
            os.dup2(from_child, 4)

        self._log = (profile.parent / "chromium.log").open("wb")
        self._child = subprocess.Popen(
            [program, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(3, 4),
            preexec_fn=connect,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        os.close(to_child)
        os.close(from_child)
        self._buffer, self._last, self._answers = b"", 0, dict[int, dict[str, Any]]()
        self._pages: dict[str, Page] = {}

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        with contextlib.suppress(Exception):
            self.send("Browser.close")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        os.close(self._out)
        os.close(self._in)
        self._log.close()

    def open_page(self) -> Page:
        """A new tab that listens."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        page = self._pages[attached["sessionId"]] = Page(self, attached["sessionId"])
        for domain in ("Page", "Network", "Runtime", "Log"):
            page.send(f"{domain}.enable")
        return page

    def send(self, method: str, *, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Call a method and return its answer."""
        self._last += 1
        number = self._last
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        self.wait(lambda: number in self._answers)
        answer = self._answers.pop(number)
        assert "error" not in answer, (method, answer)
        result: dict[str, Any] = answer["result"]
        return result

    def wait(self, is_done: Any) -> None:
        """Read what the browser says until something holds."""
        end = time.monotonic() + _SECONDS
        while not is_done():
            ready, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            chunk = os.read(self._in, 1 << 20) if ready else b""
            assert chunk, f"Chromium is silent: {Path(self._log.name).read_text()[-2000:]}"
            *messages, self._buffer = (self._buffer + chunk).split(b"\0")
            for message in messages:
                self._take(json.loads(message))

    def _take(self, message: dict[str, Any]) -> None:
        if "id" in message:
            self._answers[message["id"]] = message
        elif message.get("sessionId") in self._pages:
            self._pages[message["sessionId"]].hear(message["method"], message["params"])


def _open_pipe() -> tuple[int, int]:
    """A pipe whose ends lie above the numbers that the browser wants."""
    ends = []
    for end in os.pipe():
        ends.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10))
        os.close(end)
    return ends[0], ends[1]
