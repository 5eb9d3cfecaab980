"""Distil the style model into a smaller one, on labelled and unlabelled texts, and quantise it to int8.

The student begins as the teacher with fewer layers. A table at the end compares teacher, student and its int8 form.
"""

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from components.training.style.config import DistilConfig
from components.training.style.dataset import StyleDataset, one_hot
from components.training.style.export import export_int8
from components.training.style.stage import files_digests, save_calibrated, write_log
from components.training.style.trainer import Loss, Watch, fit
from qinglan.errors import ConfigError, DataError, TrainingError
from qinglan.files.digests import digest
from qinglan.files.files import atomic_folder, atomic_write, read_jsonl
from qinglan.files.scratch import scratch_folder, source_digest
from qinglan.jobs.gpus import need_gpus
from qinglan.models.safetensors_header import count_parameters
from qinglan.style.labels import Labels
from qinglan.style.model import ONNX_FILE, StyleCard, StyleModel
from qinglan.style.predict import encode
from qinglan.style.rows import UNLABELLED_FILE, StyleRow, UnlabelledText, read_split, refuse_folds

TITLE = "Distillation: loss and macro-F1 by step"
FLOAT_BYTES, LARGEST_GRAPH = 4, 2 * 2**30
"""Bytes of a float, and protobuf's limit in bytes for a message; a whole ONNX graph is one message."""

TIMED = 200
"""Number of texts that are timed, one after another."""


class DistilCounts(NamedTuple):
    texts: int
    layers: int
    teacher_parameters: int
    parameters: int
    teacher_f1: float
    """Macro-F1 on the locked test, as in the next two fields."""

    f1: float
    int8_f1: float
    int8_difference: float
    """Largest difference of a probability between int8 and float, on dev."""


FIGURES = {
    "texts": "texts",
    "layers": "layers of the small model",
    "teacher_parameters": "parameters of the teacher",
    "parameters": "parameters of the small model",
    "teacher_f1": "macro F1 of the teacher, %",
    "f1": "macro F1 of the small model, %",
    "int8_f1": "macro F1 of its int8 form, %",
    "int8_difference": "largest change of a probability by int8, points",
}
"""Names of the figures on KFP's page, by field."""


class ModelRow(NamedTuple):
    """A model's line in the comparison table."""

    name: str
    parameters: int
    megabytes: float
    texts_per_second: float
    """Texts per second, one text at a time in one thread."""

    accuracy: float
    macro_f1: float


def distil(
    teacher: Path, rows: Path, student: Path, table: Path, log: Path, config: DistilConfig, gateway_url: str = ""
) -> DistilCounts:
    """Distil the teacher; write the student's folder with its ONNX form, the table as JSON, and the log.

    `gateway_url`: address of the gateway that shows the training while it runs, or "".
    """
    refuse_folds(rows)
    if config.device == "cuda":
        need_gpus("distil", 1)
    parents = {"teacher": digest(teacher), **files_digests(rows)}
    known = StyleModel.load(teacher)
    check_teacher_rows(known, parents)
    code = source_digest(Path(__file__).parent)
    work = scratch_folder("distil", *parents.values(), config.model_dump_json(exclude={"trackers"}), code)
    train, labels = read_split(rows, "train")
    dev, _ = read_split(rows, "dev")
    texts = [row.input for row in train]
    if (unlabelled := rows / UNLABELLED_FILE).is_file():
        texts += [row.text for _, row in read_jsonl(unlabelled, UnlabelledText)]
    model = fewer_layers(known, config.layers)
    check_exportable(model.num_parameters())
    examples = _examples(known, texts, train, labels, config)
    dev_rows = StyleDataset(known.encode([row.input for row in dev]), _hard(dev, labels))
    fitted, metrics = fit(
        "distil",
        model,
        model.config.pad_token_id,
        examples,
        dev_rows,
        distillation_loss(config),
        config,
        work / "checkpoints",
        Watch(TITLE, work / "log", config.trackers, gateway_url, labels.names),
    )
    with atomic_folder(student) as folder:
        card = StyleCard(stage="distil", max_length=known.card.max_length, parents=parents)
        save_calibrated(fitted, known.tokenizer, labels, dev, folder, card)
        export_int8(folder, folder / ONNX_FILE)
        difference = check_int8_difference(folder, [row.input for row in dev], config.bound)
    with atomic_folder(log) as folder:
        if (work / "log").is_dir():  # what trackers wrote
            shutil.copytree(work / "log", folder, dirs_exist_ok=True)
        write_log(folder, TITLE, metrics)
    lines = compare(teacher, student, rows)
    with atomic_write(table) as partial:
        partial.write_bytes(orjson.dumps([line._asdict() for line in lines], option=orjson.OPT_INDENT_2))
    big, small, int8 = lines
    return DistilCounts(
        texts=len(texts),
        layers=model.config.num_hidden_layers,
        teacher_parameters=big.parameters,
        parameters=small.parameters,
        teacher_f1=big.macro_f1,
        f1=small.macro_f1,
        int8_f1=int8.macro_f1,
        int8_difference=difference,
    )


