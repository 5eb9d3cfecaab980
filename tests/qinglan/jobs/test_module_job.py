"""Work after a training is a command of its own; what it found, or why it failed, comes back through files."""

from collections.abc import Callable
from pathlib import Path

import pytest

from qinglan.errors import DataError, TrainingError
from qinglan.jobs import JobSpec, LocalRunner, Outcome
from qinglan.jobs.module_job import run_module_job

MODULE = """
import os, sys
from qinglan.errors import DataError
from qinglan.jobs.module_job import module_job_main


def work(settings):
    if settings["how"] == "wrong":
        raise DataError("the shards are of two models.")
    if settings["how"] == "killed":
        os.kill(os.getpid(), 9)
    return {"twice": 2 * settings["number"]}


if __name__ == "__main__":
    sys.exit(module_job_main(sys.argv[1], work))
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, int]]:
    (tmp_path / "after_work.py").write_text(MODULE)
    root = str(Path(__file__).parents[3])
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{root}")

    def follow(how: str) -> dict[str, int]:
        settings, log = {"how": how, "number": 21}, tmp_path / "log"
        return run_module_job(LocalRunner(), "sft-finish", "after_work", settings, tmp_path / "work.json", log, 1)

    return follow


@pytest.mark.slow
def test_the_answer_comes_back(run: Callable[[str], dict[str, int]]) -> None:
    assert run("well") == {"twice": 42}


@pytest.mark.slow
def test_its_error_is_raised_as_what_it_was(run: Callable[[str], dict[str, int]]) -> None:
    with pytest.raises(DataError, match=r"^the shards are of two models\.$"):
        run("wrong")


@pytest.mark.slow
def test_a_killed_module_job_does_not_return_an_earlier_answer(
    run: Callable[[str], dict[str, int]],
) -> None:
    run("well")

    with pytest.raises(TrainingError, match="sft-finish stopped: it was killed"):
        run("killed")


def test_a_module_job_asks_for_one_node_of_the_trainings_kind(tmp_path: Path) -> None:
    observed = list[JobSpec]()

    class Cluster(LocalRunner):
        def run(self, spec: JobSpec, log: Path, *_: object, **__: object) -> Outcome:
            observed.append(spec)
            return Outcome(1, "Pod x-master-0 was evicted: see its events.")

    with pytest.raises(TrainingError, match=r"sft-finish ended with code 1: .* Pod x-master-0 was evicted"):
        run_module_job(Cluster(), "sft-finish", "m", {}, tmp_path / "work.json", tmp_path / "log", 4)

    assert (observed[0].name, observed[0].nodes, observed[0].per_node, observed[0].join) == ("sft-finish", 1, 4, None)
