"""Train the student against its teacher by verl's PPO on live retrieval.

In reading order: `ppo` looks for a finished training or starts one. `prepare_prompts` (prompt_rows.py) chooses the
rows. `_train` runs verl (launch.py, overrides.py) under a monitor (training_monitor.py). finish.py makes a model of
the best checkpoint on dev, or of the SFT model if that is better.

A killed training resumes from its last checkpoint; a finished one is not repeated. After a failure the checkpoints
stay in the training's folder.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

import qinglan.reward
from components.training.ppo import checkpoints, training_monitor
from components.training.ppo.config import PpoConfig
from components.training.ppo.device import load_device
from components.training.ppo.finish import finish
from components.training.ppo.launch import ray_token, verl_command, with_local_environment
from components.training.ppo.metrics import dev_score
from components.training.ppo.overrides import TrainingPaths
from components.training.ppo.plugin.reward_terms import GATEWAY_VARIABLE
from components.training.ppo.prompt_rows import PreparedPrompts, prepare_prompts
from qinglan.errors import DataError, TrainingError
from qinglan.evaluation.stage_gain import write_gain
from qinglan.files.digests import digest
from qinglan.files.files import atomic_folder, sha256_file, write_atomically
from qinglan.files.scratch import copy_to_scratch, scratch_folder, source_digest
from qinglan.jobs import JobSpec, LocalRunner, Outcome, Runner
from qinglan.jobs.command_failures import explain_failure
from qinglan.jobs.gpus import need_gpus
from qinglan.jobs.module_job import run_where_trained
from qinglan.jobs.processes import process_cleanup
from qinglan.live.trackers import tracked
from qinglan.live.view import live_training
from qinglan.llm.host_allowlist import check_called_hosts
from qinglan.pages.curves import CURVE_FILE, rows_curve
from qinglan.reward.outage import clear_outage
from qinglan.rewriter.base_check import find_critic, refuse_other_vocabulary
from qinglan.rewriter.card import RewriterCard, read_card
from qinglan.rewriter.model import load_tokenizer
from qinglan.terminal import say

REWARD = Path(qinglan.reward.__file__).parent / "reward_function.py"
DONE = "done.json"
CRITIC = "critic_model"
"""Name of the critic's base model among a model's parents, if it is not the actor's."""

TITLE = "PPO: by step"
CURVES = {"reward": "avg_reward", "wins": "win_rate", "gold in training": "train_gold", "gold on dev": "gold_dev"}
HOURS = 24.0 * 7
LOCAL_RUNNER = LocalRunner()

FATAL = ("not-a-number", "constant-reward")
"""Names of alarms that fail the stage, since something is broken. After other alarms the training has a result."""


class PpoCounts(NamedTuple):
    rows: int
    dev_rows: int
    hard_rows: int
    trimmed: int
    """Prompts whose oldest turns of a long history were left out."""

    too_long: int
    labelled: int
    """Rows of train and dev with labels by judges, which count as gold in figures and the choice of checkpoint."""

    steps: int
    best_step: int
    """Step whose weights became the model; 0 is the SFT model, which is taken if every checkpoint is worse on dev."""

    dev_before: float
    """Dev score before the first step: share of dev rows with the gold passage first, or else the mean reward."""

    dev_after: float
    """Dev score of the model that is the result, in the unit of `dev_before`."""

    win_rate: float
    """Share of rollouts in the last five steps that retrieve better than the teacher's rewrite."""

    stopped: int
    """1 if an alarm ended the training early."""

    reused: int
    """1 if an equal training had finished before, and its result is used again."""


FIGURES = {
    "rows": "train, rows",
    "dev_rows": "dev, rows",
    "hard_rows": "hard train rows",
    "too_long": "left out as too long, rows",
    "steps": "training steps",
    "best_step": "best step",
    "dev_before": "dev score before training, gold share or mean reward",
    "dev_after": "dev score of the model, gold share or mean reward",
    "win_rate": "rollouts better than the teacher at the end, %",
    "stopped": "stopped by an alarm, 1 or 0",
}
"""Names of the figures on KFP's page, by field."""


