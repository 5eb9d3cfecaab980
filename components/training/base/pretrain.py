"""Create and train the tiny model: a Qwen3 with fewer than a million parameters, in a fixed number of steps.

A step's texts form two groups, each with texts of similar length. Two threads compute the groups at the same time,
one thread for each, and the gradients are added in the order of the groups. So the same seed gives the same bytes on
any number of cores, busy or idle.
"""

import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

from components.training.base.config import BaseConfig, TinyConfig
from components.training.base.corpus import TrainingText
from qinglan.rewriter.model import render_prompt
from qinglan.terminal.progress import progress

IGNORED = -100
"""Label of tokens that do not count for the loss:
https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html"""

WARM_UP = 20
LAST = 0.1
"""Learning rate of the last step, as a share of the highest."""

GROUPS = 2
"""Number of groups in a step, which are computed at the same time."""

LONGEST = 128
"""Largest number of tokens learned from a text. A passage can fill a page, and a step's time grows with tokens."""

JITTER = 12
"""Largest random number added to a text's length, in tokens, when texts are sorted into groups. It makes groups
differ between passes."""


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


def pretrain(model: Any, tokenizer: Any, texts: Sequence[TrainingText], config: BaseConfig) -> float:
    """Train the model; returns the mean loss of the last twenty steps."""
    import torch

    tiny = config.tiny
    cut = examples(tokenizer, texts, config.seed)
    steps = batches([len(example.ids) for example in cut], tiny.batch, config.seed)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(
        parameters, lr=tiny.learning_rate, weight_decay=0.01, betas=(0.9, 0.95), fused=True
    )  # fmt: skip
    losses: list[float] = []
    model.train()

    def learn(group: Sequence[int]) -> tuple[float, Sequence[Any]]:
        return _loss_and_gradients(model, tokenizer.pad_token_id, [cut[number] for number in group])

    with progress("base", tiny.steps) as tick, single_threaded_torch(), ThreadPoolExecutor(GROUPS) as threads:
        for step, groups in zip(range(tiny.steps), steps, strict=False):
            # The learning rate rises over the first steps, and falls linearly to LAST.
            share = min(1.0, (step + 1) / WARM_UP) * (1 - (1 - LAST) * step / tiny.steps)
            for settings in optimizer.param_groups:
                settings["lr"] = tiny.learning_rate * share
            group_losses, gradients = zip(*threads.map(learn, groups), strict=True)
            # The mean over the groups, so that a long group counts no more than a short one.
            for parameter, *parts in zip(parameters, *gradients, strict=True):
                parameter.grad = sum(parts[1:], parts[0]) / len(parts)
            losses.append(sum(group_losses) / len(group_losses))
            # With such a high learning rate, gradients must be clipped.
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            tick(f"loss {losses[-1]:.2f}")
    return sum(losses[-20:]) / len(losses[-20:])


def examples(tokenizer: Any, texts: Sequence[TrainingText], seed: int) -> list[Example]:
    """Return texts as tokens. A text above LONGEST is cut: with a prompt its end is kept, else a random piece."""
    rng = random.Random(seed)
    prompts = iter(_ids(tokenizer, [render_prompt(tokenizer, list(text.prompt)) for text in texts if text.prompt]))
    answers = _ids(tokenizer, [text.answer for text in texts])
    cut = []
    for text, answer in zip(texts, answers, strict=True):
        prompt = next(prompts) if text.prompt else []
        ids = [*prompt, *answer, tokenizer.eos_token_id]
        labels = [IGNORED] * len(prompt) + ids[len(prompt) :]
        spare = max(0, len(ids) - LONGEST)
        start = rng.randint(0, spare) if spare and not prompt else spare
        cut.append(Example(ids[start : start + LONGEST], labels[start : start + LONGEST]))
    return cut


def _ids(tokenizer: Any, texts: list[str]) -> list[list[int]]:
    return list(tokenizer(texts, add_special_tokens=False).input_ids) if texts else []


def batches(lengths: Sequence[int], size: int, seed: int) -> Iterator[list[list[int]]]:
    """Yield each step's groups of text numbers, without end. Texts of a group have similar lengths, to save padding.

    Every text comes once before any text comes again.
    """
    rng = random.Random(seed)
    group = max(1, size // GROUPS)
    while True:
        order = sorted(range(len(lengths)), key=lambda number: lengths[number] + JITTER * rng.random())
        groups = [order[at : at + group] for at in range(0, len(order), group)]
        rng.shuffle(groups)
        for at in range(0, len(groups), GROUPS):
            yield groups[at : at + GROUPS]


@contextmanager
def single_threaded_torch() -> Iterator[None]:
    """Let torch compute each operation with one thread, since the number of threads changes the order of sums."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _loss_and_gradients(model: Any, pad: int, group: Sequence[Example]) -> tuple[float, Sequence[Any]]:
    import torch

    longest = max(len(example.ids) for example in group)
    ids = torch.tensor([example.ids + [pad] * (longest - len(example.ids)) for example in group])
    labels = torch.tensor([example.labels + [IGNORED] * (longest - len(example.labels)) for example in group])
    predicted = labels[:, 1:] != IGNORED
    logits = logits_at(model, ids, torch.nn.functional.pad(predicted, (0, 1)))
    loss = torch.nn.functional.cross_entropy(logits, labels[:, 1:][predicted])
    return loss.item(), torch.autograd.grad(loss, list(model.parameters()))


def logits_at(model: Any, ids: Any, chosen: Any) -> Any:
    """Return the logits at the chosen positions; the last layer computes only these.

    Texts are padded at their end. With causal attention no token attends to the padding, so no mask is needed.
    """
    import torch

    hidden = model.model.embed_tokens(ids)
    positions = model.model.rotary_emb(hidden, torch.arange(ids.shape[1])[None])
    *layers, last = model.model.layers
    for layer in layers:
        hidden = layer(hidden, position_embeddings=positions)
    attended, _ = last.self_attn(last.input_layernorm(hidden), position_embeddings=positions, attention_mask=None)
    hidden = (hidden + attended)[chosen]
    hidden = hidden + last.mlp(last.post_attention_layernorm(hidden))
    return model.lm_head(model.model.norm(hidden))
