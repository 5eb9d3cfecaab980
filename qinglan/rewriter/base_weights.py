"""Check that the base model under an adapter is the one that the adapter was trained on.

    verify_base(Path("/mnt/base"), Path("/mnt/models/model"))     an AlteredError if it is another

A release names its base by a digest of the base stage's folder, which holds the files of the weights volume and a
card. Every file is read, which takes about a minute for 65 GB at 1 GB a second.
"""

import os
from pathlib import Path

from qinglan.documents import parse_json_mapping
from qinglan.errors import AlteredError, DataError
from qinglan.files.digests import file_digests, tree_digest
from qinglan.files.files import sha256_bytes
from qinglan.files.plain_files import read_plain
from qinglan.models.references import ADAPTER_CONFIG, ADAPTER_FOLDER
from qinglan.rewriter.card import CARD, RewriterCard, card_bytes, read_card

NAMED_BY_DIGEST = "sha256:"


def verify_base(base: Path, model: Path) -> str:
    """Compute and return the digest of the base; an AlteredError if the model in this folder names another digest."""
    expected = base_digest(model)
    files = {CARD: sha256_bytes(card_bytes(RewriterCard(stage="base"))), **file_digests(base)}
    actual = tree_digest({name: files[name] for name in sorted(files, key=os.fsencode)})
    if actual != expected:
        raise AlteredError(
            f"{base}: the adapter in {model} was trained on the base {expected[:12]}, and this is {actual[:12]}: "
            "another model, another revision, or files that were changed, added or half copied. Copy the base again "
            "from where it was trained."
        )
    return actual


def base_digest(model: Path) -> str:
    """Read the base's digest from the adapter's configuration or, if it names none, from the model's card."""
    path = model / ADAPTER_FOLDER / ADAPTER_CONFIG
    try:
        named = str(parse_json_mapping(read_plain(path), str(path)).get("base_model_name_or_path"))
    except (OSError, DataError) as error:
        raise DataError(f"{path}: no adapter ({type(error).__name__}). Serve a release that has one.") from error
    expected = (
        named.removeprefix(NAMED_BY_DIGEST)
        if named.startswith(NAMED_BY_DIGEST)
        else read_card(model).parents.get("base_model", "")
    )
    if not expected:
        raise DataError(f"{model / CARD}: names no base model, so none can be compared. Train the model again.")
    return expected
