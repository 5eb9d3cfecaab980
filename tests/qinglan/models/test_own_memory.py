"""A loaded model does not depend on its files any more: they may be written, cut off or deleted."""

import gc
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qinglan.rewriter.model import Student
from qinglan.style.model import ONNX_FILE, StyleModel
from tests.models.tiny_rewriter import taught_model, tiny_model
from tests.models.tiny_style import STYLE_TEXT, tiny_style_model

WEIGHTS = "model.safetensors"


def onnx_model(folder: Path) -> Path:
    from components.training.style.export import export_int8

    export_int8(tiny_style_model(folder), folder / ONNX_FILE)
    return folder


def style_on_onnx(folder: Path) -> StyleModel:
    return StyleModel.load(folder, "onnx")


MODELS: list[Any] = [
    pytest.param(tiny_model, Student.load, id="rewriter"),
    pytest.param(tiny_style_model, StyleModel.load, id="style"),
    pytest.param(onnx_model, style_on_onnx, id="style on onnxruntime", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("make", "load"), MODELS)
def test_a_loaded_model_maps_none_of_its_files(
    tmp_path: Path, make: Callable[[Path], Path], load: Callable[[Path], object]
) -> None:
    folder = make(tmp_path / "model")
    model = load(folder)
    gc.collect()

    assert model is not None
    assert str(folder) not in Path("/proc/self/maps").read_text(encoding="utf-8")


ANSWERS = {
    "rewriter": """
from qinglan.rewriter.model import Student
from qinglan.prompts import Question
model = Student.load(folder)
def answer(): return model.write([Question("fivedoctors", "一天吃几次")])[0].text
""",
    "style": f"""
from qinglan.style.model import StyleModel
model = StyleModel.load(folder)
def answer(): return model.predict([{STYLE_TEXT!r}])
""",
    "onnx": f"""
from qinglan.style.model import StyleModel
model = StyleModel.load(folder, "onnx")
def answer(): return model.predict([{STYLE_TEXT!r}])
""",
}
SPOIL = """
before = answer()
size = weights.stat().st_size
with weights.open("r+b") as file:
    file.seek(size // 2)
    file.write(bytes(size - size // 2))
assert answer() == before, "zeroed weights answer otherwise"
os.truncate(weights, size // 4)
assert answer() == before, "weights that were cut off answer otherwise"
weights.unlink()
assert answer() == before and before
print("as before")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (tiny_style_model, "style"),
        pytest.param(taught_model, "rewriter", marks=pytest.mark.nightly),
        pytest.param(onnx_model, "onnx", marks=pytest.mark.nightly),
    ],
)
def test_weights_that_are_spoiled_after_they_were_loaded_change_no_answer_and_end_no_process(
    tmp_path: Path, make: Callable[[Path], Path], kind: str
) -> None:
    """In a process of its own: mapped weights that are cut off end it with SIGBUS."""
    folder = make(tmp_path / "model")
    name = ONNX_FILE if kind == "onnx" else WEIGHTS
    program = f"import os; from pathlib import Path; folder = Path({str(folder)!r}); weights = folder / {name!r}"

    ended = subprocess.run(
        [sys.executable, "-c", program + ANSWERS[kind] + SPOIL], capture_output=True, text=True, timeout=300
    )

    assert (ended.returncode, ended.stdout) == (0, "as before\n"), ended.stderr
