"""Score every system in the same way: retrieve with its query, and let two judges score its rewrites in a sample of
rows."""

import asyncio
import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import orjson

from components.evaluation.rewriter.config import EvaluateConfig
from components.evaluation.rewriter.measures import (
    TOP_K,
    RetrievalResult,
    measure_judged,
    measure_labels,
    measure_rewrite,
    rank,
    top1,
)
from qinglan.concurrency import gather_or_cancel, map_in_order
from qinglan.errors import DataError, RowError
from qinglan.evaluation.gates.rewriter_gate import By
from qinglan.files.digests import digest
from qinglan.files.files import atomic_write
from qinglan.llm.call_plan import PaidRequest
from qinglan.llm.client import GatewayClient
from qinglan.llm.paid.journal import Entry
from qinglan.prompts import JUDGE_FORMAT, LABEL_FORMAT, judge_messages, label_messages
from qinglan.rag.as_asked import searched_as_asked
from qinglan.rag.client import RagClient
from qinglan.rag.contract import RagData, contradicts_snapshot
from qinglan.rag.retrieval import RetrievalConfig
from qinglan.reward.judge import read_score
from qinglan.rows.labels import PASSAGE_CHARACTERS, RELEVANT, read_opinion
from qinglan.rows.rows import Question, QuestionWithNeed, ValidatedRewrite
from qinglan.terminal.progress import progress

STEP = "evaluate"
SYSTEMS = ("plain", "history", "teacher", "sft", "rl")
ROWS_UNDER_WAY = 32
LONGEST_QUERY = 4000
JudgeRole = Literal["examiner", "judge"]
SystemQueries = Mapping[str, Sequence[str]]
"""Each system's query for each row, in the order of the rows."""

ScorableRow = ValidatedRewrite | QuestionWithNeed
"""A question with the need and the knowledge base against which its queries are judged."""


class ScoredRow(NamedTuple):
    values: dict[str, dict[str, float]]
    """Values by system and metric."""

    judge: dict[str, float]
    """The training judge's score by system; empty if the row is not in the judge's sample."""

    unexamined: list[str]
    """Reasons why the examiner gave no score, one for each distinct rewrite without a score."""

    snapshot: str
    prediction: bytes


class ScoredRows(NamedTuple):
    """The numbers of all rows, without texts, so that they fit in memory."""

    values: list[dict[str, dict[str, float]]]
    judge: list[dict[str, float]]
    unexamined: Counter[str]
    snapshots: list[str]
    report: dict[str, Any]
    """The gateway's report after the last request."""

    teacher_seconds: list[float] = []
    """Seconds of the live calls by which the teacher wrote its rewrites; empty if the journal has none."""


def fixed_queries(rows: Sequence[ValidatedRewrite]) -> dict[str, list[str]]:
    """Return the queries of the three systems for which no model is run: the question, the question with its history,
    and the teacher's rewrite."""
    return {
        "plain": [row.question for row in rows],
        "history": [with_history(row) for row in rows],
        "teacher": [row.rewritten_query for row in rows],
    }


def served_queries(rows: Sequence[ValidatedRewrite], rewrites: Sequence[str], threshold: float) -> list[str]:
    """Return the query that production would search with for each row: the student's rewrite, or the question itself
    if it finds a good passage without a rewrite (`as_asked`)."""
    return [
        row.question if searched_as_asked(row.plain.own_score, threshold) else rewrite
        for row, rewrite in zip(rows, rewrites, strict=True)
    ]


def with_history(row: Question) -> str:
    """Return the question with the end of its history, up to LONGEST_QUERY characters."""
    room = LONGEST_QUERY - len(row.question) - 1
    return f"{row.question} {row.history_summary[-room:]}".strip() if room > 0 else row.question


def draw_rows(rows: Sequence[Question], count: int, seed: int) -> list[int]:
    """Draw whole conversations by seed until they have `count` rows; return the positions of their rows."""
    order: dict[tuple[str, str], list[int]] = {}
    for at, row in enumerate(rows):
        order.setdefault((row.tenant_id, row.conversation_id), []).append(at)
    out: list[int] = []
    # Sorted by a hash, so that additional rows in the sheet do not change the order of the others.
    for name in sorted(order, key=lambda key: hashlib.sha256(f"{seed} {key}".encode()).digest()):
        if len(out) >= count:
            break
        out += order[name]
    return out


