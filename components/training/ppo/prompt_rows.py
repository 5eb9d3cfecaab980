"""Choose the prompts with which verl trains and tests, from the rows of the data stages."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from components.training.ppo.config import PpoConfig
from qinglan.errors import DataError, RowError
from qinglan.files.files import atomic_file, atomic_write, dump_line
from qinglan.prompts import refuse_control_tokens
from qinglan.reward.episode import refuse_other_retrieval
from qinglan.reward.reward_function import read_prompt
from qinglan.rewriter.model import fit_prompt, refuse_lossy_tokenizer
from qinglan.rows.prompt_parquet import read_prompts
from qinglan.rows.rows import quarantine_row
from qinglan.rows.training_rows import question_of

STEP = "ppo"
LEFT_OUT = "left_out.jsonl"
"""File in the log's folder with the prompts that verl does not get, each with its reason and figures."""


class PreparedPrompts(NamedTuple):
    """Counts of the prompts that were written for verl."""

    train: int
    dev: int
    hard: int
    """Training rows, before sampling, for which the teacher's rewrite misses the right passage."""

    labelled: int
    """Rows of train and dev without gold, for which judges have labelled the right passages."""

    trimmed: int
    """Prompts whose oldest turns of a long history were left out."""

    too_long: int
    """Prompts that were left out, since they have too many tokens even without any history."""

    longest: int
    """Tokens of the longest prompt. verl pads all prompts to this length, so a shorter one saves time."""

    dev_by_tenant: dict[str, int]
    """Number of dev rows by data source. verl averages over each data source."""

    system_prompts: dict[str, str]


def prepare_prompts(
    rows: Path, work: Path, tokenizer: Any, config: PpoConfig, further: bool = True
) -> PreparedPrompts:
    """Write train.parquet and dev.parquet for verl, with the prompts of at most `max_prompt_tokens`.

    In train.parquet hard rows are repeated up to `hard_share`. If `further` is False, train.parquet leaves out the
    questions that the teacher wrote from passages.
    """
    train, dev = (_read(rows / f"{name}.parquet") for name in ("train", "dev"))
    if not further:
        train = [row for row in train if row["extra_info"].get("kind") != "pseudo"]
    refuse_lossy_tokenizer(tokenizer, train[0]["prompt"], "The SFT model")
    # The reward would refuse this at the first rollout, after machines were started and models loaded.
    first = read_prompt(train[0]["extra_info"], train[0]["reward_model"]["ground_truth"], train[0]["data_source"])
    refuse_other_retrieval(first, config.reward.retrieval)
    splits = {"train": train, "dev": dev}
    fits = {name: _fit_to_length(split, tokenizer, config.max_prompt_tokens) for name, split in splits.items()}
    for name, left in fits.items():
        if not left.rows:
            raise DataError(
                f"{rows / f'{name}.parquet'}: no prompt has {config.max_prompt_tokens} tokens or fewer. "
                "Raise ppo.max_prompt_tokens."
            )
    hard = [is_hard(row["extra_info"]) for row in fits["train"].rows]
    chosen = [fits["train"].rows[at] for at in oversample_hard(hard, config.hard_share, config.seed)]
    if len(chosen) < config.prompts:
        raise DataError(
            f"{rows / 'train.parquet'}: {len(chosen)} prompts are fewer than the {config.prompts} of one step. "
            "Lower ppo.collection, or bring more rows."
        )
    tested = random.Random(config.seed).sample(fits["dev"].rows, min(len(fits["dev"].rows), config.dev_rows))
    too_long = [entry for fitting in fits.values() for entry in fitting.too_long]
    not_drawn = [*_not_drawn(fits["train"].rows, chosen), *_not_drawn(fits["dev"].rows, tested)]
    _write_left_out(too_long, not_drawn, config, work / "log" / LEFT_OUT)
    _write(chosen, rows / "train.parquet", work / "train.parquet")
    _write(tested, rows / "dev.parquet", work / "dev.parquet")
    return PreparedPrompts(
        train=len(chosen), dev=len(tested), hard=sum(hard),
        labelled=sum(is_labelled(row["extra_info"]) for row in (*chosen, *tested)),
        trimmed=sum(left.trimmed for left in fits.values()),
        too_long=len(too_long),
        longest=max(left.longest for left in fits.values()),
        dev_by_tenant=dict(Counter(row["data_source"] for row in tested)),
        system_prompts={row["extra_info"]["tenant_id"]: row["prompt"][0]["content"] for row in train},
    )  # fmt: skip


