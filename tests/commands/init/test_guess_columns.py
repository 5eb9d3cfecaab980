"""Which column is which, by its name; and what keeps a column from being used."""

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


def test_a_person_may_name_any_column_for_the_history() -> None:
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


@pytest.mark.parametrize("value", ["https://kf.example/1", "你好，1号包", "how much"])
def test_links_and_texts_are_no_ids_of_conversations(value: str) -> None:
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


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("u-{}", "its 20 values look like ids, such as u-0"),
        ("在吗", "all its 20 values are the same, 在吗"),
        ("第{}次怎么洗", ""),
    ],
)
def test_a_column_that_holds_no_questions_is_warned_of_and_refused_if_a_person_named_it(
    value: str, fault: str
) -> None:
    values = [value.format(at) for at in range(20)]

    assert (f"问题 is used as question, and {fault}" in guess(*({"问题": text} for text in values))[1]) == bool(fault)
    if fault:
        with pytest.raises(DataError, match=f"--question-column 甲: {fault}"):
            guess(*({"甲": text} for text in values), question="甲")
