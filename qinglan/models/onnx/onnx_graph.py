"""Check that an ONNX file is one graph of known operators that holds all its weights.

    why = graph_fault(path.read_bytes())    # "" for a graph that reads no other file and whose work has a bound

A graph can name files for its weights and libraries for its operators, loop for ever, and take all memory. So only
the operators of our own export are allowed (components/training/style/export.py), without operators that hold a graph
(Loop, If, Scan), and sizes and work have a bound (onnx_work.py). The file is parsed without the onnx package, which
auditors and initialisers do not have. Field numbers: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto Wire
format: https://protobuf.dev/programming-guides/encoding/
"""

from collections.abc import Iterator, Mapping

from qinglan.models.onnx.onnx_work import INTEGERS, Node, Tensor, work_fault

STANDARD = ("", "ai.onnx")
"""Domains of the standard operators, which every runtime implements."""

MAX_NODES = 20_000
"""Largest number of operators of a graph; an exported Qwen3-0.6B has some 5,000."""

GRAPH, OPSETS, FUNCTIONS, TRAINING = 7, 8, 25, 20
"""Field numbers of a model in onnx.proto."""

NODES, INITIALIZERS, SPARSE = 1, 5, 15
"""Field numbers of a graph in onnx.proto."""

NODE_INPUTS, NODE_OUTPUTS, NODE_OPERATOR, NODE_ATTRIBUTES, NODE_DOMAIN = 1, 2, 4, 5, 7
ATTRIBUTE_NAME, ATTRIBUTE_INT, ATTRIBUTE_INTS = 1, 3, 8
SIMPLE_ATTRIBUTE = frozenset({ATTRIBUTE_NAME, ATTRIBUTE_INT, ATTRIBUTE_INTS, 2, 4, 13, 20})
"""Field numbers that an attribute may have. With these it is a number, a list of integers or a text, and so neither a
tensor nor a graph."""

DIMS, DATA_TYPE, TENSOR_NAME, RAW_DATA, EXTERNAL_DATA, DATA_LOCATION = 1, 2, 8, 9, 13, 14
"""Field numbers of a tensor in onnx.proto. The last two say that the tensor's bytes are in another file."""

INTEGER_DATA = {6: 5, 7: 7}
"""Field number under which a tensor holds integers that are not raw bytes, by the integers' type."""

MAX_SIZES = 64
"""Largest number of elements of a tensor that can be a shape or a list of axes."""

VARINT, BYTES = 0, 2
FIXED_SIZES = {1: 8, 5: 4}
"""Sizes in bytes of the protobuf wire types with a fixed size. VARINT and BYTES are the other wire types."""

Message = memoryview
Fields = Mapping[int, list[int | Message]]


def graph_fault(content: bytes) -> str:
    """Return why a file's bytes are not one complete graph of allowed operators; "" if they are."""
    try:
        return next(_faults(_fields(memoryview(content)), len(content)))
    except (ValueError, IndexError, KeyError, TypeError, ArithmeticError) as error:
        return f"no ONNX graph ({str(error)[:80]})"


def _faults(model: Fields, file_bytes: int) -> Iterator[str]:
    """Yield the faults of a model. Callers read only the first fault, because a check relies on the checks before."""
    graphs = _messages(model, GRAPH)
    if len(graphs) != 1:
        yield f"no ONNX graph ({len(graphs)} graphs)"
    for number, name in ((FUNCTIONS, "functions"), (TRAINING, "training steps")):
        if number in model:
            yield f"its graph has {name} of its own, and a classifier needs none"
    graph = _fields(graphs[0])
    nodes = [_fields(node) for node in _messages(graph, NODES)]
    opsets = [_fields(opset) for opset in _messages(model, OPSETS)]
    domains = [(opset, 1) for opset in opsets] + [(node, NODE_DOMAIN) for node in nodes]
    for domain in (domain for fields, number in domains for domain in _texts(fields, number)):
        if domain not in STANDARD:
            yield f"its graph has operators of {domain[:40]!r}, which are no standard ones"
    if len(nodes) > MAX_NODES:
        yield f"its graph has {len(nodes):,} operators; {MAX_NODES:,} are enough for any"
    if SPARSE in graph:
        yield "its graph has sparse weights, which no supported model has"
    tensors = [_fields(tensor) for tensor in _messages(graph, INITIALIZERS)]
    if any(EXTERNAL_DATA in tensor or any(tensor.get(DATA_LOCATION, [])) for tensor in tensors):
        yield "its graph takes weights from another file"
    for attribute in (_fields(part) for node in nodes for part in _messages(node, NODE_ATTRIBUTES)):
        if attribute.keys() - SIMPLE_ATTRIBUTE:
            yield "its graph has a tensor or a graph in an attribute, which no supported model has"
    constants = dict(map(_constant, tensors))
    if len(constants) < len(tensors):
        yield "its graph has two tensors of one name"
    yield work_fault([_node(node) for node in nodes], constants, file_bytes)


