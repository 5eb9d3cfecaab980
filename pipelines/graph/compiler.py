"""Compile the graphs to the YAML that Kubeflow runs, which includes a profile's settings and machines.

The repository holds golden copies, one for each line and machine. A tenant's own profile is compiled in the same way.
"""

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.lines.all_lines import LINES
from pipelines.lines.cluster_resources import Cluster, without_tag
from pipelines.lines.config import STYLES, TRAINING, load_config, load_style_config
from pipelines.lines.line import Line, LineConfig
from pipelines.lines.overrides import DEFAULT_PROFILE, NO_OVERRIDES, PAID_PROFILE
from pipelines.lines.rewriter import REWRITER
from pipelines.lines.style import STYLE
from qinglan.config import load_yaml
from qinglan.errors import ConfigError
from qinglan.files.files import atomic_write

COMPILED = Path(__file__).parents[1] / "compiled"
"""Folder of golden copies; a test compiles the graphs again and compares."""

GOLDEN_TENANT = "fivedoctors"
ARTIFACT_VERSION = re.compile(r"\n +schemaVersion: 0\.0\.1(?=\n)")
"""Version of an artifact's type, which KFP's back end does not read. A run's Workflow repeats it eight times for each
artifact; above 1 MiB Argo compresses the Workflow, and KFP 2.17 then shows an old list of tasks
(https://github.com/argoproj/argo-workflows/blob/main/docs/offloading-large-workflows.md)."""

BY_DIGEST = re.compile(r"[^\s@]+@sha256:[0-9a-f]{64}")


class CompileTarget(NamedTuple):
    """One graph to compile."""

    name: str
    """The file's name without its ending."""

    line: Line
    config: LineConfig
    about: str
    """The tenant and the profile, for KFP's page."""


def golden_targets() -> list[CompileTarget]:
    """Return the targets of the golden copies: each line on each machine that has a profile."""
    targets = []
    for path in sorted(TRAINING.glob("*.yaml")):
        if path.stem == "laptop":  # with stand-ins, which are in an image; the others have the plan's teacher
            target = rewriter_target(GOLDEN_TENANT, DEFAULT_PROFILE, path.stem)
        elif "cluster" in load_yaml(path):
            target = rewriter_target(GOLDEN_TENANT, PAID_PROFILE, path.stem)
        else:
            continue
        targets.append(target._replace(name=f"{REWRITER.name}.{path.stem}"))
    return [*targets, *(style_target(path.stem) for path in sorted(STYLES.glob("*.yaml")))]


def rewriter_target(
    tenant: str, profile: str, training: str | None = None, overrides: Mapping[str, Any] = NO_OVERRIDES
) -> CompileTarget:
    """Return the target for a tenant's profile; `training`, if given, replaces the profile's own training file."""
    config = load_config(tenant, profile, **{**overrides, **({"training": training} if training else {})})
    if "mlflow" in config.trackers and config.gateway.mlflow is None:
        raise ConfigError(
            "trackers names mlflow: on a cluster a training reaches it through the gateway alone. Give the profile "
            "`gateway: {mlflow: {base_url: ...}}`, as in the gateway.yaml of the cluster."
        )
    name = f"{REWRITER.name}.{tenant}-{Path(profile).stem}" + (f"-{training}" if training else "")
    about = f"Tenant {tenant}, profile {Path(profile).stem}, trained on {config.training}."
    return CompileTarget(name, REWRITER, config, about)


def style_target(profile: str, overrides: Mapping[str, Any] = NO_OVERRIDES) -> CompileTarget:
    stem = Path(profile).stem
    config = load_style_config(profile, **{**overrides, "labelled": Path("labelled")})  # the run names its own
    return CompileTarget(f"{STYLE.name}.{stem}", STYLE, config, f"Profile {stem}.")


def select_targets(
    tenant: str, profile: str, training: str, overrides: Mapping[str, Any] = NO_OVERRIDES
) -> list[CompileTarget]:
    """Return the targets to compile: one profile's graph or, without a tenant, all golden copies."""
    if tenant:
        return [target_of(tenant, profile, training, overrides)]
    for option, value in (("--training", training), ("--profile", profile), ("--set", ", ".join(overrides))):
        if value:
            raise ConfigError(f"{option} {value}: changes one tenant's graph. Give --tenant too.")
    return golden_targets()


def target_of(tenant: str, profile: str, training: str, overrides: Mapping[str, Any] = NO_OVERRIDES) -> CompileTarget:
    """Return the target for a tenant's profile, by default `gpt`, or for a style profile, by default `a100`, if
    `tenant` is `style`."""
    if tenant != STYLE.name:
        return rewriter_target(tenant, profile or PAID_PROFILE, training or None, overrides)
    if training:
        raise ConfigError(
            f"--training {training}: is the rewriter's alone. The machines of style are in its profile: --profile."
        )
    return style_target(profile or "a100", overrides)


def compile_targets(targets: Iterable[CompileTarget], out: Path, images: Mapping[str, str]) -> list[Path]:
    """Write each graph into a folder. With `images`, every image must be named by digest."""
    from pipelines.graph.checks import check_compiled

    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for target in targets:
        path = out / f"{target.name}.yaml"
        with atomic_write(path) as partial:
            _compile(target, images, partial)
            text = partial.read_text(encoding="utf-8")
            if faults := check_compiled(text, release=bool(images)):
                raise ConfigError(f"{path.name}: not written. {' '.join(faults)}")
        paths.append(path)
    return paths


def _compile(target: CompileTarget, images: Mapping[str, str], partial: Path) -> None:
    from kfp import compiler

    from pipelines.graph.graph import line_graph

    config = target.config
    settings = config.stages()
    tenant = getattr(config, "tenant_id", "")
    cluster = Cluster(config.machines(), images, config.cluster.immutable_inputs, tenant)
    graph = line_graph(target.line, tuple(settings), settings, cluster, target.about)
    # The compiler accepts only paths that end in .yaml, and atomic_write's temporary file has another ending.
    yaml = partial.with_suffix(".yaml")
    try:
        compiler.Compiler().compile(graph, str(yaml))
        yaml.write_text(ARTIFACT_VERSION.sub("", yaml.read_text(encoding="utf-8")), encoding="utf-8")
        yaml.replace(partial)
    finally:
        yaml.unlink(missing_ok=True)


def read_images(options: Iterable[str]) -> dict[str, str]:
    """Parse the options NAME=REFERENCE, one for each image of a release."""
    images: dict[str, str] = {}
    for option in options:
        names = sorted(image_names())
        name, _, reference = option.partition("=")
        if name not in names or not BY_DIGEST.fullmatch(reference):
            raise ConfigError(
                f"--image {option}: give NAME=REFERENCE@sha256:DIGEST, where NAME is one of {', '.join(names)}."
            )
        images[name] = reference
    return images


def image_names() -> set[str]:
    components = [stage.load_component() for line in LINES.values() for stage in line.stages.values()]
    return {without_tag(component.component_spec.implementation.container.image) for component in components}


if __name__ == "__main__":
    compile_targets(golden_targets(), Path(sys.argv[1]), {})
