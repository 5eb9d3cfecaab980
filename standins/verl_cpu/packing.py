"""A batch of rows as one line of tokens: no padding; a prompt, and what all prompts begin with, stands once.

Linear layers then compute each token once; attention alone looks at rows.
"""

from typing import Any, NamedTuple

import torch


class PackedBatch(NamedTuple):
    """A batch of rows as one line of tokens."""

    tokens: Any
    positions: Any
    """Of each token in its row."""

    rows: Any
    """[row, position]: where the token stands in the line; behind a row's end, anywhere."""

    back: Any
    """For each token of the line, where it stands among the rows, taken one after the other."""


class AnswerTokens(NamedTuple):
    """The tokens that were written, in order, and where their figures belong."""

    tokens: Any
    before: Any
    """In the line: the token before each, whose output says how likely it was."""

    places: Any
    """In verl's flat form of the whole batch: it looks for an answer's figures one token before it."""


def pack_batch(ids: Any, prompts: Any, answers: Any) -> tuple[PackedBatch, AnswerTokens]:
    """From the ids of all rows, nested, and the lengths of each row's prompt and answer."""
    flat, offsets, lengths = ids.values(), ids.offsets(), prompts + answers
    row = torch.arange(len(lengths)).repeat_interleave(lengths)
    position = torch.arange(len(flat)) - offsets[:-1].repeat_interleave(lengths)
    written = position >= prompts[row]
    matrix = torch.full((len(lengths), int(lengths.max())), -1)
    matrix[row, position] = flat
    shared = _shared(matrix, int(prompts.min()) - 1)
    of_prompts = torch.arange(matrix.shape[1]) < prompts.unsqueeze(1)
    alike = _first_alike(matrix.where(of_prompts, -1))
    # The row in which a token stands: the first for the shared beginning, the first of its prompt for the rest of it.
    owner = torch.where(position < shared, 0, torch.where(written, row, alike[row]))
    kept = owner == row
    rows = torch.zeros_like(matrix)
    rows[row[kept], position[kept]] = torch.arange(int(kept.sum()))
    rows[row, position] = rows[owner, position]
    line = PackedBatch(flat[kept], position[kept], rows, row[kept] * matrix.shape[1] + position[kept])
    before = rows[row[written], position[written] - 1]
    return line, AnswerTokens(flat[written], before, written.nonzero().squeeze(1) - 1)


def _shared(matrix: Any, most: int) -> int:
    """How many tokens all rows begin with."""
    return int((matrix[:, :most] == matrix[0, :most]).all(0).long().cumprod(0).sum())


def _first_alike(matrix: Any) -> Any:
    """For each row the first that equals it."""
    _, group = matrix.unique(dim=0, return_inverse=True)
    first = torch.full((len(matrix),), len(matrix)).scatter_reduce(0, group, torch.arange(len(matrix)), "amin")
    return first[group]


def packed_attention(
    module: Any, query: Any, key: Any, value: Any, mask: Any, scaling: float, dropout: float = 0.0, *,
    line: PackedBatch, **_: Any,
) -> tuple[Any, None]:  # fmt: skip
    """Each row's causal attention, from and to a line of tokens; what stands behind a row's end is not read."""

    def by_row(heads: Any) -> Any:  # [1, heads, line, size] to [row, heads, position, size]
        groups = query.shape[1] // heads.shape[1]
        return heads[0][:, line.rows].transpose(0, 1).repeat_interleave(groups, 1)

    seen = torch.nn.functional.scaled_dot_product_attention(
        by_row(query), by_row(key), by_row(value), dropout_p=dropout, scale=scaling, is_causal=True
    )
    return seen.transpose(1, 2).flatten(0, 1)[line.back].unsqueeze(0), None
