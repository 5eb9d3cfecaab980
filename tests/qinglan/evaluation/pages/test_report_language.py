"""A report is a page in the language of whoever runs the evaluation; what users wrote stays as it is."""

import pytest

from qinglan.evaluation.pages.report import (
    Answer,
    Example,
    Examples,
    Report,
    Section,
    Table,
    render,
)
from qinglan.messages import LANGUAGE
from tests.screens.browser import Page

REASON = (
    "Worse than the teacher. RL minus teacher, gold passage first: -7.2 points [-8.6, -5.6], p 0.0020, 36 queries."
)


def a_report(question: str) -> Report:
    example = Example(question, "", [Answer("teacher", question, "not found")])
    table = Table(["", "difference"], [["gold passage first", "+5.0"]], terminal=True)
    return Report(
        "Hold: RL stays where it is.", False, "It was measured here.",
        [REASON],
        [Section("Every system", [table, Examples("", [example])])], [], {},
    )  # fmt: skip


@pytest.fixture
def chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LANGUAGE, "zh")


@pytest.mark.usefixtures("chinese")
def test_a_report_is_chinese_with_its_numbers() -> None:
    html = render(a_report("这个能洗吗"))

    text = Page(html).text
    assert '<html lang="zh-CN">' in html
    assert "暂缓：RL 留在原处。" in text
    assert "比教师差。RL 减教师，标准段落居首：-7.2 个百分点 [-8.6, -5.6]，p 0.0020，36 个查询。" in text
    assert "各个系统" in text and "未检索到" in text
    assert "It was measured here." in text  # what no entry knows stays English


@pytest.mark.usefixtures("chinese")
@pytest.mark.parametrize("words", ["Every system", "not found", "<b>None.</b>"])
def test_a_users_question_that_reads_like_a_message_stays_what_it_is(words: str) -> None:
    text = Page(render(a_report(words))).text

    assert text.count(words) == 2  # the question, and the teacher's answer
