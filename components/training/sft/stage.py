"""Train the student on the teacher's accepted rewrites with ms-swift.

In reading order: `sft` compares models with and without further rows (`_train_both`). `train_student` is one
training. `_train` runs ms-swift. finish.py makes a model of the best checkpoint and tries it with the serving prompt.

If the teacher wrote further rows, a second model is trained without them, and dev decides which of the two is used. A
killed training resumes from its last checkpoint; a finished one is not repeated.
"""

import shutil
from pathlib import Path
from typing import NamedTuple

import orjson

from components.training.sft.chat_rows import read_chats, write_fitting
from components.training.sft.command import Paths, train_command
from components.training.sft.config import SftConfig
from components.training.sft.finish import finish
from components.training.sft.further_rows import compare, gain_in_words, read_dev_rows
from components.training.sft.model_family import with_family
from components.training.sft.training_monitor import TrainingMonitor
from qinglan.errors import TrainingError
from qinglan.evaluation.stage_gain import StageGain, write_gain
from qinglan.files.files import atomic_folder, dump_line, sha256_file, write_atomically
from qinglan.files.scratch import copy_to_scratch, scratch_folder, source_digest
from qinglan.jobs import JobSpec, LocalRunner, Runner
from qinglan.jobs.command_failures import explain_failure
from qinglan.jobs.gpus import need_gpus
from qinglan.jobs.module_job import run_where_trained
from qinglan.jobs.processes import PROCESS_MARK_VARIABLE, process_cleanup
from qinglan.live.alarms import sft_without_gain
from qinglan.live.trackers import tracked
from qinglan.live.view import WHOLE, Part, live_training
from qinglan.models.base_reference import base_digest, is_reference, weights_folder
from qinglan.pages.curves import CURVE_FILE, rows_curve
from qinglan.rewriter.card import FURTHER_ROWS, RewriterCard, read_card, write_card
from qinglan.rewriter.model import load_tokenizer, refuse_lossy_tokenizer, refuse_unusable, render_prompt
from qinglan.rows.training_rows import WITHOUT_FURTHER
from qinglan.terminal import say

DONE, LEFT_OUT = "done.json", "left_out.jsonl"
CHATS = "chats"
"""Folder of the chats that ms-swift gets. It is beside the checkpoints, so that a job's pods can read it."""

TITLE, CURVES = "SFT: loss by step", {"training": "loss", "validation": "eval_loss"}
COMPARISON = Part("compared on dev")
HOURS = 24.0 * 7
LOCAL_RUNNER = LocalRunner()


class SftCounts(NamedTuple):
    rows: int
    dev_rows: int
    steps: int
    eval_loss: float
    token_accuracy: float
    """Token accuracy on dev at the best checkpoint."""

    like_teacher: float
    """Share of rewrites that equal the teacher's, among the rows with which the model was tried."""

    trimmed: int
    """Rows of train and dev whose oldest turns of a long history were left out."""

    reused: int
    """1 if an equal training had finished before, and its result is used again."""

    too_long: int = 0
    """Rows of train and dev that were left out, since they are longer than max_length without any history."""

    compared: int = 0
    """Dev rows on which the models with and without the further rows were compared; 0 without a comparison."""

    dev_without: float | None = None
    """Share of the compared rows with a right passage first, for the model without the further rows."""

    dev_with: float | None = None
    """Share of the compared rows with a right passage first, for the model with the further rows."""

    dev_unrewritten: float | None = None
    """Share of the compared rows with a right passage first, for the questions without a rewrite."""

    unproved: int = 0
    """1 if further rows were used without a comparison on dev."""


FIGURES = {
    "rows": "train, rows",
    "dev_rows": "dev, rows",
    "steps": "training steps",
    "eval_loss": "loss on dev, nats per token",
    "token_accuracy": "right tokens on dev, %",
    "like_teacher": "rewrites like the teacher's, %",
    "too_long": "left out as too long, rows",
    "dev_without": "right passage first on dev, without further rows, %",
    "dev_with": "right passage first on dev, with further rows, %",
    "dev_unrewritten": "right passage first on dev, questions as asked, %",
}
"""Names of the figures on KFP's page, by field."""


