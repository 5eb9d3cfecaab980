"""Search with the plain question and with its rewrite, and accept the rewrite or give the reason against it.

The passages of both searches are scored against the row's fixed need. A failed search is an error, not a rejection.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple

from components.data.validate.config import ValidateConfig
from qinglan.concurrency import gather_or_cancel, map_in_order
from qinglan.errors import DataError, GateHeldError, RowError
from qinglan.evaluation.teacher_gain import RetrievalPair, TeacherGain, compare_teacher
from qinglan.files.digests import digest
from qinglan.files.files import atomic_file, count_lines, dump_line, read_jsonl, sha256_file
from qinglan.llm.client import GatewayClient
from qinglan.prompts import need_messages
from qinglan.rag.client import RagClient
from qinglan.rag.contract import contradicts_snapshot
from qinglan.rows.rows import (
    QuarantinedRow,
    Retrieval,
    Rewrite,
    Split,
    ValidatedRewrite,
    quarantine_row,
    to_retrieval,
)
from qinglan.rows.splits import Conversation, split_of
from qinglan.tables.sheet_reader import Cell
from qinglan.tables.tables import write_table
from qinglan.terminal.progress import progress

STEP = "validate"
TABLE = [
    "编号", "问题", "改写", "检索需求", "原问题首位得分", "改写首位得分", "改写召回数",
    "原问题标准段落名次", "改写标准段落名次", "采纳", "原因",
]  # fmt: skip


class ValidateCounts(NamedTuple):
    rows: int
    validated: int
    accepted: int
    quarantined: int
    scored_against_query: int
    """Rows whose passages were scored against the query, because the RAG service does not support `need`. A rewrite
    can raise such a score without finding better passages."""

    labelled: int
    """Rows with gold passages, without the rows of the locked test (set in the sheet or drawn by convert), because
    people tune by these figures. The next two counts are among these rows."""

    plain_top1: int
    rewritten_top1: int

    plain_score: float
    mean_score: float
    """Mean score of the first passage that the rewrite finds; `plain_score` is the same for the plain question. Rows
    of the test are left out."""


class Validation(NamedTuple):
    """Counts of the stage, and the comparison of the teacher's rewrites with the plain questions."""

    counts: ValidateCounts
    gain: TeacherGain | None

    def facts(self) -> dict[str, Any]:
        return {**self.counts._asdict(), **({"teacher_gain": self.gain._asdict()} if self.gain else {})}


FIGURES = {
    "rows": "rewrites",
    "accepted": "rewrites accepted",
    "validated": "rewrites with a verdict",
    "quarantined": "rewrites without a verdict",
    "scored_against_query": "rewrites scored against the query, not the need",
    "labelled": "rows with gold passages",
    "plain_top1": "gold passage first without rewriting, rows",
    "rewritten_top1": "gold passage first with the rewrite, rows",
    "plain_score": "mean top-1 score without rewriting",
    "mean_score": "mean top-1 score with the rewrite",
}
"""Names of the figures on KFP's page, by field."""


def validate(
    rewrites: Path,
    knowledge_base: Path,
    validated: Path,
    table: Path,
    quarantine: Path,
    config: ValidateConfig,
    gateway_url: str,
) -> Validation:
    """Write every rewrite with both retrievals and a verdict, as JSONL and as a sheet."""
    snapshots = known_snapshots(knowledge_base)
    return asyncio.run(_validate(rewrites, snapshots, validated, table, quarantine, config, gateway_url))


def known_snapshots(knowledge_base: Path) -> frozenset[str]:
    files = [knowledge_base] if knowledge_base.is_file() else sorted(knowledge_base.rglob("*.jsonl"))
    if not files:
        raise DataError(f"{knowledge_base}: no knowledge base there. Give the JSONL that the RAG service serves.")
    return frozenset(sha256_file(file) for file in files)


async def _validate(
    rewrites: Path,
    snapshots: frozenset[str],
    validated: Path,
    table: Path,
    quarantine: Path,
    config: ValidateConfig,
    gateway_url: str,
) -> Validation:
    total = count_lines(rewrites)
    counts = Counter[str]()
    pairs: list[RetrievalPair] = []
    marks: dict[Conversation, Split | None] = {}
    async with GatewayClient(gateway_url, STEP) as gateway, RagClient.of_gateway(gateway_url) as rag:

        async def check(row: Rewrite) -> ValidatedRewrite | QuarantinedRow:
            return await _check(gateway, rag, row, snapshots, config)

        rows = (row for _, row in read_jsonl(rewrites, Rewrite))
        with (
            atomic_file(validated) as good_file, atomic_file(quarantine) as bad_file,
            write_table(table, TABLE) as add, progress(STEP, total) as tick,
        ):  # fmt: skip
            async for result in map_in_order(rows, check, config.rows_under_way):
                counts["rows"] += 1
                if isinstance(result, QuarantinedRow):
                    counts["quarantined"] += 1
                    bad_file.write(dump_line(result))
                else:
                    counts["accepted"] += result.accepted
                    counts["scored_against_query"] += result.scored_against == "query"
                    good_file.write(dump_line(result))
                    pairs.append(retrieval_pair(result))
                    conversation = pairs[-1].conversation
                    marks[conversation] = result.split or marks.get(conversation)
                    add(_cells(result))
                tick(f"{counts['accepted']} accepted")
        await gateway.exported(digest(validated))
    pairs = [
        pair for pair in pairs
        if (marks[pair.conversation] or split_of(pair.conversation, config.splits)) != "test"
    ]  # fmt: skip
    return Validation(_counts(counts, pairs), compare_teacher(pairs))


