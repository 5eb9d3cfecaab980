"""The style model against what a user could run instead, side by side on the same weights. `make bench-style`

python -m benchmarks.style              many texts, one a request, a training step, the small model: 3 to 4 minutes
python -m benchmarks.style imbalance    what helps where labels are rare: twelve trainings, 5 to 10 minutes
"""

import sys
import tempfile
from pathlib import Path

from rich.console import Console

from benchmarks.report import report
from benchmarks.style import content, distilling, imbalance, predicting, serving, training
from benchmarks.style.material import Opened, make, train

ROWS = 2000


def main(folder: Path, console: Console) -> None:
    material = make(folder, ROWS)
    model = train(material)
    texts = material.texts("train")
    predicted = predicting.measure(Opened.of(model), texts)
    console.print(predicting.table(predicted))
    served = serving.load(model, texts, folder)
    console.print(serving.table(served))
    trained = training.measure(material, folder / "steps")
    console.print(training.table(trained))
    small = distilling.measure(material, model, folder)
    console.print(distilling.table(small))
    ratio = predicted[0].ratio
    enough = ratio >= predicting.TARGET and trained.ratio >= training.TARGET
    report(
        "style", ratio, predicting.TARGET, enough and all(entry.agrees for entry in predicted),
        predicting=[entry._asdict() for entry in predicted],
        serving={name: [entry._asdict() for entry in loads] for name, loads in served.items()},
        training=trained._asdict(), training_target=training.TARGET,
        distilled=[
            line._asdict() | {"texts_per_second": speed, "dev_f1": round(dev, 4)}
            for line, speed, dev in zip(small.lines, small.texts_per_second, small.dev_f1, strict=True)
        ],
        int8_difference=small.counts.int8_difference,
    )  # fmt: skip


if __name__ == "__main__":
    more = {"imbalance": imbalance.main, "content": content.main}
    with tempfile.TemporaryDirectory() as scratch:
        more.get("".join(sys.argv[1:]), main)(Path(scratch), Console(width=118))
