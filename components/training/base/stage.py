"""Fetch the weights that training starts from, at a revision of the hub, or train a tiny model.

A rewriter's tiny model is trained only on the knowledge base's text. Its tokenizer also reads the training prompts,
so that users' words have tokens. A classifier's tiny model reads training rows and unlabelled texts. No text of dev
or test is read. A tiny model is cached by the digest of the files, code and settings from which it was made.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from components.training.base.config import BaseConfig
from qinglan.errors import ConfigError, DataError
from qinglan.files.files import atomic_folder, cache_folder, read_jsonl, sha256_file, sha256_text
from qinglan.files.plain_files import plain_files
from qinglan.files.scratch import source_digest
from qinglan.models.base_reference import (
    BY_REFERENCE_VARIABLE,
    REFERENCE,
    is_reference,
    weights_folder,
    write_reference,
)
from qinglan.models.base_weights import WEIGHTS_VARIABLE, local_model_folder, refuse_partial_download
from qinglan.models.references import refuse_foreign_files
from qinglan.models.safetensors_header import count_parameters
from qinglan.prompts import Message
from qinglan.rag.contract import Passage
from qinglan.rewriter.base_check import find_critic, refuse_other_vocabulary, refuse_unfit_base
from qinglan.rewriter.card import RewriterCard, write_card
from qinglan.style.rows import UNLABELLED_FILE, StyleRow, UnlabelledText

if TYPE_CHECKING:
    from components.training.base.corpus import TrainingText


class BaseCounts(NamedTuple):
    parameters: int
    vocabulary: int
    steps: int
    loss: float
    cached: int


FIGURES = {
    "parameters": "parameters",
    "vocabulary": "vocabulary, tokens",
    "steps": "training steps of a tiny model",
    "loss": "loss of a tiny model, nats per token",
    "cached": "made by an earlier run, 1 or 0",
}
"""Names of the figures on KFP's page, by field."""


def base(knowledge_base: Path, prompts: Path, model: Path, config: BaseConfig) -> BaseCounts:
    train = prompts / "train.parquet"
    files = [knowledge_base] if knowledge_base.is_file() else sorted(knowledge_base.glob("*.jsonl"))
    if config.source == "tiny" and not files:
        raise DataError(f"{knowledge_base}: no passages to train a base model from.")
    if config.source == "hub":
        return _from_hub(model, config, lambda folder: refuse_unfit_models(folder, config.critic))
    return _from_files(model, [*files, train], config, lambda folder: _train_tiny(files, train, folder, config))


def refuse_unfit_models(base: Path, critic: str | None) -> None:
    """Refuse an unfit base, or a critic on this machine that does not fit it, before SFT is paid for."""
    refuse_unfit_base(base)
    if critic and local_model_folder(critic):
        refuse_other_vocabulary(find_critic(critic), base)


def text_base(style_rows: Path, model: Path, config: BaseConfig) -> BaseCounts:
    """Write a classifier's base model. A tiny model learns from the training rows and unlabelled texts."""
    files = [path for name in (UNLABELLED_FILE, "train.jsonl") if (path := style_rows / name).is_file()]
    if config.source == "hub":
        return _from_hub(model, config, refuse_partial_download)
    return _from_files(model, files, config, lambda folder: _train_tiny_on_texts(files, folder, config))


def _from_files(model: Path, files: list[Path], config: BaseConfig, make: Callable[[Path], None]) -> BaseCounts:
    """Write the tiny model of these files. It is trained now, or copied from the cache of an earlier call."""
    contents = sorted(_content_digest(path) for path in files)
    code, settings = source_digest(Path(__file__).parent), config.model_dump_json(include={"seed", "tiny"})
    cache = cache_folder("base") / sha256_text(code, settings, *contents)[:24]
    cached = cache.is_dir()
    if not cached:
        with atomic_folder(cache) as partial:
            make(partial)
    with atomic_folder(model) as partial:
        shutil.copytree(cache, partial, dirs_exist_ok=True)
        # The parents are this call's files, even if other files with the same contents made the model.
        parents = {path.name: sha256_file(path) for path in files}
        write_card(partial, RewriterCard(stage="base", parents=parents))
    return _counts(model, config, cached)


