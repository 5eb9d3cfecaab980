"""The data stages by batch: the same files as live, at half the price, and an outage stops them."""

from pathlib import Path
from typing import Any

import pytest

from components.data.generate.config import GenerateConfig
from components.data.generate.stage import GenerateCounts, generate
from components.data.validate.stage import judge_requests
from qinglan.errors import OutageError
from qinglan.files import dump_line
from qinglan.llm.journal_reader import read_report
from qinglan.rows import Rewrite
from standins.samples import write_sample
from standins.teacher.app import create_app
from standins.teacher.config import Behaviour
from standins.teacher.extractive_backend import load_extractive_backend
from tests.echo import PRICE, GatewayProcess, gateway_config, running
from tests.serving.gateway.batching import BATCH

CONVERSATIONS = 24


def run_generate(folder: Path, sample: Path, teacher: str, batch: dict[str, Any] | None) -> GenerateCounts:
    folder.mkdir()
    model = {"base_url": f"{teacher}/v1", "model": "fivedoctors", "price": PRICE, "batch": batch}
    gateway = GatewayProcess(gateway_config(teacher, model=model, limits={"attempts": 3}), folder)
    try:
        return generate(
            sample / "questions.xlsx", folder / "rewrites", folder / "table", folder / "bad",
            GenerateConfig(tenant_id="fivedoctors"), gateway.url(),
        )  # fmt: skip
    finally:
        gateway.stop()


@pytest.mark.slow
@pytest.mark.parametrize("faults", ["", "expired,missing"])
def test_generate_by_batch_writes_the_very_bytes_that_it_writes_live(tmp_path: Path, faults: str) -> None:
    sample = tmp_path / "sample"
    write_sample("fivedoctors", sample, CONVERSATIONS, seed=11)
    brain = load_extractive_backend({"fivedoctors": sample / "knowledge_base.jsonl"})
    with running(create_app(brain, Behaviour(batch_faults=faults))) as teacher:
        live = run_generate(tmp_path / "live", sample, teacher, None)
        batched = run_generate(tmp_path / "batch", sample, teacher, BATCH | {"poll_seconds": 0.2})

    assert batched == live
    assert batched.rewritten == batched.rows > CONVERSATIONS
    assert batched.paid_earlier == 0
    for name in ("rewrites", "bad"):
        assert (tmp_path / "batch" / name).read_bytes() == (tmp_path / "live" / name).read_bytes()
    reports = [read_report(tmp_path / name / "journal.sqlite") for name in ("live", "batch")]
    lost = len(reports[1]["possibly_billed"])
    assert lost == ("missing" in faults)
    if not lost:
        assert reports[1]["cost"] == pytest.approx(reports[0]["cost"] / 2)


@pytest.mark.slow
def test_a_cancelled_batch_is_an_outage_of_the_stage_and_leaves_no_half_file(tmp_path: Path) -> None:
    sample = tmp_path / "sample"
    write_sample("fivedoctors", sample, CONVERSATIONS, seed=11)
    brain = load_extractive_backend({"fivedoctors": sample / "knowledge_base.jsonl"})
    with (
        running(create_app(brain, Behaviour(batch_faults="cancelled"))) as teacher,
        pytest.raises(OutageError, match="cancelled at the service"),
    ):
        run_generate(tmp_path / "batch", sample, teacher, BATCH)
    assert not (tmp_path / "batch/rewrites").exists()


def test_only_rows_whose_sheet_states_no_need_are_wished_for(tmp_path: Path) -> None:
    row = Rewrite(
        id="a", tenant_id="t", conversation_id="c", question="问", need="虾青素一天吃几次", rewritten_query="写",
        teacher="m", call="k",
    )  # fmt: skip
    lines = [row, row.model_copy(update={"id": "b", "need": ""})]
    (tmp_path / "rewrites").write_bytes(b"".join(dump_line(line) for line in lines))
    assert [(wish.role, wish.row) for wish in judge_requests(tmp_path / "rewrites")] == [("judge", "b")]
