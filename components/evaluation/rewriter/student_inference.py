"""Rewrite every test question with each student, and time a sample one by one through the serving code."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

from components.evaluation.rewriter.config import EvaluateConfig
from components.evaluation.rewriter.engine_inference import rewrite_with_engines
from components.evaluation.rewriter.student_timing import StudentOutput, rewriter_server, time_student
from qinglan.prompts import PromptInput
from qinglan.rewriter.model import GeneratedRewrite, Student
from qinglan.terminal.progress import progress


def rewrite_all(
    models: Mapping[str, Path], rows: Sequence[PromptInput], config: EvaluateConfig
) -> dict[str, StudentOutput]:
    """Rewrite every row with each student, then time some rows on the student's server. The server's address is in
    `rewriter_urls`; if it is missing, a server is started here."""
    if uses_vllm(config):
        return rewrite_with_engines(models, rows, config)
    with ExitStack() as servers:
        # Without a GPU the servers start at the same time, and nothing is measured before they are ready. A GPU may
        # have room for only one model, so there each server starts after all other models have been freed.
        ahead = {} if _on_gpu() else {name: _enter(servers, name, folder, config) for name, folder in models.items()}
        import transformers.models.auto.modeling_auto  # noqa: F401  (takes as long as a server's start)

        urls = {name: url() for name, url in ahead.items()}
        batches = {name: _in_batches(name, folder, rows, config.batch) for name, folder in models.items()}
        writings = {}
        for name, folder in models.items():
            with ExitStack() as server:
                url = urls.get(name) or _enter(server, name, folder, config)()
                writings[name] = time_student(batches[name], url, rows, config.latency_rows, "transformers")
    return writings


def uses_vllm(config: EvaluateConfig) -> bool:
    return config.engine == "vllm" or (config.engine == "auto" and _on_gpu() and find_spec("vllm") is not None)


def _enter(stack: ExitStack, name: str, folder: Path, config: EvaluateConfig) -> Callable[[], str]:
    """Start the student's server, unless a URL is set; return a function that waits until it is ready and returns its
    URL."""
    url = next((url for student, url in config.rewriter_urls.items() if student == name), "")
    return (lambda: url) if url else stack.enter_context(rewriter_server(folder))


def _in_batches(name: str, folder: Path, rows: Sequence[PromptInput], batch: int) -> StudentOutput:
    """Rewrite in this process; prompts of similar length share a batch."""
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
    trimmed = sum(prompt.trimmed for prompt in prompts)
    return StudentOutput.of([written[at] for at in range(len(rows))], seconds, trimmed)


def _on_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def _free_gpu() -> None:
    import gc

    import torch

    # torch's caching allocator keeps the memory of a deleted model (torch.cuda.empty_cache), and a server that starts
    # next would find none free.
    gc.collect()
    torch.cuda.empty_cache()
