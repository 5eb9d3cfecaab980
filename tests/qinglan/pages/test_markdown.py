"""Untrusted text in Markdown makes no image, link, HTML, code, cell or line of its own."""

import pytest

from qinglan.evaluation.gates import rewriter_gate
from qinglan.evaluation.gates.verdict import to_markdown
from qinglan.evaluation.pages.report import markdown_table
from qinglan.pages.markdown import markdown_text
from tests.qinglan.evaluation.gates import test_rewriter_gate as rewriter

IMAGE = "![x](https://evil.example/p.png)"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (IMAGE, r"![x]\(https://evil.example/p.png)"),
        (r"[x]\(https://evil.example)", r"[x]\\(https://evil.example)"),
        ("[x][y]", r"[x]\[y]"),
        ("[x]: https://evil.example", r"[x]\: https://evil.example"),
        ("<img src=x onerror=alert(1)>", r"\<img src=x onerror=alert(1)>"),
        (r"\<img src=x>", r"\\\<img src=x>"),
        ("<https://evil.example>", r"\<https://evil.example>"),
        ("`code`", r"\`code\`"),
        ("a|b", r"a\|b"),
        ("a\n# heading", r"a\n# heading"),
        ("\x1b[2J", r"\x1b[2J"),
        ("a\u202eb", r"a\u202eb"),
        ("+6.0 points [+3.0, +9.0], p 0.0001", "+6.0 points [+3.0, +9.0], p 0.0001"),
    ],
)
def test_a_text_is_shown_as_it_is_written(text: str, shown: str) -> None:
    assert markdown_text(text) == shown
    assert shown in markdown_table(["a"], [[text]])


def test_an_examiners_name_is_no_image_on_the_gates_page() -> None:
    evaluation = rewriter.judged_evaluation()
    evaluation["agreement"]["examiner"] = evaluation["agreement"]["judge"] = IMAGE

    verdict = rewriter_gate.decide(evaluation, rewriter_gate.GateConfig(by="labels"))

    assert any(IMAGE in reason for reason in verdict.reasons)
    assert IMAGE not in to_markdown(verdict)
