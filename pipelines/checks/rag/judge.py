"""Judge a RAG service by its answers, and propose the settings that fit: pure functions over plain data."""

import math
import statistics
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from pipelines.checks.checks import Check
from pipelines.checks.rag.ask import Measurements, RowAnswers, TimedAnswer
from qinglan.errors import DataError
from qinglan.llm.config import RagUpstream
from qinglan.rag.calibration import Calibration, detect_scale
from qinglan.rag.calibration_fit import fit_calibration
from qinglan.rag.contract import RagData
from qinglan.rag.service_limits import lost_measurements

FEWEST_LABELLED = 10
"""Least number of questions with a gold passage among their hits, for fitting a calibration."""

SAMPLED_QUESTIONS = 10
SLOW_SECONDS = 1.0


class KnownPassages(NamedTuple):
    """The run's knowledge base."""

    ids: Collection[str]
    snapshot: str
    """SHA-256 of the JSONL."""

    texts: Collection[str] = ()


class Verdict(NamedTuple):
    checks: list[Check]
    meaning: list[str]
    """Measurements that a run cannot make with this service."""

    settings: RagUpstream
    """The settings that fit the service."""


def judge(measured: Measurements, score_threshold: float, passages: KnownPassages | None) -> Verdict:
    """Turn the measurements into checks, and propose settings."""
    rows, service = measured.rows, measured.service
    tenant = rows[0].row.tenant_id
    rewrite, needs = rewrite_effect(rows), need_effect(rows)
    calibration, score_check = judge_scores(rows, service)
    request = service.request.model_dump()
    if needs == "refused":
        request["need"] = ""
    if rewrite == "ignored":
        request["rewritten_query"] = request["query"]
    names_snapshot = all(row.first.data.get("snapshot") for row in rows)
    settings = service.model_copy(update={
        "request": type(service.request).model_validate(request),
        "calibration": {**service.calibration, **({tenant: calibration} if calibration else {})},
        "snapshot_queries": () if names_snapshot else stable_questions(rows),
    })  # fmt: skip
    checks = [
        shape_check(measured), *rewrite_checks(rewrite, service), *need_checks(needs, rows), *score_check,
        *order_checks(rows),
        *id_checks(rows, passages), stability_check(rows), *snapshot_checks(rows, passages),
        latency_check(rows, service),
    ]  # fmt: skip
    return Verdict(checks, lost_measurements(settings, as_contract(rows, settings), score_threshold), settings)


def closing_lines(checks: Sequence[Check], limits: Sequence[str]) -> list[str]:
    """Say what the checks and the limits mean for a run."""
    faults, warnings = (
        ", ".join(dict.fromkeys(check.subject for check in checks if check.state == state))
        for state in ("error", "warning")
    )
    lines = [f"no run works before this is mended: {faults}."] if faults else []
    lines += limits
    if warnings and faults:
        lines.append(f"these warnings above hold too: {warnings}.")
    elif warnings:
        lines.append(f"a run works with the lines below, and the warnings above hold: {warnings}.")
    return lines or ["everything can be measured."]


def sent_fields(rows: Sequence[RowAnswers]) -> tuple[str, ...]:
    """Return the optional fields that at least one passage in the answers has."""
    hits = [hit for row in rows for hit in row.first.data["recall"]]
    return tuple(name for name in ("id", "content", "query_score") if any(hit.get(name) for hit in hits))


def as_contract(rows: Sequence[RowAnswers], service: RagUpstream) -> RagData:
    """Build an answer as a run would read it, with every field that any passage has, and placeholders as scores."""
    answers = [row.other_need or row.first for row in rows]
    data = dict(next((answer for answer in answers if answer.data["recall"]), answers[0]).data)
    if not service.request.need:
        data["scored_against"] = "query"
    if not all(row.first.data.get("snapshot") for row in rows):
        data["snapshot"] = ""
    texts = {name: "any" for name in ("id", "content") if name in sent_fields(rows)}
    hits = [
        {**hit, **texts, "reranker_score": 0.0, **({"query_score": 0.0} if "query_score" in hit else {})}
        for hit in data["recall"]
    ]
    return RagData.model_validate({"scored_against": "query", "rewriter": "request", "snapshot": "", **data,
                                   "rewritten_query": "", "recall": hits})  # fmt: skip


