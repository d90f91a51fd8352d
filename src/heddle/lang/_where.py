"""Finds the user's line: the nearest caller that is not part of `heddle.lang`."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from heddle.errors import SourceLocation

_SKIPPED = (str(Path(__file__).parent), contextlib.__file__)


def caller() -> SourceLocation:
    """Return the line of the nearest frame outside this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_SKIPPED):
        frame = frame.f_back
    return SourceLocation(frame.f_code.co_filename, frame.f_lineno)
