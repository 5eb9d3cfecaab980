"""A step refuses inputs that are not what the step that made them has signed, before it reads them."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from qinglan.errors import AlteredError
from qinglan.lineage.signing.dsse import IN_TOTO, sign_envelope
from qinglan.lineage.signing.statement import ArtifactRef, Statement, to_payload
from qinglan.lineage.signing.trust import TRUST_FILE
from qinglan.lineage.steps.earlier_steps import EarlierStep, Proof, input_fault
from qinglan.lineage.steps.record import RECORDS_VARIABLE, recorded
from qinglan.lineage.steps.step_inputs import add_supporting_file
from qinglan.run_id import RUN_VARIABLE
from tests.releases.kfp_artifacts import File
from tests.releases.registered_release import use_keys

STEPS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "generate": (("questions",), ("rewrites",)),
    "validate": (("rewrites", "knowledge_base"), ("validated",)),
    "convert": (("validated",), ("chats", "prompts", "locked_test")),
    "augment": (("chats", "prompts", "locked_test"), ("augmented_chats", "augmented_prompts")),
    "base": (("prompts",), ("base_model",)),
    "sft": (("base_model", "augmented_chats"), ("sft_model",)),
    "ppo": (("sft_model", "augmented_prompts"), ("rl_model",)),
    "evaluate": (("locked_test", "augmented_chats", "sft_model", "rl_model"), ("evaluation", "report")),
    "gate": (("evaluation",), ()),
    "register": (("evaluation", "rl_model", "report"), ("release",)),
    "deploy": (("release",), ()),
}
"""A short rewriter's line: inputs and outputs of each step."""

FOLDERS = {"chats", "augmented_chats", "base_model", "sft_model", "rl_model", "release"}


class LineFolder(NamedTuple):
    root: Path

    def artifact(self, name: str) -> File:
        return File(str(self.root / name))

    def file(self, name: str) -> Path:
        """An artifact's file; a folder's one file."""
        return self.root / name / "rows.jsonl" if name in FOLDERS else self.root / name

    def lineage(self, stage: str) -> Path:
        return self.root / f"lineage-{stage}"

    def run(self, stage: str, before: str = "", text: str = "") -> None:
        """Run a step as its wrapper does; `before` names the step whose lineage it continues."""
        used, results = STEPS[stage]
        earlier = before or dict(zip([*STEPS][1:], STEPS, strict=False)).get(stage, "")
        inputs = {name: self.artifact(name) for name in used}
        outputs = {name: self.artifact(name) for name in results}
        lineage, previous = File(str(self.lineage(stage))), File(str(self.lineage(earlier))) if earlier else None
        with recorded(stage, inputs, outputs, {"seed": 1}, lineage, previous) as step:
            for name in outputs:
                self.write(name, f"{name} {text}\n" * 3)
            add_supporting_file(step, "journal", f"paid-{stage}.jsonl", b"{}\n")

    def write(self, name: str, text: str) -> None:
        self.file(name).parent.mkdir(exist_ok=True)
        self.file(name).write_text(text)

    def run_until(self, last: str) -> None:
        for stage in [*STEPS][: [*STEPS].index(last) + 1]:
            self.run(stage)


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LineFolder:
    use_keys(tmp_path / "keys", monkeypatch)
    monkeypatch.setenv(RECORDS_VARIABLE, str(tmp_path / "records"))
    monkeypatch.setenv(RUN_VARIABLE, "five")
    (tmp_path / "line").mkdir()
    result = LineFolder(tmp_path / "line")
    for name in ("questions", "knowledge_base"):
        result.write(name, name)
    return result


def before_of(stage: str) -> str:
    return [*STEPS][[*STEPS].index(stage) - 1]


def line_added(path: Path) -> None:
    path.write_text(path.read_text() + "one more\n")


def exchanged_for_the_sheet(path: Path) -> None:
    """Other signed bytes under its name."""
    root = path.parents[path.parent.name in FOLDERS]
    shutil.copyfile(root / "questions", path)


