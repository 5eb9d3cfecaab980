"""A small run of the data line, its teacher outside of it: what happens to the run does not happen to the bill."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import orjson
import psutil
import yaml

from pipelines.lines.config import CONFIGS
from qinglan.config import load_yaml
from qinglan.files.digests import digest
from qinglan.lineage.auditing.audit import audit
from qinglan.lineage.signing.findings import GRAVE
from qinglan.lineage.signing.keys import KEYS_VARIABLE
from qinglan.lineage.signing.trust import TRUST_FILE, load_trust
from qinglan.processes.services import start_service
from standins.samples import write_sample
from tests.chaos.set_clock import SetClock

CONVERSATIONS = 4
OUTPUTS = ("rewrites.jsonl", "validated.jsonl", "sft", "ppo")
"""Files and folders of a run whose bytes depend on its inputs alone."""

ENDS_SECONDS = 600.0
LONGEST_JUMP_HOURS = 6


class Bill(NamedTuple):
    """The calls that the teacher answered, by the digest of their prompt."""

    prompts: int
    paid_again: int
    """Prompts that were answered more than once."""


class Thread(NamedTuple):
    """The inputs of all runs, and a teacher of their own for each."""

    folder: Path
    questions: Path
    knowledge_base: Path
    clock: SetClock
    """The time of day of all runs; the teacher's is its own."""

    @classmethod
    def make(cls, folder: Path) -> "Thread":
        write_sample("fivedoctors", folder, conversations=CONVERSATIONS, seed=5)
        return cls(folder, folder / "questions.xlsx", folder / "knowledge_base.jsonl", SetClock.make(folder))

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of a run: its clock, and its own keys to sign with."""
        return {**os.environ, **self.clock.environment, KEYS_VARIABLE: str(self.folder / "keys")}

    @contextmanager
    def teacher(self, log: Path) -> Iterator[str]:
        options = ["--kb", f"fivedoctors={self.knowledge_base}", "--latency", "0.1", "--port", "0"]
        with start_service("standins.teacher", options, log) as url:
            yield url()

    def command(self, out: Path, teacher: str) -> list[str]:
        """The command of a run, up to the files for the trainings."""
        profile: dict[str, Any] = load_yaml(CONFIGS / "fivedoctors" / "demo.yaml")
        profile["stand_ins"] = {"teacher": False, "rag": True}
        for role in ("teacher", "judge", "examiner"):
            profile["gateway"][role] = {**profile["gateway"][role], "base_url": teacher}
        path = out.parent / f"{out.name}.yaml"
        path.write_text(yaml.safe_dump(profile))
        return [
            sys.executable, "-c", "from commands.cli import main; main()", "run", "fivedoctors", "--profile",
            str(path), "--questions", str(self.questions), "--knowledge-base", str(self.knowledge_base),
            "--out", str(out), "--until", "convert", "--json", "--yes",
        ]  # fmt: skip


def start(
    command: list[str], errors: Path, environment: Mapping[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    with errors.open("ab") as log:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment)


def finish(command: list[str], errors: Path, environment: Mapping[str, str]) -> tuple[dict[str, Any], float]:
    """The record of a run that is left alone, and its seconds; an AssertionError with its errors if it fails."""
    started = time.monotonic()
    with start(command, errors, environment) as run:
        output, _ = run.communicate(timeout=ENDS_SECONDS)
    assert run.returncode == 0, errors.read_text(encoding="utf-8")[-3000:]
    return orjson.loads(output), time.monotonic() - started


def read_bill(teacher: str) -> Bill:
    billed = httpx.get(f"{teacher.removesuffix('/v1')}/stats", trust_env=False).json()["billed_by_prompt"]
    return Bill(len(billed), sum(count > 1 for count in billed.values()))


def digests(out: Path) -> dict[str, str]:
    return {name: digest(out / "files" / name) for name in OUTPUTS}


def grave_findings(thread: Thread, out: Path) -> list[str]:
    """Return findings of an audit that remain after the clocks agree."""
    policy = load_trust(thread.folder / "keys" / TRUST_FILE)
    later = datetime.now(UTC) + timedelta(hours=LONGEST_JUMP_HOURS + 1)
    return [str(finding) for finding in audit(str(out), policy, now=later).findings if finding.state in GRAVE]


def processes(run: int) -> list[psutil.Process]:
    """A run and all that it started and that still runs."""
    try:
        whole = psutil.Process(run)
        return [whole, *whole.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
