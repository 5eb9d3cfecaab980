"""A benchmark is read as public ones are shipped, and whatever is odd in it is named with its place."""

from pathlib import Path

import orjson
import pytest

from benchmarks.beir.dataset import Dataset, read_dataset
from qinglan.errors import DataError
from qinglan.rag.knowledge_base import read_knowledge_base
from tests.benchmarks.beir.benchmark import write_benchmark, write_lines


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_benchmark(tmp_path / "set")


def read(folder: Path) -> Dataset:
    return read_dataset(folder, "test", "fivedoctors", folder.parent / "kb.jsonl")


def test_queries_come_with_their_history_their_grades_and_peoples_rewrite(folder: Path) -> None:
    dataset = read(folder)
    row = dataset.rows[4]

    assert (row.id, row.question, row.conversation_id) == ("q1-1", "要放冰箱吗", "鱼油软胶囊")
    assert row.history_summary == "用户：鱼油软胶囊怎么样\n助手：很好。"
    assert row.need == "鱼油软胶囊要放冰箱吗"
    assert dataset.grades[4] == {"p1-1": 2, "p1-2": 1}
    assert (len(dataset.rows), dataset.unjudged, dataset.passages) == (12, 1, 12)
    assert len(list(read_knowledge_base(folder.parent / "kb.jsonl"))) == 12


def test_mtrags_files_are_read_as_they_are(folder: Path) -> None:
    """Its tasks are of all its sets, and of turns that nobody judged; people's rewrites have a file of their own."""
    task = {
        "conversation_id": "c", "task_id": "q0-0", "task_type": "rag", "turn": "2", "dataset": "MT-RAG",
        "contexts": [], "targets": [],
        "input": [
            {"speaker": "user", "text": "有虾青素吗", "metadata": {}}, {"speaker": "agent", "text": "有。"},
            {"speaker": "user", "text": "一天吃几次"},
        ],
    }  # fmt: skip
    write_lines(folder / "conversations.jsonl", [task | {"task_id": "another set's"}, task])
    write_lines(folder / "rewrites.jsonl", [{"_id": "q0-0", "text": "|user|: 虾青素一天吃几次"}])

    dataset = read(folder)
    row = dataset.rows[0]

    assert (row.conversation_id, row.history_summary) == ("c", "用户：有虾青素吗\n助手：有。")
    assert row.need == "虾青素一天吃几次"
    assert dataset.no_conversation == 11
    assert {"conversations.jsonl", "rewrites.jsonl"} <= set(dataset.digests)


@pytest.mark.parametrize("file", ["conversations.jsonl", "rewrites.jsonl"])
def test_a_file_of_another_set_alone_is_refused(folder: Path, file: str) -> None:
    write_lines(folder / file, [{"_id": "another set's", "conversation_id": "c", "text": "虾青素"}])

    with pytest.raises(DataError, match=rf"{file}: no line is of a query in queries\.jsonl\. Take both files"):
        read(folder)


def test_a_passage_without_text_is_counted_and_its_title_stands_in_where_there_is_one(folder: Path) -> None:
    lines = [orjson.loads(line) for line in (folder / "corpus.jsonl").read_bytes().splitlines()]
    lines += [{"_id": "titled", "title": "只有题目", "text": ""}, {"_id": "blank", "title": "", "text": " "}]
    write_lines(folder / "corpus.jsonl", lines)

    dataset = read(folder)

    assert (dataset.passages, dataset.blank) == (14, 1)
    passages = {passage.id: passage.content for passage in read_knowledge_base(folder.parent / "kb.jsonl")}
    assert passages["titled"] == "只有题目" and "blank" not in passages


@pytest.mark.parametrize(
    ("qrels", "message"),
    [
        ("q0-0\tp0-0\t1\n", r"test\.tsv:1: no header\. The first line is query-id, corpus-id, score"),
        ("query-id\tcorpus-id\tscore\n", "judges nothing"),
        ("query-id\tcorpus-id\tscore\nq0-0\tp0-0\tgood\n", r":2: score 'good' is no grade\. Give a whole number"),
        ("query-id\tcorpus-id\tscore\nq0-0\tp0-0\t1.5\n", r":2: score '1\.5' is no grade"),
        ("query-id\tcorpus-id\tscore\nq0-0 p0-0 1\n", r":2: 1 columns"),
        ("query-id\tcorpus-id\tscore\nq0-0\tp0-0\t1\nq0-0\tp0-0\t2\n", r":3: passage 'p0-0' has another grade"),
        (
            "query-id\tcorpus-id\tscore\nnobody\tp0-0\t1\n",
            r"test\.tsv:2: query-id 'nobody' is not in queries\.jsonl\. Take",
        ),
        (
            "query-id\tcorpus-id\tscore\nq0-0\tnothing\t1\n",
            r"test\.tsv:2: corpus-id of query q0-0 'nothing' is not in corpus",
        ),
    ],
)
def test_odd_judgements_are_refused_with_their_place(folder: Path, qrels: str, message: str) -> None:
    (folder / "qrels" / "test.tsv").write_text(qrels, encoding="utf-8")

    with pytest.raises(DataError, match=message):
        read(folder)


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("corpus.jsonl", {"_id": "p0-0", "text": "again"}, r"corpus\.jsonl:13: _id 'p0-0' is line 1's already"),
        ("queries.jsonl", {"_id": "empty", "text": " "}, r"queries\.jsonl:14: text"),
        ("queries.jsonl", {"text": "no id"}, r"queries\.jsonl:14: _id"),
        ("conversations.jsonl", {"_id": "q0-0"}, r"conversations\.jsonl:13: conversation_id"),
    ],
)
def test_odd_lines_are_refused_with_their_place(folder: Path, file: str, line: dict[str, str], message: str) -> None:
    with (folder / file).open("ab") as lines:
        lines.write(orjson.dumps(line) + b"\n")

    with pytest.raises(DataError, match=message):
        read(folder)