class Trained(NamedTuple):
    work: Path
    """Folder of the training, with the subfolders `model` and `log`."""

    counts: SftCounts
    unusable: str | None
    """An unusable answer of the model, if it gives no usable one; else None."""


def sft(
    base: Path,
    chats: Path,
    model: Path,
    log: Path,
    config: SftConfig,
    runner: Runner = LOCAL_RUNNER,
    gateway_url: str = "",
) -> SftCounts:
    """Train the model, check it, and write its folder and the log with metrics and loss curve.

    The gateway at `gateway_url` shows the training while it runs, and searches for the comparison. Leave it empty if
    there is no gateway.
    """
    if config.device != "cpu" and not runner.remote:
        need_gpus("sft", config.gpus)
    further = (chats / WITHOUT_FURTHER).is_dir()
    if further and config.compare_further_rows:
        trained, gain = _train_both(base, chats, config, runner, gateway_url)
    else:
        trained, gain = train_student(base, chats, config, runner, gateway_url), None
    refuse_unusable(
        trained.unusable, "Look at the loss curve: it has to fall; more epochs or another sft.learning_rate may help."
    )
    _hand_on(trained.work, model, log, gain)
    if gain is None:
        return trained.counts._replace(unproved=int(further))
    return trained.counts._replace(
        compared=gain.rows, dev_without=gain.before, dev_with=gain.after, dev_unrewritten=gain.unrewritten
    )


def _train_both(
    base: Path, chats: Path, config: SftConfig, runner: Runner, gateway_url: str
) -> tuple[Trained, StageGain | None]:
    """Train a model without the further rows and a model with them; return the model that is better on dev. If no dev
    row has a known right passage, only the model with the further rows is trained."""
    without = chats / WITHOUT_FURTHER
    rows = read_dev_rows(without / "dev.parquet", config.seed)
    if not rows:
        say("[sft] No dev row has a passage that is known to be right: the further rows are used unproved.")
        return train_student(base, chats, config, runner, gateway_url), None
    plain = train_student(base, without, config, runner, gateway_url, Part("without further rows", 1, 2))
    trained = train_student(base, chats, config, runner, gateway_url, Part("with further rows", 2, 2))
    gain = compare(plain.work, trained.work, rows, config, runner, gateway_url)
    if (plain.unusable is None) != (trained.unusable is None):
        gain = gain.model_copy(update={"taken": trained.unusable is None})
        say(f"[sft] The model {'without' if gain.taken else 'with'} further rows answers nothing usable.")
    say(f"[sft] {gain_in_words(gain)}")
    # The shares on dev are shown as a training's figures, with an alarm if SFT is no better than no rewriting.
    with live_training("sft", "SFT: right passage first on dev", {}, None, gateway_url, COMPARISON) as live:
        figures = {"dev_unrewritten": gain.unrewritten or 0.0, "dev_without": gain.before, "dev_with": gain.after}
        live.step({"step": 1, **figures}, 1)
        alarm = sft_without_gain(gain.rows, gain.unrewritten or 0.0, gain.of_taken)
        live.check([alarm] if alarm else [])
    return trained if gain.taken else plain, gain


def _hand_on(work: Path, model: Path, log: Path, gain: StageGain | None) -> None:
    """Copy the model and the log of a training, and write the result of the comparison into card and log."""
    with atomic_folder(model) as partial:
        shutil.copytree(work / "model", partial, dirs_exist_ok=True)
        if gain and not gain.taken:
            write_card(partial, read_card(partial).model_copy(update={"left_out": (FURTHER_ROWS,)}))
    with atomic_folder(log) as partial:
        shutil.copytree(work / "log", partial, dirs_exist_ok=True)
        if gain:
            write_gain(partial, gain)


