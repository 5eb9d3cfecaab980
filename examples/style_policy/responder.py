"""A causal model that answers, and how far it has gone from where it began."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

BATCH = 128
"""Answers written at once."""


SCORED = 16
"""Answers whose probabilities are asked for at once: each token has as many as there are words."""


class Answer(NamedTuple):
    """One completion."""

    text: str
    ids: list[int]
    """With the end, where it came to one."""

    finished: bool


class Responder(NamedTuple):
    """Weights and tokenizer in memory, and how answers are drawn."""

    model: Any
    tokenizer: Any
    temperature: float
    max_new_tokens: int

    def answer(self, prompts: Sequence[str], seed: int) -> list[Answer]:
        """One for each prompt, in order; the same ones for the same weights and seed."""
        import torch

        was_training = self.model.training
        self.model.eval()
        devices = [self.model.device] if self.model.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices), torch.inference_mode():
            torch.manual_seed(seed)
            answers = [answer for batch in _batches(prompts, BATCH) for answer in self._generate(batch)]
        self.model.train(was_training)
        return answers

    def _generate(self, prompts: Sequence[str]) -> Iterator[Answer]:
        encoded = self.tokenizer(list(prompts), return_tensors="pt", padding=True, padding_side="left")
        start = encoded.input_ids.shape[1]
        out = self.model.generate(
            input_ids=encoded.input_ids.to(self.model.device),
            attention_mask=encoded.attention_mask.to(self.model.device),
            do_sample=True, temperature=self.temperature, top_k=0, top_p=1.0, max_new_tokens=self.max_new_tokens,
            eos_token_id=self.tokenizer.eos_token_id, pad_token_id=self.tokenizer.pad_token_id,
        )  # fmt: skip
        for row in out[:, start:].tolist():
            finished = self.tokenizer.eos_token_id in row
            ids = row[: row.index(self.tokenizer.eos_token_id) + 1] if finished else row
            yield Answer(self.tokenizer.decode(ids, skip_special_tokens=True), ids, finished)


def open_responder(folder: Path, device: str, temperature: float, max_new_tokens: int) -> Responder:
    """In float32, which training needs; answers are drawn as GRPO draws them."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, use_safetensors=True, local_files_only=True
    )
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return Responder(model.to(device), tokenizer, temperature, max_new_tokens)


def divergence(now: Responder, start: Responder, prompts: Sequence[str], answers: Sequence[Answer]) -> float:
    """KL from the start in nats a token, estimated on the answers that are given now."""
    pairs = list(zip(prompts, answers, strict=True))
    difference = sum(
        _log_probability(now, batch) - _log_probability(start, batch) for batch in _batches(pairs, SCORED)
    )
    return difference / max(1, sum(len(answer.ids) for answer in answers))


def _log_probability(responder: Responder, pairs: Sequence[tuple[str, Answer]]) -> float:
    """Of all these answers together."""
    import torch

    from qinglan.style.engines import pad

    prompt_ids = [responder.tokenizer(prompt).input_ids for prompt, _ in pairs]
    ids, mask = pad(
        [[*before, *answer.ids] for before, (_, answer) in zip(prompt_ids, pairs, strict=True)],
        responder.tokenizer.pad_token_id,
    )
    device, model = responder.model.device, responder.model
    was_training = model.training
    model.eval()
    with torch.inference_mode():
        inputs = torch.from_numpy(ids).to(device)
        logits = model(input_ids=inputs, attention_mask=torch.from_numpy(mask).to(device)).logits
        each = (logits[:, :-1] / responder.temperature).log_softmax(-1).gather(-1, inputs[:, 1:, None])[..., 0]
        total = sum(
            float(each[at, len(before) - 1 : len(before) - 1 + len(answer.ids)].sum())
            for at, (before, (_, answer)) in enumerate(zip(prompt_ids, pairs, strict=True))
        )
    model.train(was_training)
    return total


def _batches(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for at in range(0, len(items), size):
        yield items[at : at + size]
