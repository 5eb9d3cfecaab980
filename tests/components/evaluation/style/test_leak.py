"""A test answer that training saw stops everything, and so does a model of other rows."""

from pathlib import Path
from typing import Any

import pytest

from components.evaluation.style import leak
from qinglan.errors import DataError
from qinglan.files.files import dump_line, sha256_file
from qinglan.style.model import StyleCard
from qinglan.style.rows import UNLABELLED_FILE, StyleRow, UnlabelledText


def row(name: str, text: str) -> StyleRow:
    return StyleRow(id=name, input=text, label="售前")


TEST = [row("t1", "用户问题：ABC\n回答：好，可以。"), row("t2", "用户问题：甲\n回答：乙")]
OTHER = row("d1", "用户问题：丙\n回答：丁")


LONG = row(
    "t3",
    "用户问题：维生素C咀嚼片加倍吃是不是好得快呢\n回答：为了您的安全，请先不要用维生素C咀嚼片，尽快咨询专业人士，祝您顺利。",
)


def written(folder: Path, train: list[StyleRow], dev: list[StyleRow], texts: list[str] | None = None) -> Path:
    """A folder as the stage before leaves it."""
    for part, rows in (("train", train), ("dev", dev)):
        (folder / f"{part}.jsonl").write_bytes(b"".join(map(dump_line, rows)))
    if texts is not None:
        (folder / UNLABELLED_FILE).write_bytes(b"".join(dump_line(UnlabelledText(text=text)) for text in texts))
    return folder


def test_rows_of_their_own_are_counted(tmp_path: Path) -> None:
    leaks = leak.check(TEST, written(tmp_path, [OTHER], [OTHER, OTHER], ["别的话"]), 0.8)

    clean = {"same": 0, "alike": 0, "examples": []}
    assert leaks["parts"] == {
        "train": {"rows": 1, **clean},
        "dev": {"rows": 2, **clean},
        "texts": {"rows": 1, **clean},
    }


@pytest.mark.parametrize("part", ["train", "dev"])
@pytest.mark.parametrize("text", ["用户问题：ABC\n回答：好，可以。", "用户问题：ａｂｃ 回答：好可以！"])
def test_the_same_text_but_for_width_case_and_punctuation_leaks(tmp_path: Path, part: str, text: str) -> None:
    rows: dict[str, Any] = {"train": [OTHER], "dev": [OTHER]} | {part: [OTHER, row("x", text)]}

    with pytest.raises(DataError, match=rf"1 rows of the locked test.*test row t1 is {part}\.jsonl:2 \(row x\)"):
        leak.check(TEST, written(tmp_path, **rows), 0.8)


@pytest.mark.parametrize("part", ["train", "dev", "texts"])
def test_an_answer_that_is_nearly_one_of_the_test_is_counted(tmp_path: Path, part: str) -> None:
    nearly = LONG.input.replace("祝您", " 祝你 ")
    rows: dict[str, Any] = {"train": [OTHER], "dev": [OTHER], "texts": ["别的话"]}
    learned = rows | {part: [nearly] if part == "texts" else [row("x", nearly)]}

    leaks = leak.check([*TEST, LONG], written(tmp_path, **learned), 0.8)

    assert {name: overlap["alike"] for name, overlap in leaks["parts"].items() if overlap["alike"]} == {part: 1}


def test_many_leaks_are_named_in_part(tmp_path: Path) -> None:
    many = [row(f"t{at}", f"用户问题：{at * 7919}\n回答：{at * 104729}") for at in range(9)]

    with pytest.raises(DataError, match=r"9 rows .* and 4 more"):
        leak.check(many, written(tmp_path, many, []), 0.8)


@pytest.mark.parametrize(
    ("parents", "reason"),
    [
        ({}, r"train rows \(none\)"),
        ({"train": "0" * 64}, "train rows 000000000000"),
        ({"train": "right", "dev": "1" * 64}, "dev rows 111111111111"),
    ],
)
def test_a_model_of_other_rows_is_refused(tmp_path: Path, parents: dict[str, str], reason: str) -> None:
    for part in ("train", "dev"):
        (tmp_path / f"{part}.jsonl").write_text(part)
    right = {"train": sha256_file(tmp_path / "train.jsonl"), "dev": sha256_file(tmp_path / "dev.jsonl")}
    named = {part: right[part] if digest == "right" else digest for part, digest in parents.items()}

    leak.check_parents(StyleCard(stage="style", parents=right), Path("model"), tmp_path)
    leak.check_parents(StyleCard(stage="style", parents={"train": right["train"]}), Path("model"), tmp_path)
    with pytest.raises(DataError, match=rf"{reason}.*Evaluate with the rows it was trained on"):
        leak.check_parents(StyleCard(stage="style", parents=named), Path("model"), tmp_path)
