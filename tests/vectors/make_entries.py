#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_entries.py - the recipe of a tiny model whose layers have rows that stand for several tokens
(DeepSeek V4), and its logits.

    make_entries.py OUTPUT_FOLDER
    make_entries.py --check MODEL.gguf RECORDED.json

As make_mixers.py, whose small functions it uses: formulas in plain Python, in double precision,
token by token. Nothing is summed as tokens come: an entry is computed from all of its tokens when
the last one of them is there. --check compares the formulas with likelihoods that transformers
computed for a model in a file (F32).
"""

import json
import math
import sys

import make_mixers as mixers
from make_mixers import cut, f32, mul, rms, sigmoid, silu, softmax, softplus

N_TOKENS, LOGITS_AFTER, N_VOCAB = 56, [0, 6, 30, 55], 320


def frequencies(kv, compressed):
    n = kv["rope.dimension_count"]
    base = kv["attention.compress_rope_freq_base" if compressed else "rope.freq_base"]
    f = [base ** (-2 * i / n) for i in range(n // 2)]
    factor = kv.get("rope.scaling.factor")
    if not compressed or not factor:
        return f

    def turns(times):  # YaRN: the pair that turns so often within the context of the training
        length = kv["rope.scaling.original_context_length"]
        return n * math.log(length / (times * 2 * math.pi)) / (2 * math.log(base))

    low = max(math.floor(turns(kv.get("rope.scaling.yarn_beta_fast", 32))), 0)
    high = min(math.ceil(turns(kv.get("rope.scaling.yarn_beta_slow", 1))), n - 1)
    for i in range(n // 2):
        ramp = min(max((i - low) / max(high - low, 0.001), 0), 1)
        f[i] *= 1 - ramp + ramp / factor
    return f


def turn(x, pos, f):
    """Neighbouring pairs of the last 2 len(f) numbers; pos < 0 turns back."""
    y, at = list(x), len(x) - 2 * len(f)
    for i, g in enumerate(f):
        a, b, t = at + 2 * i, at + 2 * i + 1, pos * g
        y[a] = x[a] * math.cos(t) - x[b] * math.sin(t)
        y[b] = x[a] * math.sin(t) + x[b] * math.cos(t)
    return y


def dot(a, b):
    return sum(map(lambda x, y: x * y, a, b))


class Model:
    def __init__(self, arch, kv, tensors):
        self.kv, self.t, self.eps = kv, tensors, kv["attention.layer_norm_rms_epsilon"]
        self.n_layer = kv["block_count"]
        self.rows = [[] for _ in range(self.n_layer)]  # of every token
        self.given = [{} for _ in range(self.n_layer)]  # to compressors, by every token

    def w(self, l, name):
        return self.t.get(f"blk.{l}.{name}.weight")

    def plain(self, x):
        return rms(x, [1.0] * len(x), self.eps)

    # ---- streams ----

    def blend(self, streams, name):
        n, eps = len(streams), self.kv["hyper_connection.epsilon"]
        scale, base = self.t[name + "_scale.weight"], self.t[name + "_base.weight"]
        m = mul(self.t[name + "_fn.weight"], self.plain(sum(streams, [])))
        pre = [sigmoid(a * scale[0] + b) + eps for a, b in zip(m[:n], base)]
        read = [dot(pre, column) for column in zip(*streams)]
        if len(m) == n:
            return read, None, None
        post = [2 * sigmoid(a * scale[1] + b) for a, b in zip(m[n:], base[n : 2 * n])]
        c = cut([a * scale[2] + b for a, b in zip(m[2 * n :], base[2 * n :])], n)
        c = [[a + eps for a in softmax(row)] for row in c]
        for step in range(2 * self.kv["hyper_connection.sinkhorn_iterations"] - 1):
            if step % 2 == 0:  # columns
                sums = [sum(column) + eps for column in zip(*c)]
                c = [[a / s for a, s in zip(row, sums)] for row in c]
            else:
                c = [[a / (sum(row) + eps) for a in row] for row in c]
        return read, post, c

    def block(self, streams, name, norm, f):
        read, post, c = self.blend(streams, name)
        y = f(rms(read, norm, self.eps))
        columns = list(zip(y, zip(*streams)))
        return [
            [post[j] * b + dot([row[j] for row in c], column) for b, column in columns]
            for j in range(len(streams))
        ]

    # ---- attention ----

    def entry(self, l, what, name, d, i, ratio, f):
        """Number i of the compressor NAME, of what all tokens gave"""
        past, place = self.given[l][what], self.w(l, name + "_ape")
        overlap = len(place[0]) == 2 * d
        terms = []  # (values, logits)
        for t in range(max(0, (i - overlap) * ratio), (i + 1) * ratio):
            v, g = past[t]
            g = [a + b for a, b in zip(g, place[t % ratio])]
            from_ = d if overlap and t >= i * ratio else 0
            terms.append((v[from_ : from_ + d], g[from_ : from_ + d]))
        y = []
        for c in range(d):
            p = softmax([g[c] for _, g in terms])
            y.append(sum(a * v[c] for a, (v, _) in zip(p, terms)))
        return turn(rms(y, self.w(l, name + "_norm"), self.eps), i * ratio, f)

    def entries(self, l, what, name, d, x, pos, ratio, f):
        given = self.given[l].setdefault(what, [])
        given.append((mul(self.w(l, name + "_kv"), x), mul(self.w(l, name + "_gate"), x)))
        made = self.given[l].setdefault(what + " made", [])
        if (pos + 1) % ratio == 0:
            made.append(self.entry(l, what, name, d, len(made), ratio, f))
        return made

    def best(self, l, x, low, pos, keys, f):
        """Which entries are read"""
        n, d = self.kv["attention.indexer.head_count"], self.kv["attention.indexer.key_length"]
        q = [turn(h, pos, f) for h in cut(mul(self.w(l, "indexer.attn_q_b"), low), d)]
        w = [a / math.sqrt(n * d) for a in mul(self.w(l, "indexer.proj"), x)]
        score = [sum(a * max(dot(h, k), 0) for a, h in zip(w, q)) for k in keys]
        order = sorted(range(len(keys)), key=lambda i: -score[i])
        return order[: self.kv["attention.indexer.top_k"]]

    def attention(self, l, x, pos):
        kv = self.kv
        d, ratio = kv["attention.key_length"], kv["attention.compress_ratios"][l]
        f = frequencies(kv, ratio)
        low = rms(mul(self.w(l, "attn_q_a"), x), self.w(l, "attn_q_a_norm"), self.eps)
        q = cut(mul(self.w(l, "attn_q_b"), low), d)
        q = [turn(self.plain(h), pos, f) for h in q]
        row = rms(mul(self.w(l, "attn_kv"), x), self.w(l, "attn_kv_a_norm"), self.eps)
        self.rows[l].append(turn(row, pos, f))
        read = self.rows[l][-kv["attention.sliding_window"] :]
        if ratio:
            made = self.entries(l, "entry", "attn_compressor", d, x, pos, ratio, f)
            chosen = range(len(made))
            if self.w(l, "indexer.proj"):
                di = kv["attention.indexer.key_length"]
                keys = self.entries(l, "index", "indexer_compressor", di, x, pos, ratio, f)
                chosen = self.best(l, x, low, pos, keys, f)
            read = read + [made[i] for i in chosen]
        out = []
        for h, sink in zip(q, self.w(l, "attn_sinks")):
            p = softmax([dot(h, r) / math.sqrt(d) for r in read] + [sink])
            y = [sum(a * r[c] for a, r in zip(p, read)) for c in range(d)]
            out += turn(y, -pos, f)
        groups = kv["attention.output_group_count"]
        rows = cut(self.w(l, "attn_output_a"), kv["attention.output_lora_rank"])
        parts = zip(cut(out, len(out) // groups), rows)
        return mul(self.w(l, "attn_output_b"), sum((mul(w, part) for part, w in parts), []))

    # ---- networks ----

    def network(self, gate, up, down, x, limit):
        g = [min(a, limit) for a in mul(gate, x)]
        u = [min(max(a, -limit), limit) for a in mul(up, x)]
        return mul(down, [silu(a) * b for a, b in zip(g, u)])

    def experts(self, l, x, token):
        kv = self.kv
        p = [math.sqrt(softplus(a)) for a in mul(self.w(l, "ffn_gate_inp"), x)]
        table = self.w(l, "ffn_gate_tid2eid")
        if table:
            chosen = [int(e) for e in table[token]]
        else:
            by = [a + b for a, b in zip(p, self.t[f"blk.{l}.exp_probs_b.bias"])]
            chosen = sorted(range(len(p)), key=lambda e: -by[e])[: kv["expert_used_count"]]
        total = sum(p[e] for e in chosen)
        limit = kv["swiglu_clamp_exp"][l]
        shared = (self.w(l, f"ffn_{s}_shexp") for s in ("gate", "up", "down"))
        y = self.network(*shared, x, kv["swiglu_clamp_shexp"][l])
        for e in chosen:
            z = self.network(
                *(self.w(l, f"ffn_{s}_exps")[e] for s in ("gate", "up", "down")), x, limit
            )
            y = [a + p[e] / total * kv["expert_weights_scale"] * b for a, b in zip(y, z)]
        return y

    def feed(self, token, pos):
        streams = [self.t["token_embd.weight"][token]] * self.kv["hyper_connection.count"]
        for l in range(self.n_layer):
            at = f"blk.{l}.hc_"
            streams = self.block(
                streams, at + "attn", self.w(l, "attn_norm"), lambda x: self.attention(l, x, pos)
            )
            streams = self.block(
                streams, at + "ffn", self.w(l, "ffn_norm"), lambda x: self.experts(l, x, token)
            )
        x, _, _ = self.blend(streams, "output_hc")
        return mul(self.t["output.weight"], rms(x, self.t["output_norm.weight"], self.eps))


# ---- the recipe ----

H, HEADS, D, LOW, STREAMS, EXPERTS, USED, FF = 32, 6, 16, 24, 3, 5, 2, 24
INDEX, INDEX_D = 3, 8
RATIOS = [4, 0, 8, 4]
KV = {
    "block_count": 4,
    "context_length": 512,
    "embedding_length": H,
    "attention.head_count": HEADS,
    "attention.head_count_kv": 1,
    "attention.key_length": D,
    "attention.value_length": D,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "attention.q_lora_rank": LOW,
    "attention.sliding_window": 7,
    "attention.indexer.head_count": INDEX,
    "attention.indexer.key_length": INDEX_D,
    "attention.indexer.top_k": 3,
    "attention.output_group_count": 3,
    "attention.output_lora_rank": 8,
    "attention.compress_ratios": RATIOS + [0],
    "attention.compress_rope_freq_base": 40000.0,
    "rope.freq_base": 10000.0,
    "rope.dimension_count": 6,
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 64,
    "hyper_connection.count": STREAMS,
    "hyper_connection.sinkhorn_iterations": 5,
    "hyper_connection.epsilon": 1e-6,
    "hash_layer_count": 1,
    "expert_count": EXPERTS,
    "expert_used_count": USED,
    "expert_gating_func": 4,
    "expert_feed_forward_length": FF,
    "expert_weights_scale": 1.5,
    "expert_weights_norm": True,
    "swiglu_clamp_exp": [1.5, 1.0, 2.0, 1.5],
    "swiglu_clamp_shexp": [2.0, 1.5, 1.0, 1.5],
}


def compressor(name, n, ratio):
    return {
        name + "_kv": [H, n],
        name + "_gate": [H, n],
        name + "_ape": [n, ratio],
    }


def block(l):
    number = (2 + STREAMS) * STREAMS
    t = {
        "attn_norm": [H],
        "attn_q_a": [H, LOW],
        "attn_q_a_norm": [LOW],
        "attn_q_b": [LOW, HEADS * D],
        "attn_kv": [H, D],
        "attn_kv_a_norm": [D],
        "attn_output_a": [HEADS * D // 3, 24],
        "attn_output_b": [24, H],
        "attn_sinks": [HEADS],
        "ffn_norm": [H],
        "ffn_gate_inp": [H, EXPERTS],
    }
    for s, wide in ("gate", 0), ("up", 0), ("down", 1):
        t[f"ffn_{s}_exps"] = [FF, H, EXPERTS] if wide else [H, FF, EXPERTS]
        t[f"ffn_{s}_shexp"] = [FF, H] if wide else [H, FF]
    for s in "attn", "ffn":
        t |= {f"hc_{s}_fn": [STREAMS * H, number], f"hc_{s}_scale": [3], f"hc_{s}_base": [number]}
    if RATIOS[l] == 4:
        t |= compressor("attn_compressor", 2 * D, 4) | {"attn_compressor_norm": [D]}
        t |= compressor("indexer_compressor", 2 * INDEX_D, 4)
        t |= {"indexer_compressor_norm": [INDEX_D]}
        t |= {"indexer.attn_q_b": [LOW, INDEX * INDEX_D], "indexer.proj": [H, INDEX]}
    elif RATIOS[l]:
        t |= compressor("attn_compressor", D, RATIOS[l]) | {"attn_compressor_norm": [D]}
    t = {f"blk.{l}.{name}.weight": shape for name, shape in t.items()}
    if l < KV["hash_layer_count"]:
        return t | {f"blk.{l}.ffn_gate_tid2eid.weight": [USED, N_VOCAB]}
    return t | {f"blk.{l}.exp_probs_b.bias": [EXPERTS]}


def spread(name, shape):
    """Mean and width of a tensor's numbers"""
    if "norm" in name:
        return 1.0, 0.3
    if name.endswith((".bias", "_base.weight", "_ape.weight", "_sinks.weight")):
        return 0.0, 0.7
    if name.endswith("_scale.weight"):
        return 1.0, 0.3
    if name.startswith("token_embd"):
        return 0.0, 1.0
    gain = 3 if any(s in name for s in ("gate_inp", "_gate.", "indexer.", "output.w")) else 1.5
    return 0.0, gain * math.sqrt(3 / shape[0])


