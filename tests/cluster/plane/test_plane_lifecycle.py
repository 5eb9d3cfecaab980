"""A cluster comes up whole or not at all, and what ends is what was started."""

import fcntl
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from kubernetes import client

from qinglan.errors import ConfigError, OutageError
from tests.cluster.build.binaries import binary
from tests.cluster.plane.cluster import Cluster, foreign
from tests.cluster.plane.plane import down, up
from tests.cluster.plane.ports import free_ports
from tests.cluster.plane.processes import Folder, Part, end, records, runs, start
from tests.processes.ctrl_c import hears_ctrl_c

REPOSITORY = Path(__file__).parents[3]
PARTS = {
    "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kserve", "knative",
    "training-operator", "minio",
}  # fmt: skip


def test_a_second_cluster_beside_the_first_comes_works_and_goes_without_a_trace(
    cluster: Cluster, tmp_path: Path
) -> None:
    """By its command, as a person would; that the one of these tests stays is part of it."""
    folder = tmp_path / "the second"
    output = command("up", folder)
    [kubeconfig] = shlex.split(output.strip().splitlines()[-1].removeprefix("export KUBECONFIG="))
    each = records(Folder(folder))
    try:
        assert {it.part.name for it in each if runs(it)} == PARTS
        assert set(re.findall(r"^(\S+) +pid +\d+ +\d+ MiB$", command("status", folder), re.MULTILINE)) == PARTS
        second = foreign(Path(kubeconfig))
        client.CoreV1Api(second.admin()).create_namespace({"metadata": {"name": "second-alone"}})
        assert second.simulated
        assert "second-alone" not in namespaces(cluster)
        assert command("up", folder).strip().splitlines()[-1] == output.strip().splitlines()[-1]
        assert records(Folder(folder)) == each
        end([it for it in each if it.part.name == "kserve"])
        assert "kserve ended" in command("up", folder, code=OutageError.exit_code)
        assert re.search(r"^kserve +pid +\d+ +does not run$", command("status", folder, code=4), re.MULTILINE)
    finally:
        ended = command("down", folder)

    assert set(ended.strip().removeprefix("ended: ").split(", ")) == PARTS - {"kserve"}
    assert [it.part.name for it in each if runs(it)] == []
    assert [it.name for it in folder.iterdir()] == [".lock"]
    assert "no cluster ran here" in command("down", folder)
    assert "default" in namespaces(cluster)


def test_a_port_that_is_taken_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    ports = free_ports()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", ports.apiserver))
        taken.listen()

        with pytest.raises(OutageError, match=r"kube-apiserver ended while (.*\n)*.*address already in use"):
            up(tmp_path, ports=ports)

    each = records(Folder(tmp_path))
    assert {it.part.name for it in each} == {"etcd", "minio", "kube-apiserver"}
    assert [it.part.name for it in each if runs(it)] == []


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_command_that_is_stopped_on_the_way_up_leaves_nothing(tmp_path: Path, sent: int, code: int) -> None:
    command = [sys.executable, "-m", "tests.cluster.plane", "up", str(tmp_path / "it")]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, preexec_fn=hears_ctrl_c
    ) as process:
        assert process.stdout is not None
        while "etcd is ready" not in process.stdout.readline():
            assert process.poll() is None
        each = records(Folder(tmp_path / "it"))
        running_then = [it.part.name for it in each if runs(it)]

        process.send_signal(sent)

        assert process.wait(240) == code
    assert "etcd" in running_then
    assert [it.part.name for it in records(Folder(tmp_path / "it")) if runs(it)] == []


def test_a_process_that_took_over_a_number_of_ours_is_left_alone(tmp_path: Path) -> None:
    record = start(Folder(tmp_path), Part("sleeps", "/bin/sleep", ["600"], {}), outlives=False)
    another_time = record._replace(born=record.born - 1)
    another_program = record._replace(executable=str(binary("kwok")))
    assert not runs(another_time)
    assert not runs(another_program)

    end([another_time, another_program])

    assert runs(record)
    end([record])
    assert not runs(record)


def test_two_commands_do_not_work_on_one_cluster(tmp_path: Path) -> None:
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        with pytest.raises(ConfigError, match="another command is at work on this cluster"):
            down(tmp_path)


def namespaces(cluster: Cluster) -> set[str]:
    return {it.metadata.name for it in client.CoreV1Api(cluster.admin()).list_namespace().items}


def command(what: str, folder: Path, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.cluster.plane", what, str(folder)],
        cwd=REPOSITORY, capture_output=True, text=True, env={**os.environ},
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr
