"""Whether the model's folder is what its release says it is: nothing else is loaded.

    found = prove(Path("/mnt/models/model"), weights=True, trust=None)
    found.version       "09181d0f4159"      of the model that the release names
    found.said          "release fivedoctors/rewriter, its digests"

A release lies around its model (qinglan/lineage/release_folder.py). A bare folder of a run proves no more than that
its prompts are those that this code shows; the log says so.
"""

from pathlib import Path
from typing import NamedTuple

from qinglan.errors import Altered, DataError
from qinglan.lineage.claims import judged
from qinglan.lineage.digests import files_of, tree_digest
from qinglan.lineage.release_folder import MODEL, PROVENANCE, Claim, inside, read_claim
from qinglan.lineage.trust import load_trust
from qinglan.rewriter import CARD, RewriterCard, read_card, refuse_other_prompts

VERSION = 12
"""Characters of the digest."""

AGAIN = "Load nothing of it; fetch the release again, and ask `qinglan audit` who changed it."
WEIGHTS = (".safetensors", ".safetensors.index.json")


class Proven(NamedTuple):
    version: str
    card: RewriterCard
    said: str
    """What was compared, for the log."""


def prove(folder: Path, weights: bool, trust: Path | None = None) -> Proven:
    """Altered or a DataError where it is not; without `weights` merged ones may have stayed in the store."""
    files = files_of(folder)
    if not (folder.parent / PROVENANCE).is_file():
        card = _card(folder)
        return Proven(tree_digest(files)[:VERSION], card, "unproven: no release around the model's folder")
    claim = read_claim(folder.parent)
    said = {part.name: part.digest for part in claim.statement.made}
    own = inside(said, MODEL)
    if tree_digest(own) != said.get(MODEL):
        raise Altered(f"{folder.parent / PROVENANCE}: its files are not those of its model. {AGAIN}")
    _refuse_changed(folder, files, own)
    _refuse_missing(folder, set(own) - set(files), weights)
    signed = _signed(folder, claim, trust)
    return Proven(said[MODEL][:VERSION], _card(folder), f"release {claim.name}, its digests{signed}")


def _card(folder: Path) -> RewriterCard:
    card = read_card(folder)
    refuse_other_prompts(folder, card)
    return card


def _refuse_changed(folder: Path, files: dict[str, str], own: dict[str, str]) -> None:
    for name, found in files.items():
        if found != own.get(name):
            what = "the prompts are not those of" if name == CARD else "not as in"
            raise Altered(
                f"{folder / name}: {what} its release, which says {own.get(name, 'nothing')[:VERSION]} "
                f"of it, and it is {found[:VERSION]}. {AGAIN}"
            )


def _refuse_missing(folder: Path, missing: set[str], weights: bool) -> None:
    gone = sorted(name for name in missing if weights or "/" in name or not name.endswith(WEIGHTS))
    if gone:
        raise DataError(f"{folder / gone[0]}: its release names it, and it is not there. Fetch the release again.")


def _signed(folder: Path, claim: Claim, trust: Path | None) -> str:
    """Whose signature counts, where somebody said whose may."""
    if trust is None:
        return ""
    worth, why, key = judged(claim.envelope, load_trust(trust), "releaser", claim.tenant, claim.statement.at)
    if worth != "attested":
        raise Altered(f"{folder.parent / PROVENANCE}: {why}. {AGAIN}")
    return f", signed by {key[:VERSION]}"
