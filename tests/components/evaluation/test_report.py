"""The page: well-formed, self-contained, and nothing on it runs."""

from html.parser import HTMLParser
from pathlib import Path

import orjson

from components.evaluation.rewriter.drawings import Line, bars, forest
from components.evaluation.rewriter.report import write_report
from components.evaluation.rewriter.trained import read_series
from tests.components.evaluation.world import HOSTILE, Evaluated


class Strict(HTMLParser):
    """Every tag that opens is closed, in order; remembers what a page would run or fetch."""

    VOID = ("meta", "br", "line", "circle", "rect", "polyline")

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [str(value) for name, value in attrs if name in ("src", "href") or name.startswith("on")]
        if tag in ("script", "link", "iframe", "img"):
            self.fetched.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in self.VOID

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def page(evaluated: Evaluated, folder: Path) -> str:
    logs = {"sft": folder / "sft", "ppo": folder / "nothing"}
    logs["sft"].mkdir()
    steps = [{"step": step, "loss": 3 / (1 + step), "note": "<b>"} for step in range(5)]
    lines = [orjson.dumps(step) for step in steps]
    (logs["sft"] / "metrics.jsonl").write_bytes(b"\n".join([*lines, b'{"step": 5, "lo']))
    write_report(evaluated.value, evaluated.predictions, logs, folder / "report.html", 3)
    return (folder / "report.html").read_text(encoding="utf-8")


def test_the_page_is_well_formed_and_fetches_nothing(evaluated: Evaluated, tmp_path: Path) -> None:
    parser = Strict()
    parser.feed(page(evaluated, tmp_path))
    parser.close()

    assert parser.open == []
    assert parser.fetched == []


def test_the_page_shows_verdict_expected_examples_and_curves(evaluated: Evaluated, tmp_path: Path) -> None:
    text = page(evaluated, tmp_path)

    for said in (
        "Hold: RL stays where it is.",
        "85.0%",
        "RL − teacher",
        "RL: won",
        "fivedoctors-examiner",
        "documented",
    ):
        assert said in text
    assert text.count("<svg") >= 8
    assert "<title>loss</title>" in text


def test_a_question_with_a_script_in_it_is_text_on_the_page(evaluated: Evaluated, tmp_path: Path) -> None:
    shown = evaluated._replace(value={**evaluated.value, "notes": [HOSTILE], "candidate": "rl"})
    text = page(shown, tmp_path)

    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_a_figure_leaves_out_what_has_no_interval_and_escapes_labels() -> None:
    lines = [
        Line("<b>", 5.0, 2.0, 8.0, "5"),
        Line("nothing", None, None, None),
        Line("below", -4.0, -6.0, -2.0, "-4"),
    ]
    figure = forest("a < b", lines)

    assert figure.count("<circle") == 2
    assert "<b>" not in figure and "&lt;b&gt;" in figure and "a &lt; b" in figure
    assert "nothing" not in figure


def test_a_bar_never_leaves_its_figure() -> None:
    figure = bars("top-1", [Line("rl", 4.0, 3.0, 5.0, "4.0", "#000")])

    assert 0 < float(figure.split('width="')[1].split('"')[0]) <= 380


def test_a_log_gives_its_series_whatever_its_names_and_a_missing_one_gives_none(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step":1,"x":2,"why":"text"}\n{"step":2,"x":3,"once":1}\n{"x":9}\nnot json\n')

    assert read_series(path) == {"x": [(1.0, 2.0), (2.0, 3.0)]}
    assert read_series(tmp_path / "none.jsonl") == {}
