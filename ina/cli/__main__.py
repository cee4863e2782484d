"""`python -m ina.cli`: the command line, where it is not on PATH."""

import sys

from ina.cli import main

sys.exit(main())
