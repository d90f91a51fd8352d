"""`python -m heddle` is the command `heddle`."""

import sys

from heddle.cli import main

sys.exit(main())