def train_student(
    base: Path, chats: Path, config: SftConfig, runner: Runner, gateway_url: str, part: Part = WHOLE
) -> Trained:
    """Train on these chats, and check the model. If an equal training has finished, its result is read instead.

    `part` names the training on the live page, if the step has two trainings.
    """
    names = ("train.jsonl", "dev.jsonl")
    train, _ = (read_chats(chats / name) for name in names)
    parents = {"base_model": base_digest(base)} | {Path(name).stem: sha256_file(chats / name) for name in names}
    # Everything that decides the result is in the key, so that no other training's checkpoints are resumed.
    key = (*parents.values(), config.model_dump_json(exclude={"trackers"}), source_digest(Path(__file__).parent))
    work = scratch_folder("sft", *key)
    reused = (work / DONE).is_file()
    if not reused:
        shared, base = is_reference(base), weights_folder(base)
        tokenizer, prompt = load_tokenizer(base), train.first[:2]
        refuse_lossy_tokenizer(tokenizer, prompt, str(base))
        fitted, dev_fitted = (write_fitting(tokenizer, chats / name, work / CHATS / name, config) for name in names)
        too_long = [*fitted.too_long, *dev_fitted.too_long]
        if too_long:
            first = too_long[0]
            say(f"[sft] {len(too_long):,} rows are too long and left out: {first.where} has {first.detail}")
        write_atomically(work / "log" / LEFT_OUT, b"".join(map(dump_line, too_long)))
        chats = work / CHATS
        config = with_family(config, base, render_prompt(tokenizer, prompt), prompt)
        if runner.remote:
            base = base if shared else copy_to_scratch(base, parents["base_model"])
        metrics = _train(base, chats, work, fitted.rows, config, runner, gateway_url, part)
        card = RewriterCard(
            stage="sft", system_prompts=train.system_prompts, max_new_tokens=config.max_new_tokens,
            max_prompt_tokens=config.max_prompt_tokens, parents=parents,
        )  # fmt: skip
        settings = {
            "base": str(base), "dev": str(chats / "dev.jsonl"), "work": str(work),
            "config": config.model_dump(mode="json"), "card": card.model_dump(mode="json"),
        }  # fmt: skip
        on_cpu = config.device == "cpu"
        tried = run_where_trained(finish, "sft-finish", settings, work, runner, config.processes, on_cpu)
        (work / "log" / "metrics.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in metrics))
        (work / "log" / CURVE_FILE).write_text(rows_curve(TITLE, CURVES, metrics), encoding="utf-8")
        best = min((row for row in metrics if "eval_loss" in row), key=lambda row: row["eval_loss"])
        facts = {
            **tried, "steps": max(row["step"] for row in metrics), "eval_loss": best["eval_loss"],
            "token_accuracy": best.get("eval_token_accuracy", 0.0), "rows": fitted.rows, "dev_rows": dev_fitted.rows,
            "trimmed": fitted.trimmed + dev_fitted.trimmed, "too_long": len(too_long),
        }  # fmt: skip
        write_atomically(work / DONE, orjson.dumps(facts))
        shutil.rmtree(work / "checkpoints")
    facts = orjson.loads((work / DONE).read_bytes())
    unusable = facts.pop("unusable")
    return Trained(work, SftCounts(reused=int(reused), **facts), unusable)


def _train(
    base: Path, chats: Path, work: Path, rows: int, config: SftConfig, runner: Runner, gateway_url: str, part: Part
) -> list[dict[str, float]]:
    """Run ms-swift to its end, and return the metrics. If it has a checkpoint, it resumes from the last one."""
    checkpoints, log = work / "checkpoints", work / "log" / "train.log"
    with live_training("sft", TITLE, CURVES, log, gateway_url, part) as live:
        watch = TrainingMonitor(checkpoints / "logging.jsonl", live)
        paths = Paths(base, chats / "train.jsonl", chats / "dev.jsonl", checkpoints)
        command = train_command(config, paths, rows)
        with (
            tracked(config.trackers, "sft", log.parent, gateway_url) as trackers,
            process_cleanup(work / "running") as (mark, _),
        ):
            environment = {**command.environment, **trackers, PROCESS_MARK_VARIABLE: mark}
            marked = command._replace(environment=environment)
            job = JobSpec("sft", marked, config.nodes, config.processes, "torchrun", HOURS)
            outcome = runner.run(job, log, stop=watch)
            watch()  # lines that were written between its last call and the end
        if live.stopped:
            raise TrainingError(
                f"Training stopped: {live.stopped.message} The setting is sft.learning_rate; the checkpoints before "
                f"it are kept in {work}. Log: {log}"
            )
        if outcome.code:
            raise explain_failure("ms-swift", outcome, log)
        if not any("eval_loss" in row for row in watch.metrics):
            raise TrainingError(f"No validation took place. See {log}.")
    return watch.metrics
