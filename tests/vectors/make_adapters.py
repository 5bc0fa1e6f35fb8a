#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_adapters.py - LoRA adapters of a tiny random model, and its logits with them, by PyTorch.

    make_adapters.py OUTPUT_FOLDER

Takes the model tiny-llama of make_tiny_models.py and writes

    tiny-lora-all.gguf    an adapter of every matrix but the embedding: f32, rank 3
    tiny-lora-some.gguf   one of q, v and down: f16, rank 8, no alpha
    tiny-llama-lora.json  the token ids, and the logits after some of them with the first
                          adapter at scale 1 and the second at scale -0.5, in float64

Tensors are laid out as converters do it: NAME.lora_a is [rank][in], NAME.lora_b is
[out][rank], with the rows of B reordered for q and k of the "llama" architecture as
the rows of the matrix itself.

Needs: torch, transformers, gguf, numpy.
"""

import json
import math
import os
import sys

import gguf
import make_tiny_models as tiny
import numpy as np
import torch

ALL = dict(name="all", rank=3, alpha=6.0, scale=1.0, dtype=np.float32, parts="proj lm_head")
SOME = dict(name="some", rank=8, alpha=0.0, scale=-0.5, dtype=np.float16, parts="q_ v_ down_")


def matrices(model, parts):
    for name, p in model.named_parameters():
        if any(part in name for part in parts.split()):
            yield name, p


def draw(rng, model, how):
    """A and B of each matrix, of numbers that both file types hold"""
    pairs = {}
    for name, p in matrices(model, how["parts"]):
        n_out, n_in = p.shape
        a = rng.normal(0, 1 / math.sqrt(n_in), (how["rank"], n_in))
        b = rng.normal(0, 0.7 / math.sqrt(how["rank"]), (n_out, how["rank"]))
        pairs[name] = a.astype(np.float16), b.astype(np.float16)
    return pairs


def write(how, pairs, cfg, path):
    w = gguf.GGUFWriter(path, "llama")
    w.add_type(gguf.GGUFType.ADAPTER)
    w.add_string(gguf.Keys.Adapter.TYPE, "lora")
    if how["alpha"]:
        w.add_float32(gguf.Keys.Adapter.LORA_ALPHA, how["alpha"])
    for name, (a, b) in pairs.items():
        if "q_proj" in name:
            b = tiny.for_pairs(b, cfg.num_attention_heads)
        if "k_proj" in name:
            b = tiny.for_pairs(b, cfg.num_key_value_heads)
        w.add_tensor(tiny.gguf_name(name) + ".lora_a", a.astype(how["dtype"]))
        w.add_tensor(tiny.gguf_name(name) + ".lora_b", np.ascontiguousarray(b.astype(how["dtype"])))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def put_on(model, how, pairs):
    scale = how["scale"] * (how["alpha"] / how["rank"] if how["alpha"] else 1)
    for name, p in matrices(model, how["parts"]):
        a, b = (torch.from_numpy(x).double() for x in pairs[name])
        p.data = p.data + scale * (b @ a)


def main():
    folder = sys.argv[1]
    torch.set_num_threads(1)
    cls, cfg = tiny.MODELS["llama"]
    rng = np.random.default_rng(list(tiny.MODELS).index("llama"))
    model = cls(cfg).eval().double()
    tiny.randomize(model, rng)
    ids = rng.integers(0, tiny.N_VOCAB, tiny.N_TOKENS)
    with torch.no_grad():
        plain = model(torch.from_numpy(ids)[None]).logits[0]
    rng = np.random.default_rng(77)
    for how in ALL, SOME:
        pairs = draw(rng, model, how)
        write(how, pairs, cfg, os.path.join(folder, f"tiny-lora-{how['name']}.gguf"))
        put_on(model, how, pairs)
    with torch.no_grad():
        logits = model(torch.from_numpy(ids)[None]).logits[0]
    rows = [[float(f"{v:.6g}") for v in logits[i].tolist()] for i in tiny.LOGITS_AFTER]
    with open(os.path.join(folder, "tiny-llama-lora.json"), "w") as f:
        f.write('{"ids": %s,\n"after": %s,\n"logits": [\n' % (ids.tolist(), tiny.LOGITS_AFTER))
        f.write(",\n".join(json.dumps(r, separators=(",", ":")) for r in rows))
        f.write("]}\n")
    print(f"logits {logits.min():.2f} to {logits.max():.2f}, changed by up to "
          f"{(logits - plain).abs().max():.2f}")


if __name__ == "__main__":
    main()
