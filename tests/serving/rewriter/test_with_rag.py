"""The RAG service and its own rewriter, two real processes: a question comes in without a rewrite."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import httpx
import pytest

from qinglan.files.digests import digest
from qinglan.processes.services import run_service
from qinglan.rag.contract import RAG_PATH
from qinglan.rewriter.model import Student
from serving.rewriter.protocols import Instance
from tests.models.tiny_rewriter import tiny_model
from tests.models.training_rows import knowledge_base
from tests.processes.forked_runs import fork_environment
from tests.serving.model_servers import Serve

pytestmark = pytest.mark.slow

REQUEST = {"query": "那它一天吃几次", "history_summary": "用户正在了解虾青素软胶囊", "tenant_id": "fivedoctors"}


def test_the_deployed_student_rewrites_and_is_named_by_its_bytes(folder: Path, tmp_path: Path) -> None:
    """Both are started as an operator starts them."""
    passages = knowledge_base(tmp_path / "kb.jsonl", 8)
    [written] = Student.load(folder).write([Instance.model_validate(REQUEST)])
    with run_service(
        "serving.rewriter", ["--model", str(folder), "--port", "0"], tmp_path / "rewriter.log"
    ) as rewriter:
        arguments = ["--kb", f"fivedoctors={passages}", "--index-root", str(tmp_path / "index"), "--port", "0"]
        with run_service("serving.rag", [*arguments, "--rewriter", rewriter], tmp_path / "rag.log") as rag:
            answer = httpx.post(rag + RAG_PATH, json=REQUEST | {"score_threshold": 0.0}, trust_env=False, timeout=120)

    data = json.loads(answer.content)["data"]
    assert (data["rewriter"], data["rewritten_query"]) == ("model", written.text)
    assert digest(folder).startswith(data["rewriter_version"]) and data["rewriter_version"]


@contextmanager
def forked_rag(arguments: list[str], folder: Path) -> Iterator[str]:
    with (
        patch.dict(os.environ, fork_environment(models=False)),
        run_service("serving.rag", arguments, folder / "rag.log") as url,
    ):
        yield url


def test_a_guarded_rewrite_is_searched_as_the_question_and_reported_with_its_version(
    serve: Serve, tmp_path: Path
) -> None:
    model = tiny_model(tmp_path / "model")  # never comes to an end
    passages = knowledge_base(tmp_path / "kb.jsonl", 8)
    with serve(model=model) as served:
        rewriter = str(served.http.base_url)
        arguments = ["--kb", f"fivedoctors={passages}", "--index-root", str(tmp_path / "index"), "--port", "0"]
        with forked_rag([*arguments, "--rewriter", rewriter], tmp_path) as rag:
            answer = httpx.post(rag + RAG_PATH, json=REQUEST | {"score_threshold": 0.0}, trust_env=False, timeout=120)
            metrics = httpx.get(f"{rag}/metrics", trust_env=False).text

    data, version = json.loads(answer.content)["data"], digest(model)[:12]
    assert (data["rewriter"], data["rewritten_query"], data["fallback_reason"], data["rewriter_version"]) == (
        "fallback", REQUEST["query"], "rewriter_guard", version,
    )  # fmt: skip
    assert f'qinglan_rag_requests_total{{rewriter="{version}",status="200",tenant="fivedoctors"}} 1.0' in metrics
    assert 'qinglan_rag_fallbacks_total{reason="rewriter_guard",tenant="fivedoctors"} 1.0' in metrics


def test_without_the_student_the_plain_question_is_searched_and_that_is_said(tmp_path: Path) -> None:
    passages = knowledge_base(tmp_path / "kb.jsonl", 8)
    arguments = ["--kb", f"fivedoctors={passages}", "--index-root", str(tmp_path / "index"), "--port", "0"]
    arguments += ["--rewriter", "http://127.0.0.1:9"]
    with forked_rag(arguments, tmp_path) as rag:
        answer = httpx.post(rag + RAG_PATH, json=REQUEST | {"score_threshold": 0.0}, trust_env=False, timeout=120)

    data = json.loads(answer.content)["data"]
    assert (data["rewriter"], data["rewritten_query"], data["fallback_reason"]) == (
        "fallback", REQUEST["query"], "unreachable",
    )  # fmt: skip
