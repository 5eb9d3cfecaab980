"""The kubelet's stand-in: runs the containers of Argo's pods as processes of this machine.

    KUBECONFIG=... python -m tests.kfp.backend.pods FOLDER TOOLS

Pods with Argo's label that the scheduler has bound to a node are run; KWOK leaves these to us. TOOLS holds the
programs of KFP's and Argo's images. Not done: users, limits, probes, exec, logs through the API, restarts.
"""

import argparse
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from kubernetes import client, config, watch
from urllib3.exceptions import HTTPError

from tests.kfp.backend.pods.pod_run import PodRun
from tests.kfp.backend.pods.pod_spec import MissingReference, Object

LABEL = "workflows.argoproj.io/completed"
WORKFLOW = "workflows.argoproj.io/workflow"
FINISHED = frozenset({"Succeeded", "Failed", "Error"})
PAUSE_SECONDS = 2.0


class Runner:
    def __init__(self, folder: Path, tools: Path) -> None:
        self.folder, self.tools = folder, tools
        self.api = client.CoreV1Api()
        self.runs: dict[str, PodRun] = {}

    def watch(self) -> None:
        """Follow pods for as long as this process lives."""
        while True:
            try:
                pods = self.api.list_pod_for_all_namespaces
                for event in watch.Watch().stream(pods, label_selector=LABEL, timeout_seconds=300):
                    self.take(event["type"], event["raw_object"])
            except (client.ApiException, HTTPError) as error:
                say(f"watch: {error}")
                time.sleep(PAUSE_SECONDS)

    def take(self, event: str, pod: Object) -> None:
        metadata, uid = pod["metadata"], pod["metadata"]["uid"]
        if event == "DELETED" or metadata.get("deletionTimestamp"):
            if uid in self.runs:
                self.runs[uid].stop()
        elif must_start(pod) and uid not in self.runs:
            path = str(Path(sys.executable).parent)
            self.runs[uid] = PodRun(self.api, pod, self.folder / uid, self.tools, path)
            threading.Thread(target=self.run, args=(uid,), daemon=True).start()

    def run(self, uid: str) -> None:
        run = self.runs[uid]
        say(f"{run.name}: starts on {run.pod['spec']['nodeName']}")
        try:
            say(f"{run.name}: {run.run()}")
        except MissingReference as error:
            say(f"{run.name}: was deleted while it waited: {error}")
        except client.ApiException as error:
            say(f"{run.name}: {error.status} {error.reason}")
        except Exception as error:  # a pod that cannot be run is a failed pod, and others go on
            say(f"{run.name}: {type(error).__name__}: {error}")
            status = {"phase": "Failed", "reason": "RunnerError", "message": f"{type(error).__name__}: {error}"}
            self.api.patch_namespaced_pod_status(run.name, run.lookup.namespace, {"status": status})

    def cancel_pods(self) -> None:
        """End the steps of workflows that KFP canceled: Argo asks for it through pods/exec, which needs a kubelet."""
        workflows = client.CustomObjectsApi()
        while True:
            time.sleep(PAUSE_SECONDS)
            if not self.runs:
                continue
            try:
                every = workflows.list_cluster_custom_object("argoproj.io", "v1alpha1", "workflows")["items"]
            except (client.ApiException, HTTPError) as error:
                say(f"workflows: {error}")
                continue
            names = {it["metadata"]["name"] for it in every if is_canceled(it)}
            for run in list(self.runs.values()):
                if run.pod["metadata"]["labels"][WORKFLOW] in names:
                    run.cancel()


def must_start(pod: Object) -> bool:
    phase = pod.get("status", {}).get("phase", "Pending")
    return bool(pod["spec"].get("nodeName")) and phase == "Pending"


def is_canceled(workflow: Object) -> bool:
    spec = workflow["spec"]
    ends = spec.get("shutdown") or spec.get("activeDeadlineSeconds") == 0
    return bool(ends) and workflow.get("status", {}).get("phase") not in FINISHED


def say(text: Any) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.kfp.backend.pods", description="Runs Argo's pods here.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("tools", type=Path)
    options = parser.parse_args()
    config.load_kube_config(os.environ["KUBECONFIG"])
    runner = Runner(options.folder, options.tools)
    threading.Thread(target=runner.cancel_pods, daemon=True).start()
    runner.watch()


if __name__ == "__main__":
    main()
