"""One rollout's reward, with every term that made it: always the same names, always floats."""

from typing import NamedTuple

from qinglan.reward import anchored_v2, faults, floors, seed_v1
from qinglan.reward.config import RewardConfig
from qinglan.reward.episode import Episode, Found
from qinglan.text import normalise

PART = "part_"


class Measured(NamedTuple):
    """What is seen of a rewrite, whether or not it counts in the mode."""

    empty: bool
    malformed: bool
    copied: bool
    kept: bool
    """The question was left as it is."""

    length: float
    length_ratio: float
    repeats: float
    names: float
    numbers: float

    @property
    def floor(self) -> bool:
        return self.empty or self.malformed or self.copied


def score(episode: Episode, config: RewardConfig) -> dict[str, float]:
    """The reward under "score", its parts under part_*, and what they were computed from."""
    seen = measure(episode)
    qualities = {
        name: quality(found, episode.prompt.gold, config)
        for name, found in (("", episode.student), ("_teacher", episode.teacher), ("_plain", episode.plain))
    }
    parts = _parts(episode, seen, qualities, config)
    floor = config.mode == "anchored_v2" and seen.floor
    total = floors.FLOOR if floor else seed_v1.clip(sum(parts.values()))
    values = {
        "score": total,
        **{PART + name: value for name, value in parts.items()},
        **{f"quality{whose}": value for whose, value in qualities.items()},
        **_standing(episode, qualities),
        **seen._asdict(),
        "floor": floor,
        "style": episode.style,
    }
    return {name: float(value) for name, value in values.items()}


def measure(episode: Episode) -> Measured:
    rewrite, prompt = episode.rewrite, episode.prompt
    return Measured(
        empty=floors.empty(rewrite),
        malformed=floors.malformed(rewrite),
        copied=floors.copied(rewrite, prompt, episode.student.hits),
        kept=normalise(rewrite) == normalise(prompt.question),
        length=len(rewrite),
        length_ratio=faults.length_ratio(rewrite, prompt),
        repeats=faults.repeats(rewrite),
        names=faults.invented_words(rewrite, prompt, episode.student),
        numbers=faults.invented_numbers(rewrite, prompt),
    )


def quality(found: Found, gold: tuple[str, ...], config: RewardConfig) -> float:
    """Retrieval quality as the mode sees it."""
    return anchored_v2.quality(found, gold) if config.mode == "anchored_v2" else seed_v1.quality(found.scores)


def _parts(episode: Episode, seen: Measured, qualities: dict[str, float], config: RewardConfig) -> dict[str, float]:
    """What each term adds; the names are the same in both modes."""
    judged = episode.judged
    terms = seed_v1.compare(judged.student, judged.teacher, qualities[""], qualities["_teacher"], config)
    parts = seed_v1.weighted(terms, config)._asdict()
    if config.mode == "seed_v1":
        return parts | dict.fromkeys(("needless", "length", "repeats", "names", "numbers", "style"), 0.0)
    most = config.penalties
    needless = anchored_v2.needless(qualities[""], qualities["_plain"], seen.kept, config.scale)
    return parts | {
        "needless": -most.needless * needless,
        "length": -most.length * faults.hinge(seen.length_ratio, 1.5, 3.0),
        "repeats": -most.repeats * faults.hinge(seen.repeats, 0.1, 0.5),
        "names": -most.names * faults.hinge(seen.names, 0.0, 0.5),
        "numbers": -most.numbers * faults.hinge(seen.numbers, 0.0, 1.0),
        "style": config.style.weight * episode.style if config.style else 0.0,
    }


def _standing(episode: Episode, qualities: dict[str, float]) -> dict[str, float]:
    """Who won, what the judge said, and whether the gold passage came first; gold counts where gold_known is 1."""
    gold, judged = episode.prompt.gold, episode.judged
    ahead = qualities[""] - qualities["_teacher"]
    return {
        "win": (ahead > 0) - (ahead < 0),
        "judge": judged.student,
        "judge_teacher": judged.teacher,
        "judged": judged.judged,
        "judge_failed": judged.failed,
        "top1": episode.student.top1,
        "top1_teacher": episode.teacher.top1,
        "gold_known": bool(gold),
        "gold": 1 in episode.student.ranks(gold),
        "gold_teacher": 1 in episode.teacher.ranks(gold),
        "gold_plain": 1 in episode.plain.ranks(gold),
    }
