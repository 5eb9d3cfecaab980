"""python -m serving.rag.rerank.fit --rows FILE.jsonl --kb TENANT=KB.jsonl --out reranker.json

Fits a tenant's local reranker on labelled training conversations, and prints its quality on held-out conversations.
The rows are those of the data line (id, tenant_id, conversation_id, question, need, gold, split); `qinglan run`
leaves them beside its indexes.
"""

import argparse
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple

import orjson

import qinglan.rag.lexical.index as index_code
import qinglan.text.text as text_code
from qinglan.errors import ConfigError, DataError
from qinglan.files.files import atomic_write, read_jsonl, sha256_file, sha256_text
from qinglan.rag.lexical.index import Index, build_index
from qinglan.rows.rows import Question
from qinglan.terminal import say
from serving.programs import exit_on_error
from serving.rag.config import KnowledgeBaseSource
from serving.rag.rerank import lexical_reranker
from serving.rag.rerank.lexical_reranker import (
    DEFAULT_RERANKER,
    CalibrationBin,
    Features,
    FitReport,
    LexicalReranker,
    RerankerModel,
    Weights,
    read_reranker,
)

CANDIDATES = 20
HELD_OUT = 0.2
BINS = 10
FEWEST_CONVERSATIONS = 20
ENOUGH_CONVERSATIONS = round(FEWEST_CONVERSATIONS / (1 - HELD_OUT))
"""Number of labelled training conversations that leaves about FEWEST_CONVERSATIONS for the fit after the hold-out."""


class Example(NamedTuple):
    """Text to search, with the ids of the passages that answer it."""

    conversation: str
    text: str
    gold: frozenset[str]


class LabelledPassage(NamedTuple):
    """Features of a passage that was retrieved for a text. `answers` is True if the passage answers the text."""

    signs: Features
    answers: bool


class ScoredPassage(NamedTuple):
    """Score of a passage for a text. `answers` is True if the passage answers the text."""

    score: float
    answers: bool


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m serving.rag.rerank.fit", description="Calibrates a tenant's scores."
    )
    parser.add_argument("--rows", required=True, type=Path, help="JSONL of labelled training questions")
    parser.add_argument("--kb", required=True, metavar="TENANT[/KB]=PATH")
    parser.add_argument("--index-root", type=Path, help="the service's; without it an index is built and thrown away")
    parser.add_argument("--out", required=True, type=Path, help="what the service takes as --reranker TENANT=PATH")
    arguments = parser.parse_args()
    with exit_on_error(), tempfile.TemporaryDirectory() as temporary:
        source = KnowledgeBaseSource.read(arguments.kb)
        if source.path is None:
            raise ConfigError(f"--kb {arguments.kb}: give the file that was labelled, {arguments.kb}=PATH.")
        root = arguments.index_root or Path(temporary)
        fitted = fit_from_rows(arguments.rows, source.path, root, source.tenant_id, arguments.out, source.kb_name)
        say(*describe_fit(fitted.report))


def describe_fit(report: FitReport | None) -> list[str]:
    if report is None:
        return ["Too few labels: the file holds the default, whose scores order passages and are no probabilities."]
    figures = {
        "AUC": report.auc,
        "calibration error": report.calibration_error,
        "calibration error of first passages": report.top1_calibration_error,
        "share of first passages that answer": report.top1_answers,
    }
    return [
        f"{report.tenant_id}: fitted on {report.fitted_conversations} training conversations, measured on "
        f"{report.held_out_conversations} others ({report.held_out_pairs:,} passages)",
        *(f"{name}: {'unknown' if value is None else f'{value:.3f}'}" for name, value in figures.items()),
    ]


def fit_from_rows(
    rows: Path, knowledge_base: Path, root: Path, tenant_id: str, out: Path, kb_name: str = "default"
) -> RerankerModel:
    """Fit a reranker on a JSONL of labelled questions, and write its file.

    Raises a DataError for a row of another tenant or of another split than `train`.
    """
    index = Index.open(build_index(knowledge_base, root, tenant_id, kb_name))
    reranker = fit_reranker(examples(rows, index, tenant_id), index, sha256_file(rows))
    with atomic_write(out) as partial:
        partial.write_bytes(orjson.dumps(reranker.model_dump(), option=orjson.OPT_INDENT_2) + b"\n")
    return reranker


