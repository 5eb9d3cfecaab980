"""The images that stages run in: this repository in a locked environment, one folder of images/ each.

A release compiles with digests instead (`qinglan compile --image`): KFP's cache takes a tag at its word.
"""

CPU_IMAGE = "qinglan/cpu:0.1.0"
"""The image that moves data, judges and releases; it holds no torch."""

SFT_IMAGE = "qinglan/sft:0.1.0"
"""ms-swift and DeepSpeed; the rewriter's base is made with it."""

PPO_IMAGE = "qinglan/ppo:0.1.0"
"""verl and vLLM, which cannot live with ms-swift."""

SERVE_IMAGE = "qinglan/serve:0.1.0"
"""vLLM and KServe: the rewriter's students are evaluated by what serves them on GPUs."""

STYLE_IMAGE = "qinglan/style:0.1.0"
"""transformers and TRL: the style model's stages."""
