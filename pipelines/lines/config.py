"""Load a run's configuration: the stages' defaults, with the settings of a tenant's profile over them.

A profile is the file tenants/<tenant>/<profile>.yaml; the project's own tenants have theirs in configs/<tenant>/.
Prompts and data that a profile names are files beside it.

The machine that trains has its own file, configs/training/<name>.yaml, which any profile can name; settings of the
profile override it. The file's `deploy` names the runtime for its models, and counts only if the profile has a
`deploy` without a runtime. The settings of a style run are in configs/style/<profile>.yaml.

The resolved configuration is written into every run's folder as config.yaml.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pipelines.lines.prompt_files import with_prompt_texts
from pipelines.lines.rewriter import RunConfig
from pipelines.lines.style import STYLE, StyleRunConfig
from qinglan.config import Config, load_yaml, merge_settings
from qinglan.errors import ConfigError
from qinglan.evaluation.gates.gate_limits import Limits, tightened
from qinglan.lineage.signing.trust import policy_at_hand

TENANTS = Path("tenants")
"""Folder of your own tenants, in the directory where commands are called: `qinglan init` writes into it."""

CONFIGS = Path(__file__).parents[1] / "configs"
TRAINING, STYLES = CONFIGS / "training", CONFIGS / "style"
"""Folders of profiles that belong to no tenant."""

FOLD_SETTINGS = ("folds", "fold")
"""Settings of the convert stage that only `qinglan run` sets; a profile may not."""


def profiles() -> list[Path]:
    return sorted(path for path in CONFIGS.glob("*/*.yaml") if path.parent not in (TRAINING, STYLES))


def tenant_folders(tenant: str) -> list[Path]:
    """List the folders with a tenant's profiles: yours before the project's."""
    named = TENANTS / tenant, CONFIGS / tenant
    return [folder for folder in named if folder.is_dir() and folder not in (TRAINING, STYLES)]


def profile_path(tenant: str, profile: str) -> Path:
    """Return the file of a profile, given by its name or its path; ConfigError if the file does not exist."""
    if profile.endswith(".yaml"):
        path = Path(profile)
    else:
        named = [folder / f"{profile}.yaml" for folder in tenant_folders(tenant)]
        path = next((path for path in named if path.is_file()), CONFIGS / tenant / f"{profile}.yaml")
    if not path.is_file() and profile.endswith(".yaml"):
        raise ConfigError(f"--profile {path}: no such file.")
    if not path.is_file():
        raise ConfigError(_missing_profile(tenant, profile))
    owner = path.resolve().parent
    if owner.parent == CONFIGS.resolve() and owner.name != tenant:
        raise ConfigError(
            f"--profile {profile}: has the settings of {owner.name}, and {tenant} was asked for. "
            f"Copy it into tenants/{tenant} and mend what is {tenant}'s own."
        )
    return path


def _missing_profile(tenant: str, profile: str) -> str:
    """Return the text of the error; if the tenant has no folder, it names `qinglan init`, which writes one."""
    folders = tenant_folders(tenant)
    if not folders:
        return (
            f"No profile {profile!r} for tenant {tenant!r}: there is no {(TENANTS / tenant).absolute()}. "
            f"`qinglan init {tenant} SHEET` writes one for your own data; from another directory give --profile FILE."
        )
    if profiles := sorted({path.stem for folder in folders for path in folder.glob("*.yaml")}):
        return f"No profile {profile!r} for tenant {tenant!r}. It has {', '.join(profiles)}: choose one by --profile."
    return f"No profile {profile!r} for tenant {tenant!r}. {folders[0]} holds none: write {profile}.yaml there."


def load_config(tenant: str, profile: str, **options: Any) -> RunConfig:
    """Load a tenant's profile, with the command line's options over its settings."""
    path = profile_path(tenant, profile)
    values = load_yaml(path)
    if values.setdefault("tenant_id", tenant) != tenant:
        raise ConfigError(f"{path}: is for tenant {values['tenant_id']!r}, and {tenant!r} was asked for.")
    values = with_prompt_texts(with_own_files(values, path), path)
    options = {name: value for name, value in options.items() if value is not None}
    return within_limits(_parse(_parse_run, values, options, path), lambda limits: limits.rewriter)


Run = TypeVar("Run", RunConfig, StyleRunConfig)


def _parse(
    parse: Callable[[dict[str, Any], str], Run], values: dict[str, Any], options: dict[str, Any], path: Path
) -> Run:
    """Parse a profile's values with the options over them. An error names the profile if its own values are invalid,
    otherwise --set."""
    try:
        return parse(merge_settings(values, options), str(path))
    except ConfigError:
        if not options:
            raise
        parse(values, str(path))
        return parse(merge_settings(values, options), "--set")


def within_limits(config: Run, line: Callable[[Limits], Config]) -> Run:
    """Make evaluation and gate at least as strict as this machine's trust policy requires."""
    policy = policy_at_hand()
    if policy is None or policy.evaluate == Limits():
        return config
    values = tightened(config.evaluate.model_dump(), line(policy.evaluate))
    evaluate = type(config.evaluate).parse(values, "evaluate, within the trust policy's limits")
    return config.model_copy(update={"evaluate": evaluate})


