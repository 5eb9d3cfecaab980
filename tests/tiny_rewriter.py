"""A rewriter small enough to make in a test: untrained weights, a real tokenizer, the folder that stages write."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from components.training.base.config import TinyConfig
from qinglan.rewriter.card import RewriterCard, write_card

SYSTEM = "你是保健品领域的Query改写专家"
TEXTS = [
    "虾青素软胶囊 每日服用频次",
    "原始查询: 一天吃几次",
    "用户画像: 老人",
    "历史摘要: 用户正在了解虾青素",
    "请改写。",
    SYSTEM,
] * 20
SHAPE = TinyConfig(vocabulary=600, hidden=16, layers=2, heads=2, spread=0.6)
VLLM_SHAPE = TinyConfig(vocabulary=600, hidden=64, layers=2, heads=2, spread=0.2)
"""Heads of 32: the narrowest that vLLM's attention on a CPU takes."""


def tiny_model(
    folder: Path,
    stage: str = "sft",
    tenants: tuple[str, ...] = ("fivedoctors",),
    seed: int = 1,
    parents: dict[str, str] | None = None,
    shape: TinyConfig = SHAPE,
) -> Path:
    """A folder that Student.load takes."""
    from components.training.base.pretrain import new_model
    from components.training.base.tokenizer import train_tokenizer

    tokenizer: Any = train_tokenizer(TEXTS, shape)
    model = new_model(tokenizer, shape, seed)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    prompts = dict.fromkeys(tenants, SYSTEM)
    write_card(folder, RewriterCard(stage=stage, system_prompts=prompts, max_new_tokens=8, parents=parents or {}))
    return folder


TAUGHT = {
    "一天吃几次": "每日服用频次",
    "虾青素一天吃几次": "虾青素 每日服用频次",
    "虾青素软胶囊一天吃几次": "虾青素软胶囊 每日服用频次",
    "老人一天吃几次": "老人 每日服用频次",
}
"""What the taught model was shown: it ends its texts, and they differ."""

IGNORED = -100
"""Label of a token that is not to be learned, as torch's cross entropy has it."""


def taught_model(folder: Path, seed: int = 1, taught: Mapping[str, str] = TAUGHT, shape: TinyConfig = SHAPE) -> Path:
    """A tiny model that has learned a few rewrites by heart: it answers, and comes to an end."""
    folder.mkdir(parents=True)
    for name, content in _taught_files(seed, tuple(taught.items()), shape).items():
        (folder / name).write_bytes(content)
    return folder


@cache
def _taught_files(seed: int, taught: tuple[tuple[str, str], ...], shape: TinyConfig) -> Mapping[str, bytes]:
    """Each model is taught once in a process: three seconds."""
    with TemporaryDirectory() as folder:
        _teach(Path(folder), seed, taught, shape)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def _teach(folder: Path, seed: int, taught: tuple[tuple[str, str], ...], shape: TinyConfig) -> None:
    import torch

    from qinglan.prompts import Question
    from qinglan.rewriter.card import read_card
    from qinglan.rewriter.model import Student

    student = Student.load(tiny_model(folder, seed=seed, shape=shape))
    end = student.tokenizer.eos_token
    rows = [(student.prompt(Question("fivedoctors", asked)).text, f"{written}{end}") for asked, written in taught]
    optimizer = torch.optim.AdamW(student.model.parameters(), lr=1e-2)
    inputs, labels = _batch(student, rows)
    for _ in range(100):
        loss = _loss(student, inputs, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    student.model.save_pretrained(folder)
    write_card(folder, read_card(folder).model_copy(update={"max_new_tokens": 32}))


def _batch(student: Any, rows: list[tuple[str, str]]) -> tuple[Any, Any]:
    """The rows padded on the right, and the tokens to learn; the rest of the labels are ignored."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    inputs, labels = [], []
    for row in rows:
        before, after = (student.tokenizer(text, add_special_tokens=False).input_ids for text in row)
        inputs.append(torch.tensor(before + after))
        labels.append(torch.tensor([IGNORED] * len(before) + after))
    return pad_sequence(inputs, batch_first=True), pad_sequence(labels, batch_first=True, padding_value=IGNORED)


def _loss(student: Any, inputs: Any, labels: Any) -> Any:
    """Sum of the rows' mean losses. Attention looks back only, so the padding behind a row changes none of them."""
    import torch

    logits = student.model(input_ids=inputs, use_cache=False).logits[:, :-1]
    losses = torch.nn.functional.cross_entropy(
        logits.transpose(1, 2), labels[:, 1:], ignore_index=IGNORED, reduction="none"
    )
    return (losses.sum(1) / (labels[:, 1:] != IGNORED).sum(1)).sum()
