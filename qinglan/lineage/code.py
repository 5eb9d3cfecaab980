"""Which code ran: the package's version, the git revision, whether anyone had changed it since."""

import os
import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import qinglan


@cache
def code_version() -> dict[str, Any]:
    """Package version and git revision; in an image, the revision it was built from."""
    revision = os.environ.get("QINGLAN_REVISION", "")
    return {"version": qinglan.__version__, **({"revision": revision} if revision else _git())}


def versions() -> dict[str, str]:
    """Of what decides what comes out."""
    found = {"python": platform.python_version(), "qinglan": qinglan.__version__}
    for name in ("kfp", "torch", "transformers", "ms-swift", "verl", "trl"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _git() -> dict[str, Any]:
    def git(*words: str) -> str:
        here = Path(__file__).parent
        return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return {"revision": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain"))}
    except (OSError, subprocess.CalledProcessError):
        return {"revision": "unknown"}
