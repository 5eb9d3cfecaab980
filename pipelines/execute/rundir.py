"""A run's folder. The paths below are contracts, the same on a laptop and on a cluster's volume.

runs/<run>/
  config.yaml        the resolved configuration
  run.json           how the run went
  summary.txt        the same for people: steps, rows, figures, cost, files
  journal.sqlite     every paid answer; as long as this file is kept, nothing is paid twice
  retrievals.sqlite  the retrieval cache
  records/           one JSON per step: inputs, outputs, digests, code, failure
  logs/              run.log with the steps' output, one file per service
  index/             search indexes by knowledge base digest
  live/              figures of trainings while they run: index.html, and a folder for each training
  folds/             only for a cross-fitted sheet: a run's folder for the trainings of each fold
  scratch/           checkpoints, from which a training that was killed resumes
  artifacts/         KFP's output, by run and task; pages, sheets and JSON also as copies whose names have an ending
  files/             links to the newest artifact of each name in ARTIFACT_FILES
"""

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from pipelines.lines.all_lines import ARTIFACT_FILES as ARTIFACT_FILES
from qinglan.files.files import PRIVATE, atomic_write
from qinglan.live.outlets import PAGE_FILE

RUNS = Path("runs")
JSON_LINES = ".jsonl"
OPENED_BY_ENDING = (".html", ".xlsx", ".json")
"""Endings by which programs decide how to open a file."""


class Under:
    """A path in a run's folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, run: "RunDir", owner: type["RunDir"]) -> Path:
        return run.root / self._name


@dataclass(frozen=True)
class RunDir:
    root: Path
    shared_journal: Path | None = None
    """Journal that several runs share, instead of the folder's own."""

    config, record, lock = Under("config.yaml"), Under("run.json"), Under("lock")
    summary = Under("summary.txt")
    retrievals = Under("retrievals.sqlite")
    records, logs, index, scratch = Under("records"), Under("logs"), Under("index"), Under("scratch")
    live, live_page = Under("live"), Under(f"live/{PAGE_FILE}")
    artifacts, files = Under("artifacts"), Under("files")

    @property
    def journal(self) -> Path:
        return self.shared_journal or self.root / "journal.sqlite"

    def has_begun(self) -> bool:
        """True if a run was started in the folder, even if a file of it was removed."""
        return self.lock.exists() or self.journal.exists() or (self.config.exists() and self.files.exists())

    def step_record(self, stage: str) -> dict[str, Any] | None:
        """Read a step's own record; None if the step has not begun."""
        try:
            record: dict[str, Any] = orjson.loads((self.records / f"{stage}.json").read_bytes())
        except (FileNotFoundError, orjson.JSONDecodeError):
            return None
        return record

    def shown(self, name: str) -> Path:
        """Return the path of an artifact in files/; a sheet of questions in JSON lines keeps that ending."""
        path = self.files / ARTIFACT_FILES[name]
        as_lines = path.with_suffix(JSON_LINES)
        return as_lines if name == "questions" and as_lines.exists() else path

    def unlink(self, names: Iterable[str]) -> None:
        """Remove the links to these artifacts from files/; a real file under such a name stays."""
        for name in names:
            if (link := self.shown(name)).is_symlink():
                link.unlink()

    def link(self, name: str, target: Path) -> None:
        """Link an artifact in files/, under the name that people know; a real file of that name stays."""
        link = self.files / ARTIFACT_FILES[name]
        if name == "questions" and target.suffix == JSON_LINES:
            link = link.with_suffix(JSON_LINES)
        link_path = link.parent.resolve() / link.name
        if (
            target.resolve() == link_path
            or (link.exists() and not link.is_symlink())
            or target.absolute() == link_path
        ):
            return
        if self.shown(name) != link:  # an earlier run's sheet had the other ending
            self.unlink([name])
        link.parent.mkdir(parents=True, exist_ok=True)
        # symlink(2) cannot replace a link. A new link is made beside it and renamed, so readers always find the name.
        fresh = link.with_name(f".{link.name}.{os.getpid()}")
        fresh.symlink_to(os.path.relpath(self._openable(name, target.resolve()), link.parent.resolve()))
        fresh.replace(link)

    def artifact(self, name: str) -> Path:
        """Return the artifact behind a link in files/, not the copy that programs open."""
        path = self.shown(name).resolve()
        original = path.with_name(name)
        return original if self._made_here(path) and original.is_file() else path

    def _openable(self, name: str, target: Path) -> Path:
        """Return a path whose ending tells programs what the file is: a copy of the artifact if needed, else `target`
        itself.

        Browsers and office programs follow a link before they look at the ending, and KFP's artifacts have none:
        Chromium shows such a page as its source. So the artifact is copied beside itself, under its name with the
        ending. It is a copy and no hard link because people fill in sheets, and the signed bytes must not change by
        that. JSON lines and folders open without an ending and may be large: they are not copied.
        """
        copy = target.with_name(ARTIFACT_FILES[name])
        if copy.suffix not in OPENED_BY_ENDING or not target.is_file() or not self._made_here(target):
            return target
        if not copy.exists():  # an artifact is written once; a copy that is there may hold what a person filled in
            with atomic_write(copy) as partial:
                shutil.copyfile(target, partial)
        return copy

    def _made_here(self, path: Path) -> bool:
        return self.artifacts.resolve() in path.parents


def run_folder(tenant: str, profile: str) -> Path:
    return RUNS / f"{tenant}-{Path(profile).stem}"


def write_json(path: Path, value: Any) -> None:
    with atomic_write(path, mode=PRIVATE) as partial:
        partial.write_bytes(orjson.dumps(value, option=orjson.OPT_INDENT_2))
