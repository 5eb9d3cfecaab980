"""Run heavy work that follows a training as a separate command, on the machine of the training.

On a cluster, the launching step has neither the GPUs nor the memory for a model. Files in the training's folder carry
the settings to the command, and its result or error back.

answer = run_module_job(runner, "sft-finish", "components.training.sft.finish", settings, note, log, gpus)

    if __name__ == "__main__":      # in that module
        sys.exit(module_job_main(sys.argv[1], finish))
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

from qinglan.errors import QinglanError, error_class_for
from qinglan.files.files import atomic_write
from qinglan.jobs.command_failures import explain_failure
from qinglan.jobs.spec import Command, JobSpec, Runner


def run_module_job(
    runner: Runner, name: str, module: str, settings: Mapping[str, Any], note: Path, log: Path, per_node: int
) -> dict[str, Any]:
    """Run the module with these settings and return its result. An error of the module is raised here again."""
    with atomic_write(note) as partial:
        partial.write_bytes(orjson.dumps(settings))
    command = Command([sys.executable, "-m", module, str(note)], {"HF_HUB_OFFLINE": "1"})
    outcome = runner.run(JobSpec(name, command, per_node=per_node), log)
    answer = _read(_answer(note))
    if "error" in answer:
        raise error_class_for(answer["exit_code"])(answer["error"])
    if outcome.code or "answer" not in answer:
        raise explain_failure(name, outcome, log)
    values: dict[str, Any] = answer["answer"]
    return values


def run_where_trained(
    work: Callable[[dict[str, Any]], Mapping[str, Any]],
    name: str,
    settings: dict[str, Any],
    folder: Path,
    runner: Runner,
    per_node: int,
    on_cpu: bool,
) -> Mapping[str, Any]:
    """Run `work` on the machine that trained the model. Its module's main program must call module_job_main().

    A model that was trained on this machine's CPU is small, so `work` is called in this process, because another
    process would take longer to start.
    """
    if on_cpu and not runner.remote:
        return work(settings)
    stem = work.__module__.rpartition(".")[2]
    log, note = folder / "log" / f"{stem}.log", folder / f"{stem}.json"
    return run_module_job(runner, name, work.__module__, settings, note, log, per_node)


def module_job_main(note: str, work: Callable[[dict[str, Any]], Mapping[str, Any]]) -> int:
    """Main program of a module that run_module_job() starts: call `work`, store its result, return the exit code."""
    path = Path(note)
    _answer(path).unlink(missing_ok=True)
    result: dict[str, Any] = {}
    try:
        result = {"answer": work(_read(path))}
    except QinglanError as error:
        result = {"error": str(error), "exit_code": error.exit_code}
    with atomic_write(_answer(path)) as partial:
        partial.write_bytes(orjson.dumps(result))
    return int(result.get("exit_code", 0))


def _answer(note: Path) -> Path:
    return note.with_name(f"{note.stem}-answer.json")


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    values: dict[str, Any] = orjson.loads(path.read_bytes())
    return values
