#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes kivi_published.h: what KIVI's published program (github.com/jy-yuan/KIVI,
quant/new_pack.py) makes of keys and values, for each number of bits and each group. Its functions
in plain torch are called; those in Triton are not. Needs: a copy of that repository, pip install
torch numpy. Run: make_kivi.py KIVI > kivi_published.h"""
import importlib.util
import os
import sys
import types

import numpy as np
import torch

T, D, N_SAMPLE = 128, 128, 96


def published(folder):
    triton = types.ModuleType("triton")
    triton.jit = lambda f: f
    triton.language = types.ModuleType("triton.language")
    triton.language.constexpr = int
    sys.modules.update({"triton": triton, "triton.language": triton.language})
    spec = importlib.util.spec_from_file_location("new_pack",
                                                  os.path.join(folder, "quant", "new_pack.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def numbers():
    """x[T][D] that halves hold. Tokens and channels differ in size by orders."""
    x, out = 7, np.zeros(T * D)
    for i in range(T * D):
        x = (1103515245 * x + 12345) % 2**31
        size = 2.0 ** ((i // D * 5 + i % D * 3) % 11)
        out[i] = np.float16(((x >> 15) / 32768 - 1) * size)
    return out.reshape(T, D)


def rounded(module, values, group, bits, x):
    data = torch.tensor(x, dtype=torch.float32).reshape(1, 1, T, D)
    kind = "v" if values else "k"
    code, scale, low = getattr(module, f"quant_and_pack_{kind}cache")(data.clone(), group, bits)
    # the bank holds steps and minima as halves
    back = getattr(module, f"unpack_and_dequant_{kind}cache")(code, scale.half().float(),
                                                             low.half().float(), group, bits)
    near = (data.reshape(T, D) - back.reshape(T, D)).abs().numpy()
    step = (scale.expand(-1, -1, -1, -1, group) if values else
            scale.expand(-1, -1, -1, group, -1)).reshape(T, D).numpy()
    return back.reshape(T, D).numpy(), near < 0.49 * step # not next to a tie


def main():
    module, x = published(sys.argv[1]), numbers()
    print("/* SPDX-License-Identifier: MIT */")
    print("/* kivi_published.h - made by make_kivi.py. Numbers are the bits of floats. */")
    print("/* clang-format off */")
    print(f"enum {{ KIVI_T = {T}, KIVI_D = {D}, KIVI_SAMPLE = {N_SAMPLE} }};")
    print("static const struct {")
    print("    int values, bits, group;")
    print("    struct { int tok, dim; uint32_t x; } sample[KIVI_SAMPLE];")
    print("} kivi_published[] = {")
    random = np.random.default_rng(3)
    for values in (0, 1):
        for bits in (2, 4):
            for group in (32, 64, 128):
                back, plain = rounded(module, values, group, bits, x)
                at = [(t, d) for t, d in random.permutation(
                    [(t, d) for t in range(T) for d in range(D)])[:4 * N_SAMPLE] if plain[t, d]]
                items = ", ".join(f"{{ {t}, {d}, 0x{np.float32(back[t, d]).view(np.uint32):08x} }}"
                                  for t, d in at[:N_SAMPLE])
                print(f"    {{ {values}, {bits}, {group}, {{ {items} }} }},")
    print("};")


main()