def shape_check(measured: Measurements) -> Check:
    fields, held = measured.service.answer, ", ".join(sent_fields(measured.rows))
    score = f"{fields.recall}[].{fields.score}"
    what = f"{score}, beside it {held}" if held else f"{score}; neither ids nor texts"
    if measured.guessed:
        return Check("warning", "shape", f"not the contract's names; these fit: {what}.", "Paste the lines below.")
    return Check("ok", "shape", f"{what}.")


def rewrite_effect(rows: Sequence[RowAnswers]) -> str:
    """`searched` if another rewrite finds other passages, `ignored` if it changes none, `unknown` without hits."""
    pairs = [(row.first, row.other_rewrite) for row in rows if row.other_rewrite and row.first.data["recall"]]
    if not pairs:
        return "unknown"
    return "searched" if any(first.passages != other.passages for first, other in pairs) else "ignored"


def rewrite_checks(effect: str, service: RagUpstream) -> Iterator[Check]:
    if effect == "unknown":
        yield Check(
            "error", "passages", "no question retrieved a passage.",
            "See tenant, knowledge base (--kb-name) and threshold, and that the service holds the tenant's passages.",
        )  # fmt: skip
    elif effect == "searched":
        how = "the rewrite is sent as its question" if service.rewrite_as_query else "rewritten_query is searched"
        yield Check("ok", "rewrite", f"{how}: another one finds other passages.")
    else:
        yield Check(
            "error", "rewrite", "rewritten_query has no effect: nothing could be trained or measured.",
            "Add the parameter to the service (docs/rag-contract.md), or send the rewrite as its question, as the "
            "lines below do, and check again with them.",
        )  # fmt: skip


def need_effect(rows: Sequence[RowAnswers]) -> str:
    """Effect of the need: `scored`, `silent` (scores change, but the answer does not say so), `ignored`, `refused` or
    `unknown`."""
    if any(row.need_refused for row in rows):
        return "refused"
    pairs = [(row.first, row.other_need) for row in rows if row.other_need and row.first.data["recall"]]
    if not pairs:
        return "unknown"
    changed = any(scores_by_passage(first) != scores_by_passage(other) for first, other in pairs)
    declared = all(other.data.get("scored_against") == "need" for _, other in pairs)
    return ("scored" if declared else "silent") if changed else "ignored"


def scores_by_passage(answer: TimedAnswer) -> dict[tuple[str, str], float]:
    return {passage: round(score, 4) for passage, score in zip(answer.passages, answer.scores, strict=True)}


def need_checks(effect: str, rows: Sequence[RowAnswers]) -> Iterator[Check]:
    moved = any(row.other_need and row.other_need.passages != row.first.passages for row in rows)
    if effect == "scored" and moved:
        yield Check(
            "error", "need", "it changes the order of passages, and must not: a rewrite would be judged by a search "
            "for the need.", "Let order and cut go by the query alone; need is for reranker_score.",
        )  # fmt: skip
    elif effect == "scored":
        yield Check("ok", "need", "passages are scored against it, in the order of the query.")
    elif effect == "silent":
        yield Check(
            "warning", "need", "it changes scores, and no answer says so: they count as scores of the query.",
            "Let the service answer data.scored_against: need, and query_score beside reranker_score.",
        )  # fmt: skip
    elif effect in ("ignored", "refused"):
        refused = "refused, so the lines below leave it out" if effect == "refused" else "without effect"
        yield Check("warning", "need", f"{refused}: passages are scored against the query alone.")


