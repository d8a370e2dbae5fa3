"""JoMA: a hidden layer and attention trained together (Tian et al., ICLR 2024)."""

from scansnap.papers.joma.system import JoMA as JoMA
