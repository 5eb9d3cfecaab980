r"""The style model: a classifier of answers into a few styles.

from qinglan.style.model import StyleModel
StyleModel.load(Path("runs/style/files/style_model")).predict(["用户问题：…\n回答：…"])
"""
