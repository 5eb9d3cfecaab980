"""Turn the best checkpoint into a model folder: merge an adapter, and try the model with the serving prompt.

    python -m components.training.sft.finish SETTINGS

This needs memory for the whole model, so it runs where the training ran (qinglan/jobs/module_job.py).
"""

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from components.training.sft.config import SftConfig
from qinglan.errors import TrainingError
from qinglan.files.files import atomic_folder
from qinglan.files.scratch import last_checkpoint
from qinglan.jobs.module_job import module_job_main
from qinglan.models.references import ADAPTER_CONFIG, ADAPTER_FOLDER, ADAPTER_WEIGHTS
from qinglan.rewriter.card import RewriterCard, write_card
from qinglan.rewriter.model import Student, unusable_answer

MODEL_FILES = ("*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json", "*.jinja")
TOKENIZER_FILES = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt")
TRIED = 64
"""Number of dev rows with which the finished model is tried."""


def finish(settings: Mapping[str, Any]) -> dict[str, Any]:
    base, dev, work = (Path(settings[name]) for name in ("base", "dev", "work"))
    config = SftConfig.model_validate(settings["config"])
    write_model(base, work, RewriterCard.model_validate(settings["card"]), config)
    return smoke_test(work / "model", dev)


def best_checkpoint(folder: Path) -> Path:
    """Return the checkpoint with the lowest validation loss, which the last checkpoint's trainer state names."""
    last = last_checkpoint(folder)
    best = orjson.loads((last / "trainer_state.json").read_bytes())["best_model_checkpoint"] if last else None
    if not best or not (checkpoint := folder / Path(best).name).is_dir():
        raise TrainingError(f"{folder}: no best checkpoint there. See the log beside it.")
    return checkpoint


def write_model(base: Path, work: Path, card: RewriterCard, config: SftConfig) -> None:
    """Write the best checkpoint as a model folder. An adapter is merged, and also kept beside the weights."""
    best = best_checkpoint(work / "checkpoints")
    with atomic_folder(work / "model") as folder:
        if config.tuner == "lora":
            merge(base, best, folder, config.dtype)
        else:
            for pattern in MODEL_FILES:
                _copy(best, pattern, folder)
        # The tokenizer is copied from the base, since ms-swift may save it in another form than it loaded.
        for pattern in (*TOKENIZER_FILES, "chat_template.jinja"):
            _copy(base, pattern, folder)
        if config.tuner == "lora":
            (folder / ADAPTER_FOLDER).mkdir()
            for pattern in (ADAPTER_WEIGHTS, ADAPTER_CONFIG):
                _copy(best, pattern, folder / ADAPTER_FOLDER)
        write_card(folder, card)


def merge(base: Path, adapter: Path, folder: Path, dtype: str) -> None:
    """Save the base's weights with the adapter merged into them.

    PEFT merges in this process. `swift export` would start another process, whose imports take half a minute.
    """
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        base, dtype=getattr(torch, dtype), use_safetensors=True, local_files_only=True
    )
    PeftModel.from_pretrained(model, adapter).merge_and_unload().save_pretrained(folder)


def _copy(source: Path, pattern: str, target: Path) -> None:
    for path in source.glob(pattern):
        shutil.copyfile(path, target / path.name)


def smoke_test(model: Path, dev: Path) -> dict[str, Any]:
    """Load the finished model and try the serving prompt. Returns the share of answers that equal the teacher's, and
    an unusable answer if the model gives no usable one."""
    student = Student.load(model)
    rows = [orjson.loads(line) for line in dev.read_bytes().splitlines()[:TRIED]]
    written = student.write_messages([row["messages"][:2] for row in rows])
    targets = [str(row["messages"][2]["content"]) for row in rows]
    alike = sum(rewrite.text == text for rewrite, text in zip(written, targets, strict=True))
    return {"like_teacher": alike / len(targets), "unusable": unusable_answer(written)}


if __name__ == "__main__":
    sys.exit(module_job_main(sys.argv[1], finish))
