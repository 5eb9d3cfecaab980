"""Compute all terms of one rollout's reward, always under the same names and as floats."""

from typing import NamedTuple

from qinglan.reward.config import RewardConfig
from qinglan.reward.episode import Episode, Prompt, RetrievalResult
from qinglan.reward.terms import anchored_v2, floor_checks, penalties, seed_v1
from qinglan.text.text import normalise

PART_PREFIX = "part_"


class RewriteMeasures(NamedTuple):
    """Measurements of a rewrite; they are logged even if the mode's formula does not use them."""

    empty: bool
    malformed: bool
    copied: bool
    kept: bool
    """True if the question was left unchanged."""

    length: float
    length_ratio: float
    repeats: float
    names: float
    numbers: float

    @property
    def floor(self) -> bool:
        return self.empty or self.malformed or self.copied


def compute_reward_terms(episode: Episode, config: RewardConfig) -> dict[str, float]:
    """Compute the reward ("score"), its parts ("part_*"), and the figures from which the parts are computed."""
    measures = measure_rewrite(episode)
    qualities = {
        name: retrieval_quality(retrieval, episode.prompt, config)
        for name, retrieval in (("", episode.student), ("_teacher", episode.teacher), ("_plain", episode.plain))
    }
    parts = _parts(episode, measures, qualities, config)
    # The original plan's formula, seed_v1, has no floor.
    floor = config.mode == "anchored_v2" and measures.floor
    total = floor_checks.FLOOR if floor else seed_v1.clip(sum(parts.values()))
    values = {
        "score": total,
        **{PART_PREFIX + name: value for name, value in parts.items()},
        **{f"quality{suffix}": value for suffix, value in qualities.items()},
        **_compare_with_teacher(episode, qualities),
        **measures._asdict(),
        "floor": floor,
        "style": episode.style,
    }
    return {name: float(value) for name, value in values.items()}


def measure_rewrite(episode: Episode) -> RewriteMeasures:
    rewrite, prompt = episode.rewrite, episode.prompt
    return RewriteMeasures(
        empty=floor_checks.is_empty(rewrite),
        malformed=floor_checks.is_malformed(rewrite),
        copied=floor_checks.is_copied(rewrite, prompt, episode.student.hits),
        kept=normalise(rewrite) == normalise(prompt.question),
        length=len(rewrite),
        length_ratio=penalties.length_ratio(rewrite, prompt),
        repeats=penalties.repetition_share(rewrite),
        names=penalties.invented_words(rewrite, prompt, episode.student),
        numbers=penalties.invented_numbers(rewrite, prompt),
    )


def retrieval_quality(retrieval: RetrievalResult, prompt: Prompt, config: RewardConfig) -> float:
    if config.mode == "seed_v1":
        return seed_v1.retrieval_quality(retrieval.scores)
    return anchored_v2.retrieval_quality(retrieval, prompt.gold, prompt.labels)


def _parts(
    episode: Episode, measures: RewriteMeasures, qualities: dict[str, float], config: RewardConfig
) -> dict[str, float]:
    """Return the parts of the reward; their names are the same in both modes."""
    judged = episode.judged
    parts = seed_v1.weighted_terms(judged.student, judged.teacher, qualities[""], qualities["_teacher"], config)
    if config.mode == "seed_v1":
        return parts | dict.fromkeys(("needless", "length", "repeats", "names", "numbers", "style"), 0.0)
    largest = config.penalties
    needless = anchored_v2.needless_rewrite_penalty(qualities[""], qualities["_plain"], measures.kept, config.scale)
    return parts | {
        "needless": -largest.needless * needless,
        "length": -largest.length * penalties.hinge(measures.length_ratio, 1.5, 3.0),
        "repeats": -largest.repeats * penalties.hinge(measures.repeats, 0.1, 0.5),
        "names": -largest.names * penalties.hinge(measures.names, 0.0, 0.5),
        "numbers": -largest.numbers * penalties.hinge(measures.numbers, 0.0, 1.0),
        "style": config.style.weight * episode.style if config.style else 0.0,
    }


def _compare_with_teacher(episode: Episode, qualities: dict[str, float]) -> dict[str, float]:
    """Return the comparison with the teacher, the judge scores, and flags for a relevant passage at rank 1 (`gold*`).

    `gold` has a meaning only if `gold_known` is 1. If `labelled` is 1, labels decide about `gold` instead of gold
    passages. `unjudged` is 1 if the first passage of a labelled row has no label, so that a `gold` of 0 may be wrong.
    """
    prompt, judged = episode.prompt, episode.judged
    relevant = prompt.relevant
    labelled = bool(relevant) and not prompt.gold
    first = next((hit.id for hit in episode.student.hits), "")
    ahead = qualities[""] - qualities["_teacher"]
    return {
        "win": (ahead > 0) - (ahead < 0),
        "judge": judged.student,
        "judge_teacher": judged.teacher,
        "judged": judged.judged,
        "judge_failed": judged.failed,
        "top1": episode.student.top1,
        "top1_teacher": episode.teacher.top1,
        "gold_known": bool(relevant),
        "gold": 1 in episode.student.ranks(relevant),
        "gold_teacher": 1 in episode.teacher.ranks(relevant),
        "gold_plain": 1 in episode.plain.ranks(relevant),
        "labelled": labelled,
        "unjudged": labelled and first not in {label.id for label in prompt.labels},
    }
