"""The student learns the teacher's accepted rewrites: ms-swift trains, the best checkpoint by validation loss is
merged where it is an adapter, and what comes out is tried with the serving prompt before it counts.

A training that was killed goes on from its last checkpoint; one that was finished is not done again.
"""

import os
import shutil
from pathlib import Path
from typing import NamedTuple

import orjson

from components.training.sft.command import Paths, merge_command, train_command
from components.training.sft.config import SftConfig
from components.training.sft.rows import Chats, check_lengths, check_tokenizer, read_chats
from components.training.sft.watch import Watch
from qinglan.curves import CURVE, curve_svg
from qinglan.errors import TrainingError
from qinglan.files import replaced, replaced_folder, sha256_file
from qinglan.gpus import need_gpus
from qinglan.jobs import Command, run
from qinglan.jobs.failures import explain_failure
from qinglan.jobs.processes import MARK, nothing_left
from qinglan.lineage.digests import digest
from qinglan.progress import steps
from qinglan.rewriter import RewriterCard, Student, load_tokenizer, refuse_unusable, write_card
from qinglan.scratch import last_checkpoint, scratch, source_digest

MODEL_FILES = ("*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json", "*.jinja")
TOKENIZER_FILES = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt")
TRIED = 64
"""Development rows that the finished model is asked."""

DONE = "done.json"


class SftCounts(NamedTuple):
    rows: int
    dev_rows: int
    steps: int
    eval_loss: float
    token_accuracy: float
    """On the validation rows, at the best checkpoint."""

    like_teacher: float
    """Of the rows tried, the share that is written as the teacher wrote it."""

    reused: int
    """1 when this very training had been finished before."""


def sft(base: Path, chats: Path, model: Path, log: Path, config: SftConfig) -> SftCounts:
    """Train, check and write the model's folder, and beside it the log with metrics and loss curve."""
    train, dev = read_chats(chats / "train.jsonl"), read_chats(chats / "dev.jsonl")
    if config.device != "cpu":
        need_gpus("sft", config.gpus)
    _check_base(base, train, chats, config)
    parents = {"base_model": digest(base), "train": sha256_file(chats / "train.jsonl")}
    parents["dev"] = sha256_file(chats / "dev.jsonl")
    key = (*parents.values(), config.model_dump_json(), source_digest(Path(__file__).parent))
    work = scratch("sft", *key)
    reused = (work / DONE).is_file()
    if not reused:
        metrics = _train(base, chats, work, config)
        card = RewriterCard(
            stage="sft", system_prompts=train.system_prompts, max_new_tokens=config.max_new_tokens, parents=parents
        )
        _finish(base, work, card, config)
        like = _try(work / "model", chats / "dev.jsonl")
        _write_log(work, metrics)
        best = min((row for row in metrics if "eval_loss" in row), key=lambda row: row["eval_loss"])
        facts = {"steps": max(row["step"] for row in metrics), "eval_loss": best["eval_loss"], "like_teacher": like}
        facts["token_accuracy"] = best.get("eval_token_accuracy", 0.0)
        with replaced(work / DONE) as partial:
            partial.write_bytes(orjson.dumps(facts))
        shutil.rmtree(work / "checkpoints")
    for made, target in (("model", model), ("log", log)):
        with replaced_folder(target) as partial:
            shutil.copytree(work / made, partial, dirs_exist_ok=True)
    facts = orjson.loads((work / DONE).read_bytes())
    return SftCounts(rows=train.rows, dev_rows=dev.rows, reused=int(reused), **facts)


def _check_base(base: Path, train: Chats, chats: Path, config: SftConfig) -> None:
    tokenizer = load_tokenizer(base)
    check_tokenizer(tokenizer, train, base)
    for name in ("train", "dev"):
        check_lengths(tokenizer, chats / f"{name}.jsonl", config.max_length)


