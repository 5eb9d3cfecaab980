"""Attacks on a release's folder: by the files alone, with foreign keys, or with a releaser's."""

import base64
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from qinglan.files.digests import file_digests
from qinglan.lineage.signing.dsse import IN_TOTO, sign_envelope
from qinglan.lineage.signing.keys import Role, Signer, load_signer
from qinglan.lineage.signing.model_signature import sign_model
from qinglan.lineage.signing.trust import TrustPolicy
from qinglan.lineage.trace.release_folder import BOM, MODEL, PROVENANCE, SIGNATURE, release_artifacts
from tests.releases.registered_release import SignedRelease

Json = dict[str, Any]
Change = Callable[[Json], None]


class Scene(NamedTuple):
    """One release to be attacked, another to take from, and the keys that an attacker may hold."""

    folder: Path
    """The copy that is changed."""

    original: SignedRelease
    other: SignedRelease
    """A release of another name, by the same releaser."""

    foreign: Path
    """A folder of untrusted keys."""

    policy: TrustPolicy

    def path(self, name: str) -> Path:
        """A file by its path; of those in lineage/ the beginning is enough."""
        return file_in(self.folder, name)

    def other_path(self, name: str) -> Path:
        return file_in(self.other.folder, name)

    def signer(self, role: Role = "releaser", foreign: bool = False) -> Signer:
        return load_signer(role, self.foreign if foreign else self.original.keys)


def file_in(folder: Path, name: str) -> Path:
    if not name.startswith("lineage/"):
        return folder / name
    [path] = folder.glob(f"{name}*")
    return path


# The files alone.


def flip(path: Path) -> None:
    """One bit of the last byte but one."""
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def swap(item: Path, other: Path) -> None:
    backup = item.read_bytes()
    item.write_bytes(other.read_bytes())
    other.write_bytes(backup)


# The envelope.


def envelope(path: Path) -> Json:
    body: Json = orjson.loads(path.read_bytes())
    return body


def rewrite(path: Path, change: Change) -> None:
    """Change the envelope; its signatures stay what they were."""
    body = envelope(path)
    change(body)
    path.write_bytes(orjson.dumps(body))


def payload(path: Path) -> Json:
    body: Json = orjson.loads(base64.b64decode(envelope(path)["payload"]))
    return body


def unsealed(path: Path, change: Change) -> None:
    """Change what the statement says; the signatures stay what they were."""
    statement = payload(path)
    change(statement)
    rewrite(path, lambda body: body.update(payload=base64.b64encode(orjson.dumps(statement)).decode()))


def reseal(path: Path, signer: Signer, change: Change = lambda statement: None, kind: str = IN_TOTO) -> None:
    """Change what the statement says, and sign it."""
    statement = payload(path)
    change(statement)
    path.write_bytes(sign_envelope(orjson.dumps(statement), kind, [signer]))


def reseal_bytes(path: Path, signer: Signer, change: Callable[[bytes], bytes]) -> None:
    """Change the payload's own bytes, and sign them."""
    text = base64.b64decode(envelope(path)["payload"])
    path.write_bytes(sign_envelope(change(text), IN_TOTO, [signer]))


def named(name: str) -> Change:
    return lambda body: body["predicate"]["buildDefinition"]["externalParameters"]["config"].update(name=name)


def unnamed(statement: Json) -> None:
    statement["predicate"]["buildDefinition"]["externalParameters"]["config"] = {}


def dated(at: datetime) -> Change:
    return lambda body: body["predicate"]["runDetails"]["metadata"].update(
        startedOn=at.isoformat(), finishedOn=at.isoformat()
    )


def ended(path: Path) -> datetime:
    return datetime.fromisoformat(payload(path)["predicate"]["runDetails"]["metadata"]["finishedOn"])


def before(at: datetime) -> datetime:
    return at - timedelta(milliseconds=1)


# With a key: everything made to fit together again.


def refit(scene: Scene, signer: Signer, sign: bool = True, bom: bool = True) -> None:
    """A statement that says what is in the folder now, signed; the signature and the bill of materials too."""
    model = scene.folder / MODEL
    if sign:
        sign_model(model, scene.folder / SIGNATURE, signer)
    if bom:
        refit_bom(scene)
    files = {name: sha for name, sha in file_digests(scene.folder).items() if name != PROVENANCE}
    parts = release_artifacts(files)

    def change(statement: Json) -> None:
        trees = {part.name: part.digest for part in parts}
        old = {item["name"]: digest for item in statement["subject"] for digest in item["digest"].values()}
        statement["subject"] = [{"name": part.name, "digest": {part.algorithm: part.digest}} for part in parts]
        for resolved_dependency in statement["predicate"]["buildDefinition"]["resolvedDependencies"]:
            for name in (MODEL, "evaluation.json"):
                for algorithm in [
                    key for key, digest in resolved_dependency["digest"].items() if digest == old.get(name)
                ]:
                    resolved_dependency["digest"][algorithm] = trees[name]

    reseal(scene.folder / PROVENANCE, signer, change)


def refit_bom(scene: Scene) -> None:
    """The bill's digests are those of the model that is there now."""
    files = {name: sha for name, sha in file_digests(scene.folder).items() if name.startswith(f"{MODEL}/")}
    whole = next(part.digest for part in release_artifacts(files) if part.name == MODEL)
    bill = orjson.loads((scene.folder / BOM).read_bytes())
    about = bill["metadata"]["component"]
    about["version"], about["hashes"] = whole[:12], [{"alg": "SHA3-256", "content": whole}]
    rest = [component for component in bill["components"] if not component["name"].startswith(f"{MODEL}/")]
    hashes = {name: [{"alg": "SHA-256", "content": sha}] for name, sha in files.items()}
    bill["components"] = rest + [{"type": "file", "name": name, "hashes": item} for name, item in hashes.items()]
    bill["dependencies"] = []
    (scene.folder / BOM).write_bytes(orjson.dumps(bill))


def replace_folder(target: Path, source: Path) -> None:
    shutil.rmtree(target)
    shutil.copytree(source, target)