def _node(node: Fields) -> Node:
    attributes = {}
    for attribute in map(_fields, _messages(node, NODE_ATTRIBUTES)):
        (name,) = _texts(attribute, ATTRIBUTE_NAME)
        if name in attributes:
            raise ValueError(f"two attributes {name[:40]!r}")
        attributes[name] = _varints([*attribute.get(ATTRIBUTE_INT, []), *attribute.get(ATTRIBUTE_INTS, [])])
    (operator,) = _texts(node, NODE_OPERATOR)
    return Node(operator, _texts(node, NODE_INPUTS), _texts(node, NODE_OUTPUTS), attributes)


def _constant(tensor: Fields) -> tuple[str, Tensor]:
    """Return the name of a stored tensor, its shape and, if it holds only a few integers, these integers."""
    (name,) = _texts(tensor, TENSOR_NAME)
    (kind,) = tensor[DATA_TYPE]
    sizes = None
    if isinstance(kind, int) and kind in INTEGERS:
        width, raw = INTEGERS[kind], b"".join(_messages(tensor, RAW_DATA))
        if len(raw) <= MAX_SIZES * width:
            words = [raw[at : at + width] for at in range(0, len(raw), width)]
            numbers = [int.from_bytes(word, "little", signed=True) for word in words]
            sizes = (*numbers, *_varints(tensor.get(INTEGER_DATA[kind], [])))
    return name, Tensor(tuple(_varints(tensor.get(DIMS, []))), sizes)


def _varints(values: list[int | Message]) -> list[int]:
    """Decode the signed numbers of a repeated field, which are stored one by one or packed."""
    numbers = []
    for value in values:
        if isinstance(value, int):
            numbers.append(value)
            continue
        at = 0
        while at < len(value):
            number, at = _varint(value, at)
            numbers.append(number)
    # A negative int64 is written as its two's complement of 64 bits.
    return [number - (1 << 64) if number >> 63 else number for number in numbers]


def _texts(fields: Fields, number: int) -> list[str]:
    return [bytes(text).decode("utf-8", "replace") for text in _messages(fields, number)]


def _messages(fields: Fields, number: int) -> list[Message]:
    messages = [value for value in fields.get(number, []) if isinstance(value, memoryview)]
    if len(messages) < len(fields.get(number, [])):
        raise ValueError(f"field {number} is a number")
    return messages


def _fields(message: Message) -> Fields:
    """Return the fields of a protobuf message by number; raises a ValueError if a byte belongs to no field."""
    fields: dict[int, list[int | Message]] = {}
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        value: int | Message
        if kind == VARINT:
            value, at = _varint(message, at)
        elif kind == BYTES or kind in FIXED_SIZES:
            size, at = _varint(message, at) if kind == BYTES else (FIXED_SIZES[kind], at)
            if at + size > len(message):
                raise ValueError(f"byte {at}: a field ends behind its message")
            value, at = message[at : at + size], at + size
        else:
            raise ValueError(f"a field of kind {kind}")
        if not number:
            raise ValueError(f"byte {at}: field 0")
        fields.setdefault(number, []).append(value)
    return fields


def _varint(message: Message, at: int) -> tuple[int, int]:
    """Decode a number that is stored with seven bits per byte; return the number and the position after it."""
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError(f"byte {at}: a number of more than 64 bits")
