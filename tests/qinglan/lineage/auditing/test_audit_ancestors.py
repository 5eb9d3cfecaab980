"""Faults in the statements before a release, which the releaser's key covers: the audit's walk must find them.

Each row changes the lineage before it is released, so that every file of the release is as its own statement has it.
"""

import re
import shutil
from collections.abc import Callable, Set
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from components.release.register import stage
from components.release.register.config import RegisterConfig
from components.release.register.stage import register
from qinglan.errors import AlteredError, ConfigError
from qinglan.lineage.auditing.audit import audit
from qinglan.lineage.signing.findings import State
from qinglan.lineage.signing.trust import Revocation, TrustPolicy
from qinglan.lineage.trace.release_folder import PROVENANCE
from tests.qinglan.lineage import tampering as do
from tests.qinglan.lineage.attacks import LATER, OTHER
from tests.qinglan.lineage.tampering import Scene
from tests.releases.registered_release import NAME, make_inputs, tiny_weights

Expected = tuple[str, State]
Attack = Callable[[Scene], object]


class Row(NamedTuple):
    name: str
    attack: Attack
    """On the folder of statements, before it is released; the scene's folder is its parent."""

    verdict: str
    expected: Set[Expected] = frozenset()
    policy: Callable[[TrustPolicy, Scene], TrustPolicy] = lambda policy, scene: policy
    after: Attack = lambda scene: None
    """On the release."""


def nothing(scene: Scene) -> None:
    """The lineage stays as it is."""


def dropped(stage: str) -> Attack:
    return lambda scene: scene.path(f"lineage/{stage}-").unlink()


def resealed(
    stage: str, change: do.Change = lambda statement: None, foreign: bool = False, role: Any = "builder"
) -> Attack:
    return lambda scene: do.reseal(scene.path(f"lineage/{stage}-"), scene.signer(role, foreign), change)


def of_tenant(tenant: str) -> do.Change:
    def change(statement: do.Json) -> None:
        statement["predicate"]["buildDefinition"]["externalParameters"]["config"]["tenant_id"] = tenant

    return change


def unsealed(stage: str, change: do.Change) -> Attack:
    return lambda scene: do.unsealed(scene.path(f"lineage/{stage}-"), change)


def rewritten(stage: str, change: do.Change) -> Attack:
    return lambda scene: do.rewrite(scene.path(f"lineage/{stage}-"), change)


def moved(stage: str, by: timedelta) -> Attack:
    """The step says that it was at another time."""

    def attack(scene: Scene) -> None:
        path = scene.path(f"lineage/{stage}-")
        do.reseal(path, scene.signer("builder"), do.dated(do.ended(path) + by))

    return attack


def uses_own_work(scene: Scene) -> None:
    """The base model, says its builder, was made of the model that was trained from it."""
    [produced] = [item for item in do.payload(scene.path("lineage/ppo-"))["subject"] if item["name"] == "rl_model"]
    used = "resolvedDependencies"
    resealed("base", lambda statement: statement["predicate"]["buildDefinition"][used].append(produced))(scene)


def of_another_release(stage: str) -> Attack:
    return lambda scene: shutil.copyfile(scene.other_path(f"lineage/{stage}-"), scene.path(f"lineage/{stage}-"))


def another_beside(scene: Scene) -> None:
    """A foreign key says of the same model that it has made it."""
    path = scene.path("lineage/ppo-")
    beside = path.with_name("ppo2-0123456789ab.dsse.json")
    shutil.copyfile(path, beside)
    do.reseal(beside, scene.signer(foreign=True))


def builder(**update: Any) -> Callable[[TrustPolicy, Scene], TrustPolicy]:
    """The policy says something else of the builder's key."""

    def changed(policy: TrustPolicy, scene: Scene) -> TrustPolicy:
        key = scene.signer("builder").id
        values = {name: value(policy.keys[key].since) if callable(value) else value for name, value in update.items()}
        return TrustPolicy(keys={**policy.keys, key: policy.keys[key].model_copy(update=values)})

    return changed


def untrusted_builder(policy: TrustPolicy, scene: Scene) -> TrustPolicy:
    return TrustPolicy(keys={key: item for key, item in policy.keys.items() if item.role != "builder"})


ALL: set[Expected] = {
    (name, "untrusted") for name in ("base_model", "chats", "evaluation", "report", "rl_model", "verdict")
}

