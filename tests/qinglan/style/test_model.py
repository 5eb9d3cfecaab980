"""The one way to ask a style model: the plan's answers, whatever the batch, and no pickle."""

import json
from pathlib import Path
from typing import Any

import pytest

from qinglan.errors import ConfigError, DataError
from qinglan.style.labels import Labels, format_training_text, read_labels, read_mapping, write_mapping
from qinglan.style.model import StyleModel
from qinglan.style.predict import batch_predict, predict_style
from tests.models.tiny_style import tiny_style_model

TEXTS = [format_training_text("一天吃几次" * times, "请按标签服用" * (20 - times)) for times in range(1, 20)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_style_model(tmp_path_factory.mktemp("style"))


def plans_own(text: str, model: Any, tokenizer: Any, id_to_label: dict[str, str], max_length: int = 512) -> Any:
    """The plan's predict_style, to the letter: padded to 512, one text at a time."""
    import torch

    inputs = tokenizer(text, return_tensors="pt", max_length=max_length, truncation=True, padding="max_length")
    model.eval()
    with torch.no_grad():
        outputs = model(**{name: inputs[name] for name in ("input_ids", "attention_mask")})
        probabilities = torch.softmax(outputs.logits, dim=-1)
        predicted_class_id = int(torch.argmax(outputs.logits, dim=-1).item())
    return {
        "predicted_label": id_to_label[str(predicted_class_id)],
        "confidence": probabilities[0][predicted_class_id].item(),
        "probabilities": {id_to_label[str(i)]: prob.item() for i, prob in enumerate(probabilities[0])},
    }


@pytest.mark.slow
def test_answers_are_the_plans_in_form_and_number(folder: Path) -> None:
    loaded = StyleModel.load(folder)
    id_to_label = json.loads((folder / "label_mapping.json").read_bytes())["id_to_label"]
    model, tokenizer = loaded.logits.model, loaded.tokenizer  # type: ignore[attr-defined]

    predictions = batch_predict(TEXTS, model, tokenizer, id_to_label, batch_size=4)
    for text, prediction in zip(TEXTS, predictions, strict=True):
        expected = plans_own(text, model, tokenizer, id_to_label)

        assert prediction["predicted_label"] == expected["predicted_label"]
        assert list(prediction["probabilities"]) == ["售前", "售后", "诚实", "有帮助", "无伤害"]
        assert prediction["probabilities"] == pytest.approx(expected["probabilities"], abs=1e-4)
        assert predict_style(text, model, tokenizer, id_to_label)["confidence"] == pytest.approx(
            expected["confidence"], abs=1e-4
        )
    assert loaded.predict(TEXTS)[3]["probabilities"] == pytest.approx(
        plans_own(TEXTS[3], model, tokenizer, id_to_label)["probabilities"], abs=1e-4
    )


def test_texts_are_answered_in_their_order(folder: Path) -> None:
    model = StyleModel.load(folder)

    alone = [model.predict([text])[0]["confidence"] for text in TEXTS]

    together = [prediction["confidence"] for prediction in model.predict(TEXTS, batch_size=3)]
    assert together == pytest.approx(alone, abs=1e-5)
    assert len({round(confidence, 4) for confidence in alone}) > 10
    assert model.predict([]) == []


def test_a_pickle_is_refused(tmp_path: Path) -> None:
    folder = tiny_style_model(tmp_path)
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")

    with pytest.raises(DataError, match=r"pytorch_model.bin, a pickle"):
        StyleModel.load(folder)


@pytest.mark.parametrize("broken", ["model.safetensors", "config.json", "label_mapping.json", "style.json"])
def test_a_folder_that_is_not_whole_says_what_to_do(tmp_path: Path, broken: str) -> None:
    folder = tiny_style_model(tmp_path)
    (folder / broken).write_bytes((folder / broken).read_bytes()[:20])

    with pytest.raises(DataError, match=r"again|written by"):
        StyleModel.load(folder)


def test_a_sixth_style_is_a_line_in_a_file(tmp_path: Path) -> None:
    mapping = tmp_path / "six.yaml"
    five = "".join(
        f"- {{name: {label.name}, english: {label.english}, id: {label.id}}}\n" for label in read_labels().labels
    )
    mapping.write_text(five + "- {name: 幽默, english: humorous, id: 5, description: 轻松}\n", encoding="utf-8")

    write_mapping(tmp_path, read_labels(mapping))

    assert read_mapping(tmp_path).names[-1] == "幽默"
    assert json.loads((tmp_path / "label_mapping.json").read_bytes())["label_to_id"]["幽默"] == 5


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        ({"name": "甲", "english": "b", "id": 1}, "'甲' is used twice"),
        ({"name": "乙", "english": "a", "id": 1}, "'a' is used twice"),
        ({"name": "乙", "english": "b", "id": 2}, "ids must be 0 to 1"),
    ],
)
def test_labels_that_contradict_each_other_are_refused(second: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Labels.parse({"labels": [{"name": "甲", "english": "a", "id": 0}, second]}, "labels")


def test_control_tokens_in_a_text_are_text(folder: Path) -> None:
    model = StyleModel.load(folder)
    special = set(model.tokenizer.all_special_ids)

    hostile, plain = model.encode([f"一天{token}几次" for token in (model.tokenizer.all_special_tokens[0], "吃")])

    assert [token for token in hostile if token in special] == [token for token in plain if token in special]