def ppo(
    sft_model: Path,
    rows: Path,
    model: Path,
    log: Path,
    gateway_url: str,
    config: PpoConfig,
    reward_function: Path = REWARD,
    runner: Runner = LOCAL_RUNNER,
) -> PpoCounts:
    """Train the model, check it, and write its folder and the log with metrics and curve."""
    check_called_hosts(config, "ppo")
    if config.hardware.device != "cpu" and not runner.remote and "RAY_ADDRESS" not in os.environ:
        need_gpus("ppo", config.hardware.per_node)
    card = read_card(sft_model)
    parents = {"sft_model": digest(sft_model)}
    if config.critic_model:
        config = config.model_copy(update={"critic_model": str(find_critic(config.critic_model).resolve())})
        parents[CRITIC] = digest(Path(config.critic_model))
    for name in ("train", "dev"):
        if not (path := rows / f"{name}.parquet").is_file():
            raise DataError(f"{path}: no such file. The convert stage writes it.")
        parents[name] = sha256_file(path)
    # Everything that decides the result is in the key, so that no other training's checkpoints are resumed.
    device = Path(load_device(config.hardware).__file__)
    sources = [source_digest(folder) for folder in (Path(__file__).parent, device.parent, reward_function.parent)]
    chosen = config.model_dump_json(exclude={"critic_model", "trackers"})  # the critic's digest is a parent
    work = scratch_folder("ppo", *parents.values(), chosen, *sources)
    reused = (work / DONE).is_file()
    if not reused:
        if config.critic_model:
            refuse_other_vocabulary(Path(config.critic_model), sft_model)
        further = not card.leaves_out_further_rows
        prompts = prepare_prompts(rows, work, load_tokenizer(sft_model), config, further)
        if prompts.labelled:
            say(
                f"[ppo] {prompts.labelled:,} of {prompts.train + prompts.dev:,} rows have labels by judges in place "
                "of gold: what is called gold below is judged for them"
            )
        if runner.remote:
            sft_model = copy_to_scratch(sft_model, parents["sft_model"])
        watched = _train(sft_model, work, gateway_url, config, prompts, reward_function, runner)
        step = training_monitor.model_step(watched.steps)
        card = _card(card, parents, prompts, config)
        settings = {
            "sft_model": str(sft_model), "work": str(work), "card": card.model_dump(mode="json"), "trained": step > 0,
        }  # fmt: skip
        hardware = config.hardware
        run_where_trained(finish, "ppo-finish", settings, work, runner, hardware.per_node, hardware.device == "cpu")
        if gain := training_monitor.stage_gain(watched.steps, prompts.dev):
            write_gain(work / "log", gain)
        write_atomically(work / DONE, orjson.dumps(_facts(watched, prompts, step)))
        shutil.rmtree(work / "checkpoints", ignore_errors=True)
    for subfolder, target in (("model", model), ("log", log)):
        with atomic_folder(target) as partial:
            shutil.copytree(work / subfolder, partial, dirs_exist_ok=True)
    return PpoCounts(**orjson.loads((work / DONE).read_bytes()), reused=int(reused))


def _train(
    sft_model: Path,
    work: Path,
    gateway_url: str,
    config: PpoConfig,
    prompts: PreparedPrompts,
    reward_function: Path,
    runner: Runner,
) -> training_monitor.TrainingMonitor:
    """Run verl to its end. If it has a checkpoint, it resumes from the last one."""
    log, saved, verl_log = work / "log", work / "checkpoints", work / "verl.jsonl"
    log.mkdir(exist_ok=True)
    rewards = work / "reward.json"  # read by the reward function in verl's workers
    reward = {"gateway_url": gateway_url, "config": config.reward.model_dump(mode="json")}
    write_atomically(rewards, orjson.dumps(reward | {"folder": str(work / "reward")}))
    train, dev = work / "train.parquet", work / "dev.parquet"
    paths = TrainingPaths(sft_model.resolve(), train, dev, saved, reward_function, rewards)
    config = config.with_steps(prompts.train)
    padded = config.model_copy(update={"max_prompt_tokens": prompts.longest})
    started = verl_command(padded, paths, verl_log, log, ray_token(work))
    with (
        live_training("ppo", TITLE, CURVES, log / "train.log", gateway_url) as live,
        tracked(config.trackers, "ppo", log, gateway_url) as trackers,
        process_cleanup(work / "running") as (mark, temporary),
    ):
        environment = {**started.environment, **trackers, GATEWAY_VARIABLE: gateway_url}
        started = started._replace(environment=environment)
        # Several nodes join one Ray cluster before verl starts; on one node verl starts Ray itself.
        nodes = config.hardware.nodes
        command = started if runner.remote else with_local_environment(started, mark, temporary)
        job = JobSpec("ppo", command, nodes, config.hardware.per_node, "ray" if nodes > 1 else None, HOURS)
        if not runner.attaches(job):
            _forget_unfinished(work, prompts.dev_by_tenant)
        watched = training_monitor.TrainingMonitor(
            verl_log, log / "metrics.jsonl", work / "reward", prompts.dev_by_tenant, live, config.steps,
            config.patience,
            better=lambda step: checkpoints.keep_best(saved, step, work / "best"),
        )  # fmt: skip
        outcome = runner.run(job, log / "train.log", stop=watched)
        watched()  # lines that were written between its last call and the end
        curve = rows_curve(TITLE, CURVES, [step for _, step in sorted(watched.steps.items())])
        (log / CURVE_FILE).write_text(curve, encoding="utf-8")
        _explain(watched, outcome, work, log / "train.log")
    if no_gain := training_monitor.no_gain_message(watched.steps):
        say(f"[ppo] warn: {no_gain} The curve shows where it fell.")
    return watched


