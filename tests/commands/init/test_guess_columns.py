"""Which column is which: by name, for a few names by what they hold; and what keeps a column from being used."""

from typing import Any

import pytest

from commands.init.guess_columns import guess_columns, unused_note
from qinglan.errors import DataError


def guess(*rows: dict[str, Any], **named: str) -> tuple[dict[str, str], str]:
    answer = guess_columns(rows, "acme", named)
    return answer.columns, " ".join([*answer.notes, unused_note(answer, direct=True)])


def test_usual_names_are_known_in_both_languages_whatever_their_case_and_marks() -> None:
    chinese, _ = guess({"用户问句": "怎么洗", "会话ID": "s1", "聊天记录": "", "段落编号": "k1", "客户画像": ""})
    english, _ = guess({"User Query": "how", "session_id": "s1", "Chat-History": "", "doc_ids": "k1", "Profile": ""})

    fields = ["question", "user_profile", "history_summary", "conversation_id", "gold"]
    assert list(chinese) == list(english) == fields
    assert chinese["history_summary"] == "聊天记录" and english["question"] == "User Query"


@pytest.mark.parametrize("name", ["之前聊的", "上文", "对话历史", "聊天记录", "history", "context", "前文"])
def test_what_was_said_before_has_many_names(name: str) -> None:
    assert guess({"问题": "怎么洗", name: "有"})[0]["history_summary"] == name


@pytest.mark.parametrize(
    "name", ["Conversation", "chat", "对话", "聊天", "previous", "会话", "Transcript", "chat_log"]
)
def test_an_unsure_name_is_a_history_of_sentences_with_a_note(name: str) -> None:
    rows = [{"问题": "怎么洗", name: f"用户：想买{at}号背包\n客服：有的，能机洗"} for at in range(5)]
    columns, notes = guess(*rows, {"问题": "多少钱", name: ""})

    assert columns["history_summary"] == name and "--history-column names another" in notes


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("conversation", ["c0", "c0", "c1"]),
        ("chat", ["2026年1月2日 上午10:11", "2026年1月3日 下午3:20"]),
        ("chat", ["Fri, Jan 2, 2026 10:11 AM", "Sat, Jan 3, 2026 1:11 PM"]),
        ("聊天", ["https://kf.example/c?id=1", "https://kf.example/c?id=2"]),
        ("previous", ["有", "没有"]),
    ],
)
def test_ids_dates_links_and_labels_are_no_history(name: str, values: list[str]) -> None:
    assert "history_summary" not in guess(*({"问题": "怎么洗", name: value} for value in values))[0]


def test_a_person_names_the_conversation_and_the_profile_in_columns_of_any_name() -> None:
    rows = [
        {"q": f"how {at}?", "case": f"case {at // 2}", "remark": "member", "session": f"web{at % 3}"}
        for at in range(6)
    ]

    plain, _ = guess(*rows)
    columns, _ = guess(*rows, conversation_id="case", user_profile="remark")

    assert plain["conversation_id"] == "session" and "user_profile" not in plain
    assert (columns["conversation_id"], columns["user_profile"]) == ("case", "remark")
    assert "--conversation-column names it" in guess(*({"q": row["q"], "case": row["case"]} for row in rows))[1]
    with pytest.raises(DataError, match="'case' is named for"):
        guess(*rows, conversation_id="case", user_profile="case")


def test_a_column_that_is_named_for_two_fields_is_refused() -> None:
    with pytest.raises(DataError, match="'q' is named for question and for history_summary"):
        guess({"q": "how", "text": "what is it?"}, question="q", history_summary="q")


def test_a_history_column_may_be_exported_turns_and_a_person_may_name_any() -> None:
    turns = '[{"role":"user","content":"bag?"}]'

    assert guess(*[{"q": "how", "chat": turns}] * 5)[0]["history_summary"] == "chat"
    assert guess({"q": "how", "chat date": "1"}, history_summary="chat date")[0]["history_summary"] == "chat date"


@pytest.mark.parametrize("name", ["conversation", "对话", "Chat"])
@pytest.mark.parametrize("values", [["c0", "c0", "c1"], [1, 1, 2], ["会话1", "会话1", "会话2"]])
def test_a_conversation_of_ids_is_the_conversations_id_with_a_note(name: str, values: list[Any]) -> None:
    columns, notes = guess(*({"问题": "怎么洗", name: value} for value in values))

    assert columns == {"question": "问题", "conversation_id": name} and f"{name} was taken for the conv" in notes
    beside, _ = guess({"问题": "怎么洗", "会话编号": "s1", name: "c1"})
    assert beside["conversation_id"] == "会话编号"


