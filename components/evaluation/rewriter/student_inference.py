"""The students at work: every test question rewritten, and a sample timed one by one under the serving code."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

from components.evaluation.rewriter.config import EvaluateConfig
from components.evaluation.rewriter.engine_inference import rewrite_with_engines
from components.evaluation.rewriter.student_timing import BatchOutput, StudentOutput, rewriter_server, time_student
from qinglan.prompts import PromptInput
from qinglan.rewriter.model import GeneratedRewrite, Student
from qinglan.terminal.progress import progress


def rewrite_all(
    models: Mapping[str, Path], rows: Sequence[PromptInput], config: EvaluateConfig
) -> dict[str, StudentOutput]:
    """Let every student rewrite every row, then time some rows as its users wait, where it is served or here."""
    if uses_vllm(config):
        return rewrite_with_engines(models, rows, config)
    return _rewrite_in_process(models, rows, config)


def uses_vllm(config: EvaluateConfig) -> bool:
    """True if vLLM serves the students: as the settings say, else on a GPU where this environment has vLLM."""
    return config.engine == "vllm" or (config.engine == "auto" and _on_gpu() and find_spec("vllm") is not None)


def _rewrite_in_process(
    models: Mapping[str, Path], rows: Sequence[PromptInput], config: EvaluateConfig
) -> dict[str, StudentOutput]:
    """Rewrites of each model, loaded in this process, and the times of its server.

    Without a GPU the servers start side by side, and nothing is measured before they are up. A GPU may have room
    for one model alone: there each server starts when every other model is gone.
    """
    with ExitStack() as servers:
        ahead = {} if _on_gpu() else {name: _enter(servers, name, folder, config) for name, folder in models.items()}
        import transformers.models.auto.modeling_auto  # noqa: F401  (it takes as long as a server takes to start)

        urls = {name: url() for name, url in ahead.items()}
        batches = {name: _in_batches(name, folder, rows, config.batch) for name, folder in models.items()}
        writings = {}
        for name, folder in models.items():
            with ExitStack() as alone:
                url = urls.get(name) or _enter(alone, name, folder, config)()
                writings[name] = time_student(batches[name], url, rows, config.latency_rows, "transformers")
    return writings


def _enter(stack: ExitStack, name: str, folder: Path, config: EvaluateConfig) -> Callable[[], str]:
    """Start the student's server, unless it is served somewhere; the answer waits for its URL."""
    url = next((url for student, url in config.rewriter_urls.items() if student == name), "")
    return (lambda: url) if url else stack.enter_context(rewriter_server(folder))


def _in_batches(name: str, folder: Path, rows: Sequence[PromptInput], batch: int) -> BatchOutput:
    """Prompts of like length share a batch; the model is let go of, as a served one needs its place."""
    student = Student.load(folder)
    prompts = [student.prompt(row) for row in rows]
    order = sorted(range(len(rows)), key=lambda at: len(prompts[at].text))
    written: dict[int, GeneratedRewrite] = {}
    seconds = 0.0
    with progress(f"evaluate {name}", len(rows)) as tick:
        for start in range(0, len(rows), batch):
            together = order[start : start + batch]
            written |= zip(together, student.write_prompts([prompts[at] for at in together]), strict=True)
            seconds += written[together[0]].seconds
            for _ in together:
                tick()
    del student
    _free_gpu()
    batched = BatchOutput.of([written[at] for at in range(len(rows))], seconds)
    return batched._replace(trimmed=sum(prompt.trimmed for prompt in prompts))


def _on_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def _free_gpu() -> None:
    """Give the memory of a model that is gone back to the GPU: torch keeps it, and a served one finds none free."""
    import gc

    import torch

    gc.collect()
    torch.cuda.empty_cache()
