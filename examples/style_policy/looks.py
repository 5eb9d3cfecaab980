"""Looks at held-out answers while a training runs: each is written down, and the best weights so far are kept."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import orjson

from examples.style_policy.config import StylePolicyConfig
from examples.style_policy.report import NEWEST, Seen, write_log, write_samples
from examples.style_policy.responder import Responder, divergence
from examples.style_policy.reward import Score
from examples.style_policy.train import Metrics, save
from examples.style_policy.watch import Look, alarm, best, distinct, paired, variety
from qinglan.files import atomic_folder, atomic_write
from qinglan.reward.penalties import repetition_share

LOOKS = "looks.jsonl"


class Scores(NamedTuple):
    """The two that are compared: one is learned from, the other never."""

    reward: Score
    judge: Score


def see(responder: Responder, prompts: Sequence[str], scores: Scores, config: StylePolicyConfig) -> Seen:
    """The same seed at every look: what differs is the weights' doing."""
    asked = [prompt for prompt in prompts for _ in range(config.answers)]
    answers = responder.answer(asked, config.seed)
    texts = [answer.text for answer in answers]
    reward, judge = (score(asked, texts).reshape(-1, config.answers) for score in scores)
    return Seen(asked, answers, reward, judge)


def look_of(step: int, seen: Seen, start: Seen, kl: float, config: StylePolicyConfig) -> Look:
    """What is seen at a step against what was seen at the start."""
    texts = [answer.text for answer in seen.answers]
    of_each = [texts[at : at + config.answers] for at in range(0, len(texts), config.answers)]
    reward = paired(seen.reward, start.reward)
    judge = paired(seen.judge, start.judge)
    gap = paired(seen.reward - seen.judge, start.reward - start.judge)
    return Look(
        step=step, reward=float(seen.reward.mean()), judge=float(seen.judge.mean()),
        gap=float((seen.reward - seen.judge).mean()), reward_low=reward.low, judge_low=judge.low,
        judge_high=judge.high, gap_growth=gap.mean, gap_low=gap.low, kl=kl,
        length=sum(map(len, texts)) / len(texts), distinct=distinct(of_each), variety=variety(texts),
        repeats=sum(map(repetition_share, texts)) / len(texts),
        unfinished=sum(not answer.finished for answer in seen.answers) / len(texts),
    )  # fmt: skip


class Watch:
    """Called after each checkpoint; says whether the training has to end."""

    def __init__(
        self, work: Path, now: Responder, start: Responder, prompts: Sequence[str], scores: Scores,
        config: StylePolicyConfig,
    ) -> None:  # fmt: skip
        self._work, self._now, self._start, self._prompts = work, now, start, prompts
        self._scores, self._config = scores, config
        self._first = see(start, prompts, scores, config)
        self.looks = read_looks(work)

    def __call__(self, step: int, trained: Sequence[Metrics]) -> bool:
        if step not in {look.step for look in self.looks}:
            self._take(step, trained)
        return self.ended

    @property
    def ended(self) -> bool:
        return bool(self.looks) and alarm(self.looks, self._config.limits) is not None

    def _take(self, step: int, trained: Sequence[Metrics]) -> None:
        seen = see(self._now, self._prompts, self._scores, self._config) if step else self._first
        kl = divergence(self._now, self._start, seen.prompts, seen.answers)
        looks = [*self.looks, look_of(step, seen, self._first, kl, self._config)]
        if best(looks, self._config.limits) is looks[-1]:
            with atomic_folder(self._work / "best") as folder:
                save(self._now, folder)
        write_samples(self._work / "log" / NEWEST, self._first, seen)
        write_log(self._work / "log", trained, looks)
        self.looks = looks
        write_looks(self._work, looks)


def read_looks(work: Path) -> list[Look]:
    """What an earlier part of this training saw."""
    path = work / LOOKS
    return [Look(**orjson.loads(line)) for line in path.read_bytes().splitlines()] if path.is_file() else []


def write_looks(work: Path, looks: Sequence[Look]) -> None:
    with atomic_write(work / LOOKS) as partial:
        partial.write_bytes(b"".join(orjson.dumps(look._asdict()) + b"\n" for look in looks))
