"""Tricks that hide a change of a run from its auditor: each one once passed as intact."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from qinglan.errors import ConfigError
from qinglan.files.digests import digest, file_digests
from qinglan.lineage.auditing.audit import audit
from qinglan.lineage.signing.keys import load_signer
from qinglan.lineage.signing.trust import TRUST_FILE, ensure_keys, load_trust, revoke_key
from tests.releases.lineage_world import NOW, Keys, part_of, record, sealed, source, write_run

MODEL = "artifacts/line-1/sft/model"
LINEAGE = "artifacts/line-1/sft/lineage"
REWRITES = "artifacts/line-1/generate/rewrites"


def with_prompts(run: Path, keys: Keys) -> Path:
    """A third stage, which used two prompts; its lineage and that of the stage before it hold both."""
    table = run / "artifacts" / "line-1" / "evaluate" / "table"
    table.parent.mkdir()
    table.write_text("{}")
    used = [part_of("rewrites", run / REWRITES), source("prompt judge"), source("prompt need")]
    statement = sealed(keys.builder, "evaluate", [part_of("table", table)], used, (5.0, 6.0))
    record(run, "evaluate", {"rewrites": run / REWRITES}, {"table": table}, statement)
    for lineage in (run / LINEAGE, table.with_name("lineage")):
        lineage.mkdir(exist_ok=True)
        for name in ("judge", "need"):
            (lineage / f"prompt-{name}.txt").write_text(f"prompt {name}")
    return run


def as_two_lines(run: Path) -> None:
    """The weights are gone; a file whose name ends its line and begins theirs."""
    model = run / MODEL
    weights = file_digests(model)["model.safetensors"]
    (model / "model.safetensors").unlink()
    (model / "a.txt").write_text("x")
    (model / f"a.txt\n{weights}  model.safetensors").write_text("x")


def as_a_listing(run: Path) -> None:
    model = run / MODEL
    lines = "".join(f"{sha}  {name}\n" for name, sha in file_digests(model).items())
    (model / "model.safetensors").unlink()
    model.rmdir()
    model.write_text(lines)


def changed_record(run: Path) -> None:
    path = run / "records" / "generate.json"
    body = json.loads(path.read_text())
    (run / REWRITES).write_text("anders")
    body["outputs"]["rewrites"]["sha256"] = digest(run / REWRITES)
    path.write_text(json.dumps(body))


def no_records(run: Path) -> None:
    (run / REWRITES).write_text("anders")
    for stage in ("generate", "sft", "evaluate"):
        (run / "records" / f"{stage}.json").unlink()


def linked(run: Path) -> None:
    (run / MODEL / "custom_code").symlink_to("/etc")


def linked_to_equal_bytes(run: Path) -> None:
    weights = run / MODEL / "model.safetensors"
    weights.rename(run / "kept")
    weights.symlink_to(run / "kept")


def piped_record(run: Path) -> None:
    os.mkfifo(run / "records" / "zz.json")
    os.mkfifo(run / "records" / "zz.dsse.json")


def unsigned_step(run: Path) -> None:
    (run / "records" / "generate.dsse.json").unlink()


def exchanged_prompts(run: Path) -> None:
    judge, need = (run / LINEAGE / f"prompt-{name}.txt" for name in ("judge", "need"))
    backup = judge.read_bytes()
    judge.write_bytes(need.read_bytes())
    need.write_bytes(backup)


def need_as_judge(run: Path) -> None:
    """A copy of one prompt in one folder; the other folders hold all as it was."""
    (run / LINEAGE / "prompt-judge.txt").write_text("prompt need")


def renamed_prompt(run: Path) -> None:
    (run / LINEAGE / "prompt-need.txt").rename(run / LINEAGE / "prompt-teacher.txt")


TRICKS: list[tuple[Callable[[Path], None], str]] = [
    (as_two_lines, "altered"), (as_a_listing, "altered"), (changed_record, "altered"), (no_records, "incomplete"),
    (linked, "altered"), (linked_to_equal_bytes, "altered"), (unsigned_step, "incomplete"),
    (piped_record, "intact"), (exchanged_prompts, "altered"), (need_as_judge, "altered"), (renamed_prompt, "altered"),
]  # fmt: skip


@pytest.mark.parametrize(("trick", "verdict"), TRICKS, ids=lambda item: getattr(item, "__name__", item))
def test_a_trick_is_seen_through(trick: Callable[[Path], None], verdict: str, keys: Keys, tmp_path: Path) -> None:
    run = with_prompts(write_run(tmp_path / "run", keys), keys)
    assert audit(str(run), keys.policy, now=NOW).verdict == "intact"

    trick(run)

    assert audit(str(run), keys.policy, now=NOW).verdict == verdict


def test_everything_that_a_run_made_is_looked_at_not_what_its_last_step_took_alone(
    keys: Keys, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run", keys)
    student = run / "artifacts" / "line-1" / "distil" / "student"
    student.mkdir(parents=True)
    (student / "model.safetensors").write_bytes(b"small")
    table = student.with_name("table")
    table.write_text("{}")
    rewrites = run / REWRITES
    for stage, output, hours in (("distil", student, (5.0, 6.0)), ("report", table, (7.0, 8.0))):
        statement = sealed(keys.builder, stage, [part_of(stage, output)], [part_of("rewrites", rewrites)], hours)
        record(run, stage, {"rewrites": rewrites}, {stage: output}, statement)
    assert audit(str(run), keys.policy, now=NOW).verdict == "intact"

    (student / "model.safetensors").write_bytes(b"other")

    assert audit(str(run), keys.policy, now=NOW).verdict == "altered"


def test_a_key_is_not_trusted_for_longer_by_revoking_it_again(tmp_path: Path) -> None:
    ensure_keys(tmp_path)
    key = load_signer("builder", tmp_path).id
    revoke_key(tmp_path, key, "lost", "2026-11-22T02:00:00Z")

    with pytest.raises(ConfigError, match="on already"):
        revoke_key(tmp_path, key, "laptop lost", "2026-12-01T00:00:00Z")
    revoke_key(tmp_path, key, "lost earlier", "2026-11-01T00:00:00Z")

    revoked = load_trust(tmp_path / TRUST_FILE).keys[key].revoked
    assert revoked and f"{revoked.at:%F}" == "2026-11-01"
