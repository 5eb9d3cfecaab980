"""The best checkpoint becomes a model's folder, whole again from its shards, and is asked with the serving prompt.

    python -m components.training.ppo.finish SETTINGS

It holds the whole model in memory, so it runs where the training ran (see qinglan/jobs/followup.py).
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.training.ppo.release import export
from qinglan.files import replaced_folder
from qinglan.jobs.followup import answering
from qinglan.rewriter import Student, refuse_unusable
from qinglan.rewriter_card import RewriterCard

TRIED = 64
"""Dev prompts that the finished model is asked."""


def finish(settings: Mapping[str, Any]) -> dict[str, Any]:
    work, sft_model = Path(settings["work"]), Path(settings["sft_model"])
    with replaced_folder(work / "model") as folder:
        export(work / "best" / "actor", sft_model, folder, RewriterCard.model_validate(settings["card"]))
        _try(folder, work / "dev.parquet")
    return {}


def _try(model: Path, dev: Path) -> None:
    import pyarrow.parquet

    written = Student.load(model).write_messages(pyarrow.parquet.read_table(dev)["prompt"].to_pylist()[:TRIED])
    refuse_unusable(
        written,
        "Look at the curve and at the rollouts beside it: entropy and length say whether it collapsed. "
        "A lower learning rate may help.",
    )


if __name__ == "__main__":
    sys.exit(answering(sys.argv[1], finish))
