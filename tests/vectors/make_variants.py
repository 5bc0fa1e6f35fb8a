#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_variants.py - recipes of files that say or lay out a family's model in another way, and
their logits, by llama.cpp.

    make_variants.py BESIDE_LLAMA OUTPUT_FOLDER [NAME...]

Every row of VARIANTS changes metadata or tensors of a recipe that make_families.py or
make_mixers.py has written, in OUTPUT_FOLDER. The program that bench/compare --families builds
(bench/beside_llama.c) computes the new logits in F32; its line, which is printed, says how far
ctxbank's are from them.

Needs: gguf, numpy.
"""

import json
import os
import subprocess
import sys
import tempfile

import gguf
import numpy as np
from make_mixers import draw

N_TOKENS, LOGITS_AFTER = 40, [0, 9, 23, 39]


class Recipe:
    def __init__(self, path):
        self.doc = json.load(open(path))
        self.arch = self.doc["arch"]

    def get(self, name):
        return next(v for key, _, v in self.doc["kv"] if key == f"{self.arch}.{name}")

    def drop(self, name):
        self.doc["kv"] = [row for row in self.doc["kv"] if row[0] != f"{self.arch}.{name}"]

    def put(self, name, kind, value):
        self.drop(name)
        self.doc["kv"].append([f"{self.arch}.{name}", kind, value])

    def tensor(self, name):
        return next(row for row in self.doc["tensors"] if row[0] == name)

    def add(self, name, shape, mean, width):
        self.doc["tensors"].append([name, shape, mean, width])

    def remove(self, *names):
        self.doc["tensors"] = [row for row in self.doc["tensors"] if row[0] not in names]

    def layers(self, name):
        """Numbers of the layers that have the tensor"""
        return [l for l in range(self.get("block_count"))
                if any(row[0] == f"blk.{l}.{name}" for row in self.doc["tensors"])]

    def yarn(self, factor, n_ctx):
        self.put("rope.scaling.type", "string", "yarn")
        self.put("rope.scaling.factor", "float32", factor)
        self.put("rope.scaling.original_context_length", "uint32", n_ctx)


# ---- variants ----


def yarn_and_window(r):
    """Layers with a window are not scaled."""
    r.yarn(8.0, 4096)


def sections(r):
    """A model that sees: rotation by halves"""
    r.put("rope.dimension_sections", "ints", [2, 1, 1, 0])


def unrotated(r):
    r.put("rope.scaling.finetuned", "bool", False)


def fused_with_biases(r):
    """One matrix of q, k and v, with a bias for each"""
    for l in r.layers("attn_q.weight"):
        names = [f"blk.{l}.attn_{x}" for x in "qkv"]
        rows = [r.tensor(name + ".weight")[1][1] for name in names]
        r.remove(*(name + ".weight" for name in names))
        r.add(f"blk.{l}.attn_qkv.weight", [r.get("embedding_length"), sum(rows)], 0.0, 0.4)
        for name, n in zip(names, rows):
            r.add(name + ".bias", [n], 0.0, 0.3)


def fused_with_gates(r):
    """The same with gates beside the queries; llama.cpp wants values of nets as wide as keys"""
    sizes = {"attn_qkv": [48, 96], "attn_gate": [48, 48], "ssm_conv1d": [4, 96], "ssm_norm": [12],
             "ssm_out": [48, 48]}
    for l in r.layers("ssm_a"):
        for name, shape in sizes.items():
            r.tensor(f"blk.{l}.{name}.weight")[1] = shape
    r.put("ssm.inner_size", "uint32", 48)
    r.put("expert_shared_feed_forward_length", "uint32", 40)
    fused_with_biases(r)


def old_scaling(r):
    """No biases, and the factor under its first name"""
    r.remove(*(f"blk.{l}.attn_{x}.bias" for l in r.layers("attn_q.bias") for x in "qkv"))
    r.drop("rope.scaling.type")
    r.drop("rope.scaling.factor")
    r.put("rope.scale_linear", "float32", 4.0)


def unsaid_expert_width(r):
    n = r.get("expert_feed_forward_length") * r.get("expert_used_count")
    r.drop("expert_feed_forward_length")
    r.put("feed_forward_length", "uint32", n)


def weights_as_they_are(r):
    """Weights of experts do not sum to 1. The window's layers are listed as integers."""
    r.put("expert_weights_norm", "bool", False)
    r.put("attention.sliding_window_pattern", "ints", [1, 1, 1, 0])


