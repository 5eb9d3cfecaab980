"""Compute the sizes and the work of an ONNX graph before it runs.

    why = work_fault(nodes, tensors, file_bytes)    # "" if time and memory for a question have a bound

The shape of every tensor follows from the length of the text, by a rule in RULES for each operator of our own export
(components/training/style/export.py). Other operators are refused. Sizes may come only from constants and from
shapes, never from the words of a text, and no arithmetic is done on sizes. So the shapes for a few lengths of text
also bound the shapes for all lengths between these. Operators: https://onnx.ai/onnx/operators/
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import NamedTuple

TEXTS = ("input_ids", "attention_mask")
"""Names of the graph's inputs. Each input is one row of tokens."""

LENGTHS = tuple(1 << power for power in range(10))
"""Lengths in tokens of the texts for which a graph is measured. A style model reads 512 tokens by default."""

MAX_NUMBERS = 1 << 27
"""Largest count of numbers that a graph may hold at once besides its weights, 0.5 GiB in float32. Qwen2.5-0.5B holds
12 million."""

MAX_WORK, WORK_PER_BYTE = 10**10, 2 * LENGTHS[-1]
"""Number of multiplications allowed to any graph, some 0.5 seconds on one core, and further multiplications allowed
per byte of its file, because an int8 weight is one byte and is multiplied once for each token."""

NUMBER_WORK = 10
"""Work of writing one number of a tensor, counted as multiplications."""

INTEGERS = {6: 4, 7: 8}
"""Width in bytes of the integer types that sizes can have, int32 and int64, by the type's number in onnx.proto."""

Shape = tuple[int, ...]


class Node(NamedTuple):
    """One operator of a graph, with the names of its input and output tensors."""

    operator: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    attributes: Mapping[str, Sequence[int]]


class Tensor(NamedTuple):
    """Shape of a tensor, and the tensor's numbers if they can be sizes of another tensor."""

    shape: Shape
    sizes: Shape | None = None


class Inputs:
    """Inputs of one node, which its rule reads by their positions."""

    def __init__(self, node: Node, tensors: Mapping[str, Tensor], constants: Mapping[str, Tensor]) -> None:
        self.node, self._tensors, self._constants = node, tensors, constants

    def __len__(self) -> int:
        return len(self.node.inputs)

    def tensor(self, at: int) -> Tensor:
        return self._tensors[self.node.inputs[at]]

    def shape(self, at: int = 0) -> Shape:
        return self.tensor(at).shape

    def rank(self) -> int:
        return len(self.shape())

    def sizes(self, at: int) -> Shape:
        """Return the numbers of an input; raises a ValueError if they do not follow from constants and shapes."""
        if (sizes := self.tensor(at).sizes) is None:
            raise ValueError(f"its graph takes a size of {self.node.operator} from the words of a text")
        return sizes

    def constant(self, at: int) -> Shape:
        """Return the numbers of an input; raises a ValueError if they are not constants of the file."""
        if self.node.inputs[at] not in self._constants:
            raise ValueError(f"its graph computes an axis, a start or a step of {self.node.operator}")
        return self.sizes(at)

    def attribute(self, name: str, default: int) -> int:
        return int(self.node.attributes.get(name, (default,))[-1])

    def axis(self, default: int = 0) -> int:
        return self.attribute("axis", default) % max(self.rank(), 1)


def work_fault(nodes: Sequence[Node], constants: Mapping[str, Tensor], file_bytes: int) -> str:
    """Return why a graph is refused; "" if it is accepted."""
    for operator in sorted({node.operator for node in nodes} - RULES.keys()):
        return f"its graph has the operator {operator[:40]!r}, which no supported model has"
    last_use = {name: at for at, node in enumerate(nodes) for name in node.inputs}
    try:
        for length in LENGTHS:
            numbers, work = _measure(nodes, constants, length, last_use)
            if numbers > MAX_NUMBERS:
                return f"its graph holds {numbers:,} numbers at once for a text of {length} tokens"
            if work > MAX_WORK + WORK_PER_BYTE * file_bytes:
                return f"its graph does {work:,} multiplications for a text of {length} tokens"
    except KeyError as error:
        return f"its graph reads {str(error)[:40]}, which nothing before it makes"
    except ValueError as error:
        return str(error)
    return ""