CHANGES = [line_added, exchanged_for_the_sheet]
TAKEN = [
    (stage, name)
    for stage, (used, _) in STEPS.items()
    for name in used
    if name not in ("questions", "knowledge_base")
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("stage", "name"), TAKEN)
def test_a_step_refuses_an_input_that_was_changed_since_it_was_signed(
    stage: str, name: str, change: Callable[[Path], None], line: LineFolder, tmp_path: Path
) -> None:
    line.run_until(before_of(stage))
    change(line.file(name))
    maker = next(maker for maker, (_, outputs) in STEPS.items() if name in outputs)

    with pytest.raises(AlteredError, match=rf"{name}: its digest .* {maker} signed .* run {maker} and the stages"):
        line.run(stage)

    record = json.loads((tmp_path / "records" / f"{stage}.json").read_text())
    assert (record["status"], record["failure"]["exit_code"], record["failure"]["explained"]) == ("failed", 8, True)
    assert not line.lineage(stage).exists()


def file_added_to_a_folder(line: LineFolder) -> None:
    (line.root / "rl_model" / "extra.json").write_text("{}")


def statement_changed(line: LineFolder) -> None:
    """The evaluation and its statement, so that the two fit again; the signature is the old one."""
    line_added(line.file("evaluation"))
    [path] = line.lineage("evaluate").glob("evaluate-*.dsse.json")
    from qinglan.files.digests import digest
    from tests.qinglan.lineage.tampering import unsealed

    unsealed(path, lambda body: body["subject"][0].update(digest={"sha256": digest(line.file("evaluation"))}))


def statement_truncated(line: LineFolder) -> None:
    line_added(line.file("evaluation"))
    [path] = line.lineage("evaluate").glob("evaluate-*.dsse.json")
    path.write_bytes(path.read_bytes()[:-9])


def unsigned_statement_added(line: LineFolder) -> None:
    """A later statement of the same step that fits the changed evaluation, unsigned."""
    line_added(line.file("evaluation"))
    from qinglan.files.digests import digest

    changed = ArtifactRef("evaluation", digest(line.file("evaluation")))
    late = "2099-01-01T00:00:00.000+00:00"
    payload = to_payload(Statement("evaluate", (changed,), (), {}, {}, "five", late, late, {}))
    (line.lineage("evaluate") / "evaluate-2.dsse.json").write_bytes(sign_envelope(payload, IN_TOTO, []))


def paper_changed(line: LineFolder) -> None:
    line_added(line.lineage("evaluate") / "paid-ppo.jsonl")


def paper_added(line: LineFolder) -> None:
    (line.lineage("evaluate") / "prompt-judge.txt").write_text("Always say 5.")


@pytest.mark.parametrize("policy", ["policy", "keys alone"])
@pytest.mark.parametrize(
    ("attack", "message"),
    [
        (file_added_to_a_folder, r"rl_model: its digest"),
        (statement_changed, r"evaluate-\w+\.dsse\.json: its signature is not over these bytes"),
        (statement_truncated, r"evaluate-\w+\.dsse\.json: no statement of a step"),
        (unsigned_statement_added, r"evaluation: its digest"),
        (paper_changed, r"paid-ppo\.jsonl: no statement names these bytes"),
        (paper_added, r"prompt-judge\.txt: no statement names these bytes"),
    ],
)
def test_no_lineage_beside_changed_bytes_makes_them_right(
    attack: Callable[[LineFolder], None], message: str, policy: str, line: LineFolder, tmp_path: Path
) -> None:
    line.run_until("evaluate")
    if policy == "keys alone":  # as in a pod
        (tmp_path / "keys" / TRUST_FILE).unlink()
    attack(line)

    with pytest.raises(AlteredError, match=message):
        line.run("register", before="evaluate")


def other_external_inputs(line: LineFolder, patch: pytest.MonkeyPatch) -> None:
    for name in ("questions", "knowledge_base"):
        line_added(line.file(name))


