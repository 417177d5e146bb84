"""Names of array types that several rooms use."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
"""Logits, hidden rows, costs: in single precision."""
Hidden = npt.NDArray[np.float32]
"""Hidden rows of a model, [n, width]."""
Ints = npt.NDArray[np.int32]
"""Ids and counts, as llama.cpp has them."""
