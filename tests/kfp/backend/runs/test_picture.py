"""A real browser clicks on what a page shows."""

from pathlib import Path

import pytest

from tests.kfp.backend.runs.picture import SIZE, browser, take_picture

PAGE = """<div id=out>not yet</div>
<div style="height: 3000px"></div>
<label>questions - string <input id=field value=old></label>
<script>setTimeout(() => {
  const step = document.createElement("span");
  step.textContent = "evaluate";
  step.onclick = () => { document.getElementById("out").textContent = "its panel"; };
  document.body.append(step);
}, 500);</script>"""


@pytest.mark.slow
def test_a_step_that_appears_late_is_clicked(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(PAGE)

    with browser() as tab:
        tab.call("Page.navigate", url=(tmp_path / "page.html").as_uri())
        tab.click("evaluate")
        shown = tab.call("Runtime.evaluate", expression="document.getElementById('out').textContent")

    assert shown["result"]["value"] == "its panel"


@pytest.mark.slow
def test_a_field_below_the_window_is_filled_in_place_of_what_it_held(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(PAGE)

    with browser() as tab:
        tab.call("Page.navigate", url=(tmp_path / "page.html").as_uri())
        tab.fill("questions - string", "s3://data/questions.xlsx")
        shown = tab.call("Runtime.evaluate", expression="document.getElementById('field').value")

    assert shown["result"]["value"] == "s3://data/questions.xlsx"


@pytest.mark.slow
def test_a_picture_is_as_wide_as_the_window(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(PAGE)

    take_picture((tmp_path / "page.html").as_uri(), [], tmp_path / "out.png")

    header = (tmp_path / "out.png").read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(header[16:20], "big") == SIZE[0]
