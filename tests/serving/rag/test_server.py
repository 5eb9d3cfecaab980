"""The service as a process: it announces itself, drains when told to stop, and explains why it cannot start."""

import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from fastapi import FastAPI

from qinglan.errors import ConfigError
from qinglan.rag.lexical.index import build_index
from qinglan.rag.lexical.index_files import PASSAGES
from qinglan.rewriter.card import RewriterCard, write_card
from serving.rag.__main__ import main
from serving.rag.config import KnowledgeBaseSource, RagConfig, RewriterConfig
from serving.rag.server import open_engines, open_rewriter
from tests.processes.forkserver import GATEWAY, forked

Running = Callable[[Any], AbstractContextManager[str]]
Ask = Callable[..., httpx.Response]


@contextmanager
def process(*arguments: str) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    """`serving.rag` on a free port, in a fork, and the address it announces."""
    command = forked("serving.rag", "--port", "0", *arguments, libraries=GATEWAY)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        try:
            yield child, orjson.loads(child.stdout.readline())["rag"]
        finally:
            child.kill()


@pytest.mark.slow
def test_a_service_told_to_stop_finishes_what_is_under_way(
    kbs: dict[str, Path], tmp_path: Path, running: Running, ask: Ask
) -> None:
    requested, release, answers = threading.Event(), threading.Event(), queue.Queue[httpx.Response]()
    slow = FastAPI()

    @slow.post("/{path:path}")
    def rewrite(path: str) -> dict[str, Any]:
        requested.set()
        release.wait(timeout=120)
        return {"predictions": [{"rewritten_query": "鱼油软胶囊", "model_version": "7"}]}

    with running(slow) as rewriter:
        root = str(tmp_path)
        arguments = ["--kb", f"fivedoctors={kbs['fivedoctors']}", "--index-root", root]
        arguments += ["--rewriter", rewriter, "--as-asked", "0"]
        with process(*arguments) as (child, url):
            caller = threading.Thread(target=lambda: answers.put(ask(url)))
            caller.start()
            assert requested.wait(timeout=120)
            child.send_signal(signal.SIGTERM)
            release.set()
            answer = answers.get(timeout=120)
            caller.join()
            child.wait(timeout=120)

    assert answer.status_code == 200
    assert answer.json()["data"]["recall"]
    with pytest.raises(httpx.ConnectError):
        ask(url)


def test_a_knowledge_base_with_a_file_needs_no_further_option(
    kbs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs: list[RagConfig] = []
    monkeypatch.setattr("serving.rag.server.serve", configs.append)
    monkeypatch.setattr("sys.argv", ["serving.rag", "--kb", f"fivedoctors={kbs['fivedoctors']}"])
    monkeypatch.chdir(tmp_path)

    main()

    assert [*open_engines(configs[0])] == [("fivedoctors", "default")]
    assert [path.name for path in (tmp_path / "runs" / "index").iterdir()] == ["fivedoctors"]


@pytest.mark.slow
def test_a_damaged_index_stops_the_start_with_the_way_to_rebuild_it(kbs: dict[str, Path], tmp_path: Path) -> None:
    folder = build_index(kbs["fivedoctors"], tmp_path, "fivedoctors")
    (folder / PASSAGES).write_bytes(b"")

    arguments = ["--kb", f"fivedoctors={kbs['fivedoctors']}", "--index-root", str(tmp_path)]
    ended = subprocess.run(
        forked("serving.rag", *arguments, libraries=GATEWAY), capture_output=True, timeout=120, check=False
    )

    assert ended.returncode == 3
    assert b"Delete the folder and build it again" in ended.stderr
    assert b"Traceback" not in ended.stderr
    assert ended.stdout == b""


def config(kbs: dict[str, Path], root: Path, **changes: Any) -> RagConfig:
    sources = tuple(KnowledgeBaseSource(tenant_id=tenant, path=path) for tenant, path in kbs.items())
    return RagConfig(knowledge_bases=sources, index_root=root, **changes)


def test_every_tenant_gets_its_own_index_and_reranker(kbs: dict[str, Path], tmp_path: Path) -> None:
    engines = open_engines(config(kbs, tmp_path))

    assert {key: engine.knowledge_base.passages for key, engine in engines.items()} == {
        ("fivedoctors", "default"): 30, ("chengla", "default"): 20,
    }  # fmt: skip
    assert sorted(path.name for path in tmp_path.iterdir()) == ["chengla", "fivedoctors"]


def test_a_reranker_or_a_knowledge_base_that_cannot_be_meant_is_refused(kbs: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'nobody' has no knowledge base"):
        open_engines(config(kbs, tmp_path, rerankers={"nobody": tmp_path}))

    twice = config(kbs, tmp_path).knowledge_bases[0]
    with pytest.raises(ConfigError, match="given twice"):
        open_engines(RagConfig(knowledge_bases=(twice, twice), index_root=tmp_path))


def test_a_tenant_without_a_prompt_cannot_have_a_chat_rewriter(kbs: dict[str, Path], tmp_path: Path) -> None:
    source = KnowledgeBaseSource(tenant_id="newcomer", path=kbs["fivedoctors"])
    rewriter = RewriterConfig(kind="openai", url="http://127.0.0.1/v1")

    with pytest.raises(ConfigError, match=r"student\.newcomer"):
        open_rewriter(RagConfig(knowledge_bases=(source,), index_root=tmp_path, rewriter=rewriter))

    write_card(tmp_path, RewriterCard(stage="ppo", system_prompts={"newcomer": "你为新租户改写"}))
    known = RewriterConfig.read("openai=http://127.0.0.1/v1", tmp_path)
    assert known and open_rewriter(RagConfig(knowledge_bases=(source,), index_root=tmp_path, rewriter=known))
    with pytest.raises(ConfigError, match="a KServe rewriter knows its prompts"):
        RewriterConfig.read("http://127.0.0.1", tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fivedoctors=a/b.jsonl", ("fivedoctors", "default", "a/b.jsonl")),
        ("fivedoctors/faq=x=y.jsonl", ("fivedoctors", "faq", "x=y.jsonl")),
    ],
)
def test_a_knowledge_base_is_named_by_tenant_and_name(text: str, expected: tuple[str, str, str]) -> None:
    source = KnowledgeBaseSource.read(text)

    assert (source.tenant_id, source.kb_name, str(source.path)) == expected


@pytest.mark.parametrize("text", ["kb.jsonl", "=x", "fivedoctors=", "a/b/c=x", "../x=y", "UPPER=x"])
def test_a_knowledge_base_named_otherwise_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--kb"):
        KnowledgeBaseSource.read(text)


@pytest.mark.parametrize(
    ("text", "kind", "url"),
    [
        ("http://h:1", "kserve", "http://h:1"),
        ("openai=http://h:1/v1", "openai", "http://h:1/v1"),
    ],
)
def test_a_rewriter_is_named_by_its_url_and_protocol(text: str, kind: str, url: str) -> None:
    rewriter = RewriterConfig.read(text)

    assert rewriter and (rewriter.kind, rewriter.url) == (kind, url)


def test_the_options_of_a_rewriter_need_one() -> None:
    rewriter = RewriterConfig.read("http://h", deadline_seconds=1.5, cached_rewrites=0)

    assert rewriter and (rewriter.deadline_seconds, rewriter.cached_rewrites) == (1.5, 0)
    assert RewriterConfig.read("") is None
    with pytest.raises(ConfigError, match="give --rewriter URL, too"):
        RewriterConfig.read("", deadline_seconds=1.5)
