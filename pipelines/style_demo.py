"""`make demo-style`: a sample of labelled answers, the style line on it, and what the small model says at the end."""

import time
from pathlib import Path

from pipelines.config import load_style_config
from pipelines.demo_audit import show_audit
from pipelines.execution import raise_if_held, run_lock
from pipelines.run import run_style
from pipelines.rundir import ARTIFACT_FILES, RunDir
from pipelines.style import StyleRunConfig
from pipelines.summary import print_style_summary
from qinglan.config import load_yaml
from qinglan.style.labels import format_training_text
from qinglan.terminal import say
from standins.samples.style import write_style_sample

UNSURE = 0.7
"""The tenth of the test's answers that the model is least sure of lies below it, and is right in about half."""

ASKED = (
    ("这个产品有什么优缺点？", "这个产品确实有很多优点，但也存在一些限制，建议您根据自己的需求来判断是否合适。"),
    ("想把降压药停了改吃鱼油软胶囊", "为了您的安全，请先不要这样做，尽快咨询专业人士。"),
    ("想把降压药停了改吃鱼油软胶囊", "这款卖得最好，现在下单立减30元。"),
)


def run_style_demo(out: Path, rows: int, seed: int = 0) -> None:
    started, root = time.monotonic(), out / "run"
    run = RunDir(root)
    with run_lock(run):  # a demo that is under way reads what is about to be written
        counts = write_style_sample(out / "data", rows, seed)
    say(
        f"✓ sample: {counts.rows:,} labelled answers, {counts.meant / counts.rows:.1%} of them in the manner meant, "
        f"{counts.unlabelled:,} texts without a label  ({time.monotonic() - started:.1f} s)"
    )  # fmt: skip
    record = run_style(load_style_config("laptop", labelled=out / "data"), root)
    print_style_summary(root, record)
    raise_if_held(record)
    show_audit(root, StyleRunConfig.parse(load_yaml(run.config), str(run.config)).register_.store)
    _ask(run.files / ARTIFACT_FILES["student_model"])
    say(f"In all {time.monotonic() - started:.0f} s.")


def _ask(folder: Path) -> None:
    from qinglan.style.model import StyleModel

    say("The small model, int8, of answers that it has not seen:")
    model = StyleModel.load(folder, "onnx")
    said = model.predict([format_training_text(*pair) for pair in ASKED])
    for (question, answer), one in zip(ASKED, said, strict=True):
        unsure = " (unsure)" if one["confidence"] < UNSURE else ""
        say(f"  {one['predicted_label']} {one['confidence']:.2f}{unsure}  {question} -> {answer}")
