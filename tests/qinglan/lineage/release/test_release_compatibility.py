"""A release can be verified by programs that we did not write, and what old versions signed still verifies."""

import base64
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from qinglan.lineage.release.release_check import check_release
from qinglan.lineage.signing.keys import public_pem
from qinglan.lineage.trace.release_folder import BOM, MODEL, PROVENANCE, SIGNATURE, read_release
from tests.qinglan.lineage import golden_release
from tests.qinglan.lineage.tampering import Scene
from tests.releases.registered_release import NAME


@pytest.fixture
def public(scene: Scene) -> Path:
    """The releaser's public key as an auditor has it."""
    path = scene.folder.parent / "releaser.pub"
    path.write_text(scene.policy.keys[scene.signer().id].public)
    return path


def model_signing(scene: Scene, public: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "model_signing", "verify", "key", "--no-ignore-git-paths", *words]
    command += ["--signature", str(scene.folder / SIGNATURE), "--public_key", str(public), str(scene.folder / MODEL)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_model_signings_own_command_verifies_the_model_and_refuses_another(scene: Scene, public: Path) -> None:
    assert model_signing(scene, public).returncode == 0

    (scene.folder / "model/config.json").write_text("{}")
    refused = model_signing(scene, public)

    assert refused.returncode != 0
    assert "Hash mismatch for 'config.json'" in refused.stdout + refused.stderr


def test_cyclonedx_takes_the_bill_strictly_and_reads_it_back(scene: Scene) -> None:
    from cyclonedx.model.bom import Bom
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = (scene.folder / BOM).read_text()

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    read: Any = Bom.from_json(orjson.loads(text))  # type: ignore[attr-defined]
    assert read.metadata.component.name == NAME
    assert {str(component.name) for component in read.components} >= {"model/model.safetensors", "environment"}


@pytest.mark.parametrize("which", [PROVENANCE, "lineage/gate-", "lineage/ppo-"])
def test_securesystemslib_verifies_our_envelopes(scene: Scene, which: str) -> None:
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import VerificationError
    from securesystemslib.signer import SSlibKey  # type: ignore[attr-defined]

    def key(foreign: bool) -> Any:
        signer = scene.signer("releaser" if which == PROVENANCE else "builder", foreign)
        values = {"public": public_pem(signer.key.public_key())}
        return SSlibKey(scene.signer("releaser" if which == PROVENANCE else "builder").id, "ecdsa",
                        "ecdsa-sha2-nistp256", values)  # fmt: skip

    envelope = Envelope.from_dict(orjson.loads(scene.path(which).read_bytes()))

    assert len(envelope.verify([key(foreign=False)], threshold=1)) == 1
    with pytest.raises(VerificationError):
        envelope.verify([key(foreign=True)], threshold=1)


@pytest.mark.parametrize("which", [PROVENANCE, "lineage/gate-", "lineage/ppo-"])
def test_in_totos_own_library_takes_our_statements(scene: Scene, which: str) -> None:
    from google.protobuf import json_format
    from in_toto_attestation.v1.statement import Statement
    from in_toto_attestation.v1.statement_pb2 import Statement as Message

    payload = base64.b64decode(orjson.loads(scene.path(which).read_bytes())["payload"])
    statement = Statement.copy_from_pb(json_format.Parse(payload, Message()))

    statement.validate()
    assert statement.pb.predicate_type == "https://slsa.dev/provenance/v1"


@pytest.mark.parametrize("folder", golden_release.signed_ones(), ids=lambda path: path.name)
def test_releases_signed_by_this_and_older_versions_still_verify(folder: Path) -> None:
    findings = check_release(folder / "release", golden_release.trust(folder), NAME)

    assert [finding for finding in findings if finding.state != "verified"] == []
    assert read_release(folder / "release").digest == (folder / "digest.txt").read_text().strip()