def refuse_uncounted(store: str) -> None:
    """Refuse a cluster run without a store that counts judged models, if this machine's trust policy requires the
    count, because the gate would always hold. A run on one machine always has a store."""
    policy = policy_at_hand()
    if policy and policy.evaluate.counted and not store.startswith("s3://"):
        raise ConfigError(
            "register.store: the trust policy requires that judged models are counted (evaluate.counted), which a "
            "cluster does in a store in S3. Name one: --set register.store=s3://bucket/prefix."
        )


def _parse_run(values: dict[str, Any], where: str) -> RunConfig:
    values = with_training(training_settings(values), values)
    convert = values.get("convert")
    if named := [name for name in FOLD_SETTINGS if isinstance(convert, dict) and convert.get(name)]:
        raise ConfigError(
            f"{where}: convert.{named[0]} is set, and only `qinglan run` itself may set it. Delete it, and write "
            "`cross_fit: 5` beside `convert`: a sheet too small for a locked test is then tested in five folds."
        )
    _refuse_two_services(values, where)
    return RunConfig.parse(values, where)


def _refuse_two_services(values: dict[str, Any], where: str) -> None:
    """Refuse the address of a RAG service beside `stand_ins.rag`, which would silently be used instead."""
    gateway, stand_ins = values.get("gateway"), values.get("stand_ins")
    rag = gateway.get("rag") if isinstance(gateway, dict) else None
    address = rag.get("base_url") if isinstance(rag, dict) else None
    if address and isinstance(stand_ins, dict) and stand_ins.get("rag"):
        raise ConfigError(
            f"{where}: gateway.rag.base_url names a RAG service, and `stand_ins: {{rag: true}}` starts this "
            "project's in its place. Write `stand_ins: {rag: false}` to use yours, or delete gateway.rag.base_url."
        )


def with_own_files(values: dict[str, Any], profile: Path) -> dict[str, Any]:
    """Resolve the data paths in the values against the profile's folder, not against the working directory."""
    named = {name: values[name] for name in ("questions", "knowledge_base") if isinstance(values.get(name), str)}
    for name, value in named.items():
        path = profile.parent / value
        plain = Path(os.path.normpath(path))  # without `..`, unless a link on the way makes that another file
        named[name] = str(plain if plain.resolve() == path.resolve() else path)
    return values | named


def load_style_config(profile: str, **options: Any) -> StyleRunConfig:
    """Load a style profile, with the command line's options over its settings. The mapping file of labels is read
    here, so that a cluster needs no file."""
    from qinglan.style.labels import read_labels

    path = Path(profile) if profile.endswith(".yaml") else STYLES / f"{profile}.yaml"
    if not path.is_file():
        profiles = ", ".join(sorted(path.stem for path in STYLES.glob("*.yaml")))
        raise ConfigError(
            f"--profile {profile}: no such profile. There are: {profiles}, or a path that ends in .yaml."
        )

    def parse(values: dict[str, Any], where: str) -> StyleRunConfig:
        if labels := values.get("labels"):
            mapping = [label.model_dump() for label in read_labels(Path(labels)).labels]
            values = merge_settings(values, {"prepare": {"labels": mapping}})
        return StyleRunConfig.parse(values, where)

    options = {name: value for name, value in options.items() if value is not None}
    inputs = {name: options.pop(name) for name in STYLE.inputs if name in options}
    config = _parse(parse, merge_settings(load_yaml(path), inputs), options, path)
    return within_limits(config, lambda limits: limits.style)


def with_training(training: dict[str, Any], profile: dict[str, Any]) -> dict[str, Any]:
    """Lay a profile's settings over those of its training file.

    The file's `deploy` counts only if the profile has a `deploy` without a runtime: it starts no rollout by itself,
    and is not mixed with another runtime's settings.
    """
    deploy = profile.get("deploy")
    if not deploy or "runtime" in deploy:
        training = {name: value for name, value in training.items() if name != "deploy"}
    return merge_settings(training, profile)


def training_settings(values: dict[str, Any]) -> dict[str, Any]:
    """Load the settings in the file that a profile names under `training`."""
    name = values.get("training", RunConfig.model_fields["training"].default)
    path = TRAINING / f"{name}.yaml"
    if not path.is_file():
        profiles = ", ".join(sorted(path.stem for path in TRAINING.glob("*.yaml")))
        raise ConfigError(f"training: no {name!r} in pipelines/configs/training. There are: {profiles}.")
    return load_yaml(path)


def dump_config(config: Config, path: Path) -> None:
    """Write the resolved configuration, including every default."""
    import yaml

    from qinglan.files.files import PRIVATE, atomic_write

    with atomic_write(path, mode=PRIVATE) as partial:
        text = yaml.safe_dump(config.model_dump(mode="json", by_alias=True), allow_unicode=True, sort_keys=False)
        partial.write_text(text, encoding="utf-8")
