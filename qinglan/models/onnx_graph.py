"""The check of an ONNX file: one graph of known operators, with all weights inside.

    why = graph_fault(path.read_bytes())    # "" for a graph that reads nothing but itself and comes to an end

A graph can name files for its weights and operators of a library to load, and loop for ever. So its operators are
those of our own export (components/training/style/export.py) and of common encoders, none of which holds a graph of
its own (Loop, If, Scan), and those that make a tensor of a given size take no large number. The file is parsed here
as protobuf's wire format, without the onnx package, which neither an auditor nor an initialiser has. Field numbers
are onnx.proto's: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
"""

from collections.abc import Iterator, Mapping

STANDARD = ("", "ai.onnx")
"""Domains of operators that every runtime has itself."""

OPERATORS = frozenset({
    # Qwen, Llama, Mistral, Gemma, BERT, RoBERTa, XLM-R, ModernBERT, DistilBERT, ELECTRA, ALBERT and DeBERTa, exported
    "Abs", "Add", "And", "ArgMax", "Cast", "Ceil", "Clip", "Concat", "Cos", "CumSum", "Div", "Equal", "Expand",
    "Gather", "GatherElements", "GatherND", "Gelu", "Gemm", "Greater", "GreaterOrEqual", "IsNaN",
    "LayerNormalization", "Less", "LessOrEqual", "Log", "MatMul", "Max", "Mul", "Neg",
    "Not", "Pow", "Range", "Reciprocal", "ReduceMean", "Relu",
    "Reshape", "Shape", "Sigmoid", "Sign", "Sin", "Slice", "Softmax", "Split", "Sqrt", "Squeeze", "Sub", "Tanh",
    "Tile", "Transpose", "Unsqueeze", "Where",
    # The same, quantised to int8
    "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "QuantizeLinear",
    # Encoders that other exporters wrote, such as bge and MiniLM
    "Constant", "ConstantOfShape", "Erf", "Exp", "Identity", "Min", "Or", "ReduceMax", "ReduceSum",
    "RMSNormalization", "Trilu",
})  # fmt: skip
MAX_NODES = 100_000
"""Operators of a graph; an exported Qwen3-0.6B has some 5,000."""

SIZED, MAX_SIZE = frozenset({"ConstantOfShape", "Expand", "Range", "Tile"}), 1 << 20
"""Operators that make a tensor of a given size, and the largest number that a graph may give them itself."""

GRAPH, OPSETS, FUNCTIONS, TRAINING = 7, 8, 25, 20
"""Fields of a model."""

NODES, INITIALIZERS, SPARSE = 1, 5, 15
"""Fields of a graph."""

NODE_INPUTS, NODE_OUTPUTS, NODE_OPERATOR, NODE_ATTRIBUTES, NODE_DOMAIN = 1, 2, 4, 5, 7
ATTRIBUTE_INT, ATTRIBUTE_INTS, ATTRIBUTE_TENSORS, ATTRIBUTE_GRAPHS, ATTRIBUTE_SPARSE = (
    3,
    8,
    (5, 10),
    (6, 11),
    (22, 23),
)
SPARSE_TENSORS = (1, 2)
DATA_TYPE, INT64_DATA, TENSOR_NAME, RAW_DATA, EXTERNAL_DATA, DATA_LOCATION = 2, 7, 8, 9, 13, 14
"""Fields of a tensor; with the last two its bytes lie in another file."""

INT64, MAX_SHAPE_BYTES = 7, 8 * 64
"""The type of sizes, and bytes of a tensor that can be a shape: 64 numbers."""

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Kinds of fields in protobuf's wire format."""

Message = memoryview
Fields = Mapping[int, list[int | Message]]


def graph_fault(content: bytes) -> str:
    """Why these bytes are not one complete graph of standard operators; "" if they are."""
    try:
        model = _fields(memoryview(content))
        return next(_model_faults(model), "")
    except (ValueError, IndexError, RecursionError) as error:
        return f"no ONNX graph ({str(error)[:80]})"


def _model_faults(model: Fields) -> Iterator[str]:
    graphs = _messages(model, GRAPH)
    if len(graphs) != 1:
        yield f"no ONNX graph ({len(graphs)} graphs)"
    for number, name in ((FUNCTIONS, "functions"), (TRAINING, "training steps")):
        if number in model:
            yield f"its graph has {name} of its own, and a classifier needs none"
    for opset in _messages(model, OPSETS):
        for domain in _texts(_fields(opset), 1):
            yield from _domain_faults(domain)
    for graph in graphs:
        yield from _graph_faults(graph)


def _graph_faults(graph: Message) -> Iterator[str]:
    fields = _fields(graph)
    nodes = [_fields(node) for node in _messages(fields, NODES)]
    if len(nodes) > MAX_NODES:
        yield f"its graph has {len(nodes):,} operators; {MAX_NODES:,} are enough for any"
    for tensor in _messages(fields, INITIALIZERS):
        yield from _tensor_faults(tensor)
    for sparse in _messages(fields, SPARSE):
        yield from _sparse_faults(sparse)
    for node in nodes:
        yield from _node_faults(node)
    yield from _size_faults(nodes, _messages(fields, INITIALIZERS))


