"""A service's scores are calibrated on training conversations, better on others, and reported."""

import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
import stamina

from qinglan.errors import DataError, OutageError
from qinglan.rag.calibration_fit import fit_calibration
from qinglan.rag.lexical.index import Index, build_index
from serving.rag.config import RerankServiceConfig
from serving.rag.rerank.calibration import read_fitted_reranker
from serving.rag.rerank.fit import LOCAL, advice, html_page
from serving.rag.rerank.lexical_reranker import FitReport
from serving.rag.rerank.service_fit import fit_service
from standins.reranker.app import FakeReranker, create_app
from standins.reranker.behaviour import Behaviour
from tests.processes.forkserver import GATEWAY, forked
from tests.serving.rag.rerank.test_lexical_reranker import Row, labelled, write
from tests.serving.rag.test_server import process

pytestmark = pytest.mark.slow

Running = Callable[[Any], AbstractContextManager[str]]
Ask = Callable[..., httpx.Response]


@pytest.fixture
def index(kbs: dict[str, Path], tmp_path: Path) -> Index:
    return Index.open(build_index(kbs["fivedoctors"], tmp_path / "indexes", "fivedoctors"))


def configured(url: str) -> RerankServiceConfig:
    return RerankServiceConfig(kind="vllm", url=url, model="overlap")


def test_calibration_makes_scores_truer_on_conversations_that_it_never_saw(
    index: Index, tmp_path: Path, running: Running
) -> None:
    rows = write(tmp_path / "rows.jsonl", labelled(index, 150))

    with running(create_app(FakeReranker(Behaviour(sharpness=30)))) as url:
        fitted = fit_service(rows, index, configured(url))

    report, raw = fitted.report, fitted.raw
    assert raw is not None and raw.calibration_error is not None and report.calibration_error is not None
    assert report.calibration_error < 0.06 < 0.1 < raw.calibration_error
    assert report.auc == raw.auc
    assert report.fitted_conversations + report.held_out_conversations == 150
    assert sum(item.pairs for item in report.reliability) == report.held_out_pairs
    assert fitted.local.report is not None and fitted.local.report.labels == report.labels


def test_logits_are_fitted_as_logits() -> None:
    raw = (-4.0, -3.0, -1.0, 0.5, 2.0, 3.0)

    calibration = fit_calibration(raw, [score > 1 for score in raw], "logit", "rows")

    assert calibration.scale == "logit"
    assert calibration.probability(-4) < 0.5 < calibration.probability(3)
    assert calibration.probability(-1e9) < calibration.probability(1e9)
    assert calibration.raw(calibration.probability(1.5)) == pytest.approx(1.5)


def test_a_service_that_ranks_backwards_is_not_calibrated_away() -> None:
    raw = (0.1, 0.2, 0.3, 0.7, 0.8, 0.9)

    with pytest.raises(DataError, match=r"rows: passages that answer score no higher than others"):
        fit_calibration(raw, [score < 0.5 for score in raw], "probability", "rows")


@pytest.mark.parametrize("answers", [[True, True], [False, False]])
def test_labels_that_are_all_the_same_fit_nothing(answers: list[bool]) -> None:
    with pytest.raises(DataError, match="all the same"):
        fit_calibration([0.0, 0.1], answers, "probability", "rows")


@pytest.mark.parametrize(
    ("change", "conversations", "message"),
    [
        ({"split": "test"}, 30, "is of split test"),
        ({"split": None}, 30, "is of split None"),
        ({"tenant_id": "chengla"}, 30, "tenant chengla"),
        ({}, 3, "labels in [0-9] conversations are too few to calibrate with"),
    ],
)
def test_rows_that_it_must_not_or_cannot_learn_from_are_refused_before_anybody_is_asked(
    index: Index, tmp_path: Path, change: Row, conversations: int, message: str
) -> None:
    rows = labelled(index, conversations)
    rows[2] |= change

    with pytest.raises(DataError, match=message):
        fit_service(write(tmp_path / "rows.jsonl", rows), index, configured("http://127.0.0.1:9"))


def test_a_service_that_fails_during_the_fit_is_an_outage_and_never_a_local_score(
    index: Index, tmp_path: Path, running: Running
) -> None:
    rows = write(tmp_path / "rows.jsonl", labelled(index, 40))

    with (
        stamina.set_testing(True, attempts=2),
        running(create_app(FakeReranker(Behaviour(fault="limited", error_rate=0.2)))) as url,
        pytest.raises(OutageError, match="refused after 4 tries"),
    ):
        fit_service(rows, index, configured(url))


