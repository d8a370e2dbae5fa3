"""Which tokens attention selects: max-margin token selection and next-token prediction."""

from scansnap.papers.selection.system import NextToken as NextToken
from scansnap.papers.selection.system import TokenSelection as TokenSelection
