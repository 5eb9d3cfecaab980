"""Any sheet becomes records; an exported conversation becomes a question for each thing that its user said."""

import json
from pathlib import Path
from typing import Any

import pytest

from commands.init.setup import read_data
from commands.init.sheet_formats import read_records
from qinglan.errors import DataError
from qinglan.tables.tables import write_table

USER, BOT = {"role": "user", "content": "有背包吗"}, {"role": "assistant", "content": "有的"}
AGAIN = {"role": "user", "content": "那它能机洗吗"}


def write(tmp_path: Path, content: str, name: str = "export.json", encoding: str = "utf-8") -> Path:
    path = tmp_path / name
    path.write_text(content, encoding=encoding)
    return path


@pytest.mark.parametrize(
    ("name", "encoding", "direct"),
    [
        ("a.csv", "gb18030", True),
        ("a.json", "utf-8-sig", True),
        ("a.json", "utf-16", False),
        ("a.jsonl", "utf-8", True),
        ("a.jsonl", "gbk", False),
    ],
)
def test_the_pipeline_reads_itself_what_it_can(tmp_path: Path, name: str, encoding: str, direct: bool) -> None:
    row = {"用户问句": "怎么洗"}
    content = {".csv": "用户问句\n怎么洗\n", ".json": json.dumps([row], ensure_ascii=False)}.get(
        Path(name).suffix, json.dumps(row, ensure_ascii=False)
    )
    records = read_records(write(tmp_path, content, name, encoding))

    assert (records.rows, records.direct) == ([row], direct)


@pytest.mark.parametrize(
    "exported",
    [
        [{"id": "c1", "messages": [USER, BOT, AGAIN]}],
        {"version": 1, "conversations": [{"id": "c1", "messages": [USER, BOT, AGAIN]}]},
        [{"id": "c1", "conversations": [{"from": "human", "value": "有背包吗"}, {"from": "gpt", "value": "有的"},
                                       {"from": "human", "value": "那它能机洗吗"}]}],
    ],
)  # fmt: skip
def test_each_thing_that_a_user_said_is_a_question_with_what_came_before(tmp_path: Path, exported: Any) -> None:
    records = read_records(write(tmp_path, json.dumps(exported)))

    assert records.rows == [
        {"question": "有背包吗", "history_summary": "", "conversation_id": "c1"},
        {"question": "那它能机洗吗", "history_summary": "用户：有背包吗\n助手：有的", "conversation_id": "c1"},
    ]
    assert not records.direct


def test_one_conversation_alone_is_an_export_too(tmp_path: Path) -> None:
    rows = read_records(write(tmp_path, json.dumps([USER, BOT, AGAIN]))).rows

    assert [(row["question"], row["conversation_id"]) for row in rows] == [
        ("有背包吗", "chat-1"),
        ("那它能机洗吗", "chat-1"),
    ]


def test_a_question_with_its_history_as_turns_stays_one_row(tmp_path: Path) -> None:
    row = {"query": "那它能机洗吗", "history": [USER, BOT]}
    records = read_records(write(tmp_path, json.dumps([row])))

    assert records.rows == [row] and records.direct