def _counts(counts: Counter[str], compared: Sequence[RetrievalPair]) -> ValidateCounts:
    gold = [pair.gold for pair in compared if pair.gold is not None]
    plain, rewritten = ([pair.scores[at] for pair in compared] or [0.0] for at in (0, 1))
    return ValidateCounts(
        rows=counts["rows"],
        validated=counts["rows"] - counts["quarantined"],
        accepted=counts["accepted"],
        quarantined=counts["quarantined"],
        scored_against_query=counts["scored_against_query"],
        labelled=len(gold),
        plain_top1=sum(plain_first for plain_first, _ in gold),
        rewritten_top1=sum(rewritten_first for _, rewritten_first in gold),
        plain_score=fmean(plain),
        mean_score=fmean(rewritten),
    )


def retrieval_pair(row: ValidatedRewrite) -> RetrievalPair:
    return RetrievalPair(
        conversation=(row.tenant_id, row.conversation_id),
        gold=(row.plain.gold_rank == 1, row.rewritten.gold_rank == 1) if row.gold else None,
        scores=(row.plain.top1_score, row.rewritten.top1_score),
        by_need=row.scored_against == "need",
    )


def check_teacher(gain: TeacherGain | None, config: ValidateConfig) -> None:
    """Raise a GateHeldError, before any training, if the teacher's rewrites find less than the plain questions."""
    if gain and gain.is_worse and not config.allow_worse_teacher:
        raise GateHeldError(
            f"The teacher is worse than no rewrite ({gain.in_words()}). A student would learn to find less, so the "
            "run stops before training. Read some of its rewrites, then change generate.system_prompt or "
            "gateway.teacher (`qinglan compare-teachers` compares several), or set validate.allow_worse_teacher: "
            "true to train all the same. Run the same command again: answers that were paid for cost nothing."
        )


async def _check(
    gateway: GatewayClient, rag: RagClient, row: Rewrite, snapshots: frozenset[str], config: ValidateConfig
) -> ValidatedRewrite | QuarantinedRow:
    try:
        need, source = await _need(gateway, row, config.need_prompt)
    except RowError as error:
        return quarantine_row(row, STEP, error)
    queries = row.question, row.rewritten_query
    requests = [config.retrieval.request(row.question, query, need, row.tenant_id) for query in queries]
    plain, rewritten = [answer.data for answer in await gather_or_cancel(*map(rag.retrieve, requests))]
    for data in (plain, rewritten):
        _refuse_other_snapshot(row, data.snapshot, snapshots)
    retrieval = to_retrieval(row.rewritten_query, rewritten, row.gold, config.retrieval)
    reason = rejection_reason(retrieval, config.quality_threshold)
    return ValidatedRewrite(
        **{**row.model_dump(), "need": need},
        need_source=source,
        scored_against=rewritten.scored_against,
        snapshot=rewritten.snapshot,
        reranker=rewritten.reranker_digest,
        retrieved_with=config.retrieval,
        plain=to_retrieval(row.question, plain, row.gold, config.retrieval),
        rewritten=retrieval,
        accepted=not reason,
        reason=reason,
    )


def _refuse_other_snapshot(row: Rewrite, answered: str, snapshots: frozenset[str]) -> None:
    """Raise a DataError if the answer came from another knowledge base than the run's. The run's signed statements
    would then name the wrong file."""
    if all(contradicts_snapshot(answered, snapshot) for snapshot in snapshots):
        raise DataError(
            f"row {row.id}: the RAG service answered from knowledge base {answered[:12]}, which is not this run's. "
            "Serve the run's knowledge base, or give the run the one that is served."
        )


async def _need(gateway: GatewayClient, row: Rewrite, prompt: str) -> tuple[str, Literal["sheet", "judge"]]:
    """Return the user's need from the sheet, or else from the judge. It never comes from the teacher or from gold."""
    if row.need:
        return row.need, "sheet"
    answer = await gateway.ask("judge", need_messages(row, prompt), row=row.id)
    return answer.line(), "judge"


def rejection_reason(retrieval: Retrieval, threshold: float) -> str:
    if not retrieval.count:
        return "nothing found"
    return "" if retrieval.top1_score >= threshold else "top-1 score below the threshold"


def _cells(row: ValidatedRewrite) -> list[Cell]:
    return [
        row.id, row.question, row.rewritten_query, row.need, row.plain.top1_score, row.rewritten.top1_score,
        row.rewritten.count, row.plain.gold_rank, row.rewritten.gold_rank, row.accepted, row.reason,
    ]  # fmt: skip
