"""Saboteurs: kernels and adapters with one promise removed, which the obligations must catch.

An obligation that stays green while its promise is removed proves nothing. `check_probe` shows
that a probe's obligations bite; `python -m turnstop.testing.saboteurs` prints the matrix.
"""

from . import adapters as adapters
from . import kernels as kernels
from ._matrix import Cell, Matrix, Toothless, check_probe, play_matrix
from ._saboteur import SABOTEURS, Saboteur

__all__ = ["SABOTEURS", "Cell", "Matrix", "Saboteur", "Toothless", "check_probe", "play_matrix"]
