"""The controller's own pages, whose server has the limits of every other."""

import time
from types import SimpleNamespace
from typing import Any, cast

import httpx
import orjson
import pytest

from serving.rollout.cluster.metrics import ControllerStatus, Metrics
from serving.rollout.cluster.monitoring import start_monitoring_server
from tests.servers.hostile_senders import assert_endless_header_is_cut


def test_health_and_metrics_are_served_within_the_limits(capsys: pytest.CaptureFixture[str]) -> None:
    metrics = Metrics(lambda: ControllerStatus({"Analyse": 3}, 2, True, 0.0, {}))
    controller = SimpleNamespace(metrics=metrics, ticked=time.monotonic())
    lease = SimpleNamespace(trouble="")
    server = start_monitoring_server(cast(Any, controller), cast(Any, lease), "127.0.0.1", 0)
    try:
        url = orjson.loads(capsys.readouterr().out)["rollout"]
        with httpx.Client(base_url=url, trust_env=False) as client:
            assert client.get("/healthz").text == "well\n"
            metrics_text = client.get("/metrics").text
            assert 'rollouts{phase="Analyse"} 3.0' in metrics_text and "judging_quality 2.0" in metrics_text
            lease.trouble = "the lease is lost"
            assert (client.get("/healthz").status_code, client.get("/healthz").text) == (503, "the lease is lost\n")
            assert client.get("/else").status_code == 404
        assert_endless_header_is_cut(url)
    finally:
        server.shutdown()
