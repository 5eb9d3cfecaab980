"""The pieces that verl loads: patches that wait, and processes that are ended."""

import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from components.training.ppo.config import Hardware, PpoConfig
from components.training.ppo.device import load_device
from components.training.ppo.launch import verl_environment
from components.training.ppo.plugin import COMMON_PLUGINS
from components.training.ppo.plugin.weight_transfer import VERL_FOLDER, in_temporary_folder
from qinglan.errors import ConfigError
from qinglan.jobs.processes import PROCESS_MARK_VARIABLE, process_cleanup
from qinglan.rewriter.engine import ENGINE_ENVIRONMENT
from standins.verl_cpu.settings import MODULES, PARALLEL_CRITIC
from tests.models.ppo_world import laptop

ROOT = Path(__file__).parents[4]
VERL = Path(find_spec("verl").submodule_search_locations[0])  # type: ignore[union-attr,index]


def python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, cwd=ROOT,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()[-1]


def with_ray(folder: Path, code: str) -> str:
    """The last line that code prints which starts a Ray of its own."""
    with process_cleanup(folder / "running") as (mark, ray_folder):
        return python(code, RAY_USAGE_STATS_ENABLED="0", RAY_TMPDIR=str(ray_folder), **{PROCESS_MARK_VARIABLE: mark})


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
    if len(looks) < 2:
        raise Exception("The current node timed out during startup.")
    return look(*args)

services.get_node = late
ray.init(num_cpus=1, include_dashboard=False)
servers = [one for one in psutil.Process().children(recursive=True) if one.name() == "gcs_server"]
running = [one for one in servers if one.status() != psutil.STATUS_ZOMBIE]
print(ray.is_initialized(), len(looks) >= 2, len(running))
"""
    # A machine with other work may need one more start of its own. A Ray that was ended leaves its agents behind.
    assert with_ray(tmp_path, code) == "True True 1"


@pytest.mark.slow
def test_a_dead_worker_of_the_rollout_ends_the_training_that_waits_for_it(tmp_path: Path) -> None:
    code = """
import time
from types import SimpleNamespace
import ray
from components.training.ppo.plugin import ray_start_retry, worker_check

@ray.remote
class Worker:
    async def answer(self): pass

class Manager:
    def generate_sequences(self, prompts): return prompts

class Buffer:
    def _wait_for_next_poll(self, partition, last): return last

worker_check.remember_workers(SimpleNamespace(AgentLoopManagerTQ=Manager))
worker_check.check_while_waiting(SimpleNamespace(ReplayBuffer=Buffer))
ray.init(num_cpus=2, include_dashboard=False)
manager, buffer = Manager(), Buffer()
manager.agent_loop_workers = [Worker.remote(), Worker.remote()]
waited = [buffer._wait_for_next_poll("train", 1), manager.generate_sequences(2)]
waited.append(buffer._wait_for_next_poll("train", 3))
ray.kill(manager.agent_loop_workers[1])
try:
    for _ in range(600):  # a killed process is not dead at once
        buffer._wait_for_next_poll("train", 4)
        time.sleep(0.1)
except Exception as error:
    print(waited, type(error).__name__, error)
"""
    assert with_ray(tmp_path, code).startswith("[1, 2, 3] TrainingError A process that answers prompts is dead")


def test_the_names_that_the_check_of_workers_replaces_are_verls() -> None:
    trainer = VERL / "trainer/ppo/v1"
    buffer, manager = ((trainer / name).read_text() for name in ("replay_buffer.py", "agent_loop_tq.py"))

    assert "last_debug_time = self._wait_for_next_poll(partition_id, last_debug_time)" in buffer
    assert "class AgentLoopManagerTQ" in manager and "worker.generate_sequences.remote(chunk)" in manager


@pytest.mark.slow
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
    assert verl_environment(PpoConfig()).items() >= ENGINE_ENVIRONMENT.items(), "its vLLM compiles no sampler"


def test_a_cpu_is_played_by_the_module_that_the_profile_names() -> None:
    alone = verl_environment(laptop())
    several = verl_environment(laptop(hardware=laptop().hardware.model_dump() | {"nodes": 2}))

    assert alone["VERL_USE_EXTERNAL_MODULES"] == ",".join((*COMMON_PLUGINS, *MODULES, PARALLEL_CRITIC))
    assert several["VERL_USE_EXTERNAL_MODULES"] == ",".join((*COMMON_PLUGINS, *MODULES))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"plugin": ""}, "on a CPU a plugin stands in for them"),
        ({"device": "cuda"}, "on GPUs there is none"),
        ({"plugin": "standins.verl_tpu"}, "no standins.verl_tpu here, and images of a release hold no stand-in"),
    ],
)
def test_a_plugin_that_is_not_there_or_not_wanted_is_an_error(changes: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_device(Hardware(**laptop().hardware.model_dump() | changes))


def test_the_socket_of_the_weights_lies_in_the_trainings_own_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """verl's text is looked up on both sides: without vLLM its modules cannot be imported."""
    for name in ("vllm_rollout.py", "utils.py"):
        assert f'f"{VERL_FOLDER}rl-colocate-zmq-' in (VERL / "workers/rollout/vllm_rollout" / name).read_text()
    monkeypatch.setattr(tempfile, "tempdir", "/tmp/ql-1")

    assert in_temporary_folder("ipc:///tmp/rl-colocate-zmq-1.sock") == "ipc:///tmp/ql-1/rl-colocate-zmq-1.sock"
