"""Decisions in the style model's training: the plan's numbers, targets, weights, layers and temperature."""

import math
import random
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.training.style.calibrate import FEWEST, divide_logits, fit_temperature
from components.training.style.config import DistilConfig, StyleConfig
from components.training.style.dataset import (
    LabelledText,
    class_weights,
    labelled_texts,
    oversampled,
    without_answer,
)
from components.training.style.distil import distillation_loss, kept_layers
from components.training.style.fit import steps, style_phases
from components.training.style.stage import weighted_loss
from components.training.style.trainer import _metrics, dev_scores, take_log
from qinglan.errors import TrainingError
from qinglan.sizing.shape import known_shapes
from qinglan.style.labels import DEFAULT_LABELS, format_training_text
from qinglan.style.rows import StyleRow
from tests.models.silent_training import silent_training


def test_each_label_weighs_the_same_and_a_row_weighs_one_on_average() -> None:
    labels = [0] * 90 + [1] * 9 + [2]

    weights = class_weights(labels, 4)

    assert [weights[0] * 90, weights[1] * 9, weights[2]] == pytest.approx([100 / 3] * 3)
    assert weights[3] == 0
    assert sum(weights[label] for label in labels) == pytest.approx(len(labels))


def test_oversampling_keeps_every_row_and_brings_each_label_as_often() -> None:
    rows = [LabelledText(f"{label}-{n}", label) for label, count in ((0, 50), (1, 7), (2, 1)) for n in range(count)]

    more = oversampled(rows, random.Random(0))

    assert set(more) == set(rows)
    assert [sum(row.label == label for row in more) for label in (0, 1, 2)] == [50, 50, 50]


def test_some_questions_are_shown_without_their_answer_and_keep_their_label() -> None:
    rows = [StyleRow(id=str(n), input=format_training_text(f"问{n}", f"答{n}"), label="诚实") for n in range(50)]

    shown = labelled_texts(rows, DEFAULT_LABELS, StyleConfig(answer_dropped=0.2))

    bare = [row for row in shown if row.text.endswith("回答：")]
    assert (len(shown), len(bare)) == (60, 10)
    assert {row.label for row in shown} == {2}
    assert without_answer(rows[0].input) == format_training_text("问0", "")


def test_the_loss_of_hard_targets_is_cross_entropy_and_weights_average() -> None:
    import torch

    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]])
    targets = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])

    plain = weighted_loss([0, 1, 1], 2, weighted=False)(logits, targets)
    weighted = weighted_loss([0, 1, 1], 2, weighted=True)(logits, targets)

    assert float(plain) == pytest.approx(float(torch.nn.functional.cross_entropy(logits, targets.argmax(-1))))
    expected = torch.nn.functional.cross_entropy(logits, targets.argmax(-1), weight=torch.tensor([1.5, 0.75]))
    assert float(weighted) == pytest.approx(float(expected))


def test_the_distilled_loss_is_least_where_the_teacher_is_repeated() -> None:
    import torch

    probabilities = torch.tensor([[0.7, 0.2, 0.1]])
    targets = torch.cat([probabilities, torch.zeros(1, 3)], dim=1)
    loss = distillation_loss(DistilConfig())

    same, other = loss(torch.log(probabilities), targets), loss(torch.log(probabilities.flip(-1)), targets)

    assert float(same) < float(other)
    nudged = torch.log(probabilities).requires_grad_()
    loss(nudged, targets).backward()
    assert nudged.grad is not None and nudged.grad.abs().max() < 1e-5


def test_a_label_of_people_counts_beside_the_teachers_word() -> None:
    import torch

    probabilities, label = torch.tensor([[0.5, 0.5]]), torch.tensor([[0.0, 1.0]])
    logits = torch.zeros(1, 2, requires_grad=True)

    distillation_loss(DistilConfig(labelled=0.5))(logits, torch.cat([probabilities, label], dim=1)).backward()

    assert logits.grad is not None and logits.grad[0, 1] < 0 < logits.grad[0, 0]


