"""python -m serving.rollout --prometheus URL: carries out the ModelRollouts of a namespace, until SIGTERM."""

import argparse
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from qinglan.kubernetes.client import connect
from qinglan.lineage.signing.trust import default_trust, load_trust
from serving.programs import exit_on_error
from serving.rollout.cluster.controller import Controller, Settings
from serving.rollout.cluster.inference_service import FIELD_MANAGER
from serving.rollout.cluster.lease import ClusterLease
from serving.rollout.cluster.monitoring import configure_json_logging, start_monitoring_server
from serving.rollout.cluster.prometheus import PrometheusClient
from serving.rollout.history import HistorySigner


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="python -m serving.rollout", description=__doc__)
    options.add_argument("--prometheus", required=True, help="the URL of Prometheus, such as http://prometheus:9090")
    options.add_argument(
        "--namespace", help="the ModelRollouts' namespace; by default that of the pod or of the kubeconfig"
    )
    options.add_argument("--port", type=int, default=8500, help="for /metrics and /healthz; 0 takes a free one")
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument(
        "--trust", type=Path, help="the trust policy; by default QINGLAN_TRUST, or trust.yaml beside the keys"
    )
    options.add_argument(
        "--look-seconds",
        type=_seconds,
        default=30.0,
        help="between two reconciles of a rollout where nothing changes",
    )
    options.add_argument(
        "--standard-canary", action="store_true", help="this KServe (0.21) splits spec.canary's traffic"
    )
    options.add_argument(
        "--shadow",
        action="append",
        default=[],
        metavar="SERVICE",
        help="an InferenceService for which a shadow runs: by default its canaries are also judged by `quality`",
    )
    return options


def _seconds(text: str) -> float:
    if not 0.1 <= float(text) <= 3600.0:
        raise argparse.ArgumentTypeError(f"{text}: 0.1 to 3600 seconds")
    return float(text)


def main(arguments: list[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    with exit_on_error():
        serve(options)


def serve(options: argparse.Namespace) -> None:
    """Run the controller until SIGTERM; then finish the reconciles under way and release the lease."""
    configure_json_logging()

    def policy() -> Any:
        return load_trust(options.trust) if options.trust else default_trust()

    policy()  # an unreadable policy ends the program before it does anything
    api = connect()
    api.namespace, api.client.user_agent = options.namespace or api.namespace, FIELD_MANAGER
    prometheus, stop = PrometheusClient(options.prometheus), threading.Event()
    lease = ClusterLease(api, os.environ.get("HOSTNAME") or socket.gethostname())  # in a cluster the pod's name
    settings = Settings(
        prometheus, policy, options.look_seconds, options.standard_canary, HistorySigner(), frozenset(options.shadow)
    )
    controller = Controller(api, lease, settings)
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda *_: stop.set())
    server = start_monitoring_server(controller, lease, options.host, options.port)
    sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - downloads print their progress; the log is JSON
    lease.start()
    try:
        controller.run(stop)
    finally:
        lease.stop()
        server.shutdown()
        prometheus.close()


if __name__ == "__main__":
    main()