def kinds():
    kind = {bool: "bool", int: "uint32", float: "float32", str: "string"}
    for key, v in KV.items():
        if isinstance(v, list):
            yield ["deepseek4." + key, "ints" if isinstance(v[0], int) else "float32s", v]
        else:
            yield ["deepseek4." + key, kind[type(v)], v]


def write(folder):
    shapes = {
        "token_embd.weight": [H, N_VOCAB],
        "output_norm.weight": [H],
        "output.weight": [H, N_VOCAB],
        "output_hc_fn.weight": [STREAMS * H, STREAMS],
        "output_hc_scale.weight": [1],
        "output_hc_base.weight": [STREAMS],
    }
    for l in range(len(RATIOS)):
        shapes |= block(l)
    rows, t = [], {}
    for number, (name, shape) in enumerate(shapes.items()):
        drawn = [mixers.draw(number + 1, i) for i in range(math.prod(shape))]
        if "tid2eid" in name:  # a table; a token may have an expert twice
            x = [int((a + 1) / 2 * EXPERTS) for a in drawn]
            rows.append([name, shape, EXPERTS])
        else:
            mean, width = spread(name, shape)
            x = [f32(mean + width * a) for a in drawn]
            rows.append([name, shape, mean, width])
        t[name] = mixers.nest(x, shape)
    ids = [3 + int((mixers.draw(9999, i) + 1) / 2 * (N_VOCAB - 4)) for i in range(N_TOKENS)]
    model = Model("deepseek4", {k: f32(v) if isinstance(v, float) else v for k, v in KV.items()}, t)
    logits = [model.feed(id, i) for i, id in enumerate(ids)]
    head = dict(
        arch="deepseek4", n_ctx=64, ask={}, kv=list(kinds()), given={}, ids=ids, after=LOGITS_AFTER
    )
    text = ["[" + ", ".join(f"{x:.6f}" for x in logits[i]) + "]" for i in LOGITS_AFTER]
    with open(f"{folder}/family-deepseek4.json", "w") as f:
        f.write(json.dumps(head)[:-1] + ',\n"tensors": [\n')
        f.write(",\n".join(map(json.dumps, rows)) + '],\n"logits": [\n')
        f.write(",\n".join(text) + "]}\n")
    print("deepseek4", max(abs(x) for i in LOGITS_AFTER for x in logits[i]))


if __name__ == "__main__":
    if sys.argv[1] == "--check":
        mixers.check(sys.argv[2], sys.argv[3], Model)
    else:
        write(sys.argv[1])
