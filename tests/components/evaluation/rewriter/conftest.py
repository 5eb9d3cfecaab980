"""One evaluation for all tests that read it."""

import pytest

from qinglan.evaluation.question_kinds import question_kinds, training_terms
from tests.components.evaluation.rewriter.sample_evaluation import (
    TENANTS,
    Evaluated,
    WordRag,
    evaluate_rows,
    locked_rows,
    titles,
    write_knowledge_base,
)


@pytest.fixture(scope="session")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    """Two tenants; RL always writes product and term, SFT writes what the teacher does but is empty once."""
    folder = tmp_path_factory.mktemp("evaluated")
    rows = locked_rows(WordRag(write_knowledge_base(folder / "kb.jsonl")).snapshot, TENANTS)
    sft = ["", *(row.rewritten_query for row in rows[1:])]
    slices = {row.id: ["gap"] if row.id.endswith("2") else ["documented"] for row in rows}
    kinds = [question_kinds(row, training_terms(["胶囊怎么吃"])) for row in rows]
    return evaluate_rows(folder, rows, titles(rows), sft, slices=slices, kinds=kinds)
