"""Compile the graphs to the YAML that Kubeflow runs."""

import sys
from importlib import import_module
from pathlib import Path

from pipelines.lines import LINES
from qinglan.files import replaced

COMPILED = Path(__file__).parent / "compiled"
"""The golden copies in the repository; a test compiles again and compares."""


def compile_lines(out: Path) -> list[Path]:
    """Write each line's graph into a folder; the same bytes every time."""
    from kfp import compiler

    out.mkdir(parents=True, exist_ok=True)
    made = [out / f"{name}.yaml" for name in LINES]
    for target in made:
        line, graph = LINES[target.stem], import_module(f"pipelines.{target.stem}")
        with replaced(target) as partial:
            yaml = partial.with_suffix(".yaml")  # the compiler looks at the ending
            try:
                compiler.Compiler().compile(graph.until(line.until(line.last)), str(yaml))
                yaml.replace(partial)
            finally:
                yaml.unlink(missing_ok=True)
    return made


if __name__ == "__main__":
    compile_lines(Path(sys.argv[1]))
