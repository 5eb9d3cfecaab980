"""The local InferenceService as it is shipped, but every release's server has the switch FOLDER/broken-DIGEST."""

import asyncio
import sys
from pathlib import Path

from serving.rollout.local.serve import serve
from serving.rollout.local.servers import rewriter


def main() -> None:
    folder = Path(sys.argv[1])

    def command(release: Path) -> list[str]:
        words = rewriter(release)
        words[words.index("serving.rewriter")] = "tests.serving.rollout.faulty_server"
        return [*words, "--broken", str(folder / f"broken-{release.name}")]

    asyncio.run(serve(folder, 0, command, deadline_seconds=20.0))


if __name__ == "__main__":
    main()
