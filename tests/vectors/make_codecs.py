#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes codecs.h: blocks of every element type of GGUF files that the package gguf decodes, with
the numbers that it decodes, and a row of numbers with the blocks that it encodes; then blocks of
KIVI by the formula of the paper (section 3.1), in numpy. Needs: pip install gguf numpy. Run:
make_codecs.py > codecs.h"""
import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import quants

DECODED = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K",
           "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4", "TQ1_0", "TQ2_0", "IQ1_S", "IQ1_M",
           "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"]
ENCODED = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0",
           "MXFP4"]
N = 256
random = np.random.default_rng(20)


def block_of(name):
    """Random bytes of N elements that decode to finite numbers of ordinary size."""
    elements, size = quants.GGML_QUANT_SIZES[T[name]]
    while True:
        raw = random.integers(0, 256, N // elements * size, dtype=np.uint8)
        with np.errstate(all="ignore"):
            values = quants.dequantize(raw.reshape(1, -1), T[name]).astype(np.float32).ravel()
        if name in ("F32", "F16", "BF16"):
            keep = np.isfinite(values) & (np.abs(values) < 1e30)
            raw = raw.reshape(-1, size)
            raw[~keep] = 0
            values[~keep] = 0
            return raw.ravel(), values
        if np.isfinite(values).all() and np.abs(values).max() < 1e6:
            return raw, values


def row():
    """Blocks of 32: of several sizes, with outliers, all negative, alike, and zero."""
    x = random.standard_normal((8, 32)).astype(np.float32)
    x *= np.float32(2.0) ** np.arange(-6, 10, 2, dtype=np.float32)[:, None]
    x[1, 5] = 40
    x[2, 7] = -300
    x[3] = -np.abs(x[3])
    x[4] = 3.25
    x[5] = 0
    return x


def encoded(name, x):
    if name == "F32":
        return x.astype("<f4").view(np.uint8).ravel()
    if name == "F16":
        return x.astype("<f2").view(np.uint8).ravel()
    return quants.quantize(x.reshape(1, -1), T[name]).view(np.uint8).ravel()


def kivi(bits, x):
    """x[32] -> what its codes decode to. The step and the smallest are halves, as the bank stores
    them."""
    top = np.float32(2**bits - 1)
    step = np.float32(np.float16((x.max() - x.min()) / top))
    low = np.float32(np.float16(x.min()))
    code = np.zeros(32) if step == 0 else np.rint(np.clip((x - low) / step, 0, top))
    return code.astype(np.float32) * step + low


def words(values):
    return ", ".join(f"0x{v:08x}" for v in np.asarray(values, "<f4").view("<u4").ravel())


def main():
    print("/* SPDX-License-Identifier: MIT */")
    print("/* codecs.h - made by make_codecs.py. Numbers are the bits of floats. */")
    print("/* clang-format off */")
    print(f"enum {{ CODEC_N = {N} }};")
    print("static const struct {")
    print("    const char *type; const uint8_t *block; uint32_t value[CODEC_N];")
    print("} codec_decoded[] = {")
    for name in DECODED:
        raw, values = block_of(name)
        print(f'    {{ "{name}", (const uint8_t[]){{ {", ".join(map(str, raw))} }}, '
              f"{{ {words(values)} }} }},")
    print("};")
    x = row()
    print(f"static const uint32_t codec_row[CODEC_N] = {{ {words(x)} }};")
    print("static const struct { const char *type; const uint8_t *block; } codec_encoded[] = {")
    for name in ENCODED:
        code = ", ".join(map(str, encoded(name, x)))
        print(f'    {{ "{name}", (const uint8_t[]){{ {code} }} }},')
    print("};")
    print("static const struct { int bits; uint32_t x[32], value[32]; } codec_kivi[] = {")
    for bits in (2, 4):
        for block in x:
            print(f"    {{ {bits}, {{ {words(block)} }}, {{ {words(kivi(bits, block))} }} }},")
    print("};")


main()
