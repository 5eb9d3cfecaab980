"""Figures: nothing but what is known, and every label escaped."""

from qinglan.pages.svg_charts import ChartRow, bar_chart, forest_plot


def test_a_figure_leaves_out_what_has_no_interval_and_escapes_labels() -> None:
    lines = [
        ChartRow("<b>", 5.0, 2.0, 8.0, "5"),
        ChartRow("nothing", None, None, None),
        ChartRow("below", -4.0, -6.0, -2.0, "-4"),
    ]
    figure = forest_plot("a < b", lines)

    assert figure.count("<circle") == 2
    assert "<b>" not in figure and "&lt;b&gt;" in figure and "a &lt; b" in figure
    assert "nothing" not in figure


def test_a_bar_never_leaves_its_figure() -> None:
    figure = bar_chart("top-1", [ChartRow("rl", 4.0, 3.0, 5.0, "4.0", "#000")])

    assert 0 < float(figure.split('width="')[1].split('"')[0]) <= 380
