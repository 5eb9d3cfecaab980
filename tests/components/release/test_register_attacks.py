"""Statements that somebody laid beside a lineage speak for nothing in the release that is made of it."""

import base64
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from components.release.register.baseline import release_baseline
from components.release.register.config import RegisterConfig
from components.release.register.stage import Inputs, Registered, register
from qinglan.errors import AlteredError
from qinglan.files.files import sha256_bytes
from qinglan.lineage.release.release_check import check_release
from qinglan.lineage.signing.dsse import IN_TOTO, sign_envelope
from qinglan.lineage.signing.keys import load_signer
from qinglan.lineage.signing.trust import TRUST_FILE, ensure_keys, load_trust
from qinglan.lineage.steps.record import recorded
from qinglan.lineage.steps.step_inputs import add_student_prompts
from tests.releases.registered_release import NAME, Thing, make_inputs, tiny_weights

CONFIG = RegisterConfig(name=NAME)


def unsigned_twin(lineage: Path, folder: Path) -> None:
    """Convert's statement with the prompt of the card, over the same rows; nobody has signed it."""
    [path] = lineage.glob("convert*.dsse.json")
    envelope = json.loads(path.read_bytes())
    payload = json.loads(base64.b64decode(envelope["payload"]))
    for part in payload["predicate"]["buildDefinition"]["resolvedDependencies"]:
        if part["name"] == "prompt student.fivedoctors":
            part["digest"] = {"sha256": sha256_bytes(b"0.5")}
    envelope |= {"payload": base64.b64encode(json.dumps(payload).encode()).decode(), "signatures": []}
    (lineage / "convert-again.dsse.json").write_text(json.dumps(envelope))


def signed_by_a_stranger(lineage: Path, folder: Path) -> None:
    """The same, with a key that is not in the policy."""
    unsigned_twin(lineage, folder)
    path = lineage / "convert-again.dsse.json"
    ensure_keys(folder / "strange")
    payload = base64.b64decode(json.loads(path.read_bytes())["payload"])
    path.write_bytes(sign_envelope(payload, IN_TOTO, [load_signer("builder", folder / "strange")]))


def another_run_of_ours(lineage: Path, folder: Path) -> None:
    """A convert of the same tenant, well signed, whose rows this model has never seen."""
    rows = Thing(folder / "other-chats")
    Path(rows.path).write_text("other rows")
    with recorded("convert", {}, {"chats": rows}, {"seed": 1}, Thing(folder / "other-lineage")) as step:
        add_student_prompts(step, {"fivedoctors": "0.5"})
    [path] = (folder / "other-lineage").glob("convert*.dsse.json")
    shutil.copyfile(path, lineage / "convert-other.dsse.json")


@pytest.mark.slow
@pytest.mark.parametrize("attack", [unsigned_twin, signed_by_a_stranger, another_run_of_ours])
def test_only_a_step_that_counts_and_that_the_model_comes_from_says_what_its_rows_showed(
    attack: Callable[[Path, Path], None], keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever exchanges a card's prompts may lay a statement beside the lineage that fits them."""
    inputs = make_inputs(tmp_path, tiny_weights(tmp_path / "rl_model"), prompts={"fivedoctors": "你是助教。"})
    attack(inputs.lineage, tmp_path)

    with pytest.raises(AlteredError, match="is another than its training rows showed"):
        register(inputs, tmp_path / "release", CONFIG)
    monkeypatch.setattr("components.release.register.stage.refuse_untrained_prompts", lambda *args: None)
    register(inputs, tmp_path / "release", CONFIG)

    findings = check_release(tmp_path / "release", load_trust(keys / TRUST_FILE))
    assert [finding.why for finding in findings if finding.what == "model/rewriter.json"] == [
        "the prompt of 'fivedoctors' is another than its training rows showed"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("make", [register, partial(release_baseline, system="rl")], ids=["judged", "baseline"])
def test_a_statement_that_nobody_signed_adds_no_rows_to_the_bill(
    make: Callable[[Inputs, Path, RegisterConfig], Registered], inputs: Inputs, tmp_path: Path
) -> None:
    """The releaser signs the bill: it must not repeat what anybody laid beside the lineage."""
    [path] = inputs.lineage.glob("convert*.dsse.json")
    envelope = json.loads(path.read_bytes())
    payload = json.loads(base64.b64decode(envelope["payload"]))
    payload["predicate"]["runDetails"]["byproducts"][0]["annotations"]["sft_train"] = 999_550
    for stem in ("aaa", "zzz"):  # before and after the true one, by name
        forged = envelope | {"payload": base64.b64encode(json.dumps(payload).encode()).decode(), "signatures": []}
        (inputs.lineage / f"{stem}.dsse.json").write_text(json.dumps(forged))

    make(inputs, tmp_path / "release", CONFIG)

    bill = (tmp_path / "release" / "mlbom.cdx.json").read_text(encoding="utf-8")
    assert '"450"' in bill and '"999600"' not in bill


def test_a_verdict_that_no_gates_key_signed_becomes_no_release(inputs: Inputs, tmp_path: Path) -> None:
    [path] = inputs.lineage.glob("gate*.dsse.json")
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"signatures": []}))

    with pytest.raises(AlteredError, match="it is not signed"):
        register(inputs, tmp_path / "release", CONFIG)
