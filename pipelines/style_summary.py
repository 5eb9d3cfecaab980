"""What a style run came to: its steps, the verdict with the measures, the sizes, and where the files are."""

from pathlib import Path
from typing import Any

from pipelines.rundir import ARTIFACT_FILES, RunDir
from pipelines.summary import steps_table


def print_style_summary(root: Path, record: dict[str, Any]) -> None:
    import orjson

    from components.evaluation.style.markdown import to_markdown as evaluated
    from components.training.style.distil import to_markdown as sizes
    from qinglan.terminal.console import Console, markdown

    console, run = Console(), RunDir(root)
    ran = {stage: record["steps"][stage] for stage in record["ran"]}
    done = {stage for stage, step in ran.items() if step and step["status"] == "done"}
    console.print(steps_table(ran))
    if "evaluate" in done:
        console.print(markdown(evaluated(orjson.loads((run.files / ARTIFACT_FILES["evaluation"]).read_bytes()))))
    if "distil" in done:
        console.print(markdown(sizes(run.files / ARTIFACT_FILES["distil_table"])))
    if record["verdict"].get("word") == "hold" and "distil" not in done:
        console.print("Held, so no small model is made. `--only distil` makes one all the same.", highlight=False)
    console.print("Files:")
    for name in ARTIFACT_FILES.values():
        if (run.files / name).exists():
            console.print(f"  {run.files / name}", highlight=False, soft_wrap=True)
    console.print(
        f"  {run.root}: config.yaml, run.json, records/, logs/  ({record['seconds']:.0f} s)", highlight=False
    )
