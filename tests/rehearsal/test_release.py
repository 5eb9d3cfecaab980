"""Each profile's deployment makes a ModelRollout that the CRD's schema takes, and names the profile's runtime."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from components.training.ppo.adapters import write_adapter
from pipelines.execute.rundir import ARTIFACT_FILES, RunDir
from qinglan.errors import QinglanError
from qinglan.files.digests import digest
from qinglan.store import open_store
from tests.rehearsal.__main__ import PROFILES
from tests.rehearsal.rehearse import Rehearsal
from tests.rehearsal.release import MANIFESTS, READY_PATH, deploy_to_file, runtime_commands, wait_until_ready
from tests.releases.registered_release import SignedRelease, tiny_weights, use_keys
from tests.releases.whole_release import make_whole_release
from tests.servers.echo_servers import running


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> SignedRelease:
    """A release with merged weights and an adapter, as LoRA leaves both."""
    import torch

    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        sides = {f"base_model.model.q_proj.lora_{side}.weight": torch.ones(1, 1) for side in "AB"}
        write_adapter(tiny_weights(folder / "model") / "adapter", sides, "0" * 64)
        return make_whole_release(folder / "made", use_keys(folder / "keys", patch), model=folder / "model")


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
def test_a_release_is_deployed_to_the_runtime_of_its_training_file(
    profile: str, signed: SignedRelease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_keys(signed.keys, monkeypatch)
    rehearsal = Rehearsal(profile, tmp_path, 60)
    config, run = rehearsal.here().deploy, RunDir(tmp_path / "run")
    assert config is not None
    run.files.mkdir(parents=True)
    (run.files / ARTIFACT_FILES["release"]).symlink_to(signed.folder)
    open_store(config.store).push(signed.folder, digest(signed.folder))

    rollout = deploy_to_file(run, config, tmp_path / "rollouts")

    spec = rollout["spec"]
    lora = (
        rehearsal.profile_config().base.model == "Qwen/Qwen3-32B" and rehearsal.profile_config().sft.tuner == "lora"
    )
    assert spec["predictor"]["runtime"] == f"qinglan-rewriter-vllm{'' if lora else '-full'}"
    assert spec["release"]["uri"].endswith("/model/adapter") is lora
    engine, transformer = runtime_commands(spec["predictor"]["runtime"], spec["inferenceService"])
    assert any("--lora-modules=rewriter=" in word for word in engine) is lora
    assert ("--base=/mnt/base" in transformer) is lora


class Starting:
    """A server that is ready at its third probe."""

    def __init__(self) -> None:
        self.probes = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.probes += scope["path"] == READY_PATH
        status = 200 if self.probes == 3 else 503
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})


def test_no_question_is_sent_before_the_readiness_probe_has_passed() -> None:
    for file in ("rewriter-vllm.yaml", "rewriter-vllm-full.yaml"):
        containers = yaml.safe_load((MANIFESTS / "overlays/a100" / file).read_text())["spec"]["containers"]
        assert containers[1]["readinessProbe"]["httpGet"]["path"] == READY_PATH
    server = Starting()

    with running(server) as url:
        with pytest.raises(QinglanError, match="not ready after 0 s: 503"):
            wait_until_ready(url + READY_PATH, 0)
        wait_until_ready(url + READY_PATH, 60)

    assert server.probes == 3
