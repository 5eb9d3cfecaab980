"""Attacks on a release as rows of a table: what is done, and what exactly must be said of it."""

import shutil
from collections.abc import Callable, Set
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, NamedTuple

import orjson

from qinglan.lineage.signing.findings import State
from qinglan.lineage.signing.model_signature import sign_model
from qinglan.lineage.signing.trust import TrustPolicy
from qinglan.lineage.trace.release_folder import BOM, EVALUATION, MODEL, PROVENANCE, SIGNATURE
from tests.qinglan.lineage import tampering as do
from tests.qinglan.lineage.tampering import Scene
from tests.releases.registered_release import NAME

OTHER = "chengla/rewriter"
WEIGHTS = "model/model.safetensors"
Expected = tuple[str, State]


class Row(NamedTuple):
    """An attack on the files, or on the policy, and everything that must be said of it."""

    name: str
    attack: Callable[[Scene], object]
    expected: Set[Expected]
    rest: Literal["verified", "untrusted"] = "verified"
    """State of everything else."""

    policy: Callable[[TrustPolicy, Scene], TrustPolicy] = lambda policy, scene: policy
    requested: str = NAME


def nothing(scene: Scene) -> None:
    """The files stay as they are."""


def provenance(attack: Callable[[Path], object]) -> Callable[[Scene], object]:
    return lambda scene: attack(scene.folder / PROVENANCE)


def rewritten(change: do.Change) -> Callable[[Scene], object]:
    return provenance(lambda path: do.rewrite(path, change))


def resealed(
    change: do.Change = lambda statement: None, foreign: bool = False, role: Any = "releaser"
) -> Callable[[Scene], object]:
    return lambda scene: do.reseal(scene.folder / PROVENANCE, scene.signer(role, foreign), change)


def refitted(attack: Callable[[Scene], object], foreign: bool = False, **how: bool) -> Callable[[Scene], object]:
    """Then everything is made to fit together again, with a key."""

    def both(scene: Scene) -> None:
        attack(scene)
        do.refit(scene, scene.signer("releaser", foreign), **how)

    return both


def releaser(**update: Any) -> Callable[[TrustPolicy, Scene], TrustPolicy]:
    """The policy says something else of the releaser's key."""

    def changed(policy: TrustPolicy, scene: Scene) -> TrustPolicy:
        key = scene.signer().id
        values = {name: value(policy.keys[key].since) if callable(value) else value for name, value in update.items()}
        return TrustPolicy(keys={**policy.keys, key: policy.keys[key].model_copy(update=values)})

    return changed


def moved(source: str, target: str) -> Callable[[Scene], object]:
    return lambda scene: (scene.folder / source).rename(scene.folder / target)


def write(name: str, content: bytes) -> Callable[[Scene], object]:
    def attack(scene: Scene) -> None:
        path = scene.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    return attack


def linked(name: str) -> Callable[[Scene], object]:
    """The same bytes, behind a link."""

    def attack(scene: Scene) -> None:
        path = scene.folder / name
        backup = scene.folder.parent / f"kept-{path.name}"
        path.rename(backup)
        path.symlink_to(backup)

    return attack


def twin(name: str, other: str) -> Callable[[Scene], object]:
    return lambda scene: shutil.copyfile(scene.folder / name, scene.folder / other)


def other_sub(scene: Scene) -> None:
    shutil.copyfile(scene.other_path(WEIGHTS), scene.path(WEIGHTS))


def all_but_statement(scene: Scene) -> None:
    """Other weights, and a bill that fits them."""
    other_sub(scene)
    do.refit_bom(scene)


def signed_with(key: str) -> Callable[[Scene], object]:
    """model.sig by another key, and the releaser tricked into naming it."""

    def attack(scene: Scene) -> None:
        role: Any = "builder" if key == "builder" else "releaser"
        sign_model(scene.folder / MODEL, scene.folder / SIGNATURE, scene.signer(role, key == "foreign"))
        do.refit(scene, scene.signer(), sign=False)

    return attack


def signed_leaving_out(scene: Scene) -> None:
    """An OMS signature that ignores a file which it should not."""
    from model_signing.hashing import Config as Hashing
    from model_signing.signing import Config

    write("model/extra.json", b"{}")(scene)
    hashing = Hashing().use_file_serialization().set_ignored_paths(paths=["extra.json"], ignore_git_paths=False)
    signing = Config().set_hashing_config(hashing).use_elliptic_key_signer(private_key=scene.signer().path)
    signing.sign(scene.folder / MODEL, scene.folder / SIGNATURE)
    do.refit(scene, scene.signer(), sign=False)


def edit_bom(change: do.Change) -> Callable[[Scene], object]:
    """A bill that says something else, and the releaser tricked into naming it."""

    def attack(scene: Scene) -> None:
        bill = orjson.loads((scene.folder / BOM).read_bytes())
        change(bill)
        (scene.folder / BOM).write_bytes(orjson.dumps(bill))
        do.refit(scene, scene.signer(), sign=False, bom=False)

    return attack


