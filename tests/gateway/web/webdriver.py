"""A headless Chromium, driven over the W3C WebDriver protocol with nothing but the standard library."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.error import URLError

from tests.waiting import DEADLINE_S

ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
START_S = 90.0  # on a busy machine Chromium takes its time, and its driver before it
DRIVER_S = 25.0
"""After so long the driver is started anew: once in some hundred starts it ends, or says nothing for ever."""
AXE = Path(str(find_spec("axe_core_python").origin)).with_name("axe.min.js")  # type: ignore[union-attr]


def missing() -> str:
    """What is not on this machine, or an empty string."""
    absent = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"not installed: {', '.join(absent)}" if absent else ""


class Browser:
    """One browser session. Every call ends within a minute or raises."""

    def __init__(self, driver_url: str, profile: str, width: int, height: int) -> None:
        self._driver_url = driver_url
        options = {"args": [*ARGUMENTS, f"--user-data-dir={profile}", f"--window-size={width},{height}"]}
        capabilities = {"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}}
        self._session = f"/session/{self._call('POST', '/session', capabilities, START_S)['sessionId']}"

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None, timeout_s: float = DEADLINE_S) -> Any:
        request = urllib.request.Request(self._driver_url + path, method=method)
        request.add_header("Content-Type", "application/json")
        data = json.dumps(body).encode() if body is not None else None
        with urllib.request.urlopen(request, data, timeout=timeout_s) as answer:
            return json.load(answer)["value"]

    def open(self, url: str) -> None:
        self._call("POST", f"{self._session}/url", {"url": url})

    def run(self, script: str, *arguments: object) -> Any:
        """The value of `return ...` in `script`."""
        return self._call("POST", f"{self._session}/execute/sync", {"script": script, "args": list(arguments)})

    def devtools(self, command: str, **parameters: object) -> Any:
        return self._call("POST", f"{self._session}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def emulate(self, width: int, height: int, dark: bool = False) -> None:
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.devtools("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path) -> None:
        """The whole page, not only what fits the window."""
        size = self.devtools("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.devtools("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def console_errors(self) -> list[str]:
        """What the page wrote to the console as an error, refused resources included."""
        entries = self._call("POST", f"{self._session}/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]

    def wait_for(self, script: str, deadline_s: float = DEADLINE_S) -> Any:
        """The first truthy value of `script`; `AssertionError` after the deadline."""
        return wait_for(lambda: self.run(script), deadline_s, script)

    def violations(self) -> list[str]:
        """What axe finds wrong on the page for people who use it by keyboard or screen reader, or see little."""
        if not self.run("return 'axe' in window"):
            self.run(AXE.read_text(encoding="utf-8"))
        self.run("window.found = null; axe.run().then(result => { window.found = result.violations; })")
        self.wait_for("return window.found !== null")
        found = self.run("return window.found.map(v => [v.id, v.help, v.nodes.map(n => n.target.join(' '))])")
        return [f"{rule}: {text}: {', '.join(places)}" for rule, text, places in found]

    def close(self) -> None:
        self._call("DELETE", self._session)


def wait_for(condition: Callable[[], Any], deadline_s: float, what: str, log: Path | None = None) -> Any:
    """The first truthy value of `condition`, asked every 50 ms; AssertionError, with what `log` says, if there is
    none in time."""
    end = time.monotonic() + deadline_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= end:
            said = f"; log: {log.read_text(errors='replace')[-2000:]}" if log else ""
            raise AssertionError(f"not within {deadline_s} s: {what}{said}")
        time.sleep(0.05)


@contextmanager
def browser(width: int = 1280, height: int = 900) -> Iterator[Browser]:
    """A new browser with an empty profile, ended afterwards with its driver."""
    with tempfile.TemporaryDirectory(prefix="edgert-browser-", ignore_cleanup_errors=True) as folder:
        log = Path(folder) / "driver.log"
        drivers = [_driver(log)]
        again_at = time.monotonic() + DRIVER_S

        def url() -> str:
            nonlocal again_at
            if drivers[-1].poll() is not None or time.monotonic() > again_at:
                drivers[-1].kill()
                drivers[-1].wait(60.0)
                drivers.append(_driver(log))
                again_at = time.monotonic() + DRIVER_S
            return _driver_url(log)

        try:
            session = Browser(wait_for(url, START_S, "chromedriver started", log), f"{folder}/profile", width, height)
            try:
                yield session
            finally:
                session.close()
        finally:
            drivers[-1].terminate()
            drivers[-1].wait(60.0)


def _driver(log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(["chromedriver", "--port=0"], stdout=output, stderr=subprocess.STDOUT)


def _driver_url(log: Path) -> str:
    """Where the driver listens, once it says so and answers."""
    _, found, rest = log.read_text(errors="replace").partition("started successfully on port ")
    if not found:
        return ""
    url = f"http://127.0.0.1:{rest.split('.')[0]}"
    try:
        with urllib.request.urlopen(f"{url}/status", timeout=5):
            return url
    except URLError:
        return ""
