"""Limit how long actor and vLLM wait for each other during the transfer of weights, and put their socket into the
training's temporary folder.

verl waits without a limit (workers/rollout/vllm_rollout/bucketed_weight_transfer.py): if vLLM dies during an update,
the actor waits for ever. verl's socket is in /tmp, and its name has the id of Ray's job, which is 1 in each new Ray.
The sender first removes a file of that name. So two trainings on one machine would use the same socket.
"""

import functools
import tempfile
from collections.abc import Callable
from types import ModuleType
from typing import Any

from components.training.ppo.plugin.import_hooks import when_imported
from qinglan.errors import TrainingError

SECONDS = 600.0
"""Seconds to wait for an answer. A part of 2 GB takes seconds; the first part waits until all ranks have merged."""

VERL_FOLDER = "ipc:///tmp/"


@when_imported("verl.workers.rollout.vllm_rollout.bucketed_weight_transfer")
def limit_waiting(module: ModuleType) -> None:
    import zmq

    for side in (module.BucketedWeightSender, module.BucketedWeightReceiver):
        side._init_socket = _with_limit(side._init_socket)
    sender, receiver = module.BucketedWeightSender, module.BucketedWeightReceiver
    send, receive = sender.async_send_weights, receiver.receive_weights

    async def async_send_weights(self: Any, weights: Any) -> None:
        try:
            await send(self, weights)
        except zmq.Again as error:
            raise TrainingError(_message("vLLM did not take the new weights")) from error

    def receive_weights(self: Any, on_bucket_received: Callable[..., None]) -> None:
        try:
            receive(self, on_bucket_received)
        except zmq.Again as error:
            raise TrainingError(_message("the actor did not send vLLM the new weights")) from error

    sender.async_send_weights, receiver.receive_weights = async_send_weights, receive_weights


def _message(what: str) -> str:
    return f"{what} within {SECONDS:g} seconds: one of the two died or hangs; the log before this line says why."


def _with_limit(init_socket: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(init_socket)
    def limited(self: Any) -> None:
        import zmq

        init_socket(self)
        for option in (zmq.RCVTIMEO, zmq.SNDTIMEO):
            self.socket.setsockopt(option, int(SECONDS * 1000))
        # The process must be able to end with an unsent message: http://api.zeromq.org/master:zmq-setsockopt
        self.socket.setsockopt(zmq.LINGER, 0)

    return limited


@when_imported("verl.workers.rollout.vllm_rollout.vllm_rollout")
def sender_socket(module: ModuleType) -> None:
    begin = module.ServerAdapter.__init__

    @functools.wraps(begin)
    def init(self: Any, *args: Any, **named: Any) -> None:
        begin(self, *args, **named)
        self.zmq_handle = in_temporary_folder(self.zmq_handle)

    module.ServerAdapter.__init__ = init


@when_imported("verl.workers.rollout.vllm_rollout.utils")
def receiver_socket(module: ModuleType) -> None:
    handle = module.vLLMColocateWorkerExtension._get_zmq_handle
    module.vLLMColocateWorkerExtension._get_zmq_handle = lambda self: in_temporary_folder(handle(self))


def in_temporary_folder(socket: str) -> str:
    """Return the socket's address in this training's temporary folder (TMPDIR), which is removed at the end."""
    return f"ipc://{tempfile.gettempdir()}/{socket.removeprefix(VERL_FOLDER)}"
