"""The plan's predict_style, and its POST /predict around a bare FastAPI app.

python -m benchmarks.style.plan FOLDER longest|max_length    prints its address; pads as it is told, the plan to 512
"""

import socket
import sys
from pathlib import Path
from typing import Any

MAX_LENGTH = 512
WIDEST = "max_length"
"""The plan's padding."""

LONGEST = "longest"
"""None for a single text."""


def predict_style(text: str, model: Any, tokenizer: Any, id_to_label: dict[str, str], padding: str = WIDEST) -> Any:
    """The plan's own, to the letter but for the choice of padding."""
    import torch

    inputs = tokenizer(text, return_tensors="pt", max_length=MAX_LENGTH, truncation=True, padding=padding)
    model.eval()
    with torch.no_grad():
        outputs = model(**{name: inputs[name] for name in ("input_ids", "attention_mask")})
        probabilities = torch.softmax(outputs.logits, dim=-1)
        predicted_class_id = int(torch.argmax(outputs.logits, dim=-1).item())
    return {
        "predicted_label": id_to_label[str(predicted_class_id)],
        "confidence": probabilities[0][predicted_class_id].item(),
        "probabilities": {id_to_label[str(i)]: prob.item() for i, prob in enumerate(probabilities[0])},
    }


def serve(folder: Path, padding: str) -> None:
    """The plan's service, with the text in a JSON body."""
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    from benchmarks.style.material import Opened

    class Request(BaseModel):
        text: str

    app, opened = FastAPI(), Opened.of(folder)

    async def predict(request: Request) -> Any:
        return predict_style(request.text, *opened, padding=padding)

    app.post("/predict")(predict)
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listener])


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2])
