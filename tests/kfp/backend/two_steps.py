"""The smallest pipeline that shows that KFP works: one step writes a file, the other reads it."""

from pathlib import Path

from kfp import compiler, dsl

from tests.kfp.graphs import on_a_pod


@dsl.component(base_image="local/python", install_kfp_package=False)
def write(rows: int, data: dsl.Output[dsl.Dataset]) -> None:
    from pathlib import Path

    Path(data.path).write_text("row\n" * rows)


@dsl.component(base_image="local/python", install_kfp_package=False)
def count(rows: int, data: dsl.Input[dsl.Dataset], counts: dsl.Output[dsl.Metrics]) -> None:
    from pathlib import Path

    lines = Path(data.path).read_text().count("\n")
    counts.log_metric("rows", lines)
    if lines != rows:
        raise ValueError(f"{lines} rows were read, and {rows} were written")


@dsl.pipeline(name="two-steps")
def two_steps(rows: int = 3) -> None:
    """Write rows, and count them.

    Args:
        rows: How many.
    """
    written = write(rows=rows)
    counted = count(rows=rows, data=written.outputs["data"])
    for task in (written, counted):
        on_a_pod(task)


def compile_two_steps(path: Path) -> Path:
    compiler.Compiler().compile(two_steps, str(path))
    return path
