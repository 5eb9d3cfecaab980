"""label before a real gateway: few passages are judged, twice where it counts; an unfit judge is refused early."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import openpyxl
import pytest

from components.data.label.config import LabelConfig
from components.data.label.sheet import read_corrections
from components.data.label.stage import LabelCounts, Outputs, label
from qinglan.errors import DataError
from qinglan.files.files import dump_line, read_jsonl
from qinglan.rows.labels import RowLabels
from qinglan.rows.rows import QuarantinedRow, ValidatedRewrite
from standins.teacher.app import create_app
from standins.teacher.backend import Refusal
from standins.teacher.config import Behaviour
from tests.models.validated_rows import validated
from tests.servers.echo_servers import PRICE, GatewayProcess, gateway_config, running
from tests.servers.scripted_rag import Rag

pytestmark = pytest.mark.slow

CONFIG = LabelConfig(trial_rows=6)
Grade = Callable[[str, dict[str, Any]], Any]
"""The grade that a model gives for a prompt's data, or the whole answer."""


class Brain:
    """Two models that judge as the test says; each prompt is kept with the model that got it."""

    models = ("echo", "second")

    def __init__(self, grade: Grade) -> None:
        self.grade = grade
        self.requests: list[tuple[str, dict[str, Any]]] = []

    def answer(self, model: str, messages: list[dict[str, Any]], response_format: Any) -> str | Refusal:
        data = json.loads(messages[-1]["content"])
        self.requests.append((model, data))
        if "段落目录" in data:
            numbers = [int(number) for number, heading in data["段落目录"].items() if "频次" in heading]
            return json.dumps({"段落": [*numbers, 99]})
        grade = self.grade(model, data)
        if isinstance(grade, int):
            return json.dumps({"评分": grade, "理由": "段落讲的是这件事。"}, ensure_ascii=False)
        return grade if isinstance(grade, Refusal) else str(grade)

    def labels(self, model: str) -> int:
        return sum(request_model == model and "段落" in data for request_model, data in self.requests)


def by_title(model: str, data: dict[str, Any]) -> int:
    """A good judge: the passage about the item's frequency answers, another one of the item is near."""
    item = data["检索需求"].split("一天")[0]
    return 3 if data["段落标题"] == f"{item} 频次" else 1 if item in data["段落标题"] else 0


def answer_search(request: dict[str, Any]) -> list[dict[str, Any]]:
    """The rewrite finds the price first; the need finds eight passages, the answer last unless the item has none."""
    item = request["need"].split("一天")[0]
    titles = [f"{item} 价格"] if request["rewritten_query"] != request["need"] else []
    titles += [f"{item} 说明{n}" for n in range(7)]
    titles += [f"{item} 频次"] if not item.startswith("空") else []
    return [
        {"id": title, "content": f"{title}的内容", "reranker_score": 0.5, "query_score": 0.5,
         "metadata": {"title": title}} for title in titles
    ]  # fmt: skip


class World(NamedTuple):
    folder: Path
    brain: Brain
    url: str

    def run(self, rows: list[ValidatedRewrite], config: LabelConfig = CONFIG) -> LabelCounts:
        path = self.folder / "validated.jsonl"
        path.write_bytes(b"".join(map(dump_line, rows)))
        return label(path, self.outputs, config, self.url)

    @property
    def outputs(self) -> Outputs:
        return Outputs(*(self.folder / name for name in ("labels.jsonl", "sheet.xlsx", "holes.jsonl", "report.json")))

    def labels(self) -> dict[str, RowLabels]:
        return {row.id: row for _, row in read_jsonl(self.outputs.labels, RowLabels)}

    def report(self) -> dict[str, Any]:
        return dict(json.loads(self.outputs.label_report.read_bytes()))


@contextmanager
def world(folder: Path, grade: Grade = by_title, second: str = "second") -> Iterator[World]:
    brain = Brain(grade)
    with running(create_app(brain, Behaviour())) as models, running(Rag(answer_search, "s")) as rag:
        examiner = {"base_url": f"{models}/v1", "model": second, "price": PRICE, "max_output_tokens": 100}
        process = GatewayProcess(gateway_config(models, rag, examiner=examiner), folder)
        try:
            yield World(folder, brain, process.url())
        finally:
            process.stop()


def row(n: int, item: str = "虾青素", **changes: Any) -> ValidatedRewrite:
    values = {
        "id": f"r{n}", "conversation_id": f"c{n}", "question": f"一天吃几次{n}", "need": f"{item}{n}一天吃几次",
        "rewritten_query": f"{item}{n} 吃法", "gold": (), "split": None,
    }  # fmt: skip
    return validated(**values | changes)


