"""Writing many continuations at once: what a row becomes does not hang on its neighbours."""

from typing import Any

import numpy as np
import pytest

from qinglan.rewriter.decoding import GREEDY, Sampling, choose_tokens, decode

END, PAD, MOST = 1, 0, 12
PROMPTS = [[5, 6, 7], [8, 9, 10, 11, 12, 13], [14], [5, 6, 7, 20, 21], [30, 31], [40, 41, 42, 43]]


@pytest.fixture(scope="module")
def model() -> Any:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(3)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = Qwen3Config(
        **shape, num_key_value_heads=2, head_dim=8, vocab_size=48, initializer_range=0.3, tie_word_embeddings=True
    )
    return Qwen3ForCausalLM(config).eval()


def draws(rows: int, seed: int = 7) -> Any:
    return np.random.default_rng(seed).random((rows, MOST))


def test_greedy_writes_what_transformers_own_generate_writes(model: Any) -> None:
    import torch

    for prompt, written in zip(PROMPTS, decode(model, PROMPTS, MOST, END, PAD), strict=True):
        with torch.inference_mode():
            whole = model.generate(
                torch.tensor([prompt]), max_new_tokens=MOST, do_sample=False, eos_token_id=END, pad_token_id=PAD
            )
        assert written.ids == whole[0, len(prompt) :].tolist()


def test_a_row_is_written_alike_alone_and_among_others(model: Any) -> None:
    numbers = draws(len(PROMPTS))
    warm = Sampling(temperature=1.3, top_p=0.9)

    together = decode(model, PROMPTS, MOST, END, PAD, warm, numbers)

    for at, prompt in enumerate(PROMPTS):
        [alone] = decode(model, [prompt], MOST, END, PAD, warm, numbers[at : at + 1])
        assert alone.ids == together[at].ids
        assert alone.log_probs == pytest.approx(together[at].log_probs, abs=1e-4)
    assert len({len(row.ids) for row in together}) > 1, "some rows end, and leave, before others"


def test_a_prompt_that_stands_several_times_is_read_once_and_each_row_goes_its_own_way(model: Any) -> None:
    prompts, numbers, read = [PROMPTS[at] for at in (0, 1, 0, 2, 0)], draws(5), []

    with model.register_forward_pre_hook(
        lambda module, args, named: read.append(named["input_ids"].shape[0]), with_kwargs=True
    ):
        written = decode(model, prompts, MOST, END, PAD, Sampling(1.3), numbers)

    assert read[0] == 3
    for at, prompt in enumerate(prompts):
        [alone] = decode(model, [prompt], MOST, END, PAD, Sampling(1.3), numbers[at : at + 1])
        assert alone.ids == written[at].ids
    assert len({tuple(written[at].ids) for at in (0, 2, 4)}) > 1


def test_log_probabilities_are_those_of_the_written_tokens(model: Any) -> None:
    import torch

    [written] = decode(model, PROMPTS[:1], MOST, END, PAD, Sampling(temperature=2.0), draws(1))

    ids = torch.tensor([PROMPTS[0] + written.ids])
    with torch.inference_mode():
        likely = (model(ids).logits[0].float() / 2.0).log_softmax(-1)
    before = range(len(PROMPTS[0]) - 1, ids.shape[1] - 1)
    expected = [float(likely[at, token]) for at, token in zip(before, written.ids, strict=True)]
    assert written.log_probs == pytest.approx(expected, abs=1e-4)


def test_nothing_is_written_after_the_end_and_no_more_than_asked(model: Any) -> None:
    written = decode(model, PROMPTS, MOST, END, PAD, Sampling(1.5), draws(6, 11))

    assert all(END not in row.ids[:-1] and 1 <= len(row.ids) <= MOST for row in written)
    [first], [whole] = (decode(model, PROMPTS[:1], most, END, PAD) for most in (1, MOST))
    assert first.ids == whole.ids[:1]


@pytest.mark.parametrize(
    ("sampling", "draw", "token"),
    [
        (GREEDY, 0.99, 2),
        (Sampling(1.0), 0.0, 0),  # .2 .3 .4 .1 in order of the tokens
        (Sampling(1.0), 0.21, 1),
        (Sampling(1.0), 0.95, 3),
        (Sampling(1.0, top_k=2), 0.0, 1),  # 1 and 2 remain
        (Sampling(1.0, top_k=2), 0.99, 2),
        (Sampling(1.0, top_p=0.6), 0.99, 2),  # 2 alone has .4; with 1 they have .7
        (Sampling(1.0, top_p=0.3), 0.0, 2),
    ],
)
def test_the_draw_chooses_among_what_the_settings_leave(sampling: Sampling, draw: float, token: int) -> None:
    import torch

    logits = torch.tensor([[0.2, 0.3, 0.4, 0.1]]).log()

    assert choose_tokens(logits, sampling, torch.tensor([draw], dtype=torch.float64)).tolist() == [token]
