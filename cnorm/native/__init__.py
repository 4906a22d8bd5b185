"""The compiled backend: one extension module that holds the C kernels."""
