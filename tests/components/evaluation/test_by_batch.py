"""The evaluation by batch: examiner and judge are asked in one batch each, and the verdict's numbers are the same."""

from pathlib import Path

import httpx
import pytest

from components.evaluation.rewriter.score_systems import fixed_queries, score_all
from qinglan.llm.journal_reader import read_report
from tests.components.evaluation.world import (
    CONFIG,
    TENANTS,
    WordRag,
    judges,
    locked_rows,
    models_of,
    write_knowledge_base,
)
from tests.echo import GatewayProcess, gateway_config, running
from tests.serving.gateway.batching import BATCH


@pytest.mark.slow
def test_all_that_examiner_and_judge_are_asked_is_announced_and_their_scores_are_the_live_ones(
    tmp_path: Path,
) -> None:
    knowledge_base = write_knowledge_base(tmp_path / "kb.jsonl")
    rag = WordRag(knowledge_base)
    rows = locked_rows(rag.snapshot, TENANTS)
    texts = fixed_queries(rows)
    written = {}
    with running(judges(knowledge_base)) as teacher, running(rag) as rag_url:
        for name, batch in (("live", None), ("batch", BATCH | {"gather_seconds": 0.5})):
            folder = tmp_path / name
            folder.mkdir()
            models = {role: {**model, "batch": batch} for role, model in models_of(teacher).items()}
            process = GatewayProcess(gateway_config(teacher, rag_url, **models), folder)
            try:
                asking = score_all(rows, texts, {}, folder / "predictions", CONFIG, process.url())
            finally:
                process.stop()
            written[name] = ((folder / "predictions").read_bytes(), asking.judge)
        batches = httpx.get(f"{teacher}/stats", trust_env=False).json()["batches"]

    assert written["batch"] == written["live"]
    live, batched = (read_report(tmp_path / name / "journal.sqlite") for name in ("live", "batch"))
    assert batched["cost"] == pytest.approx(live["cost"] / 2)
    assert (batched["attempts"], batched["hits"]) == (live["attempts"], live["hits"])
    assert batches == 2