def is_hard(row: Mapping[str, Any]) -> bool:
    """True if the teacher's rewrite does not find gold first or, without gold, was rejected by the validate stage."""
    if len(row["gold"]):
        return bool(row["teacher_retrieval"]["gold_rank"] != 1)
    return not row["accepted"]


def is_labelled(row: Mapping[str, Any]) -> bool:
    """True if the row has labels by judges instead of gold."""
    return not len(row["gold"]) and bool(row.get("labels") is not None and len(row["labels"]))


def oversample_hard(hard: Sequence[bool], share: float, seed: int) -> list[int]:
    """Draw row positions, as many as there are rows, so that `share` of them are hard. A row is repeated only after
    all rows of its kind are used."""
    kinds = {kind: [at for at, flag in enumerate(hard) if flag == kind] for kind in (True, False)}
    if not share or not all(kinds.values()):
        return list(range(len(hard)))
    counts = {True: round(share * len(hard))}
    counts[False] = len(hard) - counts[True]
    rng = random.Random(seed)
    out: list[int] = []
    for kind, positions in kinds.items():
        rounds, rest = divmod(counts[kind], len(positions))
        out += positions * rounds + rng.sample(positions, rest)
    return sorted(out)


class LengthSplit(NamedTuple):
    """Rows whose prompt fits, and rows that are too long with their number of tokens."""

    rows: list[dict[str, Any]]
    longest: int
    trimmed: int
    too_long: list[tuple[dict[str, Any], int]]


def _fit_to_length(rows: Sequence[dict[str, Any]], tokenizer: Any, allowed: int) -> LengthSplit:
    prompts = [fit_prompt(tokenizer, row["prompt"], allowed) for row in rows]
    fits = [
        (row | {"prompt": prompt.messages}, prompt)
        for row, prompt in zip(rows, prompts, strict=True)
        if prompt.tokens <= allowed
    ]
    return LengthSplit(
        [row for row, _ in fits],
        max((prompt.tokens for _, prompt in fits), default=0),
        sum(prompt.trimmed for _, prompt in fits),
        [(row, prompt.tokens) for row, prompt in zip(rows, prompts, strict=True) if prompt.tokens > allowed],
    )


def _not_drawn(rows: Sequence[dict[str, Any]], drawn: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    ids = {row["extra_info"]["id"] for row in drawn}
    return [row for row in rows if row["extra_info"]["id"] not in ids]


def _write_left_out(
    too_long: Sequence[tuple[dict[str, Any], int]],
    not_drawn: Sequence[dict[str, Any]],
    config: PpoConfig,
    target: Path,
) -> None:
    with atomic_file(target) as file:
        for row, tokens in too_long:
            detail = (
                f"its prompt has {tokens:,} tokens without any history, "
                f"ppo.max_prompt_tokens allows {config.max_prompt_tokens:,}"
            )
            file.write(_left_out(row, "prompt_too_long", detail))
        for row in not_drawn:
            setting = "dev_rows" if row["extra_info"]["split"] == "dev" else "hard_share"
            detail = f"ppo.{setting} is {getattr(config, setting):g}, and other rows were drawn by ppo.seed"
            file.write(_left_out(row, "not_drawn", detail))


def _left_out(row: Mapping[str, Any], reason: str, detail: str) -> bytes:
    return dump_line(quarantine_row(question_of(row["extra_info"]), STEP, RowError(reason, detail)))


def _read(path: Path) -> list[dict[str, Any]]:
    rows = list(read_prompts(path))
    if not rows:
        raise DataError(f"{path}: no rows. Look at the convert stage's counts, and at the sheet's splits.")
    for number, row in enumerate(rows, 1):
        refuse_control_tokens(row["prompt"], f"{path}: row {number}")
    return rows


def _write(rows: list[dict[str, Any]], like: Path, target: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    with atomic_write(target) as partial:
        schema = pyarrow.parquet.read_schema(like)
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), partial)