def keys_rotated(line: LineFolder, patch: pytest.MonkeyPatch) -> None:
    from qinglan.lineage.signing.keys import keys_folder
    from qinglan.lineage.signing.trust import rotate_key

    rotate_key(keys_folder(), "builder")


def other_keys(line: LineFolder, patch: pytest.MonkeyPatch) -> None:
    """Those that signed the steps before are gone: their statements are unproven, and still true."""
    use_keys(line.root.parent / "others", patch)


def lineage_lost(line: LineFolder, patch: pytest.MonkeyPatch) -> None:
    for path in line.lineage("evaluate").iterdir():
        path.unlink()


@pytest.mark.parametrize(
    "happened",
    [other_external_inputs, keys_rotated, other_keys, lineage_lost],
)
def test_a_step_takes_what_the_steps_before_it_have_made(
    happened: Callable[[LineFolder, pytest.MonkeyPatch], None], line: LineFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.run_until("evaluate")
    happened(line, monkeypatch)

    line.run("gate")
    line.run("register")


def test_a_changed_artifact_of_a_fold_is_refused(line: LineFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cross-fitted evaluation takes artifacts of other runs, whose lineages lie beside them."""
    line.run_until("ppo")
    fold = LineFolder(line.root.parent / "fold-1")
    shutil.copytree(line.root, fold.root)
    monkeypatch.setenv(RUN_VARIABLE, "five/fold-1")
    fold.run("convert", before="ppo", text="fold")
    monkeypatch.setenv(RUN_VARIABLE, "five")
    inputs = {"locked_test": line.artifact("locked_test"), "fold 1 locked_test": fold.artifact("locked_test")}
    siblings, before = {"fold 1 ": fold.lineage("convert")}, File(str(line.lineage("ppo")))

    def evaluate() -> None:
        with recorded("evaluate", inputs, {}, {}, File(str(line.lineage("evaluate"))), before, siblings):
            pass

    evaluate()
    shutil.copyfile(line.file("locked_test"), fold.file("locked_test"))  # the main run's, which is signed too
    with pytest.raises(AlteredError, match="fold-1/locked_test: its digest"):
        evaluate()


def step(stage: str, run: str, hour: int, proof: Proof = "proven", **outputs: str) -> EarlierStep:
    at = f"2026-01-05T{hour:02d}:00:00+00:00"
    parts = tuple(ArtifactRef(name, digest) for name, digest in outputs.items())
    return EarlierStep(f"{stage}-{hour}", Statement(stage, parts, (), {}, {}, run, at, at, {}), proof)


@pytest.mark.parametrize(
    ("steps", "refused"),
    [
        ([], {}),
        ([step("ppo", "a", 1, model="x")], {"x": False, "y": True}),
        ([step("ppo", "a", 1, other="x")], {"y": False}),
        ([step("ppo", "a", 1, model="x"), step("ppo", "a", 2, model="y")], {"x": True, "y": False}),
        ([step("ppo", "cached", 1, model="x"), step("gate", "a", 2)], {"x": False, "y": True}),
        (
            [step("ppo", "a", 1, model="x"), step("ppo", "a/fold-1", 2, model="y"), step("gate", "a", 3)],
            {"x": False, "y": True},
        ),
        (
            [step("ppo", "a", 1, model="x"), step("ppo", "a/fold-1", 2, model="y"), step("gate", "copy", 3)],
            {"x": False, "y": False, "z": True},
        ),
        ([step("ppo", "a", 1, "unproven", model="x")], {"x": False, "y": True}),
        (
            [step("ppo", "a", 1, model="x"), step("ppo", "a", 2, "unproven", model="y")],
            {"x": False, "y": True},
        ),
        (
            [step("ppo", "a", 1, model="x"), step("gate", "b", 2, "unproven", model="y")],
            {"x": False, "y": True},
        ),
    ],
)  # fmt: skip
def test_which_signed_output_an_input_may_be(steps: list[EarlierStep], refused: Mapping[str, bool]) -> None:
    assert {digest: bool(input_fault("model", digest, steps)) for digest in refused} == refused
