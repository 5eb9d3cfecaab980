"""A training of the style model in a process of its own, for a test that kills it.

python -m tests.components.training.style.style_training FOLDER OUT CONFIG    FOLDER holds base/ and rows/
"""

import sys
from pathlib import Path

from components.training.style.config import StyleConfig
from components.training.style.stage import train_style


def main(folder: Path, out: Path, config: StyleConfig) -> None:
    train_style(folder / "base", folder / "rows", out / "model", out / "log", config)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), StyleConfig.model_validate_json(sys.argv[3]))