@pytest.mark.parametrize(
    ("content", "message"),
    [("[1]", "element 1: expected an object"), ('{"a": 1', "no JSON"), ('{"a": 1, "a": 2}', "twice")],
)
def test_what_is_no_list_of_objects_is_an_error(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_records(write(tmp_path, content))


MESSAGES = [
    ("c1", "客户", "有背包吗"), ("c1", "机器人", "有的"), ("c2", "客户", "能开发票吗"), ("c1", "系统", "坐席接入"),
    ("c1", "客户", "那它能机洗吗"), ("c2", "客服", "能"), ("c2", "机器人", ""),
]  # fmt: skip
QUESTIONS = [
    {"question": "有背包吗", "history_summary": "", "conversation_id": "c1"},
    {"question": "那它能机洗吗", "history_summary": "用户：有背包吗\n助手：有的", "conversation_id": "c1"},
    {"question": "能开发票吗", "history_summary": "", "conversation_id": "c2"},
]


def messages_file(folder: Path, kind: str, names: tuple[str, str, str]) -> Path:
    path = folder / f"chats.{kind}"
    rows = [dict(zip(names, values, strict=True)) for values in MESSAGES]
    if kind == "xlsx":
        with write_table(path, list(names)) as add:
            for values in MESSAGES:
                add(list(values))
    elif kind == "csv":
        path.write_text("\n".join(",".join(values) for values in [names, *MESSAGES]), encoding="utf-8")
    else:
        lines = (json.dumps(row, ensure_ascii=False) for row in rows)
        path.write_text("\n".join(lines) if kind == "jsonl" else json.dumps(rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", ["csv", "xlsx", "json", "jsonl"])
@pytest.mark.parametrize("names", [("conversation", "role", "content"), ("工单流水", "发送方", "消息内容")])
def test_rows_that_are_messages_become_a_question_for_each_thing_that_a_user_said(
    tmp_path: Path, kind: str, names: tuple[str, str, str]
) -> None:
    """Messages of two conversations are mixed; what a system says is no part of them."""
    records = read_records(messages_file(tmp_path, kind, names))

    assert records.rows == QUESTIONS and not records.direct
    assert f"3 messages of users in 2 conversations ({names[0]})" in records.note


def test_the_other_columns_of_messages_are_used_or_named(tmp_path: Path) -> None:
    """Each question has the cells of the user's own row; an answer's are no question's."""
    rows = [
        row
        for at in range(3)
        for row in (
            f"c{at},客户,能机洗吗,会员{at},{'test' if at else 'train'},k{at},{at}点",
            f"c{at},客服,能的,,,k9,{at}点",
        )
    ]
    sheet = write(tmp_path, "\n".join(["会话ID,发送人,内容,用户画像,划分,标准段落,几时", *rows]), "a.csv")

    data = read_data("acme", sheet, [])

    fields = [(row.conversation_id, row.user_profile, row.split, row.gold) for row in data.questions]
    splits = ("train", "test", "test")
    assert fields == [(f"c{at}", f"会员{at}", split, (f"k{at}",)) for at, split in enumerate(splits)]
    [note] = [note for note in data.guess.notes if note.startswith("Not used")]
    assert note == (
        "Not used: 几时. Give one a field's usual name, such as user_profile, gold or split, and begin again, "
        "to use it."
    )
    named = read_data("acme", sheet, [], {"user_profile": "几时"})
    assert [row.user_profile for row in named.questions] == ["0点", "1点", "2点"]


def test_what_else_an_exported_chat_holds_is_used_or_named(tmp_path: Path) -> None:
    """A profile is that of all its questions, and gold the last one's."""
    chats = [
        {"id": f"c{at}", "persona": f"会员{at}", "gold": f"k{at}", "app": "微信", "messages": [USER, BOT, AGAIN]}
        for at in range(2)
    ]

    data = read_data("acme", write(tmp_path, json.dumps(chats)), [])

    fields = [(row.conversation_id, row.user_profile, row.gold) for row in data.questions]
    assert fields == [("c0", "会员0", ()), ("c0", "会员0", ("k0",)), ("c1", "会员1", ()), ("c1", "会员1", ("k1",))]
    assert [note for note in data.guess.notes if note.startswith("Not used: app. ")]


def test_messages_without_a_conversation_are_refused_until_a_column_is_named(tmp_path: Path) -> None:
    path = messages_file(tmp_path, "csv", ("grp", "role", "content"))

    with pytest.raises(
        DataError, match=r"each row is a message of a chat \(role, content\).*--conversation-column NAME"
    ):
        read_records(path)
    assert read_records(path, {"conversation_id": "grp"}).rows == QUESTIONS


@pytest.mark.parametrize(
    ("field", "option"), [("conversation_id", "--conversation-column"), ("user_profile", "--profile-column")]
)
def test_a_named_column_that_is_not_there_is_refused_with_the_option(tmp_path: Path, field: str, option: str) -> None:
    path = messages_file(tmp_path, "csv", ("编号", "问", "答"))

    with pytest.raises(DataError, match=f"no column '没有'; there are 编号, 问, 答.*{option} NAME"):
        read_records(path, {field: "没有"})


def test_rows_with_one_side_alone_stay_rows(tmp_path: Path) -> None:
    rows = [{"role": "user", "content": "有背包吗", "conversation": "c1"}] * 2

    assert read_records(write(tmp_path, "\n".join(map(json.dumps, rows)), "a.jsonl")).rows == rows
