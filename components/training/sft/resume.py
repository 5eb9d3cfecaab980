"""Run ms-swift from its last checkpoint, which is looked up when the process starts.

    python -m components.training.sft.resume CHECKPOINTS -- swift's own command...

With this, a job has the same command at each attempt, and a restarted pod resumes the training.
"""

import os
import sys
from pathlib import Path

from qinglan.files.scratch import last_checkpoint


def resume_command(checkpoints: Path, argv: list[str]) -> list[str]:
    last = last_checkpoint(checkpoints)
    return [*argv, "--resume_from_checkpoint", str(last)] if last else argv


if __name__ == "__main__":
    whole = resume_command(Path(sys.argv[1]), sys.argv[3:])
    os.execvp(whole[0], whole)
