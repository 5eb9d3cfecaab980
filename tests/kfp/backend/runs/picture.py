"""KFP's page in a person's hands, and a picture of it, by the Chromium that the tests use.

python -m tests.kfp.backend picture out.png '#/runs/details/RUN_ID' --click evaluate
python -m tests.kfp.backend picture out.png '#/pipelines' --click qinglan-rewriter-fivedoctors-gpt \\
    --click 'Create run' --click 'Choose[3]' --click fivedoctors --click 'Use this experiment' \\
    --fill 'questions - string=s3://data/questions.xlsx' --click Start
"""

import base64
import json
import re
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from websockets.sync.client import ClientConnection, connect

from qinglan.errors import OutageError
from tests.screens.browser import FLAGS, find_chromium

SIZE = (1600, 1200)
SECONDS, SETTLE_SECONDS = 90.0, 4.0

FIND = """((text, number) => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) if (walker.currentNode.textContent.trim() === text && --number === 0) {
    const element = walker.currentNode.parentElement;
    element.scrollIntoViewIfNeeded();
    const box = element.getBoundingClientRect();
    return {x: box.x + box.width / 2, y: box.y + box.height / 2};
  }
  return null;
})"""


class Click(NamedTuple):
    """A click on the first element with this text, or on a later one."""

    text: str
    number: int = 1


class Fill(NamedTuple):
    """A field with this label, and what is typed in place of its content."""

    label: str
    text: str


def read_click(option: str) -> Click:
    """TEXT, or TEXT[3] for the third element with it."""
    match = re.fullmatch(r"(.+)\[(\d+)\]", option)
    return Click(match[1], int(match[2])) if match else Click(option)


def read_fill(option: str) -> Fill:
    """LABEL=TEXT."""
    label, _, text = option.partition("=")
    return Fill(label, text)


def take_picture(address: str, acts: Iterable[Click | Fill], out: Path) -> None:
    """Open the address, do these acts one after the other, and save what is seen then as PNG."""
    with browser() as page:
        page.call("Page.enable")
        page.call("Page.navigate", url=address)
        for act in acts:
            page.click(*act) if isinstance(act, Click) else page.fill(act.label, act.text)
        time.sleep(SETTLE_SECONDS)
        data = page.call("Page.captureScreenshot", format="png")["data"]
    out.write_bytes(base64.b64decode(data))


class Tab:
    """A browser's tab, by the DevTools protocol."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.count = 0

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.count += 1
        self.connection.send(json.dumps({"id": self.count, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.connection.recv(SECONDS))
            if message.get("id") == self.count:
                result: dict[str, Any] = message["result"]
                return result

    def click(self, text: str, number: int = 1) -> None:
        """Click on an element with this text, as soon as there are so many."""
        deadline = time.monotonic() + SECONDS
        while self.position(text, number) is None:
            if time.monotonic() > deadline:
                raise OutageError(f"The page shows no {text!r} after {SECONDS:.0f} s.")
            time.sleep(0.2)
        time.sleep(SETTLE_SECONDS)  # the graph moves until it is laid out
        position = self.position(text, number) or {}
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **position)

    def fill(self, label: str, text: str) -> None:
        """Type this in place of what a field holds."""
        self.click(label)
        self.call("Runtime.evaluate", expression="document.activeElement.select()")
        self.call("Input.insertText", text=text)

    def position(self, text: str, number: int) -> dict[str, float] | None:
        """The middle of the element with this text that has this number, from 1."""
        script = f"{FIND}({json.dumps(text)}, {number})"
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        position: dict[str, float] | None = answer["result"].get("value")
        return position


@contextmanager
def browser() -> Iterator[Tab]:
    """A browser with one empty tab, for as long as a block."""
    size = f"--window-size={SIZE[0]},{SIZE[1]}"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [
            find_chromium(),
            *FLAGS,
            size,
            "--remote-debugging-port=0",
            f"--user-data-dir={profile}",
            "about:blank",
        ]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            port = _port(Path(profile))
            [tab] = [
                it
                for it in httpx.get(f"http://127.0.0.1:{port}/json", trust_env=False).json()
                if it["type"] == "page"
            ]
            with connect(tab["webSocketDebuggerUrl"], max_size=None, proxy=None) as connection:
                yield Tab(connection)
        finally:
            process.terminate()
            process.wait()


def _port(profile: Path) -> str:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        with suppress(OSError, IndexError):
            return (profile / "DevToolsActivePort").read_text().split()[0]
        time.sleep(0.1)
    raise OutageError(f"Chromium did not start within {SECONDS:.0f} s.")