@pytest.mark.parametrize(
    ("layers", "count", "first", "numbers"),
    [
        (24, 12, False, list(range(1, 24, 2))), (2, 1, False, [1]), (3, 2, False, [1, 2]), (6, 3, False, [1, 3, 5]),
        (2, 5, False, [0, 1]), (22, 3, True, [0, 10, 21]), (4, 1, True, [0]),
    ],
)  # fmt: skip
def test_layers_are_kept_evenly_and_the_last_or_a_first_unlike_the_rest_always(
    layers: int, count: int, first: bool, numbers: list[int]
) -> None:
    assert kept_layers(layers, count, first) == numbers


@pytest.mark.slow
@settings(max_examples=20)
@given(st.floats(0.5, 5.0), st.integers(0, 50))
def test_a_temperature_that_was_put_in_is_found_again(temperature: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (4000, 5))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=-1).tolist()  # drawn with softmax's probabilities

    result = fit_temperature(logits * temperature, labels)

    assert result == pytest.approx(temperature, rel=0.15)


def test_too_few_rows_fit_nothing() -> None:
    logits = np.array([[5.0, 0.0]] * (FEWEST - 1))

    assert fit_temperature(logits, [1] * (FEWEST - 1)) == 1.0


def test_a_temperature_in_the_head_divides_the_logits() -> None:
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    model = BertForSequenceClassification(
        BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
                   num_labels=5)
    ).eval()  # fmt: skip
    ids = torch.tensor([[3, 4, 5]])
    with torch.no_grad():
        model.classifier.bias += 1.0
        before = model(ids).logits
        divide_logits(model, 2.5)
        after = model(ids).logits

    assert torch.allclose(after * 2.5, before, atol=1e-5)


@pytest.mark.parametrize(("name", "value"), [("loss", math.nan), ("eval_loss", math.inf), ("grad_norm", math.nan)])
def test_a_number_that_is_none_ends_the_training(name: str, value: float) -> None:
    live = silent_training("style")
    take_log({"loss": 1.0, "grad_norm": 0.5, "step": 3}, 9, live)

    with pytest.raises(TrainingError, match=r"at step 7: .* Lower the learning rate"):
        take_log({"loss": 1.0, name: value, "step": 7}, 9, live)


def test_dev_is_scored_by_the_mean_by_rows_and_by_each_label_that_it_has() -> None:
    from sklearn.metrics import f1_score

    true, best = [0, 0, 0, 1, 1, 2], [0, 0, 1, 1, 2, 2]
    predicted = SimpleNamespace(predictions=np.eye(4)[best], label_ids=np.eye(4)[true])

    scores = dev_scores(predicted, ("售前", "售后", "诚实", "无伤害"))

    assert scores == pytest.approx({
        "accuracy": 4 / 6, "macro_f1": f1_score(true, best, average="macro"),
        "weighted_f1": f1_score(true, best, average="weighted"),
        "f1_售前": 4 / 5, "f1_售后": 1 / 2, "f1_诚实": 2 / 3,
    })  # fmt: skip
    [row] = _metrics([{"step": 3, "eval_loss": 1.0, **{f"eval_{name}": value for name, value in scores.items()}}])
    assert row == {"step": 3, "eval_loss": 1.0, **scores}


def test_adapters_and_checkpointing_take_less_room_and_accumulation_takes_fewer_steps() -> None:
    shape = known_shapes()["Qwen/Qwen2.5-0.5B-Instruct"]
    plain, adapters = StyleConfig(), StyleConfig(lora_rank=16)
    again = StyleConfig(lora_rank=16, checkpointing=True)

    needs = [style_phases(config, shape)[0].bytes for config in (plain, adapters, again)]

    assert needs == sorted(needs, reverse=True) and needs[0] > 16 * shape.body
    whole, fourth = (steps(StyleConfig(accumulation=number, answer_dropped=0), 400) for number in (1, 4))
    assert (whole.each, fourth.each) == (100, 25)
