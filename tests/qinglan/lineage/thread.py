"""One run as a table, and the two ways in which it is kept: as a local run's records, and in ML Metadata."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from qinglan.files import sha256_text
from tests.mlmd import Kfp

CODE = {"version": "0.1.0", "revision": "c0ffee", "dirty": False}


class Row(NamedTuple):
    stage: str
    reads: Sequence[str]
    makes: Sequence[str]
    status: str = "done"


TABLE = (
    Row("generate", ["questions"], ["rewrites", "quarantine"]),
    Row("validate", ["rewrites", "knowledge_base"], ["validated"]),
    Row("convert", ["validated"], ["chats", "prompts"]),
    Row("base", ["prompts", "knowledge_base"], ["base_model"]),
    Row("sft", ["chats", "base_model"], ["sft_model"]),
    Row("ppo", ["sft_model", "prompts"], [], "failed"),
)
GIVEN = ("questions", "knowledge_base")


class Thread:
    """What the run of this table was called, where its artifacts lay, and what they were."""

    def __init__(self, run: str, root: Path) -> None:
        self.run, self.root = run, root

    def uri(self, name: str) -> str:
        if name in GIVEN:
            return f"/data/{self.run}/{name}"
        stage = next(row.stage for row in TABLE if name in row.makes)
        return f"{self.root}/artifacts/rewriter-2026/{stage}/{name}"

    def digest(self, name: str) -> str:
        return sha256_text(self.run, name)

    def named(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        return {name: {"uri": self.uri(name), "sha256": self.digest(name)} for name in names}

    def write_records(self) -> None:
        folder = self.root / "records"
        folder.mkdir(parents=True)
        for number, row in enumerate(TABLE):
            record: dict[str, Any] = {"stage": row.stage, "status": row.status, "started": f"2026-11-22T0{number}:00"}
            record |= {"inputs": self.named(row.reads), "code": CODE, "facts": facts(row)}
            record |= {"outputs": self.named(row.makes)} if row.makes else {"failure": {"message": "no"}}
            (folder / f"{row.stage}.json").write_bytes(orjson.dumps(record))
            for name in row.makes:
                path = Path(self.uri(name))
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(name)

    def write_mlmd(self, address: str) -> Kfp:
        kfp = Kfp(address, self.run)
        ids = {name: kfp.importer(self.uri(name)) for name in GIVEN}
        for row in TABLE:
            inputs = {name: [ids[name]] for name in row.reads}
            if row.status == "failed":
                kfp.failed(row.stage, inputs)
                continue
            own = {"stage": row.stage, "parents": self.named(row.reads), "code": CODE, "facts": facts(row)}
            made = [(name, self.uri(name), {"sha256": self.digest(name), "rows": 7, **own}) for name in row.makes]
            ids |= dict(zip(row.makes, kfp.artifacts(made), strict=True))
            kfp.container(row.stage, inputs, {name: [ids[name]] for name in row.makes})
        return kfp


def facts(row: Row) -> dict[str, Any]:
    return {"rows": 500, "loss": 0.25, "list": [1, {"struct": None}], "of": {"list": [row.stage]}, "fine": True}
