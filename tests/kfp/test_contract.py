"""The stand-in speaks as kfp-server-api was generated to, or not at all."""

from pathlib import Path

import pytest

from pipelines.checks.cluster.graph import read_graph
from pipelines.submit.kfp_client import KfpAccess, KfpClient
from tests.kfp.contract import faults, read_contract
from tests.kfp.graphs import compile_graph
from tests.kfp.stand_in import Scene, StandIn, serving

RUN = {
    "run_id": "1", "state": "RUNNING", "created_at": "2026-11-22T03:00:00Z",
    "run_details": {"task_details": [{"display_name": "sft", "state": "RUNNING"}]},
    "runtime_config": {"parameters": {"rows": 7}},
}  # fmt: skip


def test_the_contract_is_read_off_the_generated_client() -> None:
    contract = read_contract()

    start = contract["POST", "/apis/v2beta1/runs"]
    assert (start.answer, start.body, start.query) == ("V2beta1Run", "V2beta1Run", frozenset({"experiment_id"}))
    upload = contract["POST", "/apis/v2beta1/pipelines/upload_version"]
    assert (upload.answer, upload.body) == ("V2beta1PipelineVersion", "")
    assert {"name", "display_name", "pipelineid"} <= upload.query
    assert ("POST", "/apis/v2beta1/runs/{run_id}:terminate") in contract


def test_an_answer_of_kfps_model_has_no_fault() -> None:
    assert list(faults(RUN, "V2beta1Run")) == []


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"status": "RUNNING"}, "$.status"),
        ({"state": "Running"}, "$.state"),
        ({"run_id": 1}, "$.run_id"),
        ({"created_at": "yesterday"}, "$.created_at"),
        ({"run_details": {"task_details": [{"name": "sft"}]}}, "$.run_details.task_details[0].name"),
        ({"run_details": {"task_details": {}}}, "$.run_details.task_details"),
    ],
)
def test_an_answer_that_breaks_kfps_model_is_found(change: dict[str, object], where: str) -> None:
    [result] = faults({**RUN, **change}, "V2beta1Run")

    assert result.startswith(where)


@pytest.mark.slow
def test_every_call_of_the_client_is_in_the_contract(tmp_path: Path) -> None:
    graph = read_graph(compile_graph(tmp_path / "small.yaml"))
    with serving(StandIn(scenes=(Scene("RUNNING"),))) as server:
        kfp = KfpClient(KfpAccess(server.url))
        kfp.many_users()
        pipeline, version, _ = kfp.version("qinglan-small", graph, "")
        run_id = kfp.start("one", pipeline, version, kfp.experiment("acme", ""), {"questions": "s3://b/q"}, "runner")
        kfp.spec(kfp.run(run_id))
        kfp.cancel(run_id)

        assert len(set(server.heard)) == 11  # a path that is in no generated client was answered with 404