def _measure(
    nodes: Sequence[Node], constants: Mapping[str, Tensor], length: int, last_use: Mapping[str, int]
) -> tuple[int, int]:
    """Return the most numbers that are held at once, and the number of multiplications, for a text of this length."""
    tensors = {**constants, **dict.fromkeys(TEXTS, Tensor((1, length)))}
    held = most = work = 0
    for at, node in enumerate(nodes):
        inputs = Inputs(node, tensors, constants)
        outputs = RULES[node.operator](inputs)
        if len(node.outputs) > len(outputs) or tensors.keys() & set(node.outputs):
            raise ValueError(f"its graph gives {node.operator} other outputs than a supported model does")
        produced = dict(zip(node.outputs, outputs, strict=False))
        if any(size < 0 for tensor in outputs for size in tensor.shape):
            raise ValueError("its graph makes a tensor of a negative size")
        count = sum(prod(tensor.shape) for tensor in produced.values())
        held += count
        multiplied = inputs.shape()[-1] if node.operator in PRODUCTS else 0
        work += count * (NUMBER_WORK + multiplied)
        most = max(most, held)
        if most > MAX_NUMBERS:
            break  # a few nodes later a shape can have thousands of digits
        tensors |= produced
        ended = {name for name in (*node.inputs, *node.outputs) if last_use.get(name, at) == at}
        held -= sum(prod(tensors[name].shape) for name in ended if name not in constants and name not in TEXTS)
    return most, work


def broadcast(shapes: Iterable[Shape]) -> Shape:
    """Return the shape to which several shapes are broadcast. Of two sizes that do not fit, which a runtime refuses,
    the larger one is taken."""
    result: Shape = ()
    for shape in shapes:
        rank = max(len(shape), len(result))
        pairs = zip((1,) * (rank - len(shape)) + shape, (1,) * (rank - len(result)) + result, strict=True)
        result = tuple(max(pair) for pair in pairs)
    return result


def _same(inputs: Inputs) -> list[Tensor]:
    return [Tensor(inputs.shape())]


def _cast(inputs: Inputs) -> list[Tensor]:
    # Integers as fractions are other numbers, so only integer types keep them as sizes.
    whole = inputs.attribute("to", 0) in INTEGERS
    return [inputs.tensor(0) if whole else Tensor(inputs.shape())]


def _elementwise(inputs: Inputs) -> list[Tensor]:
    return [Tensor(broadcast(inputs.shape(at) for at in range(len(inputs))))]


def _product(inputs: Inputs) -> list[Tensor]:
    left, right = inputs.shape(0), inputs.shape(1)
    if min(len(left), len(right)) < 2:
        raise ValueError("its graph multiplies matrices that are none")
    return [Tensor((*broadcast([left[:-2], right[:-2]]), left[-2], right[-1]))]


def _gather(inputs: Inputs) -> list[Tensor]:
    axis, shape = inputs.axis(), inputs.shape()
    return [Tensor((*shape[:axis], *inputs.shape(1), *shape[axis + 1 :]))]


def _gather_nd(inputs: Inputs) -> list[Tensor]:
    if inputs.attribute("batch_dims", 0):
        raise ValueError("its graph gathers by batches, and no supported model does")
    indices = inputs.shape(1)
    return [Tensor((*indices[:-1], *inputs.shape()[indices[-1] :]))]


def _reduced(inputs: Inputs, axes: Iterable[int]) -> list[Tensor]:
    reduced, keep = {axis % inputs.rank() for axis in axes}, inputs.attribute("keepdims", 1)
    sizes = [1 if at in reduced else size for at, size in enumerate(inputs.shape())]
    return [Tensor(tuple(size for at, size in enumerate(sizes) if keep or at not in reduced))]


def _concat(inputs: Inputs) -> list[Tensor]:
    axis, parts = inputs.axis(), [inputs.tensor(at) for at in range(len(inputs))]
    total = sum(part.shape[axis] for part in parts)
    known = [part.sizes for part in parts if part.sizes is not None]
    sizes = sum(known, ()) if len(known) == len(parts) and inputs.rank() == 1 else None
    shape = broadcast(part.shape for part in parts)
    return [Tensor((*shape[:axis], total, *shape[axis + 1 :]), sizes)]


def _transpose(inputs: Inputs) -> list[Tensor]:
    order = inputs.node.attributes["perm"]
    if sorted(order) != list(range(inputs.rank())):
        raise ValueError("its graph orders axes that a tensor does not have")
    return [Tensor(tuple(inputs.shape()[at] for at in order))]


