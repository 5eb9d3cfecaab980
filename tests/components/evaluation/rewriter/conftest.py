"""One evaluation for all that read it."""

import orjson
import pytest

from components.evaluation.rewriter import stage
from components.evaluation.rewriter.score_systems import fixed_queries, score_all
from qinglan.evaluation.question_kinds import question_kinds, training_terms
from tests.components.evaluation.rewriter.sample_evaluation import (
    CONFIG,
    ORIGINS,
    TENANTS,
    Evaluated,
    WordRag,
    gateway,
    locked_rows,
    write_knowledge_base,
    writing,
)


@pytest.fixture(scope="session")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    """Two tenants; RL always writes item and term, SFT writes what the teacher does but is empty once."""
    folder = tmp_path_factory.mktemp("evaluated")
    knowledge_base = write_knowledge_base(folder / "kb.jsonl")
    rag = WordRag(knowledge_base)
    rows = locked_rows(rag.snapshot, TENANTS)
    writings = {
        "sft": writing(["", *(row.rewritten_query for row in rows[1:])]),
        "rl": writing([row.gold[0].replace("/", " ") for row in rows]),
    }
    slices = {row.id: ["gap"] if row.id.endswith("2") else ["documented"] for row in rows}
    kinds = [question_kinds(row, training_terms(["胶囊怎么吃"])) for row in rows]
    texts = {**fixed_queries(rows), **{name: one.texts for name, one in writings.items()}}
    predictions = folder / "predictions.jsonl"
    with gateway(folder, knowledge_base, rag) as url:
        asking = score_all(rows, texts, slices, predictions, CONFIG, url)
    value = orjson.loads(orjson.dumps(stage.build_evaluation(rows, kinds, slices, writings, asking, ORIGINS, CONFIG)))
    return Evaluated(value, predictions, rag)
