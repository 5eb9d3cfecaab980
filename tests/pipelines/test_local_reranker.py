"""The local reranker of a run's own RAG service, fitted on a sheet's labels."""

import json
from pathlib import Path

import pytest

from pipelines.config import load_config
from pipelines.run import fit_local_reranker
from pipelines.rundir import RunDir


def test_too_few_labels_are_said_with_the_next_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"问题": f"第{at}款怎么吃", "标准段落": "k1", "划分": "train"} for at in range(3)]
    questions, passages = tmp_path / "q.jsonl", tmp_path / "kb.jsonl"
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    passages.write_text("".join(json.dumps({"id": f"k{at}", "content": f"第{at}款一天一粒"}) + "\n" for at in (1, 2)))
    config = load_config("fivedoctors", "demo", questions=questions)
    run = RunDir(tmp_path / "run")
    run.index.mkdir(parents=True)

    assert fit_local_reranker(config, run, "fivedoctors", passages)

    said = capsys.readouterr().err
    assert said.startswith("! The RAG service's scores for fivedoctors are not calibrated: 3 labelled training rows")
    assert "label gold passages in 25 conversations" in said
