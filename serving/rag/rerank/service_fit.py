"""Calibrate a reranker service's raw scores for a tenant, and fit the local reranker on the same labels.

fit_service(Path("labelled.jsonl"), index, RerankServiceConfig.read("vllm=http://gpu:8000,model=bge-reranker-v2-m3"))
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from qinglan.concurrency import map_in_order
from qinglan.errors import DataError, OutageError
from qinglan.files.files import sha256_file
from qinglan.http.outages import Retries
from qinglan.rag.calibration import detect_scale
from qinglan.rag.calibration_fit import fit_calibration
from qinglan.rag.knowledge_base import searched_text
from qinglan.rag.lexical.index import Index
from qinglan.terminal.progress import progress
from serving.rag.config import RerankServiceConfig
from serving.rag.rerank.calibration import FittedServiceReranker
from serving.rag.rerank.reranker_client import RerankerClient
from serving.rag.rerank.reranker_fit import (
    CANDIDATES,
    FEWEST_CONVERSATIONS,
    Example,
    examples,
    fit_reranker,
    is_held_out,
)
from serving.rag.rerank.score_report import ScoredPassage, build_report, scored_passages
from serving.rag.service_client import ServiceError

FIT_DEADLINE_SECONDS = 60.0
"""Time limit in seconds for one text during a fit; longer than for users, so that a slow service is also measured."""

ATTEMPTS = 4


class ScoredExample(NamedTuple):
    """Passages of one text, with the service's scores."""

    conversation: str
    pairs: list[ScoredPassage]


def fit_service(rows: Path, index: Index, config: RerankServiceConfig) -> FittedServiceReranker:
    """Fit on a JSONL of labelled training questions.

    Raises a DataError if there are too few labels, and an OutageError if the service does not answer.
    """
    labelled = list(examples(rows, index, index.manifest.tenant_id))
    few = len({row.conversation for row in labelled if not is_held_out(row.conversation)})
    if few < FEWEST_CONVERSATIONS:
        raise DataError(
            f"{rows}: labels in {few} conversations are too few to calibrate with. Label {FEWEST_CONVERSATIONS}."
        )
    labels = sha256_file(rows)
    scored = asyncio.run(_score_all(labelled, index, config))
    fitted = [example for example in scored if not is_held_out(example.conversation)]
    held_out = [example for example in scored if is_held_out(example.conversation)]
    scale = detect_scale([pair.score for example in scored for pair in example.pairs])
    pairs = [pair for example in fitted for pair in example.pairs]
    calibration = fit_calibration([pair.score for pair in pairs], [pair.answers for pair in pairs], scale, str(rows))
    raw = [pair for example in held_out for pair in example.pairs]
    counts = len({example.conversation for example in fitted}), len({example.conversation for example in held_out})
    mapped = [pair._replace(score=calibration.probability(pair.score)) for pair in raw]
    return FittedServiceReranker(
        service=config.scored_by,
        calibration=calibration,
        local=fit_reranker(labelled, index, labels),
        report=build_report(index, labels, *counts, mapped),
        raw=build_report(index, labels, *counts, raw) if scale == "probability" else None,
    )


async def _score_all(labelled: Sequence[Example], index: Index, config: RerankServiceConfig) -> list[ScoredExample]:
    service = RerankerClient(config.model_copy(update={"deadline_seconds": FIT_DEADLINE_SECONDS}))
    retries = Retries(f"Reranker {config.url}", lambda error: isinstance(error, ServiceError), ATTEMPTS)
    examples: list[ScoredExample] = []
    try:
        with progress("rerank", len(labelled)) as tick:
            async for example in map_in_order(
                labelled, lambda example: _score_example(service, retries, index, example), 2 * config.concurrency
            ):
                examples.append(example)
                tick()
    finally:
        await service.aclose()
    return examples


async def _score_example(service: RerankerClient, retries: Retries, index: Index, example: Example) -> ScoredExample:
    passages = [index.passage(hit.number) for hit in index.search(example.text, CANDIDATES)]
    if not passages:
        return ScoredExample(example.conversation, [])
    documents = [searched_text(passage) for passage in passages]
    try:
        async for attempt in retries.attempts():
            with attempt:
                raw = await service.ask(example.text, documents)
    except ServiceError as failure:
        raise OutageError(
            f"reranker {service.config.url}: {failure} after {ATTEMPTS} tries. See that it is up and serves "
            f"{service.config.model}, then fit again."
        ) from failure
    retries.answered()
    answers = [passage.id in example.gold for passage in passages]
    return ScoredExample(example.conversation, scored_passages(raw, answers))
