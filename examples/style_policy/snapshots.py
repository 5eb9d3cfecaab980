"""Looks at held-out answers while a training runs: each is written down, and the best weights so far are kept."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import orjson

from examples.style_policy.config import StylePolicyConfig
from examples.style_policy.report import NEWEST, AnswerSet, write_log, write_samples
from examples.style_policy.responder import Responder, divergence
from examples.style_policy.reward import Score
from examples.style_policy.train import Metrics, save
from examples.style_policy.watch import Snapshot, alarm, best, distinct, paired, variety
from qinglan.files.files import atomic_folder, atomic_write
from qinglan.reward.terms.penalties import repetition_share

SNAPSHOTS = "snapshots.jsonl"


class Scores(NamedTuple):
    """The two that are compared: one is learned from, the other never."""

    reward: Score
    judge: Score


def score_answers(
    responder: Responder, prompts: Sequence[str], scores: Scores, config: StylePolicyConfig
) -> AnswerSet:
    """The same seed at every look: what differs is the weights' doing."""
    repeated = [prompt for prompt in prompts for _ in range(config.answers)]
    answers = responder.answer(repeated, config.seed)
    texts = [answer.text for answer in answers]
    reward, judge = (score(repeated, texts).reshape(-1, config.answers) for score in scores)
    return AnswerSet(repeated, answers, reward, judge)


def make_snapshot(step: int, now: AnswerSet, start: AnswerSet, kl: float, config: StylePolicyConfig) -> Snapshot:
    """The figures of a step, compared with those of the start."""
    texts = [answer.text for answer in now.answers]
    of_each = [texts[at : at + config.answers] for at in range(0, len(texts), config.answers)]
    reward = paired(now.reward, start.reward)
    judge = paired(now.judge, start.judge)
    gap = paired(now.reward - now.judge, start.reward - start.judge)
    return Snapshot(
        step=step, reward=float(now.reward.mean()), judge=float(now.judge.mean()),
        gap=float((now.reward - now.judge).mean()), reward_low=reward.low, judge_low=judge.low,
        judge_high=judge.high, gap_growth=gap.mean, gap_low=gap.low, kl=kl,
        length=sum(map(len, texts)) / len(texts), distinct=distinct(of_each), variety=variety(texts),
        repeats=sum(map(repetition_share, texts)) / len(texts),
        unfinished=sum(not answer.finished for answer in now.answers) / len(texts),
    )  # fmt: skip


class Watch:
    """Called after each checkpoint; says whether the training has to end."""

    def __init__(
        self, work: Path, now: Responder, start: Responder, prompts: Sequence[str], scores: Scores,
        config: StylePolicyConfig,
    ) -> None:  # fmt: skip
        self._work, self._now, self._start, self._prompts = work, now, start, prompts
        self._scores, self._config = scores, config
        self._first = score_answers(start, prompts, scores, config)
        self.snapshots = read_snapshots(work)

    def __call__(self, step: int, trained: Sequence[Metrics]) -> bool:
        if step not in {snapshot.step for snapshot in self.snapshots}:
            self._take(step, trained)
        return self.ended

    @property
    def ended(self) -> bool:
        return bool(self.snapshots) and alarm(self.snapshots, self._config.limits) is not None

    def _take(self, step: int, trained: Sequence[Metrics]) -> None:
        now = score_answers(self._now, self._prompts, self._scores, self._config) if step else self._first
        kl = divergence(self._now, self._start, now.prompts, now.answers)
        snapshots = [*self.snapshots, make_snapshot(step, now, self._first, kl, self._config)]
        if best(snapshots, self._config.limits) is snapshots[-1]:
            with atomic_folder(self._work / "best") as folder:
                save(self._now, folder)
        write_samples(self._work / "log" / NEWEST, self._first, now)
        write_log(self._work / "log", trained, snapshots)
        self.snapshots = snapshots
        write_snapshots(self._work, snapshots)


def read_snapshots(work: Path) -> list[Snapshot]:
    """Snapshots that an earlier part of this training wrote."""
    path = work / SNAPSHOTS
    return [Snapshot(**orjson.loads(line)) for line in path.read_bytes().splitlines()] if path.is_file() else []


def write_snapshots(work: Path, snapshots: Sequence[Snapshot]) -> None:
    with atomic_write(work / SNAPSHOTS) as partial:
        partial.write_bytes(b"".join(orjson.dumps(snapshot._asdict()) + b"\n" for snapshot in snapshots))