def fit_once(rows: Path, knowledge_base: Path, root: Path, tenant_id: str, out: Path) -> RerankerModel:
    """Fit a reranker, unless `out` already holds the result for the same rows, knowledge base and code.

    So a resumed run with the same inputs saves some seconds.
    """
    code = [Path(str(module.__file__)) for module in (index_code, lexical_reranker, text_code)]
    inputs_digest = sha256_text(*map(sha256_file, [rows, knowledge_base, Path(__file__), *code]))
    note = out.with_suffix(".inputs")
    if out.is_file() and note.is_file() and note.read_text() == inputs_digest:
        return read_reranker(out)
    note.unlink(missing_ok=True)
    reranker = fit_from_rows(rows, knowledge_base, root, tenant_id, out)
    with atomic_write(note) as partial:
        partial.write_text(inputs_digest)
    return reranker


def examples(rows: Path, index: Index, tenant_id: str) -> Iterator[Example]:
    """Yield two examples for each labelled row: its question, and its need (likely_need() if the need is missing)."""
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
    """Build a text that resembles a written need: the longest part of the history that the title contains, and the
    question.

    `title` is the title of an answering passage. The whole history is not used, because it also names old topics. A
    reranker that was fitted on whole histories scored needs too low.
    """
    history, question = row.history_summary, row.question
    match = SequenceMatcher(None, history, title, autojunk=False).find_longest_match()
    return f"{history[match.a : match.a + match.size]}{question}" if match.size > 1 else f"{history} {question}"


def fit_reranker(labelled: Iterable[Example], index: Index, labels: str) -> RerankerModel:
    """Fit on about 80 % of the conversations and report on the rest; with too few labels, use DEFAULT_RERANKER."""
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
        [ScoredPassage(model.score(passage.signs), passage.answers) for passage in passages]
        for rows in held_out.values()
        for passages in rows
    ]
    report = build_report(index, labels, len(fitted), len(held_out), judged)
    return model.model_copy(update={"report": report})


def is_held_out(conversation: str) -> bool:
    return int(sha256_text("reranker", conversation)[:8], 16) / 2**32 < HELD_OUT


def _fit_logistic_regression(pairs: Sequence[LabelledPassage]) -> RerankerModel:
    """Fit a logistic regression on standardised features. The returned weights apply to the original features."""
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


def build_report(
    index: Index, labels: str, fitted: int, held_out: int, lists: Sequence[Sequence[ScoredPassage]]
) -> FitReport:
    """Build the report on held-out lists of passages. `fitted` and `held_out` are numbers of conversations."""
    judged = [passage for passages in lists for passage in passages]
    # Production shows the passage with the best score first; of equal scores, the earliest.
    firsts = [max(passages, key=lambda passage: passage.score) for passages in lists if passages]
    return FitReport(
        tenant_id=index.manifest.tenant_id,
        snapshot=index.snapshot,
        labels=labels,
        fitted_conversations=fitted,
        held_out_conversations=held_out,
        held_out_pairs=len(judged),
        auc=auc(judged),
        calibration_error=calibration_error(judged),
        top1_calibration_error=calibration_error(firsts),
        reliability=reliability(judged),
        top1_answers=round(sum(passage.answers for passage in firsts) / len(firsts), 4) if firsts else None,
    )


def auc(judged: Sequence[ScoredPassage]) -> float | None:
    from sklearn.metrics import roc_auc_score

    answers = [passage.answers for passage in judged]
    if len(set(answers)) < 2:
        return None
    return round(float(roc_auc_score(answers, [passage.score for passage in judged])), 4)


def reliability(judged: Sequence[ScoredPassage]) -> tuple[CalibrationBin, ...]:
    """Return the bins of the reliability curve: one for each tenth of the score range that has passages."""
    return tuple(
        CalibrationBin(
            score=round(sum(passage.score for passage in members) / len(members), 4),
            frequency=round(sum(passage.answers for passage in members) / len(members), 4),
            pairs=len(members),
        )
        for members in _score_bins(judged)
    )


def calibration_error(judged: Sequence[ScoredPassage]) -> float | None:
    """Compute the expected calibration error; None without passages.

    It is the mean distance between score and frequency over the bins.
    """
    if not judged:
        return None
    # ECE = sum over bins of (n_bin / n) * |mean score - frequency| = (1 / n) * sum |sum(score - answer)|
    gaps = (abs(sum(passage.score - passage.answers for passage in members)) for members in _score_bins(judged))
    return round(sum(gaps) / len(judged), 4)


def _score_bins(judged: Sequence[ScoredPassage]) -> list[list[ScoredPassage]]:
    held: dict[int, list[ScoredPassage]] = {}
    for passage in judged:
        held.setdefault(min(int(passage.score * BINS), BINS - 1), []).append(passage)
    return [members for _, members in sorted(held.items())]


if __name__ == "__main__":
    main()
