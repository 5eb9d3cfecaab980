r"""The style model: in which of a few manners an answer is given.

from qinglan.style.model import StyleModel
StyleModel.load(Path("runs/style/files/style_model")).predict(["用户问题：…\n回答：…"])
"""
