"""Run ms-swift from its last checkpoint, which is looked up when and where it starts.

    python -m components.training.sft.resume CHECKPOINTS -- swift's own command...

So the command of a job is the same at each attempt, and a pod that is started anew goes on by itself.
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