def test_the_command_fits_reports_and_leaves_what_the_service_takes(
    kbs: dict[str, Path], index: Index, tmp_path: Path, running: Running, ask: Ask
) -> None:
    rows = write(tmp_path / "rows.jsonl", labelled(index, 60))
    out, report = tmp_path / "reranker.json", tmp_path / "report.html"
    base = f"fivedoctors={kbs['fivedoctors']}"

    with running(create_app(FakeReranker(Behaviour()))) as url:
        service = f"vllm={url},model=overlap,deadline_seconds=30"
        output = fit("--rows", rows, "--kb", base, "--out", out, "--report", report, "--reranker-service", service)
        assert output.returncode == 0, output.stderr
        arguments = ["--kb", base, "--index-root", str(tmp_path / "indexes"), "--reranker", f"fivedoctors={out}"]
        with process(*arguments, "--reranker-service", service) as (_, rag):
            data = ask(rag).json()["data"]
            health = httpx.get(f"{rag}/healthz", trust_env=False).json()

    assert re.search(r"^overlap, calibrated( +[01]\.\d{3}){4}$", output.stdout, re.MULTILINE)
    assert data["reranker"] == "service"
    assert health["uncalibrated_tenants"] == []
    drawn = report.read_text(encoding="utf-8")
    assert drawn.count("<svg") == 3
    assert "<script" not in drawn


def test_the_command_without_a_service_fits_the_local_score(
    kbs: dict[str, Path], index: Index, tmp_path: Path
) -> None:
    rows = write(tmp_path / "rows.jsonl", labelled(index, 60))
    out, report = tmp_path / "reranker.json", tmp_path / "report.json"

    output = fit("--rows", rows, "--kb", f"fivedoctors={kbs['fivedoctors']}", "--out", out, "--report", report)

    assert output.returncode == 0, output.stderr
    [(name, result)] = orjson.loads(report.read_bytes()).items()
    fitted = read_fitted_reranker(out)
    assert name == "local score"
    assert FitReport.model_validate(result) == fitted.report


def test_a_report_that_cannot_be_written_is_refused_before_the_work(kbs: dict[str, Path], tmp_path: Path) -> None:
    """The command is started as a person starts it."""
    files = ["--rows", f"{tmp_path}/none.jsonl", "--kb", f"fivedoctors={kbs['fivedoctors']}"]
    words = [*files, "--out", f"{tmp_path}/o.json", "--report", f"{tmp_path}/report.pdf"]
    command = [sys.executable, "-m", "serving.rag.rerank.fit", *words]
    output = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert output.returncode == 2
    assert "let it end in .html or .json" in output.stderr


def test_a_models_name_is_text_on_the_page() -> None:
    drawn = html_page({"<img src=x onerror=alert(1)>, calibrated": report()})

    assert "<img" not in drawn
    assert "&lt;img" in drawn


@pytest.mark.parametrize(
    ("auc", "top1", "message"),
    [
        (0.9, 0.8, []),
        (0.7, 0.8, ["tells passages apart better (0.850, the service 0.700)"]),
        (0.7, 0.5, ["tells passages apart better", "order has a passage that answers first more often (0.700"]),
        (None, None, []),
    ],
)
def test_a_service_that_is_worse_than_no_service_is_told_so(
    auc: float | None, top1: float | None, message: list[str]
) -> None:
    result = advice({"m, calibrated": report(auc=auc, top1_answers=top1), LOCAL: report(auc=0.85, top1_answers=0.7)})

    assert len(result) == len(message)
    assert all(words in line for words, line in zip(message, result, strict=True))


def report(**hits: float | None) -> FitReport:
    return FitReport.model_validate({
        "tenant_id": "fivedoctors", "snapshot": "s", "labels": "l", "fitted_conversations": 1,
        "held_out_conversations": 1, "held_out_pairs": 0, "auc": None, "calibration_error": None,
        "top1_calibration_error": None, **hits,
    })  # fmt: skip


def fit(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    command = forked("serving.rag.rerank.fit", *map(str, arguments), libraries=GATEWAY)
    return subprocess.run(command, capture_output=True, text=True, timeout=120)
