"""Labelled answers as people bring them: faults named by row, alike ones together, every label in its share."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from components.data.style.config import PrepareStyleConfig, StyleColumns
from components.data.style.parse_answers import read_rows
from components.data.style.split_rows import contradictions, split_rows
from components.data.style.stage import prepare
from qinglan.errors import ConfigError, DataError
from qinglan.files.files import read_jsonl
from qinglan.style.labels import DEFAULT_LABELS, Label, format_training_text
from qinglan.style.rows import SPLITS, StyleRow, UnlabelledText, read_split
from standins.samples.style import write_style_sample

CONFIG = PrepareStyleConfig()
ENGLISH = {label.name: label.english for label in DEFAULT_LABELS.labels}
PLANS = {"售前": 7, "售后": 4, "有帮助": 6, "无伤害": 4, "诚实": 5}
"""The plan's 26 rows."""


def answers(counts: dict[str, int]) -> list[dict[str, Any]]:
    return [
        {
            "input": format_training_text(f"问题{name}{number * 7919}", f"回答{name}{number * 104729}"),
            "label": name,
            "label_english": ENGLISH[name],
            "metadata": {"source": "business", "scene": "商品咨询"},
        }
        for name, count in counts.items()
        for number in range(count)
    ]


def write(path: Path, rows: Any) -> Path:
    path.write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
    return path


def prepared(tmp_path: Path, rows: Any, config: PrepareStyleConfig = CONFIG) -> Any:
    return prepare(write(tmp_path / "in.json", rows), tmp_path / "out", tmp_path / "page.html", config)