def each_layer_its_own(r):
    """Layers whose experts differ in width and number (Nemotron Puzzle): a second such layer"""
    for row in [row for row in r.doc["tensors"] if row[0].startswith("blk.2.")]:
        r.add(row[0].replace("blk.2.", "blk.3."), list(row[1]), *row[2:])
    for name in ["blk.3.ffn_up_exps.weight", "blk.3.ffn_down_exps.weight"]:
        row = r.tensor(name)
        row[1] = [32 if n == 24 else n for n in row[1]]
    r.put("block_count", "uint32", 4)
    r.put("attention.head_count", "ints", [4, 4, 4, 4])
    r.put("attention.head_count_kv", "ints", [0, 2, 0, 0])
    r.put("feed_forward_length", "ints", [0, 0, 24, 32])
    r.put("expert_feed_forward_length", "ints", [0, 0, 24, 32])
    r.put("expert_used_count", "ints", [0, 0, 2, 3])
    r.put("expert_shared_feed_forward_length", "uint32", 40)


VARIANTS = {
    "olmo3yarn": ("olmo3", yarn_and_window),
    "glm4sections": ("glm4", sections),
    "graniteunrotated": ("granite", unrotated),
    "qwen3fused": ("qwen3", fused_with_biases),
    "qwen3nextfused": ("qwen3next", fused_with_gates),
    "qwen2old": ("dynamic", old_scaling),
    "qwen3moewidth": ("qwen3moe", unsaid_expert_width),
    "afmoeweights": ("afmoe", weights_as_they_are),
    "nemotron_h_puzzle": ("nemotron_h_moe", each_layer_its_own),
}


# ---- files ----


def values(number, row):
    n = int(np.prod(row[1]))
    x = [row[2] + row[3] * draw(number, i) for i in range(n)]
    return np.array(x, dtype=np.float32).reshape(row[1][::-1])


def byte_pieces():
    """Characters that stand for bytes: printable ones for themselves"""
    own = [b for b in range(256) if 33 <= b < 127 or (b >= 161 and b != 173)]
    others = iter(range(256, 512))
    return [chr(b if b in own else next(others)) for b in range(256)]


def save(doc, n_vocab, path):
    w = gguf.GGUFWriter(path, doc["arch"])
    for key, kind, value in doc["kv"]:
        if kind == "ints":
            w.add_key_value(key, value, gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.INT32)
        elif kind.endswith("s"):
            w.add_array(key, value)
        else:
            getattr(w, f"add_{kind}")(key, value)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(byte_pieces() + ["ab"] + [f"<{i}>" for i in range(257, n_vocab)])
    w.add_token_types([gguf.TokenType.NORMAL] * n_vocab)
    w.add_token_merges(["a b"])
    for i, row in enumerate(doc["tensors"]):
        w.add_tensor(row[0], values(i + 1, row))
    for name, list_ in doc["given"].items():
        w.add_tensor(name, np.array(list_, dtype=np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def write(program, folder, name):
    base, change = VARIANTS[name]
    r = Recipe(os.path.join(folder, f"family-{base}.json"))
    n_vocab = len(r.doc["logits"][0])
    change(r)
    with tempfile.TemporaryDirectory() as work:
        model, out = os.path.join(work, "model.gguf"), os.path.join(work, "logits")
        save(r.doc, n_vocab, model)
        got = subprocess.run([program, model, str(N_TOKENS), "0", out], check=True,
                             stdout=subprocess.PIPE, text=True)
        ids = np.fromfile(out, dtype=np.int32, count=N_TOKENS)
        logits = np.fromfile(out, dtype=np.float32, offset=4 * N_TOKENS).reshape(N_TOKENS, n_vocab)
    head = {k: v for k, v in r.doc.items() if k not in ("tensors", "logits")}
    head |= dict(ask={}, ids=ids.tolist(), after=LOGITS_AFTER)
    with open(os.path.join(folder, f"family-{name}.json"), "w") as f:
        f.write(json.dumps(head)[:-1] + ',\n"tensors": [\n')
        f.write(",\n".join(json.dumps(t) for t in r.doc["tensors"]) + '],\n"logits": [\n')
        rows = [[float(f"{v:.6g}") for v in logits[i].tolist()] for i in LOGITS_AFTER]
        f.write(",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "]}\n")
    print(f"{name}: {got.stdout.strip()}, logits {logits.min():.2f} to {logits.max():.2f}")


if __name__ == "__main__":
    for name in sys.argv[3:] or VARIANTS:
        write(sys.argv[1], sys.argv[2], name)
