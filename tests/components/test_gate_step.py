"""The gate's step holds a model that its own store does not list, and an uncounted one if counting is required."""

from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from components.gate_step import run_gate
from qinglan.evaluation.gates.kinds import REWRITER
from qinglan.evaluation.gates.locked_test_uses import count_use
from qinglan.lineage.signing.trust import TRUST_VARIABLE
from qinglan.store import STORE_VARIABLE
from tests.qinglan.evaluation.gates.test_rewriter_gate import GATE, good
from tests.releases.kfp_artifacts import File

MODEL = str(good()["digests"]["models"]["rl"])


def verdict(folder: Path, evaluation: dict[str, Any]) -> tuple[str, str]:
    """The gate's word, and what it shows."""
    (folder / "evaluation").write_bytes(orjson.dumps(evaluation))
    evaluated, before, decision, lineage = (
        File(str(folder / name)) for name in ("evaluation", "before", "decision", "lineage")
    )
    Path(before.path).mkdir()
    word = run_gate(REWRITER, evaluated, GATE.model_dump(), before, decision, lineage)
    return word, Path(decision.path).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("judged", "counted", "word", "shown"),
    [
        ([MODEL], False, "promote", "has judged: 1"),
        ([MODEL], True, "promote", "has judged: 1"),
        (["f" * 64], False, "hold", "lacks this one"),
        ([], False, "promote", ""),
        ([], True, "hold", "Not counted"),
    ],
    ids=["listed", "listed as required", "unlisted", "uncounted", "uncounted though required"],
)
def test_the_gate_goes_by_the_list_of_its_own_store(
    judged: list[str], counted: bool, word: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "store"))
    monkeypatch.setenv(TRUST_VARIABLE, yaml.safe_dump({"evaluate": {"counted": counted}}))
    uses = [count_use(["t|怎么吃|"], "rewriter", model) for model in judged]

    result, text = verdict(tmp_path, {**good(), "test_uses": uses[-1] if uses else None})

    assert result == word and shown in text
