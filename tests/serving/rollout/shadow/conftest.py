"""Two real rewriters, one of them spoiled, a real RAG service, and a payload log: processes on loopback."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import httpx
import pytest

from qinglan.files.digests import digest
from qinglan.files.files import dump_line
from qinglan.kubernetes.shadow_token import VARIABLE
from qinglan.processes.services import run_service
from serving.rollout.shadow.config import ModelPair
from tests.models.tiny_rewriter import TAUGHT, taught_model
from tests.processes.forked_runs import fork_environment
from tests.processes.forkserver import forked
from tests.processes.patched_constants import with_constants
from tests.serving.model_servers import V1, announced, until
from tests.serving.rag.conftest import passages

TOKEN = "0123456789abcdef" * 4
SPOILED = dict.fromkeys(TAUGHT, "用户画像")
"""A line that no guard takes back, and that finds nothing of what was asked."""


class Server(NamedTuple):
    url: str
    version: str
    log: Path
    """Its payload log."""

    def ask(self, *queries: str) -> None:
        """As users do; the log has it afterwards."""
        before = self.stored
        for number, query in enumerate(queries):
            body = {"instances": [{"query": query, "tenant_id": "fivedoctors"}]}
            headers = {"x-request-id": f"r-{before}-{number}"}
            httpx.post(self.url + V1, json=body, headers=headers, trust_env=False, timeout=60).raise_for_status()
        until(lambda: self.stored == before + len(queries), 60)

    @property
    def stored(self) -> int:
        return sum(len(path.read_bytes().splitlines()) for path in self.log.rglob("*.jsonl"))

    def counted(self, name: str) -> float:
        lines = httpx.get(f"{self.url}/metrics", trust_env=False, timeout=60).text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


class World(NamedTuple):
    good: Server
    bad: Server
    rag: str

    def pair(self, stable: Server, canary: Server, **changes: Any) -> ModelPair:
        return ModelPair.model_validate(
            {"canary": canary.version, "stable": stable.version, "url": canary.url} | changes
        )


@pytest.fixture(autouse=True)
def shadow_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, TOKEN)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("shadow")
    known = folder / "kb.jsonl"
    known.write_bytes(b"".join(map(dump_line, passages("fivedoctors"))))
    with ExitStack() as stack:

        def serve(name: str, taught: dict[str, str]) -> Server:
            model = taught_model(folder / name, taught=taught)
            log = folder / f"{name}-log"
            options = ["--model", str(model), "--port", "0", "--payload-log", str(log), "--payload-text"]
            command = forked(*with_constants("serving.rewriter.payload_log.FLUSH_SECONDS=0.05"), "serving.rewriter")
            with patch.dict(os.environ, {VARIABLE: TOKEN}):
                _, url = stack.enter_context(announced(folder / f"{name}.log", [*command, *options]))
            return Server(url, digest(model)[:12], log)

        arguments = ["--kb", f"fivedoctors={known}", "--index-root", str(folder / "index"), "--port", "0"]
        with patch.dict(os.environ, fork_environment(models=False)):
            rag = stack.enter_context(run_service("serving.rag", arguments, folder / "rag.log"))
        yield World(serve("good", TAUGHT), serve("bad", SPOILED), rag)
