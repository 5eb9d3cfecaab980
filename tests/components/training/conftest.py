"""What every training's tests stand on."""

import sys

import pytest


@pytest.fixture(autouse=True)
def stock_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers as it comes: a test that imports ms-swift leaves its patches to all that follow in the process.

    Stages have processes of their own, so that none of them meets another's patches. Where nobody has imported the
    trainer, nobody has patched it, and a test that needs none waits for no import.
    """
    if "transformers.trainer" not in sys.modules:
        return
    from transformers import trainer, trainer_callback

    monkeypatch.setattr(trainer, "DEFAULT_PROGRESS_CALLBACK", trainer_callback.ProgressCallback)
    monkeypatch.setattr(trainer, "DEFAULT_CALLBACKS", [trainer_callback.DefaultFlowCallback])
    monkeypatch.setattr(trainer, "PrinterCallback", trainer_callback.PrinterCallback)
