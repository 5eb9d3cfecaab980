"""The pieces that verl loads: patches that wait, and processes that are ended."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from components.training.ppo.config import PpoConfig
from components.training.ppo.launch import verl_environment
from components.training.ppo.plugin import COMMON_PLUGINS, CPU_PLUGINS, SINGLE_MACHINE_CPU_PLUGINS, fork_server
from qinglan.jobs.processes import PROCESS_MARK_VARIABLE, find_processes, process_cleanup
from tests.ppo_world import laptop

ROOT = Path(__file__).parents[3]


def python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, cwd=ROOT,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()[-1]


def test_a_patch_waits_for_its_module_and_imports_nothing(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text("value = 1\n")
    code = """
import sys
from components.training.ppo.plugin.import_hooks import when_imported

@when_imported("late")
def patch(module): module.value += 1

before = "late" in sys.modules
import late
when_imported("late")(patch)
print(before, late.value)
"""
    assert python(code, PYTHONPATH=f"{tmp_path}:{ROOT}") == "False 3"


@pytest.mark.slow
def test_a_ray_that_did_not_come_up_in_its_half_minute_is_ended_and_started_again(tmp_path: Path) -> None:
    code = """
import psutil, ray
from ray._private import services
from components.training.ppo.plugin import ray_start_retry

look, looks = services.get_node, []

def late(*args):
    looks.append(args)
    if len(looks) < 3:
        raise Exception("The current node timed out during startup.")
    return look(*args)

services.get_node = late
ray.init(num_cpus=1, include_dashboard=False)
servers = [one for one in psutil.Process().children(recursive=True) if one.name() == "gcs_server"]
running = [one for one in servers if one.status() != psutil.STATUS_ZOMBIE]
print(ray.is_initialized(), len(looks) >= 3, len(running))
"""
    # A machine with other work may need one more start of its own. A Ray that was ended leaves its agents behind.
    with process_cleanup(tmp_path / "running") as (mark, folder):
        said = python(code, RAY_USAGE_STATS_ENABLED="0", RAY_TMPDIR=str(folder), **{PROCESS_MARK_VARIABLE: mark})
    assert said == "True True 1"


@pytest.mark.parametrize(("words", "tries"), [("Can't connect", 1), ("The node timed out during startup.", 5)])
def test_a_ray_that_fails_otherwise_or_again_and_again_is_an_error(words: str, tries: int) -> None:
    code = f"""
from types import SimpleNamespace
from components.training.ppo.plugin.ray_start_retry import retry_ray_init

tries = []

def init():
    tries.append(1)
    raise Exception({words!r})

retry_ray_init(ray := SimpleNamespace(init=init))
try:
    ray.init()
except Exception as error:
    print(error, len(tries))
"""
    assert python(code) == f"{words} {tries}"


def test_gpu_trainings_load_the_guard_and_the_terms_and_nothing_of_the_cpu() -> None:
    assert verl_environment(PpoConfig())["VERL_USE_EXTERNAL_MODULES"] == ",".join(COMMON_PLUGINS)
    assert "VERL_PLATFORM" not in verl_environment(PpoConfig())
    assert verl_environment(laptop())["VERL_USE_EXTERNAL_MODULES"] == ",".join(SINGLE_MACHINE_CPU_PLUGINS)
    several = laptop(hardware=laptop().hardware.model_dump() | {"nodes": 2})
    assert verl_environment(several)["VERL_USE_EXTERNAL_MODULES"] == ",".join(CPU_PLUGINS)


def test_a_worker_is_forked_with_what_ray_says_of_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERE", "/here")
    context = json.dumps({"env_vars": {"THERE": "${HERE}/there", "MORE": "1"}, "py_executable": "python"})
    argv = ["worker.py", "--port=1", f"--serialized-runtime-env-context={context}", "--language=PYTHON"]

    assert fork_server.worker_arguments(argv) == ["worker.py", "--port=1"]
    given = fork_server.worker_environment(argv)
    assert (given["HERE"], given["THERE"], given["MORE"]) == ("/here", "/here/there", "1")


NEST = """
import os, socket, sys
from components.training.ppo.plugin import fork_server
path = os.environ[fork_server.SOCKET_VARIABLE]
listening = socket.socket(socket.AF_UNIX)
listening.bind(path)
listening.listen()
driver = os.getpid()
if os.fork() == 0:
    fork_server.serve_forks(listening, driver)
    os._exit(0)
for said in (b"", (100).to_bytes(4) + b"{"):
    with socket.socket(socket.AF_UNIX) as gone:
        gone.connect(path)
        gone.sendall(said)
fork_server.request_worker([sys.argv[1], "worked"])
"""


def test_who_asks_for_a_worker_and_is_gone_ends_no_nest(tmp_path: Path) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text("import sys; print(sys.argv[1], flush=True)")
    said = subprocess.run(
        [sys.executable, "-c", NEST, str(worker)], capture_output=True, text=True, cwd=ROOT, timeout=120,
        env={**os.environ, fork_server.SOCKET_VARIABLE: str(tmp_path / "nest")},
    )  # fmt: skip

    assert (said.stdout, said.returncode) == ("worked\n", 0), said.stderr


def test_what_a_training_started_is_gone_even_where_it_left_its_group(tmp_path: Path) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    child = f"import subprocess; subprocess.Popen({sleep}, start_new_session=True)"
    with process_cleanup(tmp_path / "running") as (mark, temporary):
        subprocess.run([sys.executable, "-c", child], env={**os.environ, PROCESS_MARK_VARIABLE: mark}, check=True)
        assert len(find_processes(mark, str(temporary))) == 1

    assert find_processes(mark, str(temporary)) == []
    assert not temporary.exists()


def test_a_process_that_has_lost_its_mark_is_found_by_the_files_it_holds(tmp_path: Path) -> None:
    holds = "import sys, time; kept = open(sys.argv[1], 'w'); time.sleep(60)"
    with process_cleanup(tmp_path / "running") as (_, temporary):
        log = temporary / "agent.log"
        agent = subprocess.Popen([sys.executable, "-c", holds, log], start_new_session=True)
        while not log.exists():
            time.sleep(0.01)

    assert agent.wait(60) == -signal.SIGTERM


def test_what_a_killed_stage_left_is_ended_when_it_runs_again(tmp_path: Path) -> None:
    note = tmp_path / "running"
    stray = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"], env={**os.environ, PROCESS_MARK_VARIABLE: "m1"}
    )
    while not find_processes("m1", str(tmp_path / "gone")):
        time.sleep(0.01)
    note.write_text(f"m1\n{tmp_path / 'gone'}")

    with process_cleanup(note) as (mark, _):
        assert mark != "m1"
        assert stray.wait(60) != 0
