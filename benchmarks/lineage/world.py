"""A graph of many artifacts, written as signed statements: each made of one to three earlier ones."""

import random
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from qinglan.lineage.signing.dsse import IN_TOTO, sign_envelope
from qinglan.lineage.signing.keys import Signer, load_signer, make_key, parse_public_key
from qinglan.lineage.signing.statement import EXTERNAL_INPUT, ArtifactRef, Statement, to_payload
from qinglan.lineage.signing.trust import TrustedKey, TrustPolicy

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
FOLDERS = 200


class World(NamedTuple):
    folder: Path
    policy: TrustPolicy
    last: str
    """Artifacts that descend from the root, from which everything is found."""

    root: str
    statements: int


def write_world(folder: Path, artifacts: int) -> World:
    """A world of artifacts, each reachable from the last."""
    public = make_key(folder / "keys" / "builder.pem")
    signer = load_signer("builder", folder / "keys")
    trusted = TrustedKey(role="builder", since=BEGAN, public=public)
    policy = TrustPolicy(keys={parse_public_key(public).id: trusted})
    for number in range(FOLDERS):
        (folder / "lineage" / f"{number:03}").mkdir(parents=True)
    luck = random.Random(0)
    for number in range(artifacts - 1):
        sealed = _statement(number, luck, signer)
        (folder / "lineage" / f"{number % FOLDERS:03}" / f"s-{number:06}.dsse.json").write_bytes(sealed)
    return World(folder / "lineage", policy, name(artifacts - 2), name(-1), artifacts - 1)


def name(number: int) -> str:
    return sha256(b"%d" % number).hexdigest()


def _statement(number: int, luck: random.Random, signer: Signer) -> bytes:
    """The one before it is always a parent, so that the chain is as deep as it is long."""
    parents = {number - 1, *(luck.randrange(-1, number) for _ in range(luck.randrange(3)))}
    used = [
        ArtifactRef(f"thing {parent}", name(parent), "", {EXTERNAL_INPUT: True} if parent < 0 else {})
        for parent in sorted(parents)
    ]
    at = (BEGAN + timedelta(seconds=number)).isoformat(timespec="milliseconds")
    config = {"seed": number, "train": {"epochs": 3, "learning_rate": 1e-5}, "note": "as a stage's settings are"}
    statement = Statement(
        "stage",
        (ArtifactRef(f"thing {number}", name(number), f"s3://bucket/{number}", {"rows": number}),),
        tuple(used),
        config,
        {"rows": number, "kept": number},
        "run",
        at,
        at,
        {"python": "3.11", "qinglan": "0.1.0"},
    )
    return sign_envelope(to_payload(statement), IN_TOTO, [signer])
