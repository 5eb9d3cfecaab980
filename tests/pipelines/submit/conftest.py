"""Nobody else's settings, and a run that is started on the stand-in of KFP."""

from pathlib import Path

import pytest

from pipelines.submit.graph import Graph
from pipelines.submit.service import Access, Kfp
from pipelines.submit.starting import Wanted, submit
from tests.kfp.stand_in import StandIn

GIVEN = {"questions": "s3://bucket/questions.xlsx"}


@pytest.fixture(autouse=True)
def nobody_elses_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    for name in ("KFP_ENDPOINT", "KFP_TOKEN", "KFP_TOKEN_FILE", "KFP_NAMESPACE", "KFP_UI_ENDPOINT", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)


def started(server: StandIn, graph: Graph) -> tuple[Kfp, str]:
    kfp = Kfp(Access(server.url))
    wanted = Wanted("qinglan-small", GIVEN, "acme", checks=False)
    return kfp, submit(kfp, graph, wanted, lambda line: None).run_id
