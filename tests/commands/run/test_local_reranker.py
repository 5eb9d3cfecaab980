"""The local reranker of a run's own RAG service, fitted on a sheet's labels."""

import json
from pathlib import Path
from typing import Any

import pytest

from commands.run.run import fit_local_reranker
from pipelines.execute.rundir import RunDir
from pipelines.lines.config import load_config
from serving.rag.rerank import fit as reranker_fit


def test_a_run_that_goes_on_fits_again_only_where_labels_or_knowledge_base_are_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits, fit = list[Path](), reranker_fit.fit_from_rows

    def count(rows: Path, *rest: Any) -> Any:
        fits.append(rows)
        return fit(rows, *rest)

    monkeypatch.setattr(reranker_fit, "fit_from_rows", count)
    questions, passages = tmp_path / "q.jsonl", tmp_path / "kb.jsonl"
    questions.write_text(json.dumps({"问题": "一天几粒", "标准段落": "k1", "划分": "train"}) + "\n")
    passages.write_text(json.dumps({"id": "k1", "content": "一天一粒"}) + "\n")
    config, run = load_config("fivedoctors", "demo", questions=questions), RunDir(tmp_path / "run")
    run.index.mkdir(parents=True)

    def fit_twice() -> int:
        for _ in range(2):
            fit_local_reranker(config, run, "fivedoctors", passages)
        return len(fits)

    assert fit_twice() == 1
    passages.write_text(json.dumps({"id": "k1", "content": "一天两粒"}) + "\n")
    assert fit_twice() == 2
    questions.write_text(json.dumps({"问题": "一天几片", "标准段落": "k1", "划分": "train"}) + "\n")
    assert fit_twice() == 3
    (run.index / "fivedoctors-reranker.json").unlink()
    assert fit_twice() == 4


def test_too_few_labels_are_said_with_the_next_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"问题": f"第{at}款怎么吃", "标准段落": "k1", "划分": "train"} for at in range(3)]
    questions, passages = tmp_path / "q.jsonl", tmp_path / "kb.jsonl"
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    passages.write_text("".join(json.dumps({"id": f"k{at}", "content": f"第{at}款一天一粒"}) + "\n" for at in (1, 2)))
    config = load_config("fivedoctors", "demo", questions=questions)
    run = RunDir(tmp_path / "run")
    run.index.mkdir(parents=True)

    assert fit_local_reranker(config, run, "fivedoctors", passages)

    output = capsys.readouterr().err
    assert output.startswith(
        "! The RAG service's scores for fivedoctors are not calibrated: 3 labelled training rows"
    )
    assert "label gold passages in 25 conversations" in output
