"""What an audit finds of one thing."""

from typing import Literal, NamedTuple

State = Literal["verified", "attested", "missing", "altered", "untrusted"]
"""attested: its digest is signed for, its bytes are not at hand. untrusted: signed by no key that counts."""


class Finding(NamedTuple):
    what: str
    """A name that a person knows: `model/model.safetensors`, `statement of sft`."""

    state: State
    why: str
