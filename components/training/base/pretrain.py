"""The tiny model and its first training: a Qwen3 of under a million parameters, a fixed number of steps."""

import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from components.training.base.config import BaseConfig, TinyConfig
from components.training.base.corpus import Text
from qinglan.progress import progress
from qinglan.rewriter import render

IGNORED = -100
WARM_UP = 20
LAST = 0.1
"""Of the learning rate, at the last step."""


class Example(NamedTuple):
    ids: list[int]
    labels: list[int]


def new_model(tokenizer: Any, config: TinyConfig, seed: int) -> Any:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer), hidden_size=config.hidden, intermediate_size=3 * config.hidden,
            num_hidden_layers=config.layers, num_attention_heads=config.heads,
            num_key_value_heads=max(1, config.heads // 2), head_dim=config.hidden // config.heads,
            max_position_embeddings=512, initializer_range=config.spread, tie_word_embeddings=True,
            bos_token_id=None, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
        )
    )  # fmt: skip


def pretrain(model: Any, tokenizer: Any, texts: Sequence[Text], config: BaseConfig) -> float:
    """Train it for the given steps; the answer is the mean loss of the last twenty."""
    import torch

    tiny = config.tiny
    examples = [example(tokenizer, text) for text in texts]
    optimizer = torch.optim.AdamW(model.parameters(), lr=tiny.learning_rate, weight_decay=0.01, betas=(0.9, 0.95))
    losses: list[float] = []
    model.train()
    with progress("base", tiny.steps) as tick:
        for step, batch in zip(range(tiny.steps), batches(examples, tiny.batch, config.seed), strict=False):
            for group in optimizer.param_groups:
                group["lr"] = tiny.learning_rate * _share(step, tiny.steps)
            loss = _loss(model, tokenizer.pad_token_id, batch)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
            tick(f"loss {losses[-1]:.2f}")
    return sum(losses[-20:]) / len(losses[-20:])


def example(tokenizer: Any, text: Text) -> Example:
    prompt = render(tokenizer, list(text.prompt)) if text.prompt else ""
    asked = tokenizer(prompt, add_special_tokens=False).input_ids
    answer = [*tokenizer(text.answer, add_special_tokens=False).input_ids, tokenizer.eos_token_id]
    return Example(asked + answer, [IGNORED] * len(asked) + answer)


def batches(examples: Sequence[Example], size: int, seed: int) -> Iterator[list[Example]]:
    """Without end; texts of near-equal length share a batch, so that little of it is padding."""
    rng = random.Random(seed)
    while True:
        order = sorted(examples, key=lambda one: len(one.ids) + 12 * rng.random())
        groups = [list(order[at : at + size]) for at in range(0, len(order), size)]
        rng.shuffle(groups)
        yield from groups


def _share(step: int, steps: int) -> float:
    return min(1.0, (step + 1) / WARM_UP) * (1 - (1 - LAST) * step / steps)


def _loss(model: Any, pad: int, batch: list[Example]) -> Any:
    """Logits are made only where there is something to predict."""
    import torch

    longest = max(len(one.ids) for one in batch)
    ids = torch.tensor([one.ids + [pad] * (longest - len(one.ids)) for one in batch])
    labels = torch.tensor([one.labels + [IGNORED] * (longest - len(one.labels)) for one in batch])
    mask = torch.tensor([[1] * len(one.ids) + [0] * (longest - len(one.ids)) for one in batch])
    hidden = model.model(input_ids=ids, attention_mask=mask).last_hidden_state[:, :-1]
    wanted = labels[:, 1:] != IGNORED
    return torch.nn.functional.cross_entropy(model.lm_head(hidden[wanted]), labels[:, 1:][wanted])
