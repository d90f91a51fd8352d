"""Memory for the engine's flat arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LINE_WORDS = 8  # of a processor's cache: 64 bytes


def zeros(words: int) -> NDArray[np.int64]:
    """Return an int64 array of zeros that begins at a cache line, so that records of whole lines touch no other."""
    room = np.zeros(words + LINE_WORDS, dtype=np.int64)
    first = -(room.ctypes.data // room.itemsize) % LINE_WORDS
    return room[first : first + words]
