"""Pack a batch of rows into one line of tokens without padding, in which each prompt and the common start occur once.

Linear layers then compute each token once; only attention works by rows.
"""

from typing import Any, NamedTuple

import torch


class PackedBatch(NamedTuple):
    """Batch of rows as one line of tokens."""

    tokens: Any
    positions: Any
    """Position of each token in its row."""

    rows: Any
    """Index in the line of each row's token, by row and position; meaningless after a row's end."""

    back: Any
    """Index of each token of the line in the concatenated padded rows."""


class AnswerTokens(NamedTuple):
    """Tokens of the answers in order, with the positions of their figures."""

    tokens: Any
    before: Any
    """Index in the line of the token before each answer token; its output gives the answer token's probability."""

    positions: Any
    """Index of each answer token's figures in verl's flat batch; verl stores them one token before the token."""


def pack_batch(ids: Any, prompts: Any, answers: Any) -> tuple[PackedBatch, AnswerTokens]:
    """Pack the nested ids of all rows. `prompts` and `answers` are the lengths of each row's prompt and answer."""
    flat, offsets, lengths = ids.values(), ids.offsets(), prompts + answers
    row = torch.arange(len(lengths)).repeat_interleave(lengths)
    position = torch.arange(len(flat)) - offsets[:-1].repeat_interleave(lengths)
    written = position >= prompts[row]
    matrix = torch.full((len(lengths), int(lengths.max())), -1)
    matrix[row, position] = flat
    starts = matrix[:, : int(prompts.min()) - 1]
    shared = int((starts == starts[0]).all(0).long().cumprod(0).sum())  # tokens that all rows begin with
    of_prompts = torch.arange(matrix.shape[1]) < prompts.unsqueeze(1)
    alike = _first_alike(matrix.where(of_prompts, -1))
    # The row whose copy of a token is packed: the first row for the shared start, the first row with the
    # same prompt for the rest of the prompt, its own row for an answer.
    owner = torch.where(position < shared, 0, torch.where(written, row, alike[row]))
    owned = owner == row
    rows = torch.zeros_like(matrix)
    rows[row[owned], position[owned]] = torch.arange(int(owned.sum()))
    rows[row, position] = rows[owner, position]
    line = PackedBatch(flat[owned], position[owned], rows, row[owned] * matrix.shape[1] + position[owned])
    before = rows[row[written], position[written] - 1]
    return line, AnswerTokens(flat[written], before, written.nonzero().squeeze(1) - 1)


def _first_alike(matrix: Any) -> Any:
    """Return the index of the first row that is equal to each row."""
    _, group = matrix.unique(dim=0, return_inverse=True)
    first = torch.full((len(matrix),), len(matrix)).scatter_reduce(0, group, torch.arange(len(matrix)), "amin")
    return first[group]


def packed_attention(
    module: Any, query: Any, key: Any, value: Any, mask: Any, scaling: float, dropout: float = 0.0, *,
    line: PackedBatch, **_: Any,
) -> tuple[Any, None]:  # fmt: skip
    """Compute causal attention within each row, for tokens in the line. Values after a row's end are not read."""

    def by_row(heads: Any) -> Any:  # [1, heads, line, size] to [row, heads, position, size]
        groups = query.shape[1] // heads.shape[1]
        return heads[0][:, line.rows].transpose(0, 1).repeat_interleave(groups, 1)

    attended = torch.nn.functional.scaled_dot_product_attention(
        by_row(query), by_row(key), by_row(value), dropout_p=dropout, scale=scaling, is_causal=True
    )
    return attended.transpose(1, 2).flatten(0, 1)[line.back].unsqueeze(0), None
