"""Which column is which: by name, then by what it holds; and what keeps a column from being used."""

from typing import Any

import pytest

from pipelines.tenant_setup.guess_columns import guess_columns
from qinglan.errors import DataError


def guess(*rows: dict[str, Any], **named: str) -> tuple[dict[str, str], str]:
    columns, notes = guess_columns(rows, "acme", named)
    return columns, " ".join(notes)


def test_usual_names_are_known_in_both_languages_whatever_their_case_and_marks() -> None:
    chinese, _ = guess({"用户问句": "怎么洗", "会话ID": "s1", "聊天记录": "", "段落编号": "k1", "客户画像": ""})
    english, _ = guess({"User Query": "how", "session_id": "s1", "Chat-History": "", "doc_ids": "k1", "Profile": ""})

    fields = ["question", "user_profile", "history_summary", "conversation_id", "gold"]
    assert list(chinese) == list(english) == fields
    assert chinese["history_summary"] == "聊天记录" and english["question"] == "User Query"


@pytest.mark.parametrize(
    "name", ["之前聊的", "上文", "对话历史", "聊天记录", "previous", "history", "context", "Chat", "前文", "对话"]
)
def test_what_was_said_before_has_many_names(name: str) -> None:
    assert guess({"问题": "怎么洗", name: "有"})[0]["history_summary"] == name


def test_a_part_of_a_name_is_enough_for_a_history_of_sentences_and_not_for_ids() -> None:
    rows = [{"问题": "怎么洗", "聊天流水": f"c{at}", "用户之前说过": "想买一个能机洗的背包，有吗"} for at in range(5)]
    columns, notes = guess(*rows)

    assert columns["history_summary"] == "用户之前说过" and "--history-column names another" in notes
    assert "history_summary" not in guess({"问题": "怎么洗", "聊天流水": "c1"})[0]
    assert guess(*rows, history_summary="聊天流水")[0]["history_summary"] == "聊天流水"


def test_a_column_that_a_person_names_is_no_other_fields() -> None:
    columns, _ = guess({"问题": "怎么洗", "历史": "有背包吗"}, question="历史", history_summary="问题")

    assert (columns["question"], columns["history_summary"]) == ("历史", "问题")


def test_a_column_of_questions_without_a_usual_name_is_taken_for_what_it_holds() -> None:
    rows = [
        {"渠道": "小程序", "客户说": f"这款{at}号包怎么洗？", "客服说": f"您好，{at}号包建议冷水手洗。" * 9}
        for at in range(9)
    ]
    columns, notes = guess(*rows)

    assert columns["question"] == "客户说"
    assert "客户说 was taken for what it holds" in notes and "Not used: 渠道, 客服说" in notes


def test_a_person_may_name_the_column() -> None:
    assert guess({"问题": "x", "原话": "怎么洗"}, question="原话")[0]["question"] == "原话"
    with pytest.raises(DataError, match="No column '说'; there are 问题"):
        guess({"问题": "x"}, question="说")


def test_a_sheet_without_questions_is_an_error_that_lists_its_columns() -> None:
    with pytest.raises(
        DataError, match=r"No column looks like users' questions; there are 订单, 金额.*--question-column"
    ):
        guess({"订单": 1, "金额": 2.5}, {"订单": 2, "金额": 3})


@pytest.mark.parametrize(
    ("field", "column", "values", "note"),
    [
        ("id", "编号", ["1", "2", "1"], "1 is there 2 times"),
        ("split", "划分", ["train", "holdout", ""], "holdout is none of train, dev and test"),
        ("tenant_id", "租户", ["acme", "umbrella", "acme"], "it names umbrella, and this is acme's folder"),
    ],
)
def test_a_column_that_would_stop_a_run_is_left_out_and_said(
    field: str, column: str, values: list[str], note: str
) -> None:
    columns, notes = guess(*({"问题": "怎么洗", column: value} for value in values))

    assert columns[field] == "" and f"{column} is not used as {field}: {note}" in notes
