"""``python -m cnorm``: the configuration, a self-test of every op on this machine, and its speed."""

from __future__ import annotations

import argparse
import sys

from cnorm import (
    _selftest,
    _selftest_backward,
    _selftest_spectral,
    _selftest_vectors,
    _speedtest,
    _speedtest_backward,
    _speedtest_spectral,
    _speedtest_vectors,
    show_config,
)


def main() -> int:
    """Return the exit status: 1 if the self-test failed."""
    parser = argparse.ArgumentParser(prog="python -m cnorm", description=__doc__)
    parser.add_argument("--no-timing", action="store_true", help="leave out the speed")
    arguments = parser.parse_args()

    show_config()
    print()
    passed = _selftest.run()
    print()
    passed &= _selftest_backward.run()
    print()
    passed &= _selftest_spectral.run()
    print()
    passed &= _selftest_vectors.run()
    if not arguments.no_timing:
        print()
        _speedtest.run()
        _speedtest_backward.run()
        _speedtest_spectral.run()
        _speedtest_vectors.run()
    if not passed:
        print("\nThe self-test failed.")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
