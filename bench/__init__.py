"""Benchmarks: every op on real shapes, beside its peers and this machine's copy bandwidth."""