def test_the_plans_own_26_rows_give_every_label_something_to_learn_and_to_test(tmp_path: Path) -> None:
    counts = prepared(tmp_path, answers(PLANS))

    assert (counts.rows, counts.labels, counts.smallest_label) == (26, 5, 4)
    for split in SPLITS:
        rows = read_split(tmp_path / "out", split)[0]
        assert {row.label for row in rows} == set(PLANS)
        assert rows[0].metadata == {"source": "business", "scene": "商品咨询"}
    assert counts.train > counts.test >= counts.dev
    assert "26 labelled answers" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_sheet_and_lines_of_objects_give_the_rows_that_the_json_gives(tmp_path: Path) -> None:
    write_style_sample(tmp_path, 60, seed=3)
    rows = json.loads((tmp_path / "style.json").read_bytes())
    (tmp_path / "style.jsonl").write_text("\n".join(map(json.dumps, rows)))

    of_json, of_sheet, of_lines = (
        read_rows(tmp_path / f"style.{kind}", StyleColumns(), DEFAULT_LABELS) for kind in ("json", "xlsx", "jsonl")
    )

    assert of_json == of_sheet == of_lines


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"input": ""}, "row 2: no input"),
        ({"input": "回答：只有回答"}, "row 2: input is not of the form"),
        ({"input": "用户问题：有问\n回答： "}, "row 2: input is not of the form"),
        ({"label": "幽默"}, "row 2: label is '幽默'; there are 售前、售后、诚实、有帮助、无伤害"),
        ({"label": None}, "row 2: label is None"),
        ({"label_english": "honesty"}, "row 2: label 售前 is sales_oriented, and label_english says 'honesty'"),
        ({"metadata": ["x"]}, "row 2: metadata is no object"),
    ],
)
def test_a_fault_is_named_by_row(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    rows = answers(PLANS)
    rows[1] |= changes

    with pytest.raises(DataError) as error:
        prepared(tmp_path, rows)

    assert reason in str(error.value)
    assert not (tmp_path / "out").exists()


def test_many_faults_are_counted_and_the_first_ones_shown(tmp_path: Path) -> None:
    rows = [row | {"label_english": "helpful"} for row in answers(PLANS)]

    with pytest.raises(DataError, match=r"20 faults(?s:.*)row 5:(?s:.*)and 15 more"):
        prepared(tmp_path, rows)


def test_a_formula_is_no_answer(tmp_path: Path) -> None:
    from openpyxl import Workbook

    book = Workbook()
    sheet = book.active
    assert sheet is not None
    for line in (("问题", "回答", "标签"), ("好吗", "=1+1", "售前")):
        sheet.append(line)
    book.save(tmp_path / "in.xlsx")

    with pytest.raises(DataError, match="row 2: a formula"):
        read_rows(tmp_path / "in.xlsx", StyleColumns(), DEFAULT_LABELS)


@pytest.mark.parametrize("content", ["", "[]", "nonsense", "[1]"])
def test_a_file_without_rows_says_what_to_give(tmp_path: Path, content: str) -> None:
    (tmp_path / "in.json").write_text(content)

    with pytest.raises(DataError, match=r"Give answers|Save it as|Each row is|an empty file"):
        read_rows(tmp_path / "in.json", StyleColumns(), DEFAULT_LABELS)


def test_a_csv_is_read_whatever_its_name_and_a_page_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in.xlsx").write_bytes("问题,回答,标签\n好吗,很好,售后\n".encode("gb18030"))
    (tmp_path / "page.xlsx").write_text("<html><table></table></html>")

    [row] = read_rows(tmp_path / "in.xlsx", StyleColumns(), DEFAULT_LABELS)
    assert (row.label, "很好" in row.input) == ("售后", True)
    with pytest.raises(DataError, match=r"a web page or XML.* save it as \.xlsx"):
        read_rows(tmp_path / "page.xlsx", StyleColumns(), DEFAULT_LABELS)


@pytest.mark.parametrize("count", [0, 1])
def test_a_label_with_too_few_answers_is_named(tmp_path: Path, count: int) -> None:
    with pytest.raises(DataError, match=rf"Too few different answers of 售后 \({count}\)"):
        prepared(tmp_path, answers(PLANS | {"售后": count}))


def test_the_same_answer_many_times_is_one(tmp_path: Path) -> None:
    same = answers({"售后": 1}) * 9

    with pytest.raises(DataError, match=r"售后 \(1\)"):
        prepared(tmp_path, answers({name: 9 for name in PLANS if name != "售后"}) + same)


def test_a_sixth_label_is_data(tmp_path: Path) -> None:
    six = (*DEFAULT_LABELS.labels, Label(name="幽默", english="humorous", id=5))
    rows = answers(PLANS) + [
        {"input": format_training_text(f"笑话{n * 7919}", f"哈哈{n * 104729}"), "label": "幽默"} for n in range(6)
    ]

    assert prepared(tmp_path, rows, PrepareStyleConfig(labels=six)).labels == 6
    assert read_split(tmp_path / "out", "test")[1].names[5] == "幽默"


def row(number: int | str, question: str, answer: str, label: str = "售前") -> StyleRow:
    return StyleRow(id=str(number), input=format_training_text(question, answer), label=label)


def test_alike_answers_share_a_split() -> None:
    long = "这款产品是我们卖得最好的，回购的顾客特别多，建议您今天就定下来，库存不多了，错过就要等下个月"
    rows = [row(n, f"第{n // 4 * 7919}个问题", f"{long}{n // 4 * 104729}{'吧' * (n % 4)}") for n in range(200)]
    rows += [row(f"{name}{n}", f"{name}{n * 31}", f"{n * 57}{name}", name) for name in PLANS for n in range(9)]

    splits = split_rows(rows, CONFIG)

    families = [set(splits[n : n + 4]) for n in range(0, 200, 4)]
    assert all(len(family) == 1 for family in families)
    assert len({family.pop() for family in families}) == 3


@pytest.mark.parametrize("fewest", range(2, 10))
def test_every_label_is_in_the_test_in_its_share(fewest: int) -> None:
    """Each number of answers from 2 to 41 comes once, small ones beside large ones."""
    counts = dict(zip(PLANS, range(fewest, 42, 8), strict=True))
    rows = [StyleRow(id=str(at), input=row["input"], label=row["label"]) for at, row in enumerate(answers(counts))]

    result = Counter((row.label, split) for row, split in zip(rows, split_rows(rows, CONFIG), strict=True))

    for name, count in counts.items():
        assert result[name, "test"] == max(1, round(count * CONFIG.test))
        assert result[name, "train"] >= 1


def test_the_order_of_the_rows_does_not_change_their_splits() -> None:
    rows = [StyleRow(id=str(at), input=row["input"], label=row["label"]) for at, row in enumerate(answers(PLANS))]

    forwards = dict(zip((row.input for row in rows), split_rows(rows, CONFIG), strict=True))
    backwards = dict(zip((row.input for row in rows[::-1]), split_rows(rows[::-1], CONFIG), strict=True))

    assert forwards == backwards


def test_the_same_words_with_another_label_are_counted(tmp_path: Path) -> None:
    rows = answers(PLANS)
    rows.append(rows[0] | {"label": "诚实", "label_english": "honesty"})

    assert prepared(tmp_path, rows).contradicting == 1
    parsed = [StyleRow(id=str(n), input=row["input"], label=row["label"]) for n, row in enumerate(rows)]
    assert [(row.label, other.label) for row, other in contradictions(parsed)] == [("售前", "诚实")]


def test_unlabelled_texts_come_along_but_none_of_dev_and_test(tmp_path: Path) -> None:
    write_style_sample(tmp_path / "data", 100, seed=1)
    rows = read_rows(tmp_path / "data" / "style.json", StyleColumns(), DEFAULT_LABELS)
    with (tmp_path / "data" / "unlabelled.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": row.input}, ensure_ascii=False) + "\n" for row in rows)

    counts = prepare(tmp_path / "data", tmp_path / "out", tmp_path / "page.html", CONFIG)

    texts = {row.text for _, row in read_jsonl(tmp_path / "out" / "texts.jsonl", UnlabelledText)}
    held = {row.input for split in ("dev", "test") for row in read_split(tmp_path / "out", split)[0]}
    assert counts.unlabelled == 200 + counts.train
    assert not texts & held


def test_shares_that_leave_nothing_to_learn_are_refused() -> None:
    with pytest.raises(ConfigError, match="nothing to learn from"):
        PrepareStyleConfig.parse({"test": 0.6, "dev": 0.5}, "prepare")
