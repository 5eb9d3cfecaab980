"""A responder learns a manner: a short SFT on all of them, then TRL's GRPO on the style model's probability of the
wanted ones. An independent judge watches held-out answers, so that a reward that is gamed is seen and ends it.

The weights that come out are those that stood highest by that judge. A training that was killed goes on from its last
checkpoint; one that was finished is not done again.
"""

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from examples.style_policy.config import StylePolicyConfig
from examples.style_policy.judge import fit_judge
from examples.style_policy.report import FINAL, final_figures, write_card, write_samples
from examples.style_policy.responder import Responder, divergence, open_responder
from examples.style_policy.reward import check_labels, of_answers, style_score
from examples.style_policy.rows import Rows, read_rows
from examples.style_policy.snapshots import Scores, Watch, make_snapshot, score_answers
from examples.style_policy.train import learn_to_answer, reinforce
from examples.style_policy.watch import Snapshot, alarm, best
from qinglan.errors import TrainingError
from qinglan.files.digests import digest
from qinglan.files.files import atomic_folder, atomic_write
from qinglan.files.scratch import scratch_folder, source_digest
from qinglan.jobs.gpus import need_gpus
from qinglan.style.model import StyleModel, refuse_pickles

DONE = "done.json"


class StylePolicyCounts(NamedTuple):
    """Before and after are on questions that neither training nor the watch saw."""

    rows: int
    questions: int
    """Held out for these figures."""

    steps: int
    best_step: int
    gamed: int
    """1 when an alarm ended the training; the weights from before are kept."""

    reward_before: float
    reward_after: float
    judge_accuracy: float
    """The independent judge's, on test rows."""

    judge_before: float
    judge_after: float
    judge_low: float
    """Lower end of the 95 % bootstrap interval of the judge's rise, paired by question."""

    judge_high: float
    gap_growth: float
    kl: float
    distinct: float
    variety_before: float
    variety_after: float
    repeats: float
    length_before: float
    length_after: float
    reused: int
    """1 when this very training had been finished before."""


def style_policy(
    rows: Path, style_model: Path, base: Path, model: Path, log: Path, config: StylePolicyConfig
) -> StylePolicyCounts:
    """Train, choose and write the policy's folder, and beside it the log with metrics, curve and samples."""
    read = read_rows(rows, config.held_out)
    if config.device != "cpu":
        need_gpus("style_policy", 1)
    refuse_pickles(base)
    reward_model = StyleModel.load(style_model)
    check_labels(reward_model.labels, read.labels, config.rewarded)
    parents = {"style_rows": digest(rows), "style_model": digest(style_model), "base_model": digest(base)}
    work = scratch_folder(
        "style_policy", *parents.values(), config.model_dump_json(), source_digest(Path(__file__).parent)
    )
    reused = (work / DONE).is_file()
    if not reused:
        facts = _train(work, base, read, reward_model, parents, config)
        with atomic_write(work / DONE) as partial:
            partial.write_bytes(orjson.dumps(facts))
        for left in ("checkpoints", "best", "start"):
            shutil.rmtree(work / left, ignore_errors=True)
    for name, target in (("model", model), ("log", log)):
        with atomic_folder(target) as partial:
            shutil.copytree(work / name, partial, dirs_exist_ok=True)
    return StylePolicyCounts(reused=int(reused), **orjson.loads((work / DONE).read_bytes()))


def _train(
    work: Path, base: Path, rows: Rows, reward_model: StyleModel, parents: dict[str, str], config: StylePolicyConfig
) -> dict[str, Any]:
    """Everything of it is in the scratch folder, so that a killed one goes on."""
    judge, accuracy = fit_judge(rows.judge, rows.judge_test, config.rewarded)
    scores = Scores(style_score(reward_model, config.rewarded), of_answers(judge))
    if not (work / "start").is_dir():
        with atomic_folder(work / "start") as folder:
            learn_to_answer(base, folder, rows.train, config)
    start = _open(work / "start", config)
    snapshots = _reinforce(work, start, rows, scores, config)
    chosen = best(snapshots, config.limits)
    raised = alarm(snapshots, config.limits)
    if chosen is None:
        why = raised.message if raised else "No look at held-out answers stands surely above the start."
        raise TrainingError(f"Nothing was learned that the independent judge confirms. {why} Log: {work / 'log'}")
    after = _open(work / "best", config)
    before_seen, after_seen = (score_answers(responder, rows.final, scores, config) for responder in (start, after))
    kl = divergence(after, start, after_seen.prompts, after_seen.answers)
    final = make_snapshot(chosen.step, after_seen, before_seen, kl, config)
    write_samples(work / "log" / FINAL, before_seen, after_seen)
    with atomic_folder(work / "model") as folder:
        shutil.copytree(work / "best", folder, dirs_exist_ok=True)
        write_card(folder, config, chosen.step, raised, parents)
    return {
        "rows": len(rows.train), "questions": len(rows.final), "steps": snapshots[-1].step, "best_step": chosen.step,
        "gamed": int(raised is not None), "judge_accuracy": accuracy,
        **final_figures(before_seen, after_seen, final, config.seed),
    }  # fmt: skip


def _reinforce(work: Path, start: Responder, rows: Rows, scores: Scores, config: StylePolicyConfig) -> list[Snapshot]:
    """GRPO to its end or to an alarm; all snapshots."""
    now = _open(work / "start", config)
    watch = Watch(work, now, start, rows.watched, scores, config)
    if not watch.ended and (not watch.snapshots or watch.snapshots[-1].step < config.steps):
        prompts = list(dict.fromkeys(row.prompt for row in rows.train))
        reinforce(now, scores.reward, prompts, work / "checkpoints", config, watch)
    return watch.snapshots


def _open(folder: Path, config: StylePolicyConfig) -> Responder:
    return open_responder(folder, config.device, config.temperature, config.max_new_tokens)
