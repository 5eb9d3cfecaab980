"""`qinglan`, whose demo finds its run done; acme's users ask what the users of its sample tenant ask."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import orjson

from commands import cli
from commands.demo import demo
from pipelines.lines.rewriter import RunConfig
from standins.samples import conversations
from standins.samples.conversations import Turn

sampled = conversations.fresh_turns


def recorded_run(config: RunConfig, root: Path) -> Any:
    return orjson.loads((root / "run.json").read_bytes())


def turns_of_the_sample(tenant: str, seed: int, fresh_seed: int) -> Iterator[Turn]:
    return sampled("fivedoctors", seed, fresh_seed)


def main() -> None:
    with (
        patch.object(demo, "run_pipeline", recorded_run),
        patch.object(conversations, "fresh_turns", turns_of_the_sample),
    ):
        cli.main()


if __name__ == "__main__":
    main()
