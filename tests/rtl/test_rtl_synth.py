"""Does synthesis use the library that is asked for?"""

from pathlib import Path

import pytest

from heddle.cost.synth import library
from heddle.errors import UserError


def test_a_library_that_is_not_there_is_named() -> None:
    with pytest.raises(UserError, match=r"no Liberty file 'nowhere\.lib'"):
        library(Path("nowhere.lib"))