def check_teacher_rows(teacher: StyleModel, parents: Mapping[str, str]) -> None:
    """Raise a DataError if the teacher learned from other rows or labels. Its comparison would then be unfair."""
    for name in ("train", "dev", "labels"):
        if teacher.card.parents.get(name) != parents[name]:
            raise DataError(
                f"style_model: it learned from other {name} than those beside it. Run the stages from prepare on."
            )


def _hard(rows: Sequence[StyleRow], labels: Labels) -> NDArray[np.float64]:
    return one_hot([labels.ids[row.label] for row in rows], len(labels.labels), 0.0)


def fewer_layers(teacher: StyleModel, count: int | None) -> Any:
    """Return a copy of the teacher with `count` of its layers, evenly chosen and always with the last one. None keeps
    half of the layers."""
    import copy

    import torch

    from qinglan.style.engines import TorchEngine

    assert isinstance(teacher.logits, TorchEngine)
    model = copy.deepcopy(teacher.logits.model)
    parent, name = _layer_stack(model)
    layers = getattr(parent, name)
    # ModernBERT's first layer has other weights than the rest, so it must stay first.
    special = len(layers) > 1 and set(layers[0].state_dict()) != set(layers[1].state_dict())
    numbers = kept_layers(len(layers), count or max(1, len(layers) // 2), first=special)
    stack = torch.nn.ModuleList(layers[at] for at in numbers)
    for position, layer in enumerate(stack):
        parts: list[Any] = [part for part in layer.modules() if hasattr(part, "layer_idx")]
        for part in parts:
            part.layer_idx = position  # attention finds its part of the key-value cache by it (transformers)
    setattr(parent, name, stack)
    _cut_settings(model.config, numbers)
    return model.float()


def _cut_settings(settings: Any, numbers: Sequence[int]) -> None:
    """Keep the settings of these layers; raise an error if transformers would not open the model again."""
    settings.num_hidden_layers = len(numbers)
    types = getattr(settings, "layer_types", None)
    if not types:
        return
    # transformers opens a model with rotary settings per kind of layer only if each kind has a layer.
    settings.layer_types = [types[at] for at in numbers]
    by_kind = set(types) <= set(getattr(settings, "rope_parameters", None) or {})
    if by_kind and (lost := set(types) - set(settings.layer_types)):
        raise ConfigError(
            f"distil.layers: none of the {len(numbers)} layers kept has {min(lost)}, and a {settings.model_type} "
            "model needs every kind. Keep another number of layers."
        )


def check_exportable(parameters: int) -> None:
    """Raise a ConfigError, before training, if the student is too large for an ONNX file as float32. The graph is
    exported as float32 before it becomes int8."""
    if parameters * FLOAT_BYTES >= LARGEST_GRAPH:
        raise ConfigError(
            f"distil.layers: the student has {parameters:,} parameters, {parameters * FLOAT_BYTES / 2**30:.1f} GiB "
            f"as a float graph, and an ONNX file holds {LARGEST_GRAPH / 2**30:.0f}. Keep fewer layers."
        )


def _layer_stack(model: Any) -> tuple[Any, str]:
    """Return the module that holds the model's layers, and the name of its list of layers. Both differ between
    decoders and encoders."""
    import torch

    stacks = [
        (parent, name)
        for parent in model.base_model.modules()
        for name, part in parent.named_children()
        if isinstance(part, torch.nn.ModuleList) and len(part) == model.config.num_hidden_layers
    ]
    if len(stacks) != 1:
        raise TrainingError(
            f"{type(model).__name__} has {len(stacks)} stacks of layers; distil cuts a model that has one."
        )
    return stacks[0]


def kept_layers(layers: int, count: int, first: bool = False) -> list[int]:
    """Return the numbers of the layers to keep, counted from 0: evenly spaced, always with the last one, and with the
    first one if `first` is set."""
    count = min(count, layers)
    if first:
        return [0, *(1 + at for at in kept_layers(layers - 1, count - 1))]
    # The last layer of each of `count` equal parts.
    return [round((at + 1) * layers / count) - 1 for at in range(count)]


def _examples(
    teacher: StyleModel, texts: Sequence[str], train: Sequence[StyleRow], labels: Labels, config: DistilConfig
) -> StyleDataset:
    """Return examples whose targets hold the teacher's probabilities, followed by the data's label as one-hot (zeros
    for an unlabelled text)."""
    ids = encode(teacher.tokenizer, texts, teacher.card.max_length)
    probabilities = teacher.probabilities_of(ids, config.eval_batch)
    hard_targets = np.zeros_like(probabilities)
    hard_targets[: len(train)] = _hard(train, labels)
    return StyleDataset(ids, np.concatenate([probabilities, hard_targets], axis=1))


def distillation_loss(config: DistilConfig) -> Loss:
    """Return the loss against the teacher's probabilities, at a temperature T, and against the data's labels. On dev
    it is the cross-entropy with the labels."""

    def loss(logits: Any, targets: Any) -> Any:
        import torch

        surprise = -torch.log_softmax(logits.float(), dim=-1)
        count = logits.shape[-1]
        if targets.shape[-1] == count:
            return (surprise * targets).sum(-1).mean()
        teacher, hard = targets[:, :count], targets[:, count:]
        soft = torch.softmax(torch.log(teacher.clamp_min(1e-9)) / config.temperature, dim=-1)
        close = -torch.log_softmax(logits.float() / config.temperature, dim=-1) * soft
        # Gradients of the soft targets shrink with 1 / T^2 (Hinton, Vinyals and Dean 2015, section 2).
        taught = close.sum(-1) * config.temperature**2
        share = config.labelled * hard.sum(-1)
        return ((1 - share) * taught + share * (surprise * hard).sum(-1)).mean()

    return loss


def check_int8_difference(folder: Path, texts: Sequence[str], bound: float) -> float:
    """Return the largest difference between probabilities of the int8 and the float model. Raises a TrainingError if
    it is above the bound."""
    float32, int8 = (StyleModel.load(folder, engine).probabilities(texts) for engine in ("torch", "onnx"))
    difference = float(np.abs(float32 - int8).max())
    if difference > bound:
        raise TrainingError(
            f"The int8 model's probabilities differ by up to {difference:.3f} from the float model's, and {bound:g} "
            "is allowed (distil.bound). Serve the float model, or widen the bound knowingly."
        )
    return difference


def compare(teacher: Path, student: Path, rows: Path) -> tuple[ModelRow, ModelRow, ModelRow]:
    """Measure teacher, student and its int8 form on the locked test, after everything is chosen."""
    test, labels = read_split(rows, "test")
    return (
        _line("teacher", teacher, StyleModel.load(teacher), test, labels),
        _line("student", student, StyleModel.load(student), test, labels),
        _line("student, int8", student, StyleModel.load(student, "onnx"), test, labels),
    )


def _line(name: str, folder: Path, model: StyleModel, test: Sequence[StyleRow], labels: Labels) -> ModelRow:
    from sklearn.metrics import f1_score

    files = [folder / ONNX_FILE] if name.endswith("int8") else list(folder.glob("*.safetensors"))
    texts = [row.input for row in test]
    true = [labels.ids[row.label] for row in test]
    best = model.probabilities(texts).argmax(-1)
    started = time.perf_counter()
    for text in texts[:TIMED]:
        model.probabilities([text])
    seconds = time.perf_counter() - started
    return ModelRow(
        name,
        count_parameters(folder),
        megabytes=round(sum(file.stat().st_size for file in files) / 2**20, 2),
        texts_per_second=round(min(TIMED, len(texts)) / seconds, 1),
        accuracy=float((best == np.array(true)).mean()),
        macro_f1=float(f1_score(true, best, average="macro")),
    )


def to_markdown(table: Path) -> str:
    head = "| | parameters | MB | texts a second, one by one | accuracy | macro-F1 |\n|---|---|---|---|---|---|\n"
    return head + "".join(
        f"| {entry['name']} | {entry['parameters']:,} | {entry['megabytes']:.2f} | {entry['texts_per_second']:,.0f} "
        f"| {entry['accuracy']:.3f} | {entry['macro_f1']:.3f} |\n"
        for entry in orjson.loads(table.read_bytes())
    )
