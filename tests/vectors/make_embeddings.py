#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_embeddings.py - embeddings of tiny random models, by PyTorch.

    make_embeddings.py OUTPUT_FOLDER

For some models of make_tiny_models.py, with the token ids of their vectors: the last
hidden states in float64, pooled over all tokens, of the first and of the last token
-> tiny-embeddings.json.

Needs: torch, transformers, gguf, numpy.
"""

import json
import os
import sys

import make_tiny_models as tiny
import numpy as np
import torch


def digits(x):
    return [float(f"{v:.6g}") for v in x.tolist()]


def main():
    out = {}
    torch.set_num_threads(1)
    for seed, (name, (cls, cfg)) in enumerate(tiny.MODELS.items()):
        if name not in ("llama", "mistral", "qwen2tied"):
            continue
        rng = np.random.default_rng(seed)
        model = cls(cfg).eval().double()
        tiny.randomize(model, rng)
        ids = rng.integers(0, tiny.N_VOCAB, tiny.N_TOKENS)
        with torch.no_grad():
            x = model.model(torch.from_numpy(ids)[None]).last_hidden_state[0]
        out[name] = dict(ids=ids.tolist(), mean=digits(x.mean(0)), cls=digits(x[0]),
                         last=digits(x[-1]))
    with open(os.path.join(sys.argv[1], "tiny-embeddings.json"), "w") as f:
        json.dump(out, f, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()
