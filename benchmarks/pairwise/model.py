"""A small pairwise judge: TRL's RewardTrainer on the judge's decisions, from the run's own SFT model."""

import tempfile
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

from benchmarks.pairwise.decisions import SEED, Decisions, Side
from benchmarks.pairwise.regression import brightness, covered, known
from qinglan.reward.episode import Prompt
from qinglan.rewriter import load_tokenizer

MOST_PAIRS = 8
"""Of one prompt."""

EPOCHS, BATCH, LEARNING_RATE = 3, 16, 1e-3
MARGIN = 6.0
"""How far apart two scores are asked to be, for each point in [0, 1] between the judge's."""

TOGETHER = 64

Words = Callable[[Prompt, str, Side], str]


def conversation_words(prompt: Prompt, text: str, side: Side) -> str:
    """The conversation, and what the text competes with."""
    fields = {
        "原始查询": prompt.question, "历史摘要": prompt.history_summary, "老师": prompt.teacher_rewrite, "改写": text,
    }  # fmt: skip
    return "\n".join(f"{name}: {said}" for name, said in fields.items() if said)


def retrieval_words(prompt: Prompt, text: str, side: Side) -> str:
    """The same, and what the regression knows, in digits."""
    return f"{conversation_words(prompt, text, side)}\n质量 {_digit(side.quality)} 首 {_digit(brightness(side.top1))}"


def all_words(prompt: Prompt, text: str, side: Side) -> str:
    """And what the regression with words knows."""
    shares = f"知 {_digit(known(prompt, text))} 需 {_digit(covered(prompt.need, text))}"
    return f"{retrieval_words(prompt, text, side)} {shares}"


class PairwiseJudge:
    """Scores texts so that of two, the one that the judge prefers is likely to have more."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self._model, self._tokenizer = model, tokenizer

    @classmethod
    def trained(cls, sft_model: Path, decisions: Decisions, fit: Collection[str], words: Words) -> "PairwiseJudge":
        """From the SFT model's weights, on the fit prompts' pairs alone."""
        import torch
        from datasets import Dataset
        from transformers import AutoModelForSequenceClassification, PrinterCallback
        from transformers.utils.logging import disable_progress_bar, set_verbosity_error
        from trl import RewardConfig, RewardTrainer

        disable_progress_bar()
        set_verbosity_error()
        torch.manual_seed(SEED)
        model = AutoModelForSequenceClassification.from_pretrained(sft_model, num_labels=1, dtype=torch.float32)
        tokenizer = load_tokenizer(sft_model)
        with tempfile.TemporaryDirectory() as scratch:
            settings = RewardConfig(
                output_dir=scratch, num_train_epochs=EPOCHS, per_device_train_batch_size=BATCH, seed=SEED,
                learning_rate=LEARNING_RATE, lr_scheduler_type="cosine", warmup_steps=0.05, max_length=None,
                use_cpu=True, bf16=False, report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True,
                gradient_checkpointing=False, dataloader_pin_memory=False,
            )  # fmt: skip
            rows = Dataset.from_list(list(_rows(decisions, fit, words, tokenizer)))
            trainer = RewardTrainer(model=model, args=settings, train_dataset=rows, processing_class=tokenizer)
            trainer.remove_callback(PrinterCallback)
            trainer.train()
        return cls(model.eval(), tokenizer)

    def scores(self, texts: Iterable[str]) -> dict[str, float]:
        """Each text's score; on no scale but that of the others."""
        import torch

        ordered = sorted(set(texts), key=len)
        scored: dict[str, float] = {}
        for start in range(0, len(ordered), TOGETHER):
            some = ordered[start : start + TOGETHER]
            ids = [_ids(self._tokenizer, text) for text in some]
            inputs = self._tokenizer.pad({"input_ids": ids}, padding_side="right", return_tensors="pt")
            with torch.inference_mode():
                logits = self._model(input_ids=inputs.input_ids, attention_mask=inputs.attention_mask).logits
            scored |= zip(some, logits[:, 0].tolist(), strict=True)
        return scored


def _rows(
    decisions: Decisions, fit: Collection[str], words: Words, tokenizer: Any
) -> Iterable[dict[str, list[int] | float]]:
    for id, better, worse in decisions.pairs(fit, MOST_PAIRS):
        prompt, sides = decisions.prompts[id], decisions.sides[id]
        chosen, rejected = (_ids(tokenizer, words(prompt, text, sides[text])) for text in (better, worse))
        margin = MARGIN * (sides[better].judge - sides[worse].judge)
        yield {"chosen_ids": chosen, "rejected_ids": rejected, "margin": margin}


def _ids(tokenizer: Any, text: str) -> list[int]:
    """The score is read at the end of the turn."""
    ids: list[int] = tokenizer(text + tokenizer.eos_token, add_special_tokens=False).input_ids
    return ids


def _digit(share: float) -> int:
    return min(9, int(share * 10))