def judge_scores(rows: Sequence[RowAnswers], service: RagUpstream) -> tuple[Calibration | None, list[Check]]:
    """Check range and scale of the scores; for logits, propose a calibration, fitted if enough rows are labelled.

    Logits without a calibration in the settings are a warning, since a run refuses such scores.
    """
    scores = [score for row in rows for score in row.first.scores]
    if not scores:
        return None, []
    scale = detect_scale(scores)
    ranged = f"{min(scores):.3g} to {max(scores):.3g}, median {statistics.median(scores):.3g}"
    if scale == "probability":
        return None, [Check("ok", "scores", f"{ranged}: within [0, 1].")]
    calibrated = {row.row.tenant_id for row in rows} <= service.calibration.keys()
    labelled = [row for row in rows if gold_rank(row)]
    if len(labelled) >= FEWEST_LABELLED:
        return _fit_calibration(labelled, service, ranged, calibrated)
    if calibrated:
        return None, [Check("ok", "scores", f"{ranged}: logits, which the calibration of the settings maps.")]
    plain = Calibration(scale=scale, slope=1.0, intercept=0.0)
    return plain, [Check(
        "warning", "scores", f"{ranged}: logits. Only {len(labelled)} questions have a gold passage among the "
        f"hits, and a calibration takes {FEWEST_LABELLED}: the lines below have the plain sigmoid.",
        "Give a sheet with gold passages, or choose validate.quality_threshold by validated.xlsx of a first run.",
    )]  # fmt: skip


def order_checks(rows: Sequence[RowAnswers]) -> Iterator[Check]:
    """Compare the order of passages with their scores, because readers take the first passage for the best one."""
    scores = [row.first.scores for row in rows if len(row.first.scores) > 1]
    unordered = sum(each != sorted(each, reverse=True) for each in scores)
    if unordered:
        yield Check(
            "warning", "order", f"{unordered} of {len(scores)} answers are not in the order of their scores, the "
            "best first: ranks are measured by the order, thresholds and rewards by the scores.",
            "Let the service sort by the score that it sends.",
        )  # fmt: skip
    elif scores:
        yield Check("ok", "order", "passages come in the order of their scores, the best first.")


def _fit_calibration(
    labelled: Sequence[RowAnswers], service: RagUpstream, ranged: str, calibrated: bool
) -> tuple[Calibration | None, list[Check]]:
    pairs = [
        (hit["reranker_score"], hit["id"] in row.row.gold) for row in labelled for hit in row.first.data["recall"]
    ]
    try:
        fitted = fit_calibration(
            [raw for raw, _ in pairs], [answers for _, answers in pairs], "logit", service.base_url
        )
    except DataError as error:
        return None, [Check("error", "scores", f"{ranged}: logits. {error}")]
    rough = (
        "" if len(labelled) >= 5 * FEWEST_LABELLED else "Rough: more labelled questions (--rows 200) make it truer."
    )
    paste = "" if calibrated else "A run refuses such scores without a calibration: paste the lines below."
    return fitted, [Check(
        "ok" if calibrated else "warning", "scores", f"{ranged}: logits. A calibration was fitted on {len(labelled)} "
        f"labelled questions, {len(pairs)} passages: slope {fitted.slope:g}, intercept {fitted.intercept:g}.",
        " ".join(filter(None, (paste, rough))),
    )]  # fmt: skip


def gold_rank(row: RowAnswers) -> int:
    ranks = [rank for rank, hit in enumerate(row.first.data["recall"], 1) if hit["id"] in row.row.gold]
    return ranks[0] if ranks else 0


