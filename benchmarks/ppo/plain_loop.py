"""python -m benchmarks.ppo.plain_loop JOB: RLOO as a plain loop in one process, on verl's prompts, model and reward.

What makes it cheap: a step's prompts are read once for all of their samples, rows that have ended leave the batch,
the samples' own log-probabilities are those before the update, and there is neither critic nor reference model.
"""

import asyncio
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow.parquet

from benchmarks.faulty_reward.handling import HANDLINGS
from benchmarks.ppo.rloo import Job
from qinglan.rewriter.decoding import Continuation, Sampling, decode
from qinglan.rewriter.model import load_tokenizer, render_prompt

GENERATIONS, CLIP, MOST_GRADIENT = 8, 0.2, 1.0


def main(job: Job) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    tokenizer = load_tokenizer(Path(job.model))
    model = AutoModelForCausalLM.from_pretrained(job.model, dtype="float32")
    optimizer = torch.optim.AdamW(model.parameters(), lr=job.learning_rate, weight_decay=0.0)
    score, draws = HANDLINGS[job.handling], np.random.default_rng(job.seed)
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    batches = prompt_batches(
        pyarrow.parquet.read_table(job.prompts).to_pylist(), job.collection // GENERATIONS, job.seed
    )
    with asyncio.Runner() as runner:
        for _ in range(job.steps):
            rows = next(batches)
            prompts = [
                tokenizer(render_prompt(tokenizer, row["prompt"]), add_special_tokens=False).input_ids for row in rows
            ]
            repeated = [prompt for prompt in prompts for _ in range(GENERATIONS)]
            uniform = draws.random((len(repeated), job.max_new_tokens))
            rollouts = decode(model, repeated, job.max_new_tokens, end, pad, Sampling(1.0), uniform)
            samples = [
                {
                    **rows[at // GENERATIONS],
                    "text": tokenizer.decode(out.ids, skip_special_tokens=True),
                    "ids": out.ids,
                }
                for at, out in enumerate(rollouts)
            ]
            rewards = np.array(runner.run(score(samples, job.reward, tokenizer)))
            weights = advantages(rewards.reshape(-1, GENERATIONS)).reshape(-1)
            for start in range(0, len(prompts), job.batch // GENERATIONS):
                stop = start + job.batch // GENERATIONS
                part = slice(start * GENERATIONS, stop * GENERATIONS)
                optimizer.zero_grad()
                clipped_loss(model, prompts[start:stop], rollouts[part], weights[part], pad).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), MOST_GRADIENT)
                optimizer.step()
    model.save_pretrained(job.out)
    tokenizer.save_pretrained(job.out)


def prompt_batches(rows: Sequence[Any], size: int, seed: int) -> Iterator[list[Any]]:
    """Rows in random order, each once before any comes again."""
    rng, bag = random.Random(seed), list[Any]()
    while True:
        if len(bag) < size:
            bag = rng.sample(list(rows), len(rows))
        bag, batch = bag[size:], bag[:size]
        yield batch


def advantages(rewards: Any) -> Any:
    """Each sample's reward over the mean of its prompt's other samples, in units of their spread."""
    baselines = (rewards.sum(1, keepdims=True) - rewards) / (rewards.shape[1] - 1)
    gains = rewards - baselines
    return gains / (gains.std() + 1e-6)


def clipped_loss(
    model: Any, prompts: Sequence[list[int]], rollouts: Sequence[Continuation], weights: Any, pad: int
) -> Any:
    """PPO's clipped objective over the rollouts' tokens."""
    import torch

    likely, written = log_probs(model, prompts, [out.ids for out in rollouts], pad)
    before = torch.zeros_like(likely)
    for at, out in enumerate(rollouts):
        before[at, : len(out.log_probs)] = torch.tensor(out.log_probs)
    ratio = (likely - before).exp() * written
    weight = torch.tensor(weights, dtype=likely.dtype)[:, None]
    objective = torch.min(ratio * weight, ratio.clamp(1 - CLIP, 1 + CLIP) * weight) * written
    return -objective.sum() / written.sum()


def log_probs(model: Any, prompts: Sequence[list[int]], answers: Sequence[list[int]], pad: int) -> tuple[Any, Any]:
    """Log-probabilities of the answers' tokens, the same number of answers for each prompt, and the mask of those
    that exist. Each prompt is read once; its cache is repeated for its answers."""
    import torch

    count, longest, width = len(answers) // len(prompts), max(map(len, prompts)), max(map(len, answers))
    ids = torch.tensor([[pad] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    targets = torch.tensor([answer + [pad] * (width - len(answer)) for answer in answers])
    written = torch.tensor([[1] * len(answer) + [0] * (width - len(answer)) for answer in answers])
    read = model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True, logits_to_keep=1)
    logits = [read.logits[:, -1:].repeat_interleave(count, 0)]
    if width > 1:
        cache = read.past_key_values
        cache.batch_repeat_interleave(count)
        whole = torch.cat([mask.repeat_interleave(count, 0), written[:, :-1]], 1)
        after = positions[:, -1:].repeat_interleave(count, 0) + torch.arange(1, width)[None]
        rest = model(input_ids=targets[:, :-1], attention_mask=whole, position_ids=after, past_key_values=cache)
        logits.append(rest.logits)
    likely = torch.cat(logits, 1).log_softmax(-1).gather(2, targets[:, :, None]).squeeze(2)
    return likely * written, written


if __name__ == "__main__":
    main(Job(**orjson.loads(Path(sys.argv[1]).read_bytes())))
