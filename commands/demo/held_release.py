"""Release a model that the gate has held, so that the demo can roll it out. The release is marked as held, and a
signed override allows the rollout.

    release_held(config, run, record["verdict"]["reasons"])

`qinglan run` ends before this step, with code 7. In the store, the release's name never points to a held model.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from commands.demo.loopback_rollout import BY, release_store
from commands.options import trust_policy
from components.release.register.stage import Inputs, Registered, register_held, settings
from pipelines.execute.execution import link_files
from pipelines.execute.local_execution import step_environment
from pipelines.execute.rundir import RunDir
from pipelines.lines.rewriter import REWRITER, RunConfig
from qinglan.lineage.auditing.deploy_gate import break_glass
from qinglan.lineage.steps.record import recorded
from qinglan.terminal import in_language

REASON = "only to show a demo's rollout, although the gate says hold:"


def release_held(config: RunConfig, run: RunDir, reasons: Sequence[str]) -> None:
    """Register the held model, and sign the override by which the demo may roll it out."""
    from qinglan.terminal.console import Console, styled

    release, registered = _register(config, run)
    store = release_store(config)
    store.push(release, registered.release)
    reason = f"{REASON} {' '.join(reasons)}"
    break_glass(str(release), store.address, (), trust_policy(), reason, BY)
    message = (
        f"The gate holds. Only because this is a demo, a signed override lets release {registered.release[:12]} be "
        "rolled out; `qinglan run` ends here with code 7."
    )
    Console(highlight=False, soft_wrap=True).print(styled((in_language(message), "bold white on red")))


def _register(config: RunConfig, run: RunDir) -> tuple[Path, Registered]:
    """Register the held model as the register stage would; the step is recorded and signed like any other."""
    from kfp import dsl

    inputs = {name: dsl.Artifact(uri=str(run.artifact(name))) for name in REWRITER.stages["register"].inputs}
    before = dsl.Artifact(uri=(run.step_record("gate") or {})["lineage"])
    folder = (run.artifacts / "held").resolve()
    release, lineage = dsl.Model(uri=str(folder / "release")), dsl.Artifact(uri=str(folder / "lineage"))
    paths = Inputs(
        Path(inputs["evaluation"].path), Path(inputs["rl_model"].path), Path(inputs["report"].path), Path(before.path)
    )
    config_of_step = settings(config.register_)
    with (
        _as_step_of(run),
        recorded("register", inputs, {"release": release}, config_of_step, lineage, before) as step,
    ):
        registered = register_held(paths, Path(release.path), config.register_)
        step.facts.update(registered._asdict())
    link_files(run, {}, ("register",))
    return Path(release.path), registered


@contextmanager
def _as_step_of(run: RunDir) -> Iterator[None]:
    """Set the environment of a step of this run, so that this process records and signs like a step."""
    # The recorder reads run, keys and store from the environment, as it does in a step's own process.
    before = dict(os.environ)
    os.environ.update(step_environment(run))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