def _node_faults(node: Fields) -> Iterator[str]:
    for domain in _texts(node, NODE_DOMAIN):
        yield from _domain_faults(domain)
    for operator in _texts(node, NODE_OPERATOR) or [""]:
        if operator not in OPERATORS:
            yield f"its graph has the operator {operator[:40]!r}, which no supported model has"
    for attribute in map(_fields, _messages(node, NODE_ATTRIBUTES)):
        for tensor in _messages(attribute, *ATTRIBUTE_TENSORS):
            yield from _tensor_faults(tensor)
        for sparse in _messages(attribute, *ATTRIBUTE_SPARSE):
            yield from _sparse_faults(sparse)
        if _messages(attribute, *ATTRIBUTE_GRAPHS):
            yield "its graph has a graph of its own, and a classifier needs none"


def _size_faults(nodes: list[Fields], initializers: list[Message]) -> Iterator[str]:
    """Sizes that the graph gives itself. A size that it computes is not followed: a server runs its model once before
    it is ready."""
    tensors = {name: tensor for tensor in map(_fields, initializers) for name in _texts(tensor, TENSOR_NAME)}
    sizes = {name: _integers(tensor) for name, tensor in tensors.items()}
    for node in nodes:
        if _texts(node, NODE_OPERATOR) == ["Constant"]:
            sizes |= dict.fromkeys(_texts(node, NODE_OUTPUTS), _constant(node))
    for node in nodes:
        if SIZED.intersection(_texts(node, NODE_OPERATOR)):
            numbers = [number for name in _texts(node, NODE_INPUTS) for number in sizes.get(name, [])]
            if any(abs(number) > MAX_SIZE for number in numbers):
                yield f"its graph makes a tensor of {max(map(abs, numbers)):,} by itself"


def _constant(node: Fields) -> list[int]:
    numbers = []
    for attribute in map(_fields, _messages(node, NODE_ATTRIBUTES)):
        numbers += [_signed(value) for value in attribute.get(ATTRIBUTE_INT, []) if isinstance(value, int)]
        numbers += _varints(attribute.get(ATTRIBUTE_INTS, []))
        for tensor in _messages(attribute, *ATTRIBUTE_TENSORS):
            numbers += _integers(_fields(tensor))
    return numbers


def _integers(tensor: Fields) -> list[int]:
    """The numbers of a small tensor of int64, which sizes are."""
    if tensor.get(DATA_TYPE) != [INT64]:
        return []
    raw = b"".join(bytes(part) for part in _messages(tensor, RAW_DATA) if len(part) <= MAX_SHAPE_BYTES)
    words = [int.from_bytes(raw[at : at + 8], "little", signed=True) for at in range(0, len(raw) - 7, 8)]
    return words + _varints(tensor.get(INT64_DATA, []))


def _varints(values: list[int | Message]) -> list[int]:
    """Numbers of a repeated field: one by one, or packed."""
    numbers = []
    for value in values:
        if isinstance(value, int):
            numbers.append(_signed(value))
            continue
        at = 0
        while at < len(value):
            number, at = _varint(value, at)
            numbers.append(_signed(number))
    return numbers


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _sparse_faults(sparse: Message) -> Iterator[str]:
    for tensor in _messages(_fields(sparse), *SPARSE_TENSORS):
        yield from _tensor_faults(tensor)


def _tensor_faults(tensor: Message) -> Iterator[str]:
    fields = _fields(tensor)
    if EXTERNAL_DATA in fields or any(fields.get(DATA_LOCATION, [])):
        yield "its graph takes weights from another file"


def _domain_faults(name: str) -> Iterator[str]:
    if name not in STANDARD:
        yield f"its graph has operators of {name[:40]!r}, which are no standard ones"


def _texts(fields: Fields, number: int) -> list[str]:
    return [bytes(text).decode("utf-8", "replace") for text in _messages(fields, number)]


def _messages(fields: Fields, *numbers: int) -> list[Message]:
    values = [value for number in numbers for value in fields.get(number, [])]
    if not all(isinstance(value, memoryview) for value in values):
        raise ValueError(f"field {numbers[0]} is a number")
    return [value for value in values if isinstance(value, memoryview)]


def _fields(message: Message) -> Fields:
    """The fields of one message, by number; every byte belongs to one of them, or it is a ValueError."""
    fields: dict[int, list[int | Message]] = {}
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        value: int | Message
        if kind == VARINT:
            value, at = _varint(message, at)
        else:
            size, at = _varint(message, at) if kind == BYTES else (_fixed_size(kind), at)
            if at + size > len(message):
                raise ValueError(f"byte {at}: a field ends behind its message")
            value, at = message[at : at + size], at + size
        if not number:
            raise ValueError(f"byte {at}: field 0")
        fields.setdefault(number, []).append(value)
    return fields


def _fixed_size(kind: int) -> int:
    sizes = {FIXED64: 8, FIXED32: 4}
    if kind not in sizes:
        raise ValueError(f"a field of kind {kind}")
    return sizes[kind]


def _varint(message: Message, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, and the position behind it."""
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError(f"byte {at}: a number of more than 64 bits")
