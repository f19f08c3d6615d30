"""Kernels in C for what torch does in many small pieces, built where there is a compiler."""