def _from_hub(model: Path, config: BaseConfig, check: Callable[[Path], None]) -> BaseCounts:
    """Copy the files of a repository at a revision, or of a folder. Only safetensors weights are copied or accepted.

    A folder is checked before the copy, which takes minutes. If every step that uses the base model can read the
    folder of base weights, a reference is written instead of a copy.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    with atomic_folder(model) as partial:
        if folder := local_model_folder(config.model):
            _check(folder, config, check)
            if _shared(folder):
                refuse_foreign_files(folder)
                write_reference(partial, config.model, folder)
            else:
                shutil.copytree(folder, partial, dirs_exist_ok=True)
        else:
            try:
                snapshot_download(
                    config.model, revision=config.revision, local_dir=partial,
                    allow_patterns=["*.safetensors", "*.json", "*.txt", "*.jinja"],
                )  # fmt: skip
            except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
                raise ConfigError(
                    f"{config.model}@{config.revision} cannot be had from the hub: {error}. Look at base.model and "
                    "base.revision; without a way to the hub, put the files in a folder and name that, or in "
                    f"{config.model} of the folder that {WEIGHTS_VARIABLE} names."
                ) from error
            _check(partial, config, check)
        if not is_reference(partial):
            refuse_foreign_files(partial)
        write_card(partial, RewriterCard(stage="base"))
    return _counts(weights_folder(model), config, cached=False)


def _shared(folder: Path) -> bool:
    """True if other steps can read this folder by the model's name. False with links, whose targets they may lack."""
    if BY_REFERENCE_VARIABLE not in os.environ or WEIGHTS_VARIABLE not in os.environ:
        return False
    weights = Path(os.environ[WEIGHTS_VARIABLE]).resolve()
    return folder.resolve().is_relative_to(weights) and not plain_files(folder).faults


def _check(folder: Path, config: BaseConfig, check: Callable[[Path], None]) -> None:
    if not any(folder.glob("*.safetensors")):
        raise DataError(f"{config.model}: no .safetensors; a pickle could run code and is not taken.")
    if is_reference(folder):
        raise DataError(f"{config.model}: holds {REFERENCE}, which no published model has. Download the model again.")
    check(folder)


def _train_tiny(files: list[Path], train: Path, folder: Path, config: BaseConfig) -> None:
    from components.training.base.corpus import build_corpus

    shown = list(_prompts(train))
    systems = _system_prompts(shown)
    passages = {path: [row for _, row in read_jsonl(path, Passage)] for path in files}
    texts = [
        text
        for path, rows in passages.items()
        for text in build_corpus(systems.get(path.stem) or next(iter(systems.values())), rows, config.seed)
    ]
    written = [text.answer for text in texts] + [turn["content"] for _, prompt in shown for turn in prompt]
    _pretrain([*written, *["system user assistant"] * 50], texts, folder, config)


def _train_tiny_on_texts(files: list[Path], folder: Path, config: BaseConfig) -> None:
    from components.training.base.corpus import TrainingText

    unlabelled = [
        row.text for path in files if path.name == UNLABELLED_FILE for _, row in read_jsonl(path, UnlabelledText)
    ]
    train = [row.input for path in files if path.name != UNLABELLED_FILE for _, row in read_jsonl(path, StyleRow)]
    written = [*unlabelled, *train]
    _pretrain(written, [TrainingText((), text) for text in written], folder, config)


def _pretrain(written: Sequence[str], texts: "Sequence[TrainingText]", folder: Path, config: BaseConfig) -> None:
    from components.training.base.pretrain import new_model, pretrain
    from components.training.base.tokenizer import train_tokenizer

    tokenizer = train_tokenizer(written, config.tiny)
    model = new_model(tokenizer, config.tiny, config.seed)
    loss = pretrain(model, tokenizer, texts, config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "loss.txt").write_text(f"{loss:.4f}\n")


def _prompts(train: Path) -> Iterator[tuple[str, list[Message]]]:
    import pyarrow.parquet

    for batch in pyarrow.parquet.ParquetFile(train).iter_batches(columns=["data_source", "prompt"]):
        for row in batch.to_pylist():
            yield row["data_source"].removeprefix("qinglan/"), row["prompt"]


def _system_prompts(prompts: Iterable[tuple[str, list[Message]]]) -> dict[str, str]:
    """Return each tenant's system prompt as the convert stage rendered it, which may be the profile's."""
    system_prompts: dict[str, str] = {}
    for tenant, prompt in prompts:
        system_prompts.setdefault(tenant, prompt[0]["content"])
    return dict(sorted(system_prompts.items()))


def _content_digest(path: Path) -> str:
    """Return the digest of what is learned from a file. A parquet's bytes also depend on the library that wrote it,
    and on columns that are not read, so only its prompts count."""
    if path.suffix != ".parquet":
        return sha256_file(path)
    return sha256_text(*(orjson.dumps(prompt).decode() for prompt in _prompts(path)))


def _counts(model: Path, config: BaseConfig, cached: bool) -> BaseCounts:
    described: dict[str, Any] = orjson.loads((model / "config.json").read_bytes())
    loss = model / "loss.txt"
    return BaseCounts(
        parameters=count_parameters(model),
        vocabulary=int(described["vocab_size"]),
        steps=config.tiny.steps if config.source == "tiny" else 0,
        loss=float(loss.read_text()) if loss.exists() else 0.0,
        cached=int(cached),
    )
