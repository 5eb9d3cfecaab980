"""Copy a loaded model's weights from its memory-mapped files into this process's own memory.

    model = copy_to_memory(AutoModel.from_pretrained(folder))

safetensors maps float32 files into memory (mmap), and torch uses the mapping as weights. So a later write to the file
would change the served model, and cutting the file would end the process with SIGBUS.
https://huggingface.co/docs/safetensors/index, https://man7.org/linux/man-pages/man2/mmap.2.html
"""

from itertools import chain
from typing import Any, TypeVar

Model = TypeVar("Model", bound=Any)


def copy_to_memory(model: Model) -> Model:
    """Copy each parameter and buffer that is on the CPU into memory of this process, and return the same model.

    The tensors are copied one by one. The peak of memory is the model and one tensor, because the pages of a mapped
    file belong to the kernel's cache. Tied weights stay tied, since they are one parameter.
    """
    for tensor in chain(model.parameters(), model.buffers()):
        if tensor.device.type == "cpu":
            tensor.data = tensor.data.clone()
    return model
