"""Fits a tenant's reranker on labelled training conversations.

fit_from_rows(Path("labelled.jsonl"), Path("kb.jsonl"), Path("indexes"), "fivedoctors", Path("reranker.json"))
"""

from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple

import orjson

import qinglan.rag.lexical.index as index_code
import qinglan.text.text as text_code
from qinglan.config import Config
from qinglan.errors import DataError
from qinglan.files.files import atomic_write, read_jsonl, sha256_file, sha256_text
from qinglan.rag.lexical.index import Index, build_index
from qinglan.rows.rows import Question
from serving.rag.rerank import lexical_reranker, score_report
from serving.rag.rerank.lexical_reranker import (
    DEFAULT_RERANKER,
    Features,
    LexicalReranker,
    RerankerModel,
    Weights,
    read_reranker,
)
from serving.rag.rerank.score_report import build_report, scored_passages

CANDIDATES = 20
HELD_OUT = 0.2
FEWEST_CONVERSATIONS = 20
ENOUGH_CONVERSATIONS = round(FEWEST_CONVERSATIONS / (1 - HELD_OUT))
"""Labelled training conversations that leave about FEWEST_CONVERSATIONS for the fit."""


class Example(NamedTuple):
    """A text to search, and the passages that answer it."""

    conversation: str
    text: str
    gold: frozenset[str]


class LabelledPassage(NamedTuple):
    """One retrieved passage of an example."""

    signs: Features
    answers: bool


def fit_from_rows(
    rows: Path, knowledge_base: Path, root: Path, tenant_id: str, out: Path, kb_name: str = "default"
) -> RerankerModel:
    """Fit on a JSONL of labelled questions and write the reranker; rows of another split than train are refused."""
    index = Index.open(build_index(knowledge_base, root, tenant_id, kb_name))
    reranker = fit_reranker(examples(rows, index, tenant_id), index, sha256_file(rows))
    write_fitted(out, reranker)
    return reranker


def fit_once(rows: Path, knowledge_base: Path, root: Path, tenant_id: str, out: Path) -> RerankerModel:
    """Fit unless `out` holds the result for these rows, this knowledge base and this code.

    A fit takes seconds, and a resumed run has the same inputs.
    """
    code = [Path(str(module.__file__)) for module in (index_code, lexical_reranker, score_report, text_code)]
    inputs_digest = sha256_text(*map(sha256_file, [rows, knowledge_base, Path(__file__), *code]))
    note = out.with_suffix(".inputs")
    if out.is_file() and note.is_file() and note.read_text() == inputs_digest:
        return read_reranker(out)
    note.unlink(missing_ok=True)
    reranker = fit_from_rows(rows, knowledge_base, root, tenant_id, out)
    with atomic_write(note) as partial:
        partial.write_text(inputs_digest)
    return reranker


def write_fitted(out: Path, fitted: Config) -> None:
    with atomic_write(out) as partial:
        partial.write_bytes(orjson.dumps(fitted.model_dump(), option=orjson.OPT_INDENT_2) + b"\n")


def examples(rows: Path, index: Index, tenant_id: str) -> Iterator[Example]:
    """Two texts of each labelled row: the question, and the need, or a text that replaces it."""
    titles = {passage.id: passage.title for passage in map(index.passage, range(len(index)))}
    for line, row in read_jsonl(rows, Question):
        if row.split != "train" or row.tenant_id != tenant_id:
            raise DataError(
                f"{rows}:{line}: row {row.id!r} is of split {row.split} and tenant {row.tenant_id}. "
                f"The reranker learns from training rows of {tenant_id} alone; leave the others out."
            )
        if strangers := set(row.gold) - set(titles):
            raise DataError(
                f"{rows}:{line}: gold passage {min(strangers)!r} is not in the knowledge base. "
                "Give the knowledge base that the labels were made for."
            )
        if row.gold:
            gold = frozenset(row.gold)
            yield Example(row.conversation_id, row.question, gold)
            yield Example(row.conversation_id, row.need or likely_need(row, titles[min(gold)]), gold)


def likely_need(row: Question, title: str) -> str:
    """The question with the longest part of the history that is in the answering passage's title.

    It resembles a written need. Scores of needs that were fitted on whole histories, which name old topics too, were
    too low.
    """
    history, question = row.history_summary, row.question
    match = SequenceMatcher(None, history, title, autojunk=False).find_longest_match()
    return f"{history[match.a : match.a + match.size]}{question}" if match.size > 1 else f"{history} {question}"


def fit_reranker(labelled: Iterable[Example], index: Index, labels: str) -> RerankerModel:
    """Fit on four conversations of five and report on the fifth; with too few labels, the uncalibrated default."""
    fitted: dict[str, list[list[LabelledPassage]]] = {}
    held_out: dict[str, list[list[LabelledPassage]]] = {}
    scorer = LexicalReranker(index, DEFAULT_RERANKER)
    for example in labelled:
        numbers = [hit.number for hit in index.search(example.text, CANDIDATES)]
        answers = [index.passage(number).id in example.gold for number in numbers]
        passages = list(map(LabelledPassage, scorer.signs(example.text, numbers), answers))
        part = held_out if is_held_out(example.conversation) else fitted
        part.setdefault(example.conversation, []).append(passages)
    pairs = [pair for rows in fitted.values() for passages in rows for pair in passages]
    if len(fitted) < FEWEST_CONVERSATIONS or len({pair.answers for pair in pairs}) < 2:
        return DEFAULT_RERANKER
    model = _fit_logistic_regression(pairs)
    judged = [
        passage
        for rows in held_out.values()
        for pairs in rows
        for passage in scored_passages([model.score(pair.signs) for pair in pairs], [pair.answers for pair in pairs])
    ]
    report = build_report(index, labels, len(fitted), len(held_out), judged)
    return model.model_copy(update={"report": report})


def is_held_out(conversation: str) -> bool:
    return int(sha256_text("reranker", conversation)[:8], 16) / 2**32 < HELD_OUT


def _fit_logistic_regression(pairs: Sequence[LabelledPassage]) -> RerankerModel:
    """Logistic regression on standardised signs, with weights on the signs' own scale."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    signs = np.array([pair.signs for pair in pairs])
    mean, deviation = signs.mean(axis=0), signs.std(axis=0) + 1e-9
    model = LogisticRegression(max_iter=1000).fit((signs - mean) / deviation, [pair.answers for pair in pairs])
    # w (x - mean) / deviation + b = (w / deviation) x + (b - (w / deviation) mean)
    weights = model.coef_[0] / deviation
    bias = model.intercept_[0] - float(weights @ mean)
    named = {name: round(float(weight), 4) for name, weight in zip(Features._fields, weights, strict=True)}
    return RerankerModel(bias=round(float(bias), 4), weights=Weights(**named))
