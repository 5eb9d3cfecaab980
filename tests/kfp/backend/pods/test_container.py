"""A container is a process that sees the machine's files and changes none, and that ends with all that it started."""

import subprocess
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cluster.waiting import until
from tests.kfp.backend.pods.container import Process, kill, start, terminate

SECONDS = 30.0
LOOP = "sh -c 'while :; do sleep 1; done' sleep-of-{}"


def may_run() -> bool:
    """True where this user may make namespaces and overlays, as `make kfp` needs."""
    script = "mkdir u w r && mount -t overlay overlay -o lowerdir=/,upperdir=$PWD/u,workdir=$PWD/w r"
    command = ["unshare", "--mount", "--pid", "--fork", "sh", "-ec", script]
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not may_run(), reason="this user may not make mount namespaces and overlays")


def process(command: Sequence[str], mounts: Sequence[tuple[Path, str]] = ()) -> Process:
    return Process(command, {"PATH": "/usr/bin:/bin", "NAME": "value"}, "/", "127.0.0.1 localhost store\n", mounts)


def run(root: Path, command: Sequence[str], mounts: Sequence[tuple[Path, str]] = ()) -> tuple[int, str]:
    returncode = start(root, process(command, mounts)).wait(SECONDS)
    return returncode, (root / "log").read_text()


@pytest.mark.slow
def test_what_a_container_writes_stays_out_of_the_machine(tmp_path: Path) -> None:
    target = tmp_path / "machine.txt"
    target.write_text("the machine's")

    code, log = run(
        tmp_path / "c", ["sh", "-c", f"cat {target}; echo; echo changed > {target}; cat {target}; echo $NAME"]
    )

    assert (code, log.split("\n")) == (0, ["the machine's", "changed", "value", ""])
    assert target.read_text() == "the machine's"


@pytest.mark.slow
def test_a_mounted_folder_is_shared_and_hosts_are_the_pods(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()

    code, log = run(tmp_path / "c", ["sh", "-c", "echo written > /data/file; cat /etc/hosts"], [(volume, "/data")])

    assert (code, log) == (0, "127.0.0.1 localhost store\n")
    assert (volume / "file").read_text() == "written\n"


@pytest.mark.slow
def test_a_container_sees_its_own_processes_alone(tmp_path: Path) -> None:
    code, log = run(tmp_path / "c", ["sh", "-c", "echo $$; ls /proc | grep -c '^[0-9]'"])

    assert code == 0
    assert log.split()[0] == "1"
    assert int(log.split()[1]) < 5


def grandchild(root: Path) -> list[str]:
    """List the machine's processes that run a container's loop, which one of their arguments names."""
    # The shell that starts the loop has the name only within a longer argument.
    argument, each = f"sleep-of-{root.name}".encode(), []
    for folder in Path("/proc").iterdir():
        with suppress(OSError):  # others come and go meanwhile
            if folder.name.isdigit() and argument in (folder / "cmdline").read_bytes().split(b"\0"):
                each.append(folder.name)
    return each


def loop(root: Path) -> Process:
    return process(["sh", "-c", f"{LOOP.format(root.name)} & wait"])


def test_killing_a_container_ends_all_that_it_started(tmp_path: Path) -> None:
    root = tmp_path / f"{tmp_path.parent.name}-killed"
    container = start(root, loop(root))
    until(lambda: grandchild(root), seconds=SECONDS)

    kill(container)

    assert container.wait(SECONDS) == -9
    until(lambda: not grandchild(root), seconds=SECONDS)


@pytest.mark.slow
def test_a_container_may_end_in_order(tmp_path: Path) -> None:
    root = tmp_path / f"{tmp_path.parent.name}-asked"
    container = start(root, process(["sh", "-c", f"trap 'echo saved; exit 3' TERM; {LOOP.format(root.name)} & wait"]))
    until(lambda: grandchild(root), seconds=SECONDS)

    terminate(container)

    assert container.wait(SECONDS) == 3
    assert (root / "log").read_text() == "saved\n"


@pytest.mark.slow
def test_a_container_ends_with_the_thread_that_started_it(tmp_path: Path) -> None:
    root = tmp_path / f"{tmp_path.parent.name}-orphan"
    end, started = threading.Event(), []

    def start_and_end() -> None:
        started.append(start(root, loop(root)))
        end.wait(SECONDS)

    thread = threading.Thread(target=start_and_end)
    thread.start()
    until(lambda: grandchild(root), seconds=SECONDS)

    end.set()
    thread.join()

    assert started[0].wait(SECONDS) == -9
    until(lambda: not grandchild(root), seconds=SECONDS)