def test_gold_for_every_row_or_no_calls_ask_nobody(tmp_path: Path) -> None:
    with world(tmp_path) as here:
        counts = here.run([row(n, gold=("k1",)) for n in range(3)])
        labels = here.labels()
        unlabelled = here.run([row(0)], LabelConfig(calls=0)).unlabelled

    assert (counts, labels) == (LabelCounts(3, 3, 0, 0, 0, 0, 0, 0), {})
    assert (unlabelled, here.brain.requests) == (1, [])


def test_the_judge_chooses_from_what_the_need_finds_and_a_second_model_confirms(tmp_path: Path) -> None:
    with world(tmp_path) as here:
        counts = here.run([row(n) for n in range(8)])

    assert (counts.relevant, counts.nothing_relevant, counts.unlabelled) == (8, 0, 0)
    labels = here.labels()["r3"]
    assert [(line.id, line.grade, line.by) for line in labels.judged] == [
        ("虾青素3 价格", 1, "rewrite"), ("虾青素3 说明0", 1, "need"), ("虾青素3 频次", 3, "choice")
    ]  # fmt: skip
    assert labels.judged[-1].grades == (3, 3), "only what is relevant is judged twice"
    assert (labels.calls, labels.outcome) == (5, "relevant")
    lists = [data["段落目录"] for _, data in here.brain.requests if "段落目录" in data]
    assert all("说明0" not in str(line) for line in lists), "what was judged is not offered again"
    assert set(here.brain.requests[0][1]) <= {"检索需求", "段落标题", "段落", "最多", "段落目录"}


def test_what_the_second_model_denies_is_not_relevant(tmp_path: Path) -> None:
    def denied(model: str, data: dict[str, Any]) -> int:
        return by_title(model, data) if model == "echo" or "虾青素1" not in data["检索需求"] else 0

    with world(tmp_path, denied) as here:
        counts = here.run([row(n) for n in range(4)])

    assert counts.nothing_relevant == 1
    judged = here.labels()["r1"].judged[-1]
    assert (judged.grades, judged.grade) == ((3, 0), 0)
    [hole] = [line for _, line in read_jsonl(here.outputs.label_holes, QuarantinedRow)]
    assert (hole.id, hole.reason) == ("r1", "nothing relevant")
    assert "虾青素1 价格, grade 1" in hole.detail


def test_one_model_in_both_roles_is_asked_again_and_the_report_says_so(tmp_path: Path) -> None:
    with world(tmp_path, second="echo") as here:
        counts = here.run([row(n) for n in range(4)])

    assert counts.relevant == 4
    assert here.brain.labels("second") == 0
    assert here.labels()["r0"].judged[-1].grades == (3, 3)
    assert here.report()["confirmed_by"] == {"role": "judge", "sample": 1}


def test_calls_of_a_row_and_in_all_are_never_passed_and_the_rows_beyond_are_listed(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"calls": 25, "least_labelled": 0.0})
    with world(tmp_path) as here:
        here.run([row(0), row(1)], config.model_copy(update={"calls_per_row": 3}))
        assert {(line.calls, line.outcome) for line in here.labels().values()} == {(3, "out of calls")}
        counts = here.run([row(n) for n in range(8)], config)

    assert counts.calls <= 25
    assert (counts.relevant, counts.unlabelled) == (4, 4), "five calls a row, and nine must be left for the next"
    assert here.labels()["r7"].outcome == "out of calls"


def moody() -> Grade:
    """Return a judge that calls a row's passage irrelevant at first, and relevant when it is asked again."""
    judged: Counter[str] = Counter()

    def grade(model: str, data: dict[str, Any]) -> int:
        if by_title(model, data) == 0:
            return 0
        judged[data["段落"]] += 1
        return 3 if judged[data["段落"]] == 2 else 1

    return grade


@pytest.mark.parametrize(
    ("grade", "fault"),
    [
        (lambda model, data: 3, "unrelated passages called relevant"),
        (lambda model, data: Refusal("我不能评价。"), "questions without a usable answer"),
        (lambda model, data: '{"score": 3, "reason": "relevant"}', "questions without a usable answer"),
        (lambda model, data: 7, "questions without a usable answer"),
        (moody(), "relevant in one of two answers"),
    ],
)
def test_an_unfit_judge_is_refused_before_the_rows_are_paid_for(tmp_path: Path, grade: Grade, fault: str) -> None:
    with world(tmp_path, grade) as here, pytest.raises(DataError, match=fault) as refused:
        here.run([row(n) for n in range(60)])

    assert "gateway.judge" in str(refused.value)
    assert len(here.brain.requests) <= 4 * CONFIG.trial_rows
    assert not here.outputs.labels.exists()


