"""Judgements of the systems that need no model, prepaid: the evaluation pays for none of them again."""

import asyncio
from pathlib import Path

import pytest

from commands.prepay.prepay import prepay
from components.evaluation.rewriter.score_systems import fixed_judgements, fixed_queries, score_all
from qinglan.llm.paid.journal_reader import read_report
from tests.components.evaluation.rewriter.sample_evaluation import (
    CONFIG,
    TENANTS,
    WordRag,
    judges,
    locked_rows,
    models_of,
    write_knowledge_base,
)
from tests.servers.echo_servers import GatewayProcess, gateway_config, running
from tests.servers.small_prepayments import short_pauses


@pytest.mark.slow
def test_prepaid_judgements_are_the_live_ones_at_half_the_price(tmp_path: Path) -> None:
    knowledge_base = write_knowledge_base(tmp_path / "kb.jsonl")
    rag = WordRag(knowledge_base)
    rows = locked_rows(rag.snapshot, TENANTS)
    written = {}
    with running(judges(knowledge_base)) as teacher, running(rag) as rag_url, short_pauses():
        config = gateway_config(teacher, rag_url, **models_of(teacher))
        for name in ("live", "prepaid"):
            journal = tmp_path / name / "journal.sqlite"
            journal.parent.mkdir()
            if name == "prepaid":
                asyncio.run(prepay(fixed_judgements(rows, CONFIG), config, journal, lambda _: True))
            before = read_report(journal)["attempts"] if journal.exists() else 0
            process = GatewayProcess(config, journal.parent)
            try:
                predictions = journal.parent / "predictions"
                scored = score_all(rows, fixed_queries(rows), {}, predictions, CONFIG, process.url())
            finally:
                process.stop()
            written[name] = (predictions.read_bytes(), scored.judge)

    assert written["prepaid"] == written["live"]
    live, prepaid = (read_report(tmp_path / name / "journal.sqlite") for name in ("live", "prepaid"))
    assert prepaid["attempts"] == before == live["attempts"]
    assert prepaid["cost"] == pytest.approx(live["cost"] / 2)
