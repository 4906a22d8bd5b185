"""``python -m bench``: run the benchmarks, then write the README's tables and the charts."""

import sys

from bench.report import main

sys.exit(main())
