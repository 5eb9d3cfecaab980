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
"""Texts that the taught model learned: it ends its texts, and they differ."""


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
    rows = [
        (student.prompt(Question("fivedoctors", question)).text, f"{written}{end}") for question, written in taught
    ]
    tokens, labels = _batch(student, rows)
    optimizer = torch.optim.AdamW(student.model.parameters(), lr=1e-2)
    for _ in range(100):
        loss = len(rows) * student.model(input_ids=tokens, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    student.model.save_pretrained(folder)
    write_card(folder, read_card(folder).model_copy(update={"max_new_tokens": 32}))


def _batch(student: Any, rows: list[tuple[str, str]]) -> tuple[Any, Any]:
    """Tokens and labels of all rows, padded at their ends, which no earlier token sees."""
    import torch

    tokens, labels = [], []
    for prompt, written in rows:
        before, after = (student.tokenizer(text, add_special_tokens=False).input_ids for text in (prompt, written))
        tokens.append(torch.tensor(before + after))
        labels.append(torch.tensor([-100] * len(before) + after))
    pad = torch.nn.utils.rnn.pad_sequence
    return pad(tokens, batch_first=True), pad(labels, batch_first=True, padding_value=-100)
