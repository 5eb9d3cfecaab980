"""python -m benchmarks.sft: SFT's tokens a second on this machine, padded, and what packing could save at most.

No profile packs rows: ms-swift asks for flash attention then, and an epoch would have too few optimizer steps. The
ratio says what that costs: the share of a padded batch that is real tokens.
"""

import os
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import orjson

from benchmarks.report import report
from components.training.base.config import BaseConfig
from components.training.base.stage import base
from components.training.sft.stage import sft
from pipelines.lines.config import load_config
from qinglan.rag.retrieval import RetrievalConfig
from qinglan.rewriter.model import load_tokenizer, render_prompt
from qinglan.rows.questions import Columns, read_questions
from qinglan.rows.rows import Hit, Question, Retrieval, ValidatedRewrite
from qinglan.rows.training_rows import ppo_row, sft_row
from standins.samples import write_sample

CONVERSATIONS = 400
TARGET = 0.8
"""Below this share of real tokens, padding costs so much that rows should be sorted into batches of like length."""


class Lengths(NamedTuple):
    real: int
    padded: int


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        os.environ["QINGLAN_SCRATCH"] = str(folder / "scratch")
        config = load_config("fivedoctors", "demo")
        chats, prompts = write_rows(folder)
        tiny = BaseConfig(source="tiny", tiny=config.base.tiny.model_copy(update={"steps": 20}))
        base(folder / "data" / "knowledge_base.jsonl", prompts, folder / "base", tiny)
        settings = config.sft.model_copy(update={"epochs": 2.0})
        started = time.perf_counter()
        counts = sft(folder / "base", chats, folder / "model", folder / "log", settings)
        seconds = time.perf_counter() - started
        measured = lengths(folder / "base", chats / "train.jsonl", settings.batch)
        tokens = measured.real * settings.epochs
        report(
            "sft", measured.real / measured.padded, TARGET, measured.real / measured.padded >= TARGET,
            rows=counts.rows, steps=counts.steps, tokens_per_second=round(tokens / seconds),
            seconds=round(seconds, 1),
        )  # fmt: skip


def write_rows(folder: Path) -> tuple[Path, Path]:
    """Chats whose answers repeat the question, and prompts: their lengths are what counts here."""
    from qinglan.rows.prompt_parquet import ParquetRows

    write_sample("fivedoctors", folder / "data", CONVERSATIONS, seed=100)
    rows = list(read_questions(folder / "data" / "questions.xlsx", Columns(), "fivedoctors"))
    validated = [_validated(row) for row in rows if isinstance(row, Question)]
    (folder / "chats").mkdir()
    for name in ("train", "dev"):
        chosen = [orjson.dumps(sft_row(row, "train", 1.0)) for row in validated if row.split == name]
        (folder / "chats" / f"{name}.jsonl").write_bytes(b"\n".join(chosen) + b"\n")
    with ParquetRows(folder / "prompts" / "train.parquet") as file:
        for row in validated:
            if row.split == "train":
                file.add(ppo_row(row, "train"))
    return folder / "chats", folder / "prompts"


def _validated(row: Question) -> ValidatedRewrite:
    measured = Retrieval(query=row.question, hits=(Hit(id="k", reranker_score=0.5),), top1_score=0.5, count=1)
    return ValidatedRewrite(
        **row.model_dump(exclude={"need"}), rewritten_query=row.question, teacher="bench", call="", need=row.question,
        need_source="sheet", scored_against="need", snapshot="s", retrieved_with=RetrievalConfig(), plain=measured,
        rewritten=measured, accepted=True, reason="",
    )  # fmt: skip


def lengths(base_model: Path, chats: Path, batch: int) -> Lengths:
    """Tokens of the rows, and of batches padded to their longest, in the file's order."""
    tokenizer = load_tokenizer(base_model)
    counts = []
    for line in chats.read_bytes().splitlines():
        messages = orjson.loads(line)["messages"]
        text = render_prompt(tokenizer, messages[:2]) + messages[2]["content"]
        counts.append(len(tokenizer(text, add_special_tokens=False).input_ids) + 2)
    groups = [counts[at : at + batch] for at in range(0, len(counts), batch)]
    return Lengths(sum(counts), sum(max(group) * len(group) for group in groups))


if __name__ == "__main__":
    main()
