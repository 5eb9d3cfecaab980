"""Figures: nothing but what is known, and every label escaped."""

from qinglan.drawings import Line, bars, forest


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
