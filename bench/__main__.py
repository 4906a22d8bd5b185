"""``python -m bench``: run the benchmarks, then write the README's table and the chart."""

import sys

from bench.report import main

sys.exit(main())