def id_checks(rows: Sequence[RowAnswers], passages: KnownPassages | None) -> Iterator[Check]:
    """Compare the retrieved ids with the knowledge base and with the gold passages."""
    ids = {hit["id"] for row in rows for hit in row.first.data["recall"] if hit["id"]}
    if not ids:
        what = "passages have none: no gold passage can be recognised."
        texts = {hit["content"] for row in rows for hit in row.first.data["recall"] if hit["content"]}
        if passages is not None and texts:
            same = len(texts & set(passages.texts))
            what = f"{what} {same} of {len(texts)} retrieved texts are passages of the knowledge base."
        yield Check("warning", "ids", what, "Let the service send the ids of the knowledge base.")
        return
    if passages is not None:
        known = len(ids & set(passages.ids))
        what = f"{known} of {len(ids)} retrieved ids are in the knowledge base."
        if known == len(ids):
            yield Check("ok", "ids", what)
        else:
            advice = "Serve the run's knowledge base, or give the run the one that is served."
            yield Check("warning" if known else "error", "ids", what, advice)
    labelled = [row for row in rows if row.row.gold]
    if labelled:
        ranks = [gold_rank(row) for row in labelled]
        first, retrieved = ranks.count(1), len(ranks) - ranks.count(0)
        what = (
            f"the gold passage is first for {first} and among the hits for {retrieved} of {len(labelled)} questions."
        )
        yield Check(
            "ok" if retrieved else "error", "gold", what, "" if retrieved else "Are these the ids of this service?"
        )
    else:
        yield Check("warning", "gold", "no question has gold passages, so ranks are not measured.")


def stability_check(rows: Sequence[RowAnswers]) -> Check:
    moved = [row for row in rows if row.first.passages != row.again.passages]
    if moved:
        return Check(
            "warning", "stability", f"{len(moved)} of {len(rows)} questions got other passages, or another order, "
            "the second time: small differences between systems will drown in it.",
            "Look for approximate search, sampling in its rewriting, or replicas with different indexes.",
        )  # fmt: skip
    spread = max(chain([0.0], *(map(score_gap, rows))))
    return Check("ok", "stability", f"asked twice, the same passages; scores differ by {spread:.2g} at most.")


def score_gap(row: RowAnswers) -> list[float]:
    return [abs(first - again) for first, again in zip(row.first.scores, row.again.scores, strict=True)]


def stable_questions(rows: Sequence[RowAnswers]) -> tuple[str, ...]:
    """Return questions whose answers have ids or texts, so that a digest of them can identify the knowledge base.
    Empty if any question got other passages the second time."""
    if any(row.first.passages != row.again.passages for row in rows):
        return ()
    answered = [row.row.question for row in rows if any(name or text for name, text in row.first.passages)]
    return tuple(answered[:SAMPLED_QUESTIONS])


def snapshot_checks(rows: Sequence[RowAnswers], passages: KnownPassages | None) -> Iterator[Check]:
    named = {str(row.first.data.get("snapshot") or "") for row in rows}
    if named == {""}:
        sampled = len(stable_questions(rows))
        stands_in = (
            f"a digest of {sampled} answer{'' if sampled == 1 else 's'} stands in"
            if sampled
            else "and no answers are stable enough"
        )
        yield Check("warning", "snapshot", f"the service does not name its knowledge base; {stands_in}.")
    elif passages is not None and named != {passages.snapshot}:
        yield Check(
            "error", "snapshot", "it answers from another knowledge base than the one given.",
            "Serve the run's knowledge base, or give the run the one that is served.",
        )  # fmt: skip
    else:
        yield Check("ok", "snapshot", "answers name their knowledge base.")


def latency_check(rows: Sequence[RowAnswers], service: RagUpstream) -> Check:
    seconds = sorted(answer.seconds for row in rows for answer in (row.first, row.again))
    half, most = (seconds[min(len(seconds) - 1, math.ceil(share * len(seconds)) - 1)] for share in (0.5, 0.95))
    at_once = min(service.concurrency, len(rows))
    what = f"{half * 1000:.0f} ms at the median, {most * 1000:.0f} ms at 95 %, {at_once} at once."
    if half > SLOW_SECONDS:
        step = f"A retrieval of every rollout waits for it; a run sends {service.concurrency} at once (concurrency)."
        return Check("warning", "latency", what, step)
    return Check("ok", "latency", what)


def profile_lines(settings: RagUpstream) -> dict[str, Any]:
    return {"gateway": {"rag": {"base_url": settings.base_url, **settings.changes()}}}
