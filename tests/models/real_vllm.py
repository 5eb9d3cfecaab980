"""A real vLLM on this machine's CPU, started with the options of the GPU runtime, and an exported release for it.

It runs in an environment made from images/serve/cpu.lock, which the first test makes (6 GB, kept in our cache), as a
fork of a process that has imported vLLM. That takes ten seconds of a core, once for all tests of a run.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import orjson
import psutil
import yaml

from components.training.ppo.export_model import LORA_META, export_checkpoint
from pipelines.execute.environments.environments import make_environment
from qinglan.files.digests import digest
from qinglan.files.files import cache_folder
from qinglan.prompts import Question
from qinglan.rewriter.card import RewriterCard, read_card, write_card
from qinglan.rewriter.engine import ENGINE_ENVIRONMENT
from qinglan.rewriter.engine_process import Engine, run_engine
from qinglan.rewriter.model import GeneratedRewrite
from tests.manifests.manifest_objects import MANIFESTS
from tests.models.tiny_rewriter import VLLM_SHAPE, taught_model
from tests.processes.forked_runs import forks_variables
from tests.processes.forkserver import fork_of, socket_path
from tests.run_forks.sitecustomize import FORKS_VARIABLE

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GB; vLLM's own default is far more than a test needs
RUNTIMES = MANIFESTS / "overlays/a100"
CPU_OPTIONS = (
    "--tensor-parallel-size=1", "--dtype=float32", "--max-model-len=256", "--enforce-eager",
)  # fmt: skip
"""The only differences from the GPU runtime: one process, the precision that the comparison needs, the tiny model's
length, and no compiled graphs."""

ENGINE = (
    "vllm.entrypoints.cli.serve", "vllm.entrypoints.openai.api_server", "vllm.v1.engine.async_llm",
    "vllm.v1.engine.core", "vllm.v1.worker.cpu_worker", "vllm.v1.attention.backends.cpu_attn",
    "vllm.model_executor.models.qwen3", "kserve", "serving.rewriter.app",
)  # fmt: skip
"""Modules that both processes of an engine import, and our server before it."""

START_SECONDS = 600.0
SFT_RANK, PPO_RANK = 16, 64
ADAPTER_SPREAD = 0.1
PRODUCTS = ("", "虾青素", "虾青素软胶囊", "老人", "鱼油", "维生素C", "护肝片", "孩子", "益生菌", "孕妇")
FORMS = ("一天吃几次", "每日服用频次是多少", "怎么吃", "能和药一起吃吗")
QUESTIONS = [Question("fivedoctors", f"{product}{form}") for product in PRODUCTS for form in FORMS]


def vllm_environment(image: str) -> dict[str, str]:
    """Environment in which the vLLM of an image starts quickly.

    Its processes are forked, and each version keeps what it knows of models in a folder of its own: in the shared one
    the versions of two images overwrite each other's, and each start reads all of a model's modules again.
    """
    forks = Path(__file__).parents[1] / "vllm_forks"
    return {"VLLM_CACHE_ROOT": str(cache_folder("vllm") / image), "PYTHONPATH": str(forks)}


@cache
def serve_python() -> str:
    """The interpreter of the serve image's CPU twin."""
    return str(make_environment("serve", cpu=True))


def serve_environment() -> dict[str, str]:
    """Environment in which that interpreter's engines, and our servers before them, are forks."""
    variables = {**os.environ, **vllm_environment("serve")}
    with patch.dict(os.environ, variables | ENGINE_ENVIRONMENT):
        path = socket_path(ENGINE, serve_python())
    modules = ("vllm.entrypoints.cli.main", "serving.rewriter")
    forks = forks_variables(dict.fromkeys(modules, path), serve_python())
    return variables | {FORKS_VARIABLE: forks[FORKS_VARIABLE]}


def engine_processes(engine: Engine) -> list[psutil.Process]:
    """The engine's fork, and what it has started."""
    process = psutil.Process(fork_of(engine.process.pid))
    return [process, *process.children(recursive=True)]


def runtime_options(runtime: str, release: Path) -> list[str]:
    """A runtime's options of `vllm serve`, as KServe fills them in, for a release that lies here."""
    [server, _] = yaml.safe_load((RUNTIMES / f"{runtime.removeprefix('qinglan-')}.yaml").read_text())["spec"][
        "containers"
    ]
    arguments = server["args"]
    filled = [
        argument.replace("{{.Name}}", "rewriter").replace("/mnt/models/model", str(release)) for argument in arguments
    ]
    return [argument for argument in filled if not argument.startswith(("--port=", "--host="))]


@contextmanager
def real_engine(weights: Path, options: list[str], log: Path, port: int = 0) -> Iterator[Engine]:
    print("vllm serve", weights.name, *options, "; overridden here:", *CPU_OPTIONS)
    with ExitStack() as running:
        with patch.dict(os.environ, serve_environment()):
            engine = running.enter_context(
                run_engine(weights, [*options, *CPU_OPTIONS], log, START_SECONDS, serve_python(), port)
            )
        yield engine


def without_fragment(rewrite: GeneratedRewrite) -> GeneratedRewrite:
    """The rewrite as vLLM shows it: without an unfinished last character, which transformers shows as �."""
    return rewrite._replace(text=rewrite.text.rstrip("\ufffd").rstrip())


def exported_release(root: Path) -> Path:
    """base/, and sft/ and rl/ as the stages export them: an SFT adapter of rank 16, and PPO's of rank 64 on top.

    The adapters are random: most texts change, and some are cut at the card's limit.
    """
    import torch

    base = taught_model(root / "base", shape=VLLM_SHAPE)
    generation = base / "generation_config.json"  # as some base models have it; nobody is to decode by it
    generation.write_bytes(orjson.dumps({**orjson.loads(generation.read_bytes()), "repetition_penalty": 1.5}))
    sft = root / "sft"
    tuned = _with_adapter(base, SFT_RANK, seed=1)
    tuned.save_pretrained(sft / "adapter")
    _merge(tuned, base, sft, RewriterCard(**{**_card(base), "stage": "sft", "parents": {"base_model": digest(base)}}))
    actor = root / "actor"
    actor.mkdir()
    trained = {
        name: tensor for name, tensor in _with_adapter(sft, PPO_RANK, seed=2).state_dict().items() if "lora_" in name
    }
    torch.save(trained, actor / "model_world_size_1_rank_0.pt")
    (actor / "fsdp_config.json").write_text('{"world_size": 1}')
    (actor / LORA_META).write_text(f'{{"r": {PPO_RANK}, "lora_alpha": {2 * PPO_RANK}}}')
    parents = {"base_model": digest(base), "sft_model": digest(sft)}
    export_checkpoint(actor, sft, root / "rl", RewriterCard(**{**_card(base), "stage": "ppo", "parents": parents}))
    return root / "rl"


def _card(folder: Path) -> dict[str, Any]:
    return {**read_card(folder).model_dump(), "max_new_tokens": 20}


def _with_adapter(folder: Path, rank: int, seed: int) -> Any:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")
    tuned = get_peft_model(model, config)
    for name, weights in tuned.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weights, std=ADAPTER_SPREAD)
    return tuned


def _merge(tuned: Any, base: Path, folder: Path, card: RewriterCard) -> None:
    import shutil

    shutil.copytree(base, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.safetensors"))
    tuned.merge_and_unload().save_pretrained(folder)
    write_card(folder, card)
