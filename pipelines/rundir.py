"""A run's folder: the paths below are contracts, the same on a laptop and on a cluster's volume.

runs/<run>/
  config.yaml        the resolved configuration
  run.json           how the run went
  journal.sqlite     every paid answer; keep it, and nothing is paid twice
  retrievals.sqlite  the retrieval cache
  records/           one JSON per step: inputs, outputs, digests, code, failure
  logs/              run.log with the steps' output, one file per service
  index/             search indexes by knowledge base digest
  scratch/           checkpoints: a training that was killed goes on from them
  artifacts/         what KFP wrote, by run and task
  files/             the newest of each artifact, by a name with an ending
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from qinglan.files import replaced

NAMES = {
    "questions": "questions.xlsx",
    "knowledge_base": "knowledge_base.jsonl",
    "rewrites": "rewrites.jsonl",
    "rewrites_table": "rewrites.xlsx",
    "generate_quarantine": "generate_quarantine.jsonl",
    "validated": "validated.jsonl",
    "validated_table": "validated.xlsx",
    "validate_quarantine": "validate_quarantine.jsonl",
    "chats": "sft",
    "prompts": "ppo",
    "locked_test": "locked_test.jsonl",
    "base_model": "base_model",
    "sft_model": "sft_model",
    "sft_log": "sft_log",
    "sft_curve": "sft_curve.html",
    "rl_model": "rl_model",
    "ppo_log": "ppo_log",
    "ppo_curve": "ppo_curve.html",
    "evaluation": "evaluation.json",
    "report": "report.html",
    "predictions": "predictions.jsonl",
    "blind_sample": "blind_sample.xlsx",
    "blind_key": "blind_key.json",
    "release": "release",
    "lineage": "lineage",
    "labelled": "labelled",
    "style_rows": "style_rows",
    "distribution": "distribution.html",
    "style_model": "style_model",
    "style_log": "style_log",
    "style_curve": "style_curve.html",
    "student_model": "student_model",
    "distil_log": "distil_log",
    "distil_table": "distil.json",
    "policy_model": "policy_model",
    "policy_log": "policy_log",
    "policy_curve": "policy_curve.html",
}
"""Artifact names of the graph, and what a person calls them."""


@dataclass(frozen=True)
class RunDir:
    root: Path

    @property
    def config(self) -> Path:
        return self.root / "config.yaml"

    @property
    def record(self) -> Path:
        return self.root / "run.json"

    @property
    def journal(self) -> Path:
        return self.root / "journal.sqlite"

    @property
    def retrievals(self) -> Path:
        return self.root / "retrievals.sqlite"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def records(self) -> Path:
        return self.root / "records"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def index(self) -> Path:
        return self.root / "index"

    @property
    def scratch(self) -> Path:
        return self.root / "scratch"

    @property
    def artifacts(self) -> Path:
        return self.root / "artifacts"

    @property
    def files(self) -> Path:
        return self.root / "files"

    def step_record(self, stage: str) -> dict[str, Any] | None:
        """What a step has said of itself, or None when it has not begun."""
        try:
            record: dict[str, Any] = orjson.loads((self.records / f"{stage}.json").read_bytes())
        except (FileNotFoundError, orjson.JSONDecodeError):
            return None
        return record

    def unlink(self, names: Iterable[str]) -> None:
        """Show these artifacts no more; a real file there is left."""
        for name in names:
            if (link := self.files / NAMES[name]).is_symlink():
                link.unlink()

    def link(self, name: str, target: Path) -> None:
        """Show an artifact under the name that a person knows; a real file there, or the link itself, is left."""
        link = self.files / NAMES[name]
        place = link.parent.resolve() / link.name
        if target.resolve() == place or (link.exists() and not link.is_symlink()) or target.absolute() == place:
            return
        link.parent.mkdir(parents=True, exist_ok=True)
        fresh = link.with_name(f".{link.name}.{os.getpid()}")
        fresh.symlink_to(os.path.relpath(target.resolve(), link.parent.resolve()))
        fresh.replace(link)


def write_json(path: Path, value: Any) -> None:
    with replaced(path) as partial:
        partial.write_bytes(orjson.dumps(value, option=orjson.OPT_INDENT_2))
