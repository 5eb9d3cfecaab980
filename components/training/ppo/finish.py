"""Turn the best checkpoint, or the SFT model, into a model folder, and try the model with the serving prompt.

    python -m components.training.ppo.finish SETTINGS

This needs memory for the whole model, so it runs where the training ran (qinglan/jobs/module_job.py).
"""

import sys
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from components.training.ppo.export_model import export_checkpoint, export_untrained
from qinglan.files.files import atomic_folder
from qinglan.jobs.module_job import module_job_main
from qinglan.rewriter.card import RewriterCard
from qinglan.rewriter.model import Student, refuse_unusable, unusable_answer
from qinglan.rows.prompt_parquet import read_prompts

TRIED = 64
"""Number of dev prompts with which the finished model is tried."""


def finish(settings: Mapping[str, Any]) -> dict[str, Any]:
    work, sft_model = Path(settings["work"]), Path(settings["sft_model"])
    with atomic_folder(work / "model") as folder:
        card = RewriterCard.model_validate(settings["card"])
        if settings["trained"]:
            export_checkpoint(work / "best" / "actor", sft_model, folder, card)
        else:
            export_untrained(sft_model, folder, card)
        prompts = [row["prompt"] for row in islice(read_prompts(work / "dev.parquet"), TRIED)]
        refuse_unusable(
            unusable_answer(Student.load(folder).write_messages(prompts)),
            "Look at the curve and at the rollouts beside it: entropy and length say whether it collapsed. "
            "A lower learning rate may help.",
        )
    return {}


if __name__ == "__main__":
    sys.exit(module_job_main(sys.argv[1], finish))
