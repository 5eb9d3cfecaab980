"""A signed release whose weights lie outside of it is refused at every door, by what its files name.

The releaser was deceived here: what register refuses is signed all the same, as code that does not look would.
"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from components.release.register import stage
from components.release.register.config import RegisterConfig
from components.release.register.stage import register
from qinglan.errors import AlteredError, DataError
from qinglan.files.digests import digest
from qinglan.lineage.auditing.deploy_gate import may_deploy
from qinglan.lineage.release.model_verification import verify_model
from qinglan.lineage.release.release_check import check_release
from qinglan.lineage.signing.trust import TRUST_FILE, load_trust
from qinglan.models.model_files import refuse_disallowed_files
from qinglan.rewriter.model import Student
from qinglan.store import open_store
from serving.initialiser.release_fetcher import fetch_release
from tests.models.tiny_rewriter import tiny_model
from tests.processes.forkserver import forked
from tests.releases.registered_release import NAME, make_inputs, use_keys

INDEX = "model.safetensors.index.json"


class World(NamedTuple):
    release: Path
    keys: Path
    file: str
    """Which of the model's files names what lies elsewhere."""


def by_index(folder: Path, shard: str) -> str:
    (folder / "model.safetensors").rename(folder.parent / "foreign.safetensors")
    weight_map = {"model.embed_tokens.weight": shard.format(folder.parent / "foreign.safetensors")}
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return INDEX


def by_config(folder: Path, **settings: object) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    return "config.json"


def by_alias(folder: Path) -> str:
    """transformers reads `transformers_weights` through the configuration's own map of names."""
    return by_config(folder, attribute_map={"transformers_weights": "x"}, x="/foreign.safetensors")


def without_weights(folder: Path) -> str:
    (folder / "model.safetensors").unlink()
    return ""


WAYS: dict[str, Callable[[Path], str]] = {
    "an index with an absolute path": lambda folder: by_index(folder, "{}"),
    "an index with dots": lambda folder: by_index(folder, "../../rl_model/../foreign.safetensors"),
    "a configuration": lambda folder: by_config(folder, transformers_weights="/foreign.safetensors"),
    "a configuration's alias": by_alias,
    "no weights": without_weights,
}


@pytest.fixture(params=WAYS)
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    keys = use_keys(tmp_path / "keys", monkeypatch)
    model = tiny_model(tmp_path / "rl_model", stage="ppo")
    file = WAYS[request.param](model)
    inputs = make_inputs(tmp_path, model)
    config = RegisterConfig(name=NAME)
    with pytest.raises(DataError, match=r"A release holds weights"):
        register(inputs, tmp_path / "release", config)
    assert not (tmp_path / "release").exists()
    monkeypatch.setattr(stage, "refuse_disallowed_files", lambda folder: None)
    register(inputs, tmp_path / "release", config)
    return World(tmp_path / "release", keys, file)


@pytest.mark.slow
def test_weights_from_elsewhere_pass_no_door(world: World, tmp_path: Path) -> None:
    trust, model = world.keys / TRUST_FILE, world.release / "model"
    policy, what = load_trust(trust), f"model/{world.file}"

    assert what in {item.what for item in check_release(world.release, policy, NAME) if item.state == "altered"}
    assert [why for why in may_deploy(world.release, policy, NAME).reasons if why.startswith(what)]

    uri, into = open_store(str(tmp_path / "store")).push(world.release, digest(world.release)), tmp_path / "volume"
    into.mkdir()
    with pytest.raises(AlteredError, match=what):
        fetch_release(uri, into, policy)
    assert not list(into.iterdir())

    for requested in (trust, None):
        with pytest.raises(AlteredError, match=r"no whole model: .* Do not load it"):
            verify_model(model, trust=requested)
    with pytest.raises(DataError, match="no whole model"):
        Student.load(model)
    with pytest.raises(DataError):
        refuse_disallowed_files(model)

    for named in (["--trust", str(trust)], []):
        ended = subprocess.run(
            forked("serving.rewriter", "--model", str(model), "--port", "0", *named),
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert (ended.returncode, ended.stdout) == (8, ""), ended.stderr
        assert "no whole model" in ended.stderr and "Traceback" not in ended.stderr
