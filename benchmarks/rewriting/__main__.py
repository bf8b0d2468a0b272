"""`python -m benchmarks.rewriting`."""

import sys

from benchmarks.rewriting.measuring import main

sys.exit(main())