def score_all(
    rows: Sequence[ScorableRow],
    texts: SystemQueries,
    slices: Mapping[str, Sequence[str]],
    predictions: Path,
    config: EvaluateConfig,
    gateway_url: str,
    step: str = STEP,
    judged_rows: int | None = None,
    by: By = "gold",
) -> ScoredRows:
    """Score every system's query for every row, and write a prediction line for each row.

    The training's judge scores `judged_rows` of the examined rows; None uses `config.agreement_rows`. If `by` is
    `labels`, the examiner also grades each system's first passage in rows without gold.
    """
    samples = draw_samples(rows, config, judged_rows)

    async def run() -> ScoredRows:
        scored = ScoredRows([], [], Counter(), [], {})
        async with GatewayClient(gateway_url, step) as gateway, RagClient.of_gateway(gateway_url) as rag:
            scorer = RowScorer(gateway, rag, config, by)

            async def score(at: int) -> ScoredRow:
                queries = {name: texts[name][at] for name in texts}
                of_row = slices.get(rows[at].id, ())
                return await scorer.row(rows[at], queries, of_row, at in samples.examiner, at in samples.judge)

            with atomic_write(predictions) as partial, partial.open("wb") as file, progress(step, len(rows)) as tick:
                async for row in map_in_order(range(len(rows)), score, ROWS_UNDER_WAY):
                    file.write(row.prediction)
                    scored.values.append(row.values)
                    scored.judge.append(row.judge)
                    scored.unexamined.update(row.unexamined)
                    if row.snapshot and row.snapshot not in scored.snapshots:
                        scored.snapshots.append(row.snapshot)
                    tick()
            # The journal records the digest of the file that the paid answers went into.
            await gateway.exported(digest(predictions))
            seconds = await gateway.live_seconds("generate", "teacher")
            return scored._replace(report=await gateway.report(), teacher_seconds=seconds)

    return asyncio.run(run())


class Samples(NamedTuple):
    """Positions of the rows that each judge scores."""

    examiner: set[int]
    judge: set[int]


def draw_samples(rows: Sequence[Question], config: EvaluateConfig, judged_rows: int | None = None) -> Samples:
    """Draw the rows that the examiner scores; the training's judge scores the first of them too."""
    drawn = draw_rows(rows, config.examined_rows, config.seed)
    return Samples(set(drawn), set(drawn[: config.agreement_rows if judged_rows is None else judged_rows]))


def fixed_judgements(rows: Sequence[ValidatedRewrite], config: EvaluateConfig) -> Iterator[PaidRequest]:
    """Yield the judges' requests for the rewrites of `fixed_queries`, which are known before any model is trained."""
    queries, samples = fixed_queries(rows), draw_samples(rows, config)
    for at, row in enumerate(rows):
        for role in ("examiner", "judge"):
            if at not in getattr(samples, role):
                continue
            for text in dict.fromkeys(queries[name][at] for name in queries):
                messages = judge_messages(row, text, config.judge_prompt)
                yield PaidRequest(Entry(STEP, row.id, role), messages, JUDGE_FORMAT)


