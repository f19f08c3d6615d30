"""A headless Chromium, driven through a pipe: no driver, no library.

https://chromedevtools.github.io/devtools-protocol/
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PATIENCE = 15.0  # seconds until something awaited counts as missing


def executable() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next(filter(None, map(shutil.which, names)), None)


class Browser:
    """One tab."""

    def __init__(self, folder: Path):
        """`folder` takes the profile."""
        program = executable()
        assert program is not None
        command = [
            program,
            "--headless=new",
            "--remote-debugging-pipe",
            "--no-sandbox",  # tests may run as root, and only see our own page
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            f"--user-data-dir={folder}",
        ]
        there, back = os.pipe(), os.pipe()
        # The browser reads from 3 and writes to 4; move our ends of these numbers out of the way.
        theirs = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in (there[0], back[1])]

        def place() -> None:
            os.dup2(theirs[0], 3)
            os.dup2(theirs[1], 4)

        self.process = subprocess.Popen(
            command,
            preexec_fn=place,
            pass_fds=(3, 4),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for fd in (there[0], back[1], *theirs):
            os.close(fd)
        self._out, self._in = there[1], os.fdopen(back[0], "rb")
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.process.terminate()
        self.process.wait(PATIENCE)
        os.close(self._out)
        self._in.close()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._receive()
            if reply.get("id") == self._number:
                if "error" in reply:
                    raise AssertionError(f"{method}: {reply['error']}")
                result: dict[str, Any] = reply["result"]
                return result
            self.events.append(reply)

    def _receive(self) -> dict[str, Any]:
        text = bytearray()
        while (byte := self._in.read(1)) != b"\0":
            if not byte:
                raise AssertionError("the browser went away")
            text += byte
        message: dict[str, Any] = json.loads(text)
        return message

    # What a reader does.

    def view(self, width: int, height: int, dark: bool = False, phone: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def go(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        reply = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in reply:
            raise AssertionError(f"{script}: {reply['exceptionDetails']}")
        return reply["result"].get("value")

    def until(self, script: str) -> None:
        end = time.monotonic() + PATIENCE
        while not self.run(script):
            if time.monotonic() > end:
                body = self.run("document.body.innerText")
                raise AssertionError(f"never true: {script}\n{body}")
            time.sleep(0.02)

    def type(self, selector: str, text: str) -> None:
        """Replace a field's text, as if typed."""
        self.run(f"document.querySelector({json.dumps(selector)}).select()")
        self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        if text:
            self.call("Input.insertText", text=text)
        else:
            self.press("Delete", 46)

    def press(self, key: str, code: int, modifiers: int = 0) -> None:
        common = {
            "key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": modifiers,
            **({"text": "\r"} if key == "Enter" else {}),
        }  # fmt: skip
        self.call("Input.dispatchKeyEvent", type="keyDown", **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def click(self, selector: str) -> None:
        """A real click in the middle of the element."""
        place = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
            " return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left",
                clickCount=1,
            )  # fmt: skip

    def text(self, selector: str) -> str:
        words = self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")
        assert isinstance(words, str)
        return words

    def screenshot(self, file: Path, whole: bool = False, of: str | None = None) -> None:
        """The view, the whole page, or the element `of` a selector with a margin."""
        clip: dict[str, Any] = {}
        if whole:
            clip = self.call("Page.getLayoutMetrics")["cssContentSize"]
        elif of is not None:
            clip = self.run(
                f"(() => {{ const r = document.querySelector({json.dumps(of)})"
                ".getBoundingClientRect(); return {x: r.x + scrollX - 12, y: r.y + scrollY - 12,"
                " width: r.width + 24, height: r.height + 24}; })()"
            )
        picture = self.call(
            "Page.captureScreenshot",
            captureBeyondViewport=bool(clip),
            **({"clip": {**clip, "scale": 1}} if clip else {}),
        )
        file.write_bytes(base64.b64decode(picture["data"]))

    # What a reader must not see.

    def complaints(self) -> list[str]:
        """Errors, warnings and refusals that the page caused so far."""
        complaints = []
        for event in self.events:
            match event.get("method"):
                case "Runtime.exceptionThrown":
                    complaints.append(str(event["params"]["exceptionDetails"]))
                case "Log.entryAdded":
                    entry = event["params"]["entry"]
                    if entry["level"] == "verbose":  # advice
                        continue
                    complaints.append(f"{entry['level']}: {entry['text']} {entry.get('url', '')}")
                case "Runtime.consoleAPICalled" if event["params"]["type"] in ("error", "warning"):
                    complaints.append(str(event["params"]["args"]))
        return complaints

    def fetched(self) -> Sequence[str]:
        """Every address that the page asked for; the browser's own pictures come as data."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
            and not event["params"]["request"]["url"].startswith("data:")
        ]
