"""Continue many prompts in one batch. Equal prompts are read once, and rows that have ended leave the batch.

Decoding is greedy, or sampled with random numbers of each row, so that a row's text does not depend on the other
rows. transformers' generate() keeps computing rows that have ended, and has one random generator for all rows.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

LEAVE_SHARE = 0.2
"""Share of rows that must have ended before the cache is copied without them."""


class Sampling(NamedTuple):
    """Settings for the choice of the next token. A temperature of 0 takes the most likely token."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0


GREEDY = Sampling()


class Continuation(NamedTuple):
    """A row's new tokens, including the end token if it came, and the log-probability of each."""

    ids: list[int]
    log_probs: list[float]


def decode(
    model: Any,
    prompts: Sequence[Sequence[int]],
    most: int,
    end: int,
    pad: int,
    sampling: Sampling = GREEDY,
    draws: Any = None,
) -> list[Continuation]:
    """Generate up to `most` new tokens for each prompt. For sampling, `draws` has a row of `most` random numbers in
    [0, 1) for each prompt."""
    import torch

    different = list(dict.fromkeys(map(tuple, prompts)))
    ids, mask = left_padded(different, pad, model.device)
    uniform = None if draws is None else torch.as_tensor(draws, dtype=torch.float64, device=model.device)
    out = [Continuation([], []) for _ in prompts]
    rows = list(range(len(prompts)))  # index of the prompt of each row in the batch
    live = torch.ones(len(rows), dtype=torch.bool)
    cache, positions = None, (mask.cumsum(1) - 1).clamp(min=0)
    with torch.inference_mode():
        for at in range(most):
            step = model(
                input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True,
                logits_to_keep=1,
            )  # fmt: skip
            cache = step.past_key_values
            logits = step.logits[:, -1].float() / (sampling.temperature or 1.0)
            if len(logits) < len(rows):  # equal prompts were read once; from here on each row has its own cache
                index = {prompt: at for at, prompt in enumerate(different)}
                read = torch.tensor([index[tuple(prompt)] for prompt in prompts], device=model.device)
                cache.batch_select_indices(read)
                logits, mask, positions = (tensor[read] for tensor in (logits, mask, positions))
            tokens = choose_tokens(logits, sampling, None if uniform is None else uniform[rows, at])
            likely = logits.log_softmax(-1).gather(1, tokens.unsqueeze(1)).squeeze(1)
            for row, alive, token, log_prob in zip(
                rows, live.tolist(), tokens.tolist(), likely.tolist(), strict=True
            ):
                if alive:
                    out[row].ids.append(token)
                    out[row].log_probs.append(log_prob)
            live &= (tokens != end).cpu()
            left = int(live.sum())
            if not left:
                break
            ids, positions = tokens.unsqueeze(1), positions[:, -1:] + 1
            mask = torch.cat([mask, mask.new_ones(len(rows), 1)], 1)
            # A copy of the cache costs more than computing a few ended rows.
            if left <= (1 - LEAVE_SHARE) * len(rows):
                remaining = live.nonzero().squeeze(1)
                cache.batch_select_indices(remaining.to(model.device))
                ids, positions, mask = (tensor[remaining.to(model.device)] for tensor in (ids, positions, mask))
                rows, live = [rows[index] for index in remaining.tolist()], live[remaining]
    return out


def left_padded(prompts: Sequence[Sequence[int]], pad: int, device: Any) -> tuple[Any, Any]:
    """Return the prompts as one tensor, padded on the left, and a mask that is 1 at their tokens."""
    import torch

    longest = max(map(len, prompts))
    ids = torch.tensor([[pad] * (longest - len(prompt)) + list(prompt) for prompt in prompts], device=device)
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=device)
    return ids, mask


def choose_tokens(logits: Any, sampling: Sampling, draws: Any) -> Any:
    """Choose the next token of each row: the most likely token or, for sampling, the token at which the cumulated
    probabilities pass the row's random number."""
    import torch

    if not sampling.temperature:
        return logits.argmax(-1)
    probabilities = logits.double().softmax(-1)
    if sampling.top_k > 0 or sampling.top_p < 1:
        probabilities = _nucleus(probabilities, sampling)
    cumulated = probabilities.cumsum(-1)
    at = torch.searchsorted(cumulated, (draws * cumulated[:, -1]).unsqueeze(1), right=True).squeeze(1)
    return at.clamp(max=probabilities.shape[-1] - 1)


def _nucleus(probabilities: Any, sampling: Sampling) -> Any:
    """Set the probability of every token to 0, except the `top_k` most likely and, of these, the fewest that together
    reach `top_p`."""
    likeliest, order = probabilities.sort(dim=-1, descending=True, stable=True)
    if sampling.top_k > 0:
        likeliest[:, sampling.top_k :] = 0
    cumulated = likeliest.cumsum(-1)
    likeliest = likeliest.masked_fill(cumulated - likeliest >= sampling.top_p * cumulated[:, -1:], 0)
    return probabilities.new_zeros(probabilities.shape).scatter(1, order, likeliest)
