"""SFT and RLOO of the tiny student as plain loops in one process: seconds, where ms-swift and verl take minutes.

A step's prompts are computed once for all of their rollouts, in sampling and in the update.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.headroom.world import Row, World
from qinglan.prompts import Message
from qinglan.rewriter.decoding import Continuation, Sampling, decode
from qinglan.rewriter.model import Student, render_prompt
from qinglan.text import one_line


class SftSettings(NamedTuple):
    """The laptop profile's numbers; more epochs, since there are fewer rows."""

    epochs: int = 6
    batch: int = 32
    learning_rate: float = 1e-3
    warm_up: float = 0.1


class RlooSettings(NamedTuple):
    """REINFORCE with a leave-one-out baseline; the numbers of the laptop's PPO where there is one."""

    steps: int = 30
    prompts: int = 16
    samples: int = 8
    batch: int = 4
    """Prompts of an update; with their samples, 32 rollouts."""

    hard_share: float = 0.5
    learning_rate: float = 5e-4
    clip: float = 0.2
    most_gradient: float = 0.5


SEED, LONGEST, TOGETHER = 42, 20, 128
SFT, RLOO = SftSettings(), RlooSettings()


class Policy:
    """A student whose log-probabilities can be trained."""

    def __init__(self, folder: Path) -> None:
        student = Student.load(folder)
        self.student = Student(
            student.model, student.tokenizer, student.card.model_copy(update={"max_new_tokens": LONGEST})
        )
        self.model, self.tokenizer = self.student.model, self.student.tokenizer
        self.end, self.pad = self.tokenizer.eos_token_id, self.tokenizer.pad_token_id

    def ids(self, prompt: list[Message]) -> list[int]:
        return list(self.tokenizer(render_prompt(self.tokenizer, prompt), add_special_tokens=False).input_ids)

    def answer_ids(self, text: str) -> list[int]:
        return [*self.tokenizer(text, add_special_tokens=False).input_ids, self.end]

    def text(self, ids: Sequence[int]) -> str:
        return one_line(self.tokenizer.decode([token for token in ids if token != self.end]))

    def write(self, rows: Sequence[Row]) -> list[str]:
        """Greedy rewrites of the rows."""
        out: list[str] = []
        for batch in _batches(rows, TOGETHER):
            prompts = [self.ids(row.prompt) for row in batch]
            out += [self.text(row.ids) for row in decode(self.model, prompts, LONGEST, self.end, self.pad)]
        return out

    def sample(self, rows: Sequence[Row], count: int) -> list[list[str]]:
        """Samples of each row, as `qinglan headroom` draws them."""
        out: list[list[str]] = []
        for batch in _batches(rows, TOGETHER // count):
            out += self.student.sample([row.prompt for row in batch], count, SEED)
        return out

    def roll_out(self, prompts: Sequence[list[int]], count: int, rng: np.random.Generator) -> list[Continuation]:
        """Samples of each prompt, with the log-probabilities of their tokens."""
        repeated = [prompt for prompt in prompts for _ in range(count)]
        draws = rng.random((len(repeated), LONGEST))
        return decode(self.model, repeated, LONGEST, self.end, self.pad, Sampling(1.0), draws)

    def log_probs(self, prompts: Sequence[list[int]], answers: Sequence[list[int]]) -> tuple[Any, Any]:
        """Log-probability of each answer's token, and the mask of those there are; so many answers a prompt."""
        import torch

        count, longest = len(answers) // len(prompts), max(map(len, prompts))
        ids = torch.tensor([[self.pad] * (longest - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        read = self.model(
            input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True, logits_to_keep=1
        )  # fmt: skip
        cache = read.past_key_values
        cache.batch_repeat_interleave(count)
        width = max(map(len, answers))
        targets = torch.tensor([answer + [self.pad] * (width - len(answer)) for answer in answers])
        shown = torch.tensor([[1] * len(answer) + [0] * (width - len(answer)) for answer in answers])
        logits = [read.logits[:, -1:].repeat_interleave(count, 0)]
        if width > 1:
            after = positions[:, -1:].repeat_interleave(count, 0) + torch.arange(1, width)[None]
            whole = torch.cat([mask.repeat_interleave(count, 0), shown[:, :-1]], 1)
            rest = self.model(
                input_ids=targets[:, :-1], attention_mask=whole, position_ids=after, past_key_values=cache
            )
            logits.append(rest.logits)
        likely = torch.cat(logits, 1).log_softmax(-1).gather(2, targets[:, :, None]).squeeze(2)
        return likely * shown, shown


def sft(policy: Policy, rows: Sequence[Row], settings: SftSettings = SFT) -> None:
    """Train on the teacher's accepted rewrites; the learning rate rises, then falls in a straight line."""
    import torch

    pairs = [(policy.ids(row.prompt), policy.answer_ids(row.teacher)) for row in rows if row.accepted]
    rng = random.Random(SEED)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=settings.learning_rate, weight_decay=0.0)
    steps = [
        batch for _ in range(settings.epochs) for batch in _batches(rng.sample(pairs, len(pairs)), settings.batch)
    ]
    for at, batch in enumerate(steps):
        done = at / len(steps)
        optimizer.param_groups[0]["lr"] = settings.learning_rate * min(1.0, done / settings.warm_up + 0.01, 1 - done)
        likely, shown = policy.log_probs([prompt for prompt, _ in batch], [answer for _, answer in batch])
        _step(policy, optimizer, -likely.sum() / shown.sum(), 1.0)


def _batches(rows: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def rloo(policy: Policy, world: World, rows: Sequence[Row], settings: RlooSettings = RLOO) -> None:
    """Train by rewards of retrieval: each sample's advantage is its reward over the mean of its prompt's others."""
    import torch

    rng, draw = np.random.default_rng(SEED), _prompt_sampler(world, rows, settings)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=settings.learning_rate, weight_decay=0.0)
    for _ in range(settings.steps):
        chosen = draw()
        prompts = [policy.ids(row.prompt) for row in chosen]
        rollouts = policy.roll_out(prompts, settings.samples, rng)
        rewards = np.array(
            [world.reward(policy.text(out.ids), chosen[at // settings.samples]) for at, out in enumerate(rollouts)]
        ).reshape(len(chosen), settings.samples)
        baseline = (rewards.sum(1, keepdims=True) - rewards) / (settings.samples - 1)
        advantages = (rewards - baseline) / ((rewards - baseline).std() + 1e-6)
        for start in range(0, len(chosen), settings.batch):
            part = slice(start * settings.samples, (start + settings.batch) * settings.samples)
            outs = rollouts[part]
            likely, shown = policy.log_probs(prompts[start : start + settings.batch], [out.ids for out in outs])
            before = torch.zeros_like(likely)
            for at, out in enumerate(outs):
                before[at, : len(out.log_probs)] = torch.tensor(out.log_probs)
            ratio = (likely - before).exp() * shown
            advantage = torch.tensor(advantages.reshape(-1)[part], dtype=likely.dtype)[:, None]
            clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
            objective = torch.min(ratio * advantage, clipped * advantage) * shown
            _step(policy, optimizer, -objective.sum() / shown.sum(), settings.most_gradient)


def _prompt_sampler(world: World, rows: Sequence[Row], settings: RlooSettings) -> Callable[[], list[Row]]:
    """Draws a step's prompts, as many of them hard as the settings say; none again before its kind is used up."""
    rng = random.Random(SEED)
    kinds: dict[bool, list[Row]] = {True: [], False: []}
    for row in rows:
        kinds[not world.first(row.teacher, row)].append(row)
    bags: dict[bool, list[Row]] = {True: [], False: []}
    hard = round(settings.hard_share * settings.prompts) if all(kinds.values()) else 0

    def draw() -> list[Row]:
        out = []
        for kind, count in ((True, hard), (False, settings.prompts - hard)):
            for _ in range(count):
                bags[kind] = bags[kind] or rng.sample(kinds[kind] or list(rows), len(kinds[kind] or rows))
                out.append(bags[kind].pop())
        return rng.sample(out, len(out))

    return draw


def _step(policy: Policy, optimizer: Any, loss: Any, most_gradient: float) -> None:
    import torch

    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.model.parameters(), most_gradient)
    optimizer.step()
