"""Nobody else's settings, and a run that is started on the stand-in of KFP."""

from pathlib import Path

import pytest

from pipelines.checks.cluster.graph import Graph
from pipelines.submit.kfp_client import KfpAccess, KfpClient
from pipelines.submit.start_run import RunRequest, submit
from tests.kfp.stand_in import StandIn

PARAMETERS = {"questions": "s3://bucket/questions.xlsx"}


@pytest.fixture(autouse=True)
def nobody_elses_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    for name in ("KFP_ENDPOINT", "KFP_TOKEN", "KFP_TOKEN_FILE", "KFP_NAMESPACE", "KFP_UI_ENDPOINT", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)


def started(server: StandIn, graph: Graph) -> tuple[KfpClient, str]:
    kfp = KfpClient(KfpAccess(server.url))
    expected = RunRequest("qinglan-small", PARAMETERS, "acme", checks=False)
    return kfp, submit(kfp, graph, expected, lambda line: None).run_id
