"""A real browser opens a file by its path. Where there is no Chromium, Debian's package is installed once.

page = open_page(run / "files" / "report.html", tmp_path)
page.title, page.text
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
from html.parser import HTMLParser
from pathlib import Path

import pytest

COMMANDS = ("chromium", "google-chrome")
HANGS_SECONDS = 600
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


class Page(HTMLParser):
    """The title and the visible text of a rendered page; a page shown as its source has no title of its own."""

    UNSEEN = frozenset({"title", "style", "script"})

    def __init__(self, dom: str) -> None:
        super().__init__()
        self.title, self.text = "", ""
        self._in_body = False
        self._open: list[str] = []
        self.feed(dom)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._in_body = self._in_body or tag == "body"
        if tag in self.UNSEEN:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            self._open.remove(tag)

    def handle_data(self, data: str) -> None:
        if not self._open:
            self.text += data
        elif self._open == ["title"] and not self._in_body:  # SVG drawings in the body have titles too
            self.title += data


def open_page(path: Path, profile: Path) -> Page:
    """Return the page that the browser renders of a file; `profile` is a folder for the browser's own files."""
    command = [find_chromium(), *FLAGS, f"--user-data-dir={profile}", "--dump-dom", path.absolute().as_uri()]
    run = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_SECONDS, check=False)
    assert run.returncode == 0, run.stderr
    return Page(run.stdout)


def find_chromium() -> str:
    """The path of a Chromium, which is installed first where there is none; the test fails where it cannot be."""
    if result := _installed():
        return result
    with Path(tempfile.gettempdir(), f"qinglan-chromium-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the tests' workers would all install it
        message = "" if _installed() else _install()
    if result := _installed():
        return result
    pytest.fail(f"These tests need the Debian package chromium, and it could not be installed: {message}", False)


def _installed() -> str | None:
    return next((path for name in COMMANDS if (path := shutil.which(name))), None)


def _install() -> str:
    """Why it could not be installed, or ""."""
    if not shutil.which("apt-get"):
        return "there is no apt-get on this machine."
    as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if as_root and not shutil.which("sudo"):
        return "only root can install it; run `apt-get install chromium` as root."
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
        command = [*as_root, "apt-get", "-o", "DPkg::Lock::Timeout=300", *words]
        run = subprocess.run(command, capture_output=True, text=True, timeout=1200, env=environment, check=False)
        if run.returncode:
            last = (run.stderr.strip() or run.stdout.strip()).splitlines()[-1:]
            return f"`{' '.join(command)}` ended with {run.returncode}: {''.join(last)}"
    return ""
