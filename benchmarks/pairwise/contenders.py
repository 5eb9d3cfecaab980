"""Stand-ins for the paid judge: an online ridge regression, or a small pairwise judge trained by TRL.

A contender learns from judged rollouts and gives each of the texts a score; higher is better.
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.pairwise.judged import SEED, Rolled, Text, pairs
from qinglan.reward.episode import Prompt
from qinglan.reward.impute import FEATURE_COUNT, Imputer, features, raw_features
from qinglan.rewriter.model import load_tokenizer

MOST_PAIRS = 8
"""Most pairs of one prompt."""

EPOCHS, BATCH, LEARNING_RATE = 3, 16, 1e-3
MARGIN = 6.0
"""The distance that two scores shall have, for each point in [0, 1] between the judge's."""

TOGETHER = 64

Contender = Callable[[Path, Sequence[Rolled], Sequence[Text]], list[float]]


def straight(run: Path, known: Sequence[Rolled], texts: Sequence[Text]) -> list[float]:
    """The reward's Imputer as it was: a line through quality and first score."""
    return _regressed(Imputer(2), lambda text: (text.quality, text.top1), known, texts)


def bent(run: Path, known: Sequence[Rolled], texts: Sequence[Text]) -> list[float]:
    """The reward's Imputer."""
    return _regressed(Imputer(FEATURE_COUNT), lambda text: features(*_described(text)), known, texts)


def pairwise(run: Path, known: Sequence[Rolled], texts: Sequence[Text]) -> list[float]:
    """TRL's RewardTrainer from the run's SFT model; beside a text it reads the figures of the bent regression."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForSequenceClassification, PrinterCallback
    from transformers.utils.logging import disable_progress_bar, set_verbosity_error
    from trl import RewardConfig, RewardTrainer

    disable_progress_bar()
    set_verbosity_error()
    torch.manual_seed(SEED)
    sft_model = run / "files" / "sft_model"
    model = AutoModelForSequenceClassification.from_pretrained(sft_model, num_labels=1, dtype=torch.float32)
    tokenizer = load_tokenizer(sft_model)
    rows = [
        {
            "chosen_ids": _ids(tokenizer, better), "rejected_ids": _ids(tokenizer, worse),
            "margin": MARGIN * (better.judge - worse.judge),
        }
        for better, worse in pairs(known, MOST_PAIRS)
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:
        settings = RewardConfig(
            output_dir=scratch, num_train_epochs=EPOCHS, per_device_train_batch_size=BATCH, seed=SEED,
            learning_rate=LEARNING_RATE, lr_scheduler_type="cosine", warmup_steps=0.05, max_length=None,
            use_cpu=True, bf16=False, report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True,
            gradient_checkpointing=False, dataloader_pin_memory=False,
        )  # fmt: skip
        rows = Dataset.from_list(rows)
        trainer = RewardTrainer(model=model, args=settings, train_dataset=rows, processing_class=tokenizer)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return _scored(model.eval(), tokenizer, texts)


CONTENDERS: dict[str, Contender] = {
    "regression, straight": straight, "regression, bent": bent, "pairwise judge": pairwise,
}  # fmt: skip


def _regressed(
    imputer: Imputer, describe: Callable[[Text], Sequence[float]], known: Sequence[Rolled], texts: Sequence[Text]
) -> list[float]:
    for entry in known:
        imputer.add(describe(entry.student), entry.student.judge)
        imputer.add(describe(entry.teacher), entry.teacher.judge)
    return [imputer.predict(describe(text)) for text in texts]


def _scored(model: Any, tokenizer: Any, texts: Sequence[Text]) -> list[float]:
    import torch

    ids = [_ids(tokenizer, text) for text in texts]
    order = sorted(range(len(ids)), key=lambda at: len(ids[at]))
    scores = [0.0] * len(ids)
    for start in range(0, len(order), TOGETHER):
        some = order[start : start + TOGETHER]
        inputs = tokenizer.pad({"input_ids": [ids[at] for at in some]}, padding_side="right", return_tensors="pt")
        with torch.inference_mode():
            logits = model(input_ids=inputs.input_ids, attention_mask=inputs.attention_mask).logits
        for at, score in zip(some, logits[:, 0].tolist(), strict=True):
            scores[at] = score
    return scores


def _ids(tokenizer: Any, text: Text) -> list[int]:
    """The conversation, what the text competes with, and the regression's figures; the score is read at the end."""
    prompt = text.prompt
    fields = {
        "原始查询": prompt.question, "历史摘要": prompt.history_summary, "老师": prompt.teacher_rewrite,
        "改写": text.rewrite,
    }  # fmt: skip
    digits = zip(("质量", "首", "知", "需"), raw_features(*_described(text)), strict=True)
    lines = [f"{name}: {content}" for name, content in fields.items() if content]
    words = "\n".join([*lines, " ".join(f"{name} {min(9, int(10 * figure))}" for name, figure in digits)])
    ids: list[int] = tokenizer(words + tokenizer.eos_token, add_special_tokens=False).input_ids
    return ids


def _described(text: Text) -> tuple[Prompt, str, float, float]:
    return text.prompt, text.rewrite, text.quality, text.top1
