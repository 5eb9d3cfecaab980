"""Images in which stages run: this repository in a locked environment, one folder of images/ for each image.

A release is compiled with digests instead of tags (`qinglan compile --image`), since KFP's cache does not notice
that a tag points to another image.
"""

CPU_IMAGE = "qinglan/cpu:0.1.0"
"""Image for data stages, gates and releases. It has no torch."""

SFT_IMAGE = "qinglan/sft:0.1.0"
"""Image with ms-swift and DeepSpeed. The rewriter's base model is also made with it."""

PPO_IMAGE = "qinglan/ppo:0.1.0"
"""Image with verl and vLLM, which cannot be installed together with ms-swift."""

SERVE_IMAGE = "qinglan/serve:0.1.0"
"""Image with vLLM and KServe. It evaluates the rewriter's students with the software that serves them."""

STYLE_IMAGE = "qinglan/style:0.1.0"
"""Image with transformers and TRL, for the style model's stages."""