class RowScorer:
    """Scores the rewrites of one row by retrieval and by judges. Equal rewrites are sent once."""

    def __init__(self, gateway: GatewayClient, rag: RagClient, config: EvaluateConfig, by: By = "gold") -> None:
        self._gateway, self._rag, self._config, self._by = gateway, rag, config, by

    async def row(
        self, row: ScorableRow, queries: Mapping[str, str], slices: Sequence[str], examined: bool, judged: bool
    ) -> ScoredRow:
        distinct = list(dict.fromkeys(queries.values()))
        results = await gather_or_cancel(*(self._retrieve(row, query) for query in distinct))
        retrievals = dict(zip(distinct, results, strict=True))
        scores = await self._scores("examiner", row, distinct) if examined else {}
        judge_scores = await self._scores("judge", row, distinct) if judged else {}
        grades = await self._grades(row, retrievals.values()) if self._by == "labels" and not row.gold else {}
        values, judge = {}, {}
        for name, query in queries.items():
            score = scores.get(query)
            values[name] = measure_rewrite(row, query, retrievals[query])
            values[name] |= self._by_labels(row, retrievals[query].ids, grades)
            values[name]["quality"] = score if isinstance(score, float) else math.nan
            judge_score = judge_scores.get(query)
            if isinstance(judge_score, float):
                judge[name] = judge_score
        unexamined = [score for score in scores.values() if isinstance(score, str)]
        snapshot = next((retrieval.snapshot for retrieval in retrievals.values()), "")
        prediction = _prediction(row, queries, retrievals, values, slices, grades)
        return ScoredRow(values, judge, unexamined, snapshot, prediction)

    async def _retrieve(self, row: ScorableRow, query: str) -> RetrievalResult:
        if not query.strip():
            return RetrievalResult()
        config = self._config.retrieval
        data = (await self._rag.retrieve(config.request(row.question, query, row.need, row.tenant_id))).data
        refuse_other_snapshot(row, data.snapshot)
        return to_retrieval_result(data, config)

    def _by_labels(self, row: ScorableRow, ids: Sequence[str], grades: Mapping[str, int]) -> dict[str, float]:
        """Return further metrics of a row. If the gate goes by labels, a row with gold gets `gold_top1`, and a row
        without gold the metrics from the examiner's grades. Otherwise only a row without gold gets metrics, from its
        labels."""
        if self._by == "labels":
            return {"gold_top1": top1(ids, row.gold)} if row.gold else measure_judged(grades, ids)
        labels = row.labels if isinstance(row, ValidatedRewrite) and not row.gold else ()
        return measure_labels(labels, ids)

    async def _grades(self, row: ScorableRow, retrievals: Iterable[RetrievalResult]) -> dict[str, int]:
        """Return the examiner's grades of the systems' first passages, by passage id. Unusable answers give none."""
        first = {data.ids[0]: (data.title, data.texts[0]) for data in retrievals if data.ids}
        grades = await gather_or_cancel(*(self._grade(row, *passage) for passage in first.values()))
        return {id_: grade for id_, grade in zip(first, grades, strict=True) if grade is not None}

    async def _grade(self, row: ScorableRow, title: str, content: str) -> int | None:
        messages = label_messages(row.need, title, content[:PASSAGE_CHARACTERS])
        try:
            answer = await self._gateway.ask("examiner", messages, row=row.id, response_format=LABEL_FORMAT)
            return read_opinion(answer.text).grade
        except RowError:
            return None

    async def _scores(self, role: JudgeRole, row: ScorableRow, texts: Sequence[str]) -> dict[str, float | str]:
        scores = await gather_or_cancel(*(self._score(role, row, text) for text in texts))
        return dict(zip(texts, scores, strict=True))

    async def _score(self, role: JudgeRole, row: ScorableRow, text: str) -> float | str:
        """Return a score from 1 to 5, or the reason why there is none. A failed answer never counts as 0."""
        try:
            messages = judge_messages(row, text, self._config.judge_prompt)
            answer = await self._gateway.ask(role, messages, row=row.id, response_format=JUDGE_FORMAT)
            return read_score(orjson.loads(answer.text))
        except RowError as error:
            return error.reason


def to_retrieval_result(data: RagData, config: RetrievalConfig) -> RetrievalResult:
    hits = config.shown(data)[:TOP_K]
    first = hits[0].reranker_score if hits else 0.0
    judged = first if data.scored_against == "need" else math.nan
    title = str(hits[0].metadata.get("title", "")) if hits else ""
    return RetrievalResult(
        tuple(hit.id for hit in hits), tuple(hit.content for hit in hits), judged, data.snapshot, title
    )


def refuse_other_snapshot(row: ScorableRow, answered: str) -> None:
    if contradicts_snapshot(answered, row.snapshot):
        raise DataError(
            f"row {row.id}: the RAG service answers from knowledge base {answered[:12]}, the row was validated on "
            f"{row.snapshot[:12]}. Its gold passages may be gone: serve the run's knowledge base."
        )


def _prediction(
    row: ScorableRow,
    queries: Mapping[str, str],
    retrievals: Mapping[str, RetrievalResult],
    values: Mapping[str, Mapping[str, float]],
    slices: Sequence[str],
    grades: Mapping[str, int],
) -> bytes:
    """Return the row's line of predictions.jsonl, with the values from which the report's numbers are computed."""
    right = row.gold or [passage for passage, grade in grades.items() if grade >= RELEVANT]
    systems = {
        name: {
            "rewrite": query,
            "hits": retrievals[query].ids,
            "rank": rank(retrievals[query].ids, right),
            **values[name],
        }
        for name, query in queries.items()
    }
    names = ("id", "tenant_id", "conversation_id", "question", "history_summary", "need", "gold")
    line = {name: getattr(row, name) for name in names}
    return orjson.dumps({**line, "grades": grades, "slices": slices, "systems": systems}) + b"\n"
