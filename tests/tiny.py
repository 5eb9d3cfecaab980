"""A rewriter small enough to make in a test: untrained weights, a real tokenizer, the folder that stages write."""

from pathlib import Path
from typing import Any

from components.training.base.config import TinyConfig
from qinglan.rewriter import RewriterCard, write_card

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


def tiny_model(
    folder: Path,
    stage: str = "sft",
    tenants: tuple[str, ...] = ("fivedoctors",),
    seed: int = 1,
    parents: dict[str, str] | None = None,
) -> Path:
    """A folder that Student.load takes."""
    from components.training.base.pretrain import new_model
    from components.training.base.tokenizer import train_tokenizer

    tokenizer: Any = train_tokenizer(TEXTS, SHAPE)
    model = new_model(tokenizer, SHAPE, seed)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    prompts = dict.fromkeys(tenants, SYSTEM)
    write_card(folder, RewriterCard(stage=stage, system_prompts=prompts, max_new_tokens=8, parents=parents or {}))
    return folder