ROWS = [
    Row("nothing", nothing, "intact"),
    Row("the training's statement taken out", dropped("ppo"), "incomplete", {("rl_model", "missing")}),
    Row("the base's statement taken out", dropped("base"), "incomplete", {("base_model", "missing")}),
    Row("the data's statement taken out", dropped("convert"), "incomplete", {("chats", "missing")}),
    Row("the evaluation's statement taken out", dropped("evaluate"), "incomplete",
        {("evaluation", "missing"), ("report", "missing")}),
    Row("the training's statement is another release's", of_another_release("ppo"), "altered",
        {("rl_model", "altered")}),
    Row("the training signed by a foreign key", resealed("ppo", foreign=True), "altered",
        {("rl_model", "untrusted")}),
    Row("the training signed by the releaser", resealed("ppo", role="releaser"), "altered",
        {("rl_model", "untrusted")}),
    Row("the training unsigned", rewritten("ppo", lambda body: body.update(signatures=[])), "altered",
        {("rl_model", "untrusted")}),
    Row("the training's key not named", rewritten("ppo", lambda body: body["signatures"][0].pop("keyid")), "altered",
        {("rl_model", "untrusted")}),
    Row("the training's statement changed", unsealed("ppo", lambda statement: statement.update(more=1)), "altered",
        {("rl_model", "altered"), ("statement of ppo", "altered")}),
    Row("the training's type changed", rewritten("ppo", lambda body: body.update(payloadType="x")), "altered",
        {("rl_model", "untrusted")}),
    Row("the training signed twice", rewritten("ppo", lambda body: body.update(signatures=body["signatures"] * 2)),
        "intact"),
    Row("the training's envelope written again", rewritten("ppo", lambda body: body.update(note="x")), "intact"),
    Row("the training dated before the base", moved("ppo", -timedelta(hours=1)), "altered", {("rl_model", "altered")},
        builder(since=lambda since: since - LATER)),
    Row("the training dated tomorrow", moved("ppo", LATER), "altered",
        {("dates", "altered"), ("evaluation", "altered"), ("report", "altered")}),
    Row("the training dated before the key", resealed("ppo", do.dated(datetime(2020, 1, 1, tzinfo=UTC))), "altered",
        {("rl_model", "untrusted")}),
    Row("the data of another tenant", resealed("convert", of_tenant("chengla")), "altered", {("chats", "untrusted")}),
    Row("the training of another tenant", resealed("ppo", of_tenant("chengla")), "altered",
        {("rl_model", "untrusted")}),
    Row("the gate of another tenant", resealed("gate", of_tenant("FIVEDOCTORS")), "altered",
        {("verdict", "untrusted")}),
    Row("the data of this tenant", resealed("convert", of_tenant("fivedoctors")), "intact"),
    Row("the base made of its own work", uses_own_work, "altered",
        {("base_model", "altered"), ("rl_model", "altered")}),
    Row("a foreign statement of the same model beside", another_beside, "intact"),
    Row("the builder's key not trusted", nothing, "altered", ALL, untrusted_builder),
    Row("the builder's key revoked before", nothing, "altered", ALL,
        builder(revoked=lambda since: Revocation(at=since, reason="laptop lost"))),
    Row("the builder's key revoked after", nothing, "intact", set(),
        builder(revoked=lambda since: Revocation(at=since + LATER, reason="laptop lost"))),
    Row("the builder's key rotated out before", nothing, "altered", ALL, builder(until=lambda since: since)),
    Row("the builder's key rotated out after", nothing, "intact", set(), builder(until=lambda since: since + LATER)),
    Row("the builder's key is another tenant's", nothing, "altered", ALL, builder(tenants=("chengla",))),
    Row("the builder's key came later", nothing, "altered", ALL, builder(since=lambda since: since + LATER)),
    Row("the release renamed and signed", nothing, "altered", {("name", "untrusted"), ("mlbom.cdx.json", "altered")},
        after=lambda scene: do.reseal(scene.folder / "release" / PROVENANCE, scene.signer(), do.named(OTHER))),
]  # fmt: skip


def plain(name: str) -> str:
    """The name without the digest."""
    return re.sub(r"(?<=.) [0-9a-f]{12}$", "", name)


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_fault_in_the_statements_before_the_release_is_found(
    row: Row, scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Register refuses it; where register was deceived, the audit finds it."""
    model = tiny_weights(tmp_path / "rl_model")
    inputs = make_inputs(tmp_path, model)
    lineage = inputs.lineage.rename(tmp_path / "lineage")
    here = scene._replace(folder=tmp_path)
    row.attack(here)
    shutil.rmtree(tmp_path / "release")
    taken = inputs._replace(lineage=lineage), tmp_path / "release", RegisterConfig(name=NAME)
    if row.verdict == "altered" and row.attack is not nothing:
        with pytest.raises((AlteredError, ConfigError), match=r"An audit would refuse this release|cannot be in it"):
            register(*taken)
        assert not (tmp_path / "release").exists()
        monkeypatch.setattr(stage, "proven_statements", lambda judged, *arguments: judged.statements)
    register(*taken)
    row.after(here)

    audited = audit(str(tmp_path / "release"), row.policy(scene.policy, scene), name=NAME)

    findings = {(plain(finding.what), finding.state) for finding in audited.findings}
    assert (audited.verdict, findings) == (row.verdict, row.expected)
