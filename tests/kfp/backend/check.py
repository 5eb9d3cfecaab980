"""A pipeline of two steps, submitted as a user would by our own client, and followed to its end."""

import tempfile
import time
from pathlib import Path

from pipelines.checks.cluster.graph import read_graph
from pipelines.submit.follower import Follower
from pipelines.submit.kfp_client import KfpAccess, KfpClient
from pipelines.submit.start_run import RunRequest, submit
from qinglan.errors import QinglanError
from tests.cluster.plane.processes import Folder
from tests.kfp.backend.backend import PROFILE
from tests.kfp.backend.command_lines import HTTP, LOOPBACK, member_token
from tests.kfp.backend.objects import MEMBER
from tests.kfp.backend.two_steps import compile_two_steps

ROWS = 7


def run_two_steps(folder: Folder) -> None:
    began = time.monotonic()
    token = member_token(folder).read_text()
    kfp = KfpClient(KfpAccess(f"http://{LOOPBACK}:{HTTP}", lambda: token))
    with tempfile.TemporaryDirectory() as home:
        graph = read_graph(compile_two_steps(Path(home) / "two-steps.yaml"))
        request = RunRequest("two-steps", {"rows": str(ROWS)}, "check", "", PROFILE, MEMBER, checks=False)
        run = submit(kfp, graph, request, print)
    end = Follower(kfp, run.run_id, print).follow()
    if end.state != "SUCCEEDED":
        raise QinglanError(
            f"{run.page}: {end.state} {end.error}. See {folder.root / 'logs'} and {folder.root / 'pods'}."
        )
    print(f"two steps on KFP: {end.state} ({time.monotonic() - began:.0f} s)")
