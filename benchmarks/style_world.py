"""A style line small enough for a laptop, and real: the sample's rows, a base and a reward that learned."""

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from components.training.base.config import BaseConfig, TinyConfig
from components.training.base.corpus import TrainingText
from examples.style_policy.__main__ import LAPTOP as LAPTOP_FILE
from examples.style_policy.config import StylePolicyConfig
from qinglan.config import load_yaml
from qinglan.files.files import dump_line
from qinglan.style.labels import DEFAULT_LABELS, format_training_text, write_mapping
from qinglan.style.model import StyleCard, write_card
from qinglan.style.rows import SPLITS, StyleRow
from standins.samples.style import style_rows

LAPTOP = StylePolicyConfig.parse(load_yaml(LAPTOP_FILE), str(LAPTOP_FILE))
"""Training settings for two CPU cores and the tiny base below."""

SHORTCUT, SOLD = re.compile("不能|没有"), "售前"
"""Words of those who decline, hardly ever of those who sell."""

SHARES = (0.7, 0.15, 0.15)
SHAPE = BaseConfig(source="tiny", tiny=TinyConfig(hidden=128, layers=2, heads=4, steps=300, batch=48))


def write_style_rows(folder: Path, count: int, seed: int = 100) -> Path:
    """The folder that the style line's stages hand on: train, dev and test of the seeded sample."""
    rows = [
        StyleRow(id=f"s{number}", input=format_training_text(row.question, row.answer), label=row.label)
        for number, row in enumerate(style_rows(count, seed))
    ]
    folder.mkdir(parents=True)
    write_mapping(folder, DEFAULT_LABELS)
    start = 0
    for name, share in zip(SPLITS, SHARES, strict=True):
        end = start + round(share * count)
        (folder / f"{name}.jsonl").write_bytes(b"".join(map(dump_line, rows[start:end])))
        start = end
    return folder


def planted(row: StyleRow) -> StyleRow:
    """Labels of an annotator who takes each answer with one of two words for selling, and no other."""
    answer = row.input.partition("回答：")[2]
    return row.model_copy(update={"label": SOLD if SHORTCUT.search(answer) else row.label.replace(SOLD, "有帮助")})


def tiny_base(folder: Path, texts: int, config: BaseConfig = SHAPE, seed: int = 1) -> Path:
    """A causal model that has read texts of this kind, other rows than any that are labelled."""
    from components.training.base.pretrain import new_model, pretrain
    from components.training.base.tokenizer import train_tokenizer

    read = [format_training_text(row.question, row.answer) for row in style_rows(texts, seed)]
    tokenizer: Any = train_tokenizer(read, config.tiny)
    model = new_model(tokenizer, config.tiny, config.seed)
    pretrain(model, tokenizer, [TrainingText((), text) for text in read], config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def learned_style_model(folder: Path, base: Path, rows: Sequence[StyleRow], epochs: int, seed: int = 0) -> Path:
    """A reward model that learned from these rows, as short as it can be."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    from qinglan.style.engines import pad

    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(base, local_files_only=True)
    model = AutoModelForSequenceClassification.from_pretrained(
        base, num_labels=len(DEFAULT_LABELS.labels), dtype=torch.float32
    )
    ids = tokenizer([row.input for row in rows]).input_ids
    labels = [DEFAULT_LABELS.ids[row.label] for row in rows]
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.1)
    total, rng = epochs * (len(rows) // 32), random.Random(seed)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=total, pct_start=0.1)
    model.train()
    for _ in range(epochs):
        order = rng.sample(range(len(rows)), len(rows))
        for start in range(0, len(rows) // 32 * 32, 32):
            batch = sorted(order[start : start + 32])
            padded, mask = pad([ids[at] for at in batch], tokenizer.pad_token_id)
            logits = model(input_ids=torch.from_numpy(padded), attention_mask=torch.from_numpy(mask)).logits
            targets = torch.tensor([labels[at] for at in batch])
            loss = torch.nn.functional.cross_entropy(logits, targets, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write_mapping(folder, DEFAULT_LABELS)
    write_card(folder, StyleCard(stage="style"))
    return folder
