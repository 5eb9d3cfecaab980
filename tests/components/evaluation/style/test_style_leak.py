"""A test answer that training saw stops everything, and so does a model of other rows."""

from pathlib import Path

import pytest

from components.evaluation.style import leak
from qinglan.errors import DataError
from qinglan.files import sha256_file
from qinglan.style.model import StyleCard
from qinglan.style.rows import StyleRow


def row(name: str, text: str) -> StyleRow:
    return StyleRow(id=name, input=text, label="售前")


TEST = [row("t1", "用户问题：ABC\n回答：好，可以。"), row("t2", "用户问题：甲\n回答：乙")]
OTHER = row("d1", "用户问题：丙\n回答：丁")


def test_rows_of_their_own_are_counted() -> None:
    assert leak.check(TEST, {"train": [OTHER], "dev": [OTHER, OTHER]}) == 3


@pytest.mark.parametrize("part", ["train", "dev"])
@pytest.mark.parametrize("text", ["用户问题：ABC\n回答：好，可以。", "用户问题：ａｂｃ 回答：好可以！"])
def test_the_same_text_but_for_width_case_and_punctuation_leaks(part: str, text: str) -> None:
    with pytest.raises(DataError, match=rf"1 rows of the locked test.*test row t1 is {part} row x"):
        leak.check(TEST, {"train": [OTHER], "dev": [OTHER]} | {part: [OTHER, row("x", text)]})


def test_many_leaks_are_named_in_part() -> None:
    with pytest.raises(DataError, match=r"9 rows .* and 4 more"):
        leak.check(TEST, {"train": [row(f"x{at}", TEST[1].input) for at in range(9)], "dev": []})


@pytest.mark.parametrize(
    ("parents", "said"),
    [
        ({}, r"train rows \(none\)"),
        ({"train": "0" * 64}, "train rows 000000000000"),
        ({"train": "right", "dev": "1" * 64}, "dev rows 111111111111"),
    ],
)
def test_a_model_of_other_rows_is_refused(tmp_path: Path, parents: dict[str, str], said: str) -> None:
    for part in ("train", "dev"):
        (tmp_path / f"{part}.jsonl").write_text(part)
    right = {"train": sha256_file(tmp_path / "train.jsonl"), "dev": sha256_file(tmp_path / "dev.jsonl")}
    named = {part: right[part] if digest == "right" else digest for part, digest in parents.items()}

    leak.check_parents(StyleCard(stage="style", parents=right), Path("model"), tmp_path)
    leak.check_parents(StyleCard(stage="style", parents={"train": right["train"]}), Path("model"), tmp_path)
    with pytest.raises(DataError, match=rf"{said}.*Evaluate with the rows it was trained on"):
        leak.check_parents(StyleCard(stage="style", parents=named), Path("model"), tmp_path)