def test_a_knowledge_base_without_answers_stops_the_run_and_lists_the_rows(tmp_path: Path) -> None:
    rows = [row(n, item="空" if n else "虾青素") for n in range(10)]
    with world(tmp_path) as here, pytest.raises(DataError, match=r"1 of 10 rows have a relevant passage \(10%\)"):
        here.run(rows)

    assert len(list(read_jsonl(here.outputs.label_holes, QuarantinedRow))) == 9


def test_rows_with_gold_measure_the_judges_and_are_not_labelled(tmp_path: Path) -> None:
    gold = [row(n, gold=(f"虾青素{n} 频次",)) for n in range(10, 16)]
    wrong = row(16, gold=("虾青素16 说明0",), question="怎么服用")
    locked = row(17, gold=("虾青素17 频次",), split="test")
    with world(tmp_path) as here:
        counts = here.run([*(row(n) for n in range(4)), *gold, wrong, locked])

    measured = here.report()["gold"]
    assert (measured["gold_called_relevant"]["value"], measured["gold_called_relevant"]["n"]) == (6 / 7, 7)
    assert measured["gold_called_relevant"]["low"] < 6 / 7 <= measured["gold_called_relevant"]["high"]
    assert measured["others_called_not"]["value"] == 1.0
    assert (counts.gold, set(here.labels())) == (8, {"r0", "r1", "r2", "r3"})
    assert not [data for _, data in here.brain.requests if "虾青素17" in data["检索需求"]], "the test stays locked"


def test_people_correct_a_judge_by_the_sheet_and_nothing_is_paid_twice(tmp_path: Path) -> None:
    rows = [row(n) for n in range(4)]
    with world(tmp_path) as here:
        here.run(rows)
        book = openpyxl.load_workbook(here.outputs.label_sheet)
        sheet = book.active
        assert sheet is not None
        header, *lines = [[cell.value for cell in line] for line in sheet.iter_rows()]
        assert {line[header.index("段落编号")] for line in lines if line[0] == "r2"} == {
            "虾青素2 价格", "虾青素2 说明0", "虾青素2 频次"
        }  # fmt: skip
        for number, line in enumerate(lines, 2):
            if line[header.index("段落编号")] == "虾青素2 频次":
                sheet.cell(number, header.index("人工评分") + 1, 0)
        book.save(tmp_path / "filled.xlsx")
        requests = len(here.brain.requests)
        counts = here.run(rows, CONFIG.model_copy(update={"corrections": tmp_path / "filled.xlsx"}))

    assert len(here.brain.requests) == requests
    assert (counts.relevant, counts.corrected) == (3, 1)
    judged = here.labels()["r2"].judged[-1]
    assert (judged.grade, judged.source, judged.grades) == (0, "person", (3, 3))
    people = here.report()["people_agree"]
    assert (people["value"], people["n"]) == (0.0, 1)


def filled_sheet(folder: Path, *cells: Any) -> Path:
    """A sheet of corrections that holds one."""
    book = openpyxl.Workbook()
    assert book.active is not None
    book.active.append(["编号", "段落编号", "人工评分"])
    book.active.append(cells)
    book.save(folder / "filled.xlsx")
    return folder / "filled.xlsx"


@pytest.mark.parametrize(("grade", "wrong"), [("好", "'好'"), (4, "4"), (1.5, "1.5")])
def test_a_correction_that_is_no_grade_is_refused_before_anybody_is_asked(
    tmp_path: Path, grade: Any, wrong: str
) -> None:
    config = CONFIG.model_copy(update={"corrections": filled_sheet(tmp_path, "r0", "k1", grade)})

    with world(tmp_path) as here, pytest.raises(DataError, match=f"row 2: 人工评分 is {wrong}. Write 0, 1, 2 or 3"):
        here.run([row(0)], config)

    assert here.brain.requests == []


@pytest.mark.parametrize("ids", [(None, "k1"), ("r0", None), ("r0", "\u200b")])
def test_a_grade_that_belongs_to_no_row_or_passage_is_not_lost_without_a_word(
    tmp_path: Path, ids: tuple[str | None, str | None]
) -> None:
    with pytest.raises(DataError, match="row 2: a grade without 编号 or 段落编号"):
        read_corrections(filled_sheet(tmp_path, *ids, 3))


def test_another_knowledge_base_than_the_rows_is_refused(tmp_path: Path) -> None:
    with world(tmp_path) as here, pytest.raises(DataError, match="the row was validated on"):
        here.run([row(0, snapshot="another")])
