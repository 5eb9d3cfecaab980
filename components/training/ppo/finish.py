"""Turn the best checkpoint, joined from its shards, or the SFT model into a model folder, and try it as it is served.

    python -m components.training.ppo.finish SETTINGS

It holds the whole model in memory, so it runs where the training ran (see qinglan/jobs/module_job.py).
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.training.ppo.export_model import export_checkpoint, export_untrained
from qinglan.files.files import atomic_folder
from qinglan.jobs.module_job import module_job_main
from qinglan.rewriter.card import RewriterCard
from qinglan.rewriter.model import Student, refuse_unusable, unusable_answer

TRIED = 64
"""Dev prompts that the finished model is tried with."""


def finish(settings: Mapping[str, Any]) -> dict[str, Any]:
    work, sft_model = Path(settings["work"]), Path(settings["sft_model"])
    with atomic_folder(work / "model") as folder:
        card = RewriterCard.model_validate(settings["card"])
        if settings["trained"]:
            export_checkpoint(work / "best" / "actor", sft_model, folder, card)
        else:
            export_untrained(sft_model, folder, card)
        _smoke_test(folder, work / "dev.parquet")
    return {}


def _smoke_test(model: Path, dev: Path) -> None:
    import pyarrow.parquet

    written = Student.load(model).write_messages(pyarrow.parquet.read_table(dev)["prompt"].to_pylist()[:TRIED])
    refuse_unusable(
        unusable_answer(written),
        "Look at the curve and at the rollouts beside it: entropy and length say whether it collapsed. "
        "A lower learning rate may help.",
    )


if __name__ == "__main__":
    sys.exit(module_job_main(sys.argv[1], finish))
