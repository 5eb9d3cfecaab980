"""The local InferenceService as it is shipped, but every release's server has the switch FOLDER/broken-DIGEST.

python -m tests.serving.rollout.faulty_service FOLDER COMMAND OF THE FAULTY SERVER
"""

import asyncio
import sys
from pathlib import Path

from standins.rollout_local.serve import serve
from standins.rollout_local.supervisor import rewriter_command


def main() -> None:
    folder, faulty_server = Path(sys.argv[1]), sys.argv[2:]

    def command(release: Path) -> list[str]:
        words = rewriter_command(release)
        arguments = words[words.index("serving.rewriter") + 1 :]
        return [*faulty_server, *arguments, "--broken", str(folder / f"broken-{release.name}")]

    asyncio.run(serve(folder, 0, command, deadline_seconds=20.0))


if __name__ == "__main__":
    main()
