"""The source of Kubeflow Pipelines, from a clone of its repository, changed so that it runs on a loopback address.

KFP's programs are in no Go module of their own, so there is nothing to fetch from a module proxy: the clone is named
by whoever starts the back end, and one tag of it is unpacked.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from qinglan.errors import ConfigError, QinglanError

TAG = "2.17.0"
CLONE = f"git clone --depth 1 --branch {TAG} https://github.com/kubeflow/pipelines ../kubeflow-pipelines"


class Change(NamedTuple):
    """Text that must stand exactly once in a file of the source, and the text that replaces it."""

    path: str
    old: str
    new: str


API_SERVER = "backend/src/apiserver/main.go"
SCHEDULED = "backend/src/crd/controller/scheduledworkflow/main.go"
TOKEN = "backend/src/agent/persistence/client/tokenrefresher/token_refresher.go"
TOKEN_PATH = "/var/run/secrets/kubeflow/tokens/persistenceagent-sa-token"

KFP_CHANGES = (
    # No flag binds these listeners to loopback.
    Change(API_SERVER, 'net.Listen("tcp", *rpcPortFlag)', 'net.Listen("tcp", "127.0.0.1"+*rpcPortFlag)'),
    Change(API_SERVER, 'endpoint := "localhost" + ', 'endpoint := "127.0.0.1" + '),
    Change(SCHEDULED, 'addr := ":" + metricsPort', 'addr := "127.0.0.1:" + metricsPort'),
    # A kubelet mounts the agent's token at a fixed path. Without a kubelet the path is a setting.
    Change(TOKEN, f'const SaTokenFile = "{TOKEN_PATH}"', 'var SaTokenFile = os.Getenv("AGENT_TOKEN_FILE")'),
)

ARGO = "github.com/argoproj/argo-workflows/v4"
ARGO_CHANGES = (
    Change("cmd/workflow-controller/main.go", 'ListenAndServe(":6060"', 'ListenAndServe("127.0.0.1:6060"'),
)  # fmt: skip


def commit_of_tag(source: Path) -> str:
    """The commit that the tag names in this clone; the error tells how to get one."""
    if not source.is_dir():
        raise ConfigError(f"SOURCE={source}: no such folder. `{CLONE}` makes one that make kfp finds by itself.")
    command = ["git", "-C", str(source), "rev-parse", "--verify", "--quiet", f"refs/tags/{TAG}^{{commit}}"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise ConfigError(
            f"SOURCE={source}: no clone of kubeflow/pipelines that has the tag {TAG}"
            f"{': ' + answer.stderr.strip() if answer.stderr else ''}. `git fetch --tags` in it, or `{CLONE}`."
        )
    return answer.stdout.strip()


def unpack(source: Path, commit: str, target: Path) -> None:
    """Write the files of that commit into the empty folder `target`, and change them."""
    command = ["git", "-C", str(source), "archive", commit]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as archive:
        subprocess.run(["tar", "x", "-C", str(target)], stdin=archive.stdout, check=True)
        errors = archive.stderr.read().decode(errors="replace") if archive.stderr else ""
    if archive.returncode != 0:
        raise QinglanError(f"{source}: git archive {commit} failed: {errors.strip()}")
    change(target, KFP_CHANGES)


def change(folder: Path, changes: Sequence[Change]) -> None:
    """Make every change; a change whose text is not there exactly once is an error."""
    for path, old, new in changes:
        file = folder / path
        text = file.read_text()
        if (count := text.count(old)) != 1:
            raise QinglanError(f"{file}: the text {old!r} occurs {count} times, and must occur once. See {__file__}.")
        file.write_text(text.replace(old, new))