def edit_signature(change: do.Change) -> Callable[[Scene], object]:
    def attack(scene: Scene) -> None:
        bundle = orjson.loads((scene.folder / SIGNATURE).read_bytes())
        change(bundle)
        (scene.folder / SIGNATURE).write_bytes(orjson.dumps(bundle))
        do.refit(scene, scene.signer(), sign=False)

    return attack


def without(name: str) -> do.Change:
    """The statement does not speak of it."""

    def change(statement: do.Json) -> None:
        statement["subject"] = [item for item in statement["subject"] if item["name"] != name]

    return change


def relabelled(name: str, algorithm: str) -> do.Change:
    """The digest goes by another function's name."""

    def change(statement: do.Json) -> None:
        for item in statement["subject"]:
            if item["name"] == name:
                [digest] = item["digest"].values()
                item["digest"] = {algorithm: digest}

    return change


def not_used(name: str) -> do.Change:
    def change(statement: do.Json) -> None:
        definition = statement["predicate"]["buildDefinition"]
        backup = [
            resolved_dependency
            for resolved_dependency in definition["resolvedDependencies"]
            if resolved_dependency["name"] != name
        ]
        definition["resolvedDependencies"] = backup

    return change


def hold(scene: Scene) -> None:
    """A verdict of hold, and a lineage and statement that fit it."""
    from hashlib import sha256

    paper, gate = scene.path("lineage/verdict-"), scene.path("lineage/gate-")
    old, held = sha256(paper.read_bytes()).hexdigest(), b'{"reasons":["Worse."],"word":"hold"}'
    new = sha256(held).hexdigest()

    def swap_digest(statement: do.Json) -> None:
        definition = statement["predicate"]["buildDefinition"]
        for item in (*statement["subject"], *definition["resolvedDependencies"]):
            if item["digest"].get("sha256") == old:
                item["digest"]["sha256"] = new

    paper.unlink()
    (scene.folder / f"lineage/verdict-{new[:12]}.json").write_bytes(held)
    do.reseal(gate, scene.signer("builder"), swap_digest)
    do.reseal(scene.folder / PROVENANCE, scene.signer(), swap_digest)
    do.refit(scene, scene.signer())


def other_figures(change: do.Change) -> Callable[[Scene], object]:
    """Other figures, a gate that says promote of them, and all statements made to fit."""
    from hashlib import sha256

    def attack(scene: Scene) -> None:
        path, gate = scene.folder / EVALUATION, scene.path("lineage/gate-")
        old, figures = sha256(path.read_bytes()).hexdigest(), orjson.loads(path.read_bytes())
        change(figures)
        path.write_bytes(orjson.dumps(figures))
        new = sha256(path.read_bytes()).hexdigest()

        def follow(statement: do.Json) -> None:
            for item in statement["predicate"]["buildDefinition"]["resolvedDependencies"]:
                if item["digest"].get("sha256") == old:
                    item["digest"]["sha256"] = new

        do.reseal(gate, scene.signer("builder"), follow)
        do.reseal(scene.folder / PROVENANCE, scene.signer(), follow)
        do.refit(scene, scene.signer())

    return attack


def other_rule(rule: do.Json) -> Callable[[Scene], object]:
    """The gate's own statement names a rule by which it could not have promoted."""

    def attack(scene: Scene) -> None:
        def change(statement: do.Json) -> None:
            statement["predicate"]["buildDefinition"]["externalParameters"]["config"] = rule

        do.reseal(scene.path("lineage/gate-"), scene.signer("builder"), change)
        do.refit(scene, scene.signer())

    return attack


def pickled(name: str, content: bytes = b"\x80\x04\x95\x10cposix\nsystem\n.") -> Callable[[Scene], object]:
    return refitted(write(name, content))


def signatures(change: Callable[[list[Any], Scene], list[Any]]) -> Callable[[Scene], object]:
    def attack(scene: Scene) -> None:
        path = scene.folder / PROVENANCE
        do.rewrite(path, lambda body: body.update(signatures=change(body["signatures"], scene)))

    return attack


def foreign_signature(scene: Scene) -> Any:
    path = scene.folder.parent / "foreign.json"
    shutil.copyfile(scene.folder / PROVENANCE, path)
    do.reseal(path, scene.signer(foreign=True))
    return do.envelope(path)["signatures"][0]


LATER = timedelta(days=1)
UNSIGNED: Set[Expected] = {(PROVENANCE, "untrusted")}
BROKEN: Set[Expected] = {(PROVENANCE, "altered")}
MODEL_FILES = ("chat_template.jinja", "config.json", "model.safetensors", "rewriter.json", "tokenizer.json")