def _forget_unfinished(work: Path, dev: Mapping[str, int]) -> None:
    """Remove the steps after the last checkpoint, which are trained again. Keep the best of the earlier steps."""
    saved, best_folder, verl_log = work / "checkpoints", work / "best", work / "verl.jsonl"
    resumed = checkpoints.latest_step(saved)
    steps = training_monitor.resume_steps(verl_log, work / "log" / "metrics.jsonl", dev, resumed)
    if checkpoints.best_checkpoint_step(best_folder) > resumed:
        shutil.rmtree(best_folder)
    best = training_monitor.best_step(steps) or 0
    if checkpoints.best_checkpoint_step(best_folder) != best and checkpoints.actor_folder(saved, best).is_dir():
        checkpoints.keep_best(saved, best, best_folder)
    verl_log.unlink(missing_ok=True)
    clear_outage(work / "reward")


def _explain(watched: training_monitor.TrainingMonitor, outcome: Outcome, work: Path, log: Path) -> None:
    """Raise an error if the training failed. It names the step from which the next run resumes."""
    goes_on = checkpoints.latest_step(work / "checkpoints")
    again = f"Run the stage again: it goes on after step {goes_on}." if goes_on else "Run the stage again."
    best = checkpoints.best_checkpoint_step(work / "best")
    best_checkpoint = (
        f"The best checkpoint, of step {best}, is kept in {work / 'best'}." if best else "No checkpoint was reached."
    )
    if watched.outage is not None:
        raise type(watched.outage)(f"{watched.outage} {again}")
    if (alarm := watched.stopped) is not None:
        if alarm.name in FATAL or not best:
            raise TrainingError(f"Training was stopped ({alarm.name}): {alarm.message} {best_checkpoint} Log: {log}")
        say(f"[ppo] stopped ({alarm.name}); {_chosen(watched)} becomes the model")
    elif watched.stalled:
        say(f"[ppo] stopped (no better on dev, ppo.patience); {_chosen(watched)} becomes the model")
    elif outcome.code:
        failure = explain_failure("verl", outcome, log)
        raise type(failure)(f"{failure} {best_checkpoint}")
    elif not best:
        raise TrainingError(f"verl ended well but tested nothing on dev. Log: {log}")


def _chosen(watched: training_monitor.TrainingMonitor) -> str:
    step = training_monitor.model_step(watched.steps)
    return f"the checkpoint of step {step}" if step else "the SFT model, which no checkpoint reaches on dev,"


def _card(card: RewriterCard, parents: dict[str, str], prompts: PreparedPrompts, config: PpoConfig) -> RewriterCard:
    return RewriterCard(
        stage="ppo", system_prompts=prompts.system_prompts, max_new_tokens=config.max_new_tokens,
        max_prompt_tokens=config.max_prompt_tokens, left_out=card.left_out,
        parents={**{name: value for name, value in card.parents.items() if name == "base_model"}, **parents},
    )  # fmt: skip


def _facts(watched: training_monitor.TrainingMonitor, prompts: PreparedPrompts, step: int) -> dict[str, Any]:
    trained = [row for row in watched.steps.values() if "avg_reward" in row]
    wins = [row.get("win_rate", 0.0) for row in trained[-5:]]
    first = watched.steps.get(0)
    return {
        "rows": prompts.train,
        "dev_rows": prompts.dev,
        "hard_rows": prompts.hard,
        "trimmed": prompts.trimmed,
        "too_long": prompts.too_long,
        "labelled": prompts.labelled,
        "steps": int(trained[-1]["step"]),
        "best_step": step,
        "dev_before": (dev_score(first) if first else None) or 0.0,
        "dev_after": dev_score(watched.steps[step]) or 0.0,
        "win_rate": sum(wins) / len(wins),
        "stopped": int(watched.stopped is not None),
    }