def _unsqueeze(inputs: Inputs) -> list[Tensor]:
    rank = inputs.rank() + len(axes := inputs.constant(1))
    new, rest = {axis % rank for axis in axes}, iter(inputs.shape())
    return [Tensor(tuple(1 if at in new else next(rest) for at in range(rank)), inputs.tensor(0).sizes)]


def _squeeze(inputs: Inputs) -> list[Tensor]:
    axes = {axis % inputs.rank() for axis in inputs.constant(1)} if len(inputs) > 1 else set(range(inputs.rank()))
    shape = inputs.shape()
    return [Tensor(tuple(n for at, n in enumerate(shape) if n != 1 or at not in axes), inputs.tensor(0).sizes)]


def _slice(inputs: Inputs) -> list[Tensor]:
    starts, ends = inputs.constant(1), inputs.sizes(2)
    axes = inputs.constant(3) if len(inputs) > 3 else tuple(range(len(starts)))
    steps = inputs.constant(4) if len(inputs) > 4 else (1,) * len(starts)
    shape = list(inputs.shape())
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        shape[axis] = len(range(shape[axis])[start:end:step])
    tensor = inputs.tensor(0)
    of_sizes = tensor.sizes is not None and len(tensor.shape) == 1
    sizes = tensor.sizes[starts[0] : ends[0] : steps[0]] if tensor.sizes is not None and of_sizes else None
    return [Tensor(tuple(shape), sizes)]


def _split(inputs: Inputs) -> list[Tensor]:
    axis, shape = inputs.axis(), inputs.shape()
    parts = len(inputs.node.outputs)
    size = -(-shape[axis] // parts) if len(inputs) == 1 else max(inputs.constant(1))
    return [Tensor((*shape[:axis], size, *shape[axis + 1 :]))] * parts


def _reshape(inputs: Inputs) -> list[Tensor]:
    shape, sizes = inputs.shape(), list(inputs.sizes(1))
    if not inputs.attribute("allowzero", 0):
        sizes = [size or shape[at] for at, size in enumerate(sizes)]
    if -1 in sizes:
        # The size that is left: https://onnx.ai/onnx/operators/onnx__Reshape.html
        at = sizes.index(-1)
        rest = prod(sizes[:at] + sizes[at + 1 :])
        sizes[at] = -(-prod(shape) // max(rest, 1))
    return [Tensor(tuple(sizes))]


def _range(inputs: Inputs) -> list[Tensor]:
    (start,), (end,), (step,) = inputs.constant(0), inputs.sizes(1), inputs.constant(2)
    return [Tensor((len(range(start, end, step)),))]


def _shape(inputs: Inputs) -> list[Tensor]:
    end = inputs.attribute("end", inputs.rank())
    sizes = inputs.shape()[inputs.attribute("start", 0) : end]
    return [Tensor((len(sizes),), sizes)]


Rule = Callable[[Inputs], list[Tensor]]
PRODUCTS: Mapping[str, Rule] = dict.fromkeys(("MatMul", "MatMulInteger"), _product)
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("Abs", "Cos", "CumSum", "DequantizeLinear", "Gelu", "IsNaN", "LayerNormalization"), _same),
    **dict.fromkeys(("Neg", "Not", "Reciprocal", "Sigmoid", "Sin", "Softmax", "Sqrt", "Tanh"), _same),
    **dict.fromkeys(("Add", "And", "Equal", "GreaterOrEqual", "LessOrEqual"), _elementwise),
    **dict.fromkeys(("Max", "Mul", "Pow", "Sub", "Where"), _elementwise),
    **PRODUCTS,
    "ArgMax": lambda inputs: _reduced(inputs, [inputs.axis()]),
    "Cast": _cast,
    "Concat": _concat,
    "DynamicQuantizeLinear": lambda inputs: [Tensor(inputs.shape()), Tensor(()), Tensor(())],
    "Expand": lambda inputs: [Tensor(broadcast([inputs.shape(), inputs.sizes(1)]))],
    "Gather": _gather,
    "GatherElements": lambda inputs: [Tensor(inputs.shape(1))],
    "GatherND": _gather_nd,
    "Range": _range,
    "ReduceMean": lambda inputs: _reduced(inputs, inputs.constant(1)),
    "Reshape": _reshape,
    "Shape": _shape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
"""Rule for each allowed operator, which computes the shapes of the operator's outputs. These operators occur in
exports of qwen2, qwen3, bert, roberta, xlm-roberta and modernbert."""
