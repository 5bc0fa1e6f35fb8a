#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes src/gguf/lattice.c: the points of the lattices of IQ1_S to IQ3_S, as the package gguf has
them. Needs: pip install gguf numpy. Run: make_lattices.py > ../../src/gguf/lattice.c"""
from gguf import quants

LATTICES = [("iq1", "IQ1_S", 2), ("iq2_xxs", "IQ2_XXS", 2), ("iq2_xs", "IQ2_XS", 2),
            ("iq2_s", "IQ2_S", 2), ("iq3_xxs", "IQ3_XXS", 3), ("iq3_s", "IQ3_S", 3)]


def points(kind, bits):
    """A point's places in the list of magnitudes, the first in the lowest bits"""
    kind.init_grid()
    for point in kind.grid[0, 0]:
        yield sum(kind.grid_map.index(int(x)) << bits * i for i, x in enumerate(point))


def main():
    print("/* SPDX-License-Identifier: MIT */")
    print("/* lattice.c - made by tests/vectors/make_lattices.py. */")
    print('#include "lattice.h"\n')
    print("/* clang-format off */")
    for name, kind, bits in LATTICES:
        all_points = list(points(getattr(quants, kind), bits))
        print(f"const uint16_t cb_lattice_{name}[{len(all_points)}] = {{")
        for i in range(0, len(all_points), 12):
            print("    " + " ".join(f"{p}," for p in all_points[i:i + 12]))
        print("};")


main()
