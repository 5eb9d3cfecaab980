"""Compile the graph to the YAML that Kubeflow runs."""

import sys
from pathlib import Path

from qinglan.files import replaced

COMPILED = Path(__file__).parent / "compiled" / "rewriter.yaml"
"""The golden copy in the repository; a test compiles again and compares."""


def compile_rewriter(out: Path) -> None:
    from kfp import compiler

    from pipelines.rewriter import rewriter

    out.parent.mkdir(parents=True, exist_ok=True)
    with replaced(out) as partial:
        yaml = partial.with_suffix(".yaml")  # the compiler looks at the ending
        try:
            compiler.Compiler().compile(rewriter, str(yaml))
            yaml.replace(partial)
        finally:
            yaml.unlink(missing_ok=True)


if __name__ == "__main__":
    compile_rewriter(Path(sys.argv[1]))
