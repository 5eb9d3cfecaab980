"""Load the critic with the attention implementation that its settings name.

verl's loader always requests FlashAttention 2, which needs the flash-attn package (utils/model.py,
load_valuehead_model).
"""

from typing import Any

from components.training.ppo.plugin.import_hooks import when_imported


@when_imported("verl.utils.model")
def load_with_configured_attention(module: Any) -> None:
    def load_valuehead_model(local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
        from transformers import AutoModelForTokenClassification

        return AutoModelForTokenClassification.from_pretrained(
            local_path, dtype=torch_dtype, config=model_config, trust_remote_code=trust_remote_code,
            attn_implementation=model_config._attn_implementation,
        )  # fmt: skip

    module.load_valuehead_model = load_valuehead_model