@pytest.mark.parametrize("name", ["会话号", "对话标识", "Ticket No", "chat_code"])
def test_unused_columns_are_named_and_rows_without_a_conversation(name: str) -> None:
    columns, notes = guess(*({"问题": text, name: "S1", "渠道": "微信"} for text in ("怎么洗", "多重")))
    _, alone = guess({"问题": "怎么洗", "渠道": "微信"})

    assert columns["conversation_id"] == name
    assert "Not used: 渠道. `generate.columns` in the profiles can name them." in notes
    assert "each row counts as a conversation" in alone and "each row counts" not in notes


@pytest.mark.parametrize("value", ["2026-01-02", "小程序", "https://kf.example/1", "你好，1号包"])
def test_dates_labels_and_texts_are_no_ids_of_conversations(value: str) -> None:
    assert "conversation_id" not in guess({"问题": "怎么洗", "对话": value})[0]


def test_a_column_that_a_person_names_is_no_other_fields() -> None:
    columns, _ = guess({"问题": "怎么洗", "历史": "有背包吗"}, question="历史", history_summary="问题")

    assert (columns["question"], columns["history_summary"]) == ("历史", "问题")


def test_a_sheet_without_questions_is_an_error_that_lists_its_columns() -> None:
    with pytest.raises(DataError, match=r"there are 订单, 金额.*--question-column"):
        guess({"订单": 1, "金额": 2.5}, {"订单": 2, "金额": 3})


@pytest.mark.parametrize(
    ("field", "column", "values", "note"),
    [
        ("id", "编号", ["1", "2", "1"], "1 is there 2 times"),
        ("split", "划分", ["train", "holdout", ""], "holdout is none of train, dev and test"),
        ("tenant_id", "租户", ["acme", "umbrella", "acme"], "it names umbrella, and this is acme's folder"),
        ("conversation_id", "会话ID", ["A1"] * 5, "all 5 rows have the same value, A1, and one"),
    ],
)
def test_a_column_that_would_stop_a_run_is_left_out_and_said(
    field: str, column: str, values: list[str], note: str
) -> None:
    columns, notes = guess(*({"问题": "怎么洗", column: value} for value in values))

    assert columns[field] == "" and f"{column} is not used as {field}: {note}" in notes


def test_a_conversation_column_of_one_value_is_refused_where_a_person_names_it() -> None:
    rows = [{"问题": f"怎么洗{at}", "批次": "一"} for at in range(5)]

    with pytest.raises(
        DataError, match=r"--conversation-column 批次: all 5 rows have the same value, 一, .*leave the"
    ):
        guess(*rows, conversation_id="批次")
    assert "same value" not in guess(*rows[:4], conversation_id="批次")[1]


NUMBERS = [f"2026-{at:04}" for at in range(20)]
IDS = [f"u-{at}" for at in range(20)]
CONVERSATIONS = [f"C{at // 2}" for at in range(20)]
LABELS = ["VIP1", "VIP2"] * 10
ALIKE = ["在吗"] * 20
TEXTS = [f"第{at}次怎么洗" for at in range(20)]


@pytest.mark.parametrize(
    ("field", "values", "fault"),
    [
        ("question", NUMBERS, "its 20 values look like ids, such as 2026-0000"),
        ("question", IDS, "its 20 values look like ids, such as u-0"),
        ("question", CONVERSATIONS, "its 20 values look like ids, such as C0"),
        ("question", ALIKE, "20 of its 20 values are the same, 在吗"),
        ("question", TEXTS, ""),
        ("history_summary", NUMBERS, "its 20 values look like ids"),
        ("history_summary", ALIKE, "20 of its 20 values are the same, 在吗"),
        ("user_profile", NUMBERS, "its 20 values look like ids"),
        ("user_profile", LABELS, ""),
        ("user_profile", TEXTS, ""),
    ],
)
def test_a_column_that_holds_no_texts_is_warned_of_and_as_named_questions_refused(
    field: str, values: list[str], fault: str
) -> None:
    rows = [{"甲": value, "怎么": f"怎么洗{at}"} for at, value in enumerate(values)]
    usual = {"question": "问题", "history_summary": "历史摘要", "user_profile": "用户画像"}[field]
    by_name = [{usual: row["甲"], **({} if field == "question" else {"问题": row["怎么"]})} for row in rows]

    assert (f"{usual} is used as {field}, and {fault}" in guess(*by_name)[1]) == bool(fault)
    if field == "question" and fault:
        with pytest.raises(DataError, match=f"--question-column 甲: {fault}"):
            guess(*rows, question="甲")
    else:
        notes = guess(*rows, **{"question": "怎么", field: "甲"})[1]
        assert (f"甲 is used as {field}, and {fault}" in notes) == bool(fault)
