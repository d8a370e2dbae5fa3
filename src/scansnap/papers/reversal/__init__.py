"""The reversal curse: a model that learns "A is B" does not learn "B is A" (Zhu et al., NeurIPS 2024)."""

from scansnap.papers.reversal.system import FactoredReversal as FactoredReversal
from scansnap.papers.reversal.system import Facts as Facts
from scansnap.papers.reversal.system import Reversal as Reversal
from scansnap.papers.reversal.system import answer_probability as answer_probability
