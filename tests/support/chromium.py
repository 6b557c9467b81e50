"""Debian's Chromium without a window, driven over a pipe by the DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from tests.support.real_parts import CACHE_OF_PARTS, lacks

Json = dict[str, Any]


TIMEOUT = 300  # seconds, of the whole browser: a hanging one is ended
FETCH = Path(__file__).parent / "browser/fetch_axe.sh"
VERSION = FETCH.read_text().partition("version=")[2].split()[0]  # of axe-core
CACHE = CACHE_OF_PARTS.parent
AXE = CACHE / "bwagent/axe-core" / VERSION / "axe.min.js"
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"),
    *("--disable-background-networking", "--disable-dev-shm-usage", "--remote-debugging-pipe"),
)


def missing() -> str | None:
    """Return what these tests lack."""
    fetched = None if AXE.exists() else "axe-core not fetched (tests/support/browser/fetch_axe.sh)"
    return lacks("chromium") or fetched


class Page:
    """One open page; records its requests, console lines and exceptions."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._rest = b""
        self._last = 0
        self._session: str | None = None
        self.events: list[Json] = []

    def attach(self) -> Self:
        """Open an empty page and attach to it."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        return self

    def call(self, method: str, **parameters: Any) -> Json:
        """Send a command and return its result; keeps the events that come before it."""
        self._last += 1
        message: Json = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (reply := self._next()).get("id") != self._last:
            self.events.append(reply)
        assert "error" not in reply, reply
        return dict(reply["result"])

    def _next(self) -> Json:
        while b"\0" not in self._rest:
            data = os.read(self._read, 1 << 20)
            assert data, "the browser ended"
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(message))

    def open(self, path: Path) -> None:
        """Load a file and wait until it is there."""
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        while not self.seen("Page.loadEventFired"):
            self.events.append(self._next())

    def seen(self, *methods: str) -> list[Json]:
        """Return the events of some kinds since the file was opened."""
        return [event for event in self.events if event.get("method") in methods]

    def run(self, script: str) -> Any:
        """Return the value of an expression, awaited."""
        reply = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in reply, reply
        return reply["result"].get("value")

    def size(self, width: int, height: int = 1000) -> None:
        """Set the size of the window."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def scheme(self, name: str) -> None:
        """Prefer `light` or `dark`."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def pdf(self) -> bytes:
        """Return the printed page."""
        reply = self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=False)
        return base64.b64decode(reply["data"])

    def press(self, key: str) -> None:
        code = {"Tab": 9, "Enter": 13, " ": 32}[key]
        text = {"Enter": "\r", " ": " "}.get(key, "")
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                windowsVirtualKeyCode=code,
                text=text if kind == "keyDown" else "",
            )

    def axe(self) -> list[Json]:
        """Return the violations of WCAG 2 A and AA that axe-core finds, as (rule, places)."""
        self.run(AXE.read_text(encoding="utf-8") + ";0")
        rules = "{runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice']}"
        return list(
            self.run(
                f"axe.run(document, {rules}).then(done => done.violations.map(one => "
                "({rule: one.id, places: one.nodes.slice(0, 3).map(node => node.html)})))"
            )
        )


@contextmanager
def chromium() -> Iterator[Page]:
    to_browser, ours_out = os.pipe()
    ours_in, from_browser = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # The browser reads from descriptor 3 and writes to descriptor 4.
        script = f'exec 3<&{to_browser} 4>&{from_browser}; exec "$@"'
        browser = subprocess.Popen(
            [
                *("timeout", str(TIMEOUT), "bash", "-c", script, "-"),
                *("chromium", *FLAGS, f"--user-data-dir={profile}"),
            ],
            pass_fds=(to_browser, from_browser),
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        try:
            yield Page(ours_out, ours_in).attach()
        finally:
            os.close(ours_out)  # which ends it
            os.close(ours_in)
            browser.wait()
