"""A batch as one line of tokens computes what the padded rectangle computes, and fewer tokens."""

from typing import Any

import pytest

SHARED = [3, 4, 5]
PROMPTS = [[*SHARED, 10, 11], [*SHARED, 12, 13, 14, 15], [*SHARED, 16], [*SHARED, 10, 17, 18]]
ANSWERS = [[20, 21, 1], [22, 1], [23, 24, 25, 26, 1], [1]]


@pytest.fixture(scope="module")
def models() -> tuple[Any, Any]:
    """The same weights under transformers' attention and under the line's."""
    import torch
    from transformers import AttentionInterface, AttentionMaskInterface, Qwen3Config, Qwen3ForCausalLM

    from standins.verl_cpu.packing import packed_attention

    AttentionInterface.register("a_line", packed_attention)
    AttentionMaskInterface.register("a_line", lambda *args, **named: None)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    models = []
    for attention in ("sdpa", "a_line"):
        torch.manual_seed(5)
        config = Qwen3Config(**shape, num_key_value_heads=2, head_dim=8, vocab_size=48, attn_implementation=attention)
        models.append(Qwen3ForCausalLM(config))
    return models[0], models[1]


def nested(rows: list[list[int]]) -> Any:
    import torch

    return torch.nested.as_nested_tensor([torch.tensor(row) for row in rows], layout=torch.jagged)


def line_log_probs(model: Any, prompts: list[list[int]], answers: list[list[int]]) -> Any:
    import torch

    from standins.verl_cpu.packing import pack_batch

    ids = nested([prompt + answer for prompt, answer in zip(prompts, answers, strict=True)])
    line, row_index = pack_batch(ids, torch.tensor([*map(len, prompts)]), torch.tensor([*map(len, answers)]))
    out = model(
        input_ids=line.tokens.unsqueeze(0), position_ids=line.positions.unsqueeze(0), attention_mask=None,
        line=line, use_cache=False, logits_to_keep=row_index.before,
    )  # fmt: skip
    return out.logits[0].log_softmax(-1).gather(1, row_index.tokens.unsqueeze(1)).squeeze(1)


def row_log_probs(model: Any, prompt: list[int], answer: list[int]) -> Any:
    import torch

    ids = torch.tensor([prompt + answer])
    likely = model(input_ids=ids, use_cache=False).logits[0].log_softmax(-1)
    return likely[len(prompt) - 1 : -1].gather(1, torch.tensor(answer).unsqueeze(1)).squeeze(1)


@pytest.mark.parametrize("samples", [1, 3])
def test_log_probabilities_and_gradients_are_those_of_each_row_alone(models: tuple[Any, Any], samples: int) -> None:
    """Also where samples of one prompt stand side by side, and where they do not."""
    import torch

    plain, line = models
    prompts = [*sorted(PROMPTS * samples), *PROMPTS]
    answers = [*ANSWERS * samples, *ANSWERS[::-1]]
    expected = torch.cat([row_log_probs(plain, *pair) for pair in zip(prompts, answers, strict=True)])
    result = line_log_probs(line, prompts, answers)
    assert torch.allclose(result, expected, atol=1e-5)

    plain.zero_grad()
    line.zero_grad()
    torch.autograd.backward(expected.sum())
    torch.autograd.backward(result.sum())
    for parameter, other in zip(plain.parameters(), line.parameters(), strict=True):
        assert torch.allclose(parameter.grad, other.grad, atol=1e-4)


def test_the_common_prefix_of_all_prompts_is_packed_once() -> None:
    import torch

    from standins.verl_cpu.packing import pack_batch

    rows = [prompt + answer for prompt, answer in zip(PROMPTS, ANSWERS, strict=True)]
    line, row_index = pack_batch(nested(rows), torch.tensor([*map(len, PROMPTS)]), torch.tensor([*map(len, ANSWERS)]))

    assert len(line.tokens) == sum(map(len, rows)) - len(SHARED) * (len(rows) - 1)
    assert row_index.tokens.tolist() == [token for answer in ANSWERS for token in answer]
    starts = [sum(map(len, rows[:at])) for at in range(len(rows))]
    places = [
        start + len(prompt) - 1 + at
        for start, prompt, answer in zip(starts, PROMPTS, ANSWERS, strict=True)
        for at in range(len(answer))
    ]
    assert row_index.positions.tolist() == places, "one token before each token of an answer, where verl looks"


@pytest.mark.parametrize(
    ("prompts", "answers"),
    [
        ([[7]], [[8, 9]]),  # a prompt of one token shares nothing
        ([[3, 4, 5]] * 3, [[20, 1], [21, 1], [1]]),  # samples of one prompt
        ([[3, 4], [5, 6]], [[20], [21]]),
    ],
)
def test_odd_batches_too(models: tuple[Any, Any], prompts: list[list[int]], answers: list[list[int]]) -> None:
    import torch

    plain, line = models
    expected = torch.cat([row_log_probs(plain, *pair) for pair in zip(prompts, answers, strict=True)])

    assert torch.allclose(line_log_probs(line, prompts, answers), expected, atol=1e-5)
