"""Loops over flat arrays that numba compiles.

Some kernels are over 30 lines, for two reasons. numba takes arrays and no objects, so that signature and docstring are
half of many. And in one loop all parts read and write the same counters and arrays, which a split would pass back and
forth in a tuple.
"""