def _train(base: Path, chats: Path, work: Path, config: SftConfig) -> list[dict[str, float]]:
    """Run ms-swift to its end, from its last checkpoint where there is one."""
    checkpoints = work / "checkpoints"
    with steps("sft") as show, nothing_left(work / "running") as (mark, _):

        def tick(row: dict[str, float], total: int) -> None:
            losses = [f"{name.replace('_', ' ')} {row[name]:.3f}" for name in ("loss", "eval_loss") if name in row]
            show(int(row["step"]), total, ", ".join(losses))

        paths = Paths(base, chats / "train.jsonl", chats / "dev.jsonl", checkpoints, last_checkpoint(checkpoints))
        watch = Watch(checkpoints / "logging.jsonl", tick)
        (work / "log").mkdir(exist_ok=True)
        command = train_command(config, paths, os.environ)
        marked = command._replace(environment={**command.environment, MARK: mark})
        _run(marked, work / "log" / "train.log", watch)
    if not any("eval_loss" in row for row in watch.metrics):
        raise TrainingError(f"No validation took place. See {work / 'log' / 'train.log'}.")
    return watch.metrics


def _run(command: Command, log: Path, watch: Watch | None = None) -> None:
    code = run(command, log, stop=watch or (lambda: False))
    if watch:
        watch()
    if watch and watch.trouble:
        raise TrainingError(
            f"Training stopped: {watch.trouble}. Lower sft.learning_rate or look for odd rows; the checkpoints "
            f"before it are kept in {log.parent.parent}. Log: {log}"
        )
    if code:
        raise explain_failure("ms-swift", code, log)


def best_checkpoint(folder: Path) -> Path:
    """The one with the lowest validation loss, as the last one's trainer state names it."""
    last = last_checkpoint(folder)
    best = orjson.loads((last / "trainer_state.json").read_bytes())["best_model_checkpoint"] if last else None
    if not best or not (found := folder / Path(best).name).is_dir():
        raise TrainingError(f"{folder}: no best checkpoint there. See the log beside it.")
    return found


def _finish(base: Path, work: Path, card: RewriterCard, config: SftConfig) -> None:
    """Best checkpoint to model folder; an adapter is merged, and kept beside the merged weights."""
    best = best_checkpoint(work / "checkpoints")
    weights = best
    if config.tuner == "lora":
        weights = work / "merged"
        shutil.rmtree(weights, ignore_errors=True)
        _run(merge_command(config, best, weights), work / "log" / "merge.log")
    with replaced_folder(work / "model") as folder:
        for pattern in MODEL_FILES:
            _copy(weights, pattern, folder)
        for pattern in TOKENIZER_FILES:  # the base's own: what training saved may have been rewritten
            _copy(base, pattern, folder)
        _copy(base, "chat_template.jinja", folder)
        if config.tuner == "lora":
            (folder / "adapter").mkdir()
            for pattern in ("adapter_model.safetensors", "adapter_config.json"):
                _copy(best, pattern, folder / "adapter")
        write_card(folder, card)
    shutil.rmtree(work / "merged", ignore_errors=True)


def _copy(source: Path, pattern: str, target: Path) -> None:
    for path in source.glob(pattern):
        shutil.copyfile(path, target / path.name)


def _try(model: Path, dev: Path) -> float:
    """The finished model loads and answers the serving prompt; the share of answers like the teacher's."""
    student = Student.load(model)
    rows = [orjson.loads(line) for line in dev.read_bytes().splitlines()[:TRIED]]
    written = student.write_messages([row["messages"][:2] for row in rows])
    refuse_unusable(
        written, "Look at the loss curve: it has to fall; more epochs or another sft.learning_rate may help."
    )
    wanted = [str(row["messages"][2]["content"]) for row in rows]
    return sum(one.text == text for one, text in zip(written, wanted, strict=True)) / len(wanted)


def _write_log(work: Path, metrics: list[dict[str, float]]) -> None:
    lines = b"".join(orjson.dumps(row) + b"\n" for row in metrics)
    (work / "log" / "metrics.jsonl").write_bytes(lines)
    series: dict[str, list[tuple[float, float]]] = {
        label: [(row["step"], row[name]) for row in metrics if name in row]
        for label, name in (("training", "loss"), ("validation", "eval_loss"))
    }
    (work / "log" / CURVE).write_text(curve_svg("SFT: loss by step", series), encoding="utf-8")
