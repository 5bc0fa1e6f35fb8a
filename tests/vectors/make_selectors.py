#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_selectors.py - recipes of tiny models with trained selectors, and their logits.

    make_selectors.py OUTPUT_FOLDER [NAME...]
    make_selectors.py --check MODEL.gguf RECORDED.json

As make_mixers.py, for models whose layers choose the tokens that a query reads: the formulas are
those of the papers and of transformers' modeling files, in double precision, a token at a time.

Needs nothing but Python.
"""

import math
import sys

import make_mixers as mm
from make_mixers import BASE, DENSE, H, N1, N2, cut, mul, rms, sigmoid, softmax


def layer_norm(x, w, b, eps):
    mean = sum(x) / len(x)
    r = 1 / math.sqrt(sum((a - mean) ** 2 for a in x) / len(x) + eps)
    return [(a - mean) * r * c + d for a, c, d in zip(x, w, b)]


def dot(a, b):
    return sum(map(lambda x, y: x * y, a, b))


class Model(mm.Model):
    """Latent attention with an indexer (DSA)"""

    def __init__(self, arch, kv, tensors):
        super().__init__(arch, kv, tensors)
        self.eps_latent = 1e-6 if arch == "glm-dsa" else self.eps
        self.chosen = None

    def turn(self, x, pos, pairs):
        """Rotation, by YaRN where the metadata asks for it"""
        kv, n = self.kv, self.kv["rope.dimension_count"]
        base, factor = kv["rope.freq_base"], kv.get("rope.scaling.factor", 1)
        length = kv.get("rope.scaling.original_context_length", kv["context_length"])
        low, high = (
            n * math.log(length / (beta * 2 * math.pi)) / (2 * math.log(base))
            for beta in (32, 1)
        )
        low, high = max(math.floor(low), 0), min(math.ceil(high), n - 1)
        y = list(x)
        for i in range(n // 2):
            a, b = (2 * i, 2 * i + 1) if pairs else (i, i + n // 2)
            ramp = min(max((i - low) / max(high - low, 1e-3), 0), 1)
            slow = factor if kv.get("rope.scaling.type") == "yarn" else 1
            t = pos * base ** (-2 * i / n) * (1 - ramp + ramp / slow)
            y[a] = x[a] * math.cos(t) - x[b] * math.sin(t)
            y[b] = x[a] * math.sin(t) + x[b] * math.cos(t)
        return y

    def select(self, l, x, low, pos):
        """The tokens that layer l reads for the token at pos"""
        n, d = (self.kv[f"attention.indexer.{s}"] for s in ("head_count", "key_length"))
        if not self.of(l, "attention.indexer.types", True):
            return self.chosen
        pairs = self.arch == "glm-dsa"
        q = cut(mul(self.w(l, "indexer.attn_q_b.weight"), low), d)
        q = [self.turn(h, pos, pairs) for h in q]
        k = layer_norm(
            mul(self.w(l, "indexer.attn_k.weight"), x),
            self.w(l, "indexer.k_norm.weight"),
            self.w(l, "indexer.k_norm.bias"),
            1e-6,
        )
        w = mul(self.w(l, "indexer.proj.weight"), x)
        keys = self.memory[l].setdefault("index", [])
        keys.append(self.turn(k, pos, pairs))
        score = [sum(a * max(dot(h, key), 0) for a, h in zip(w, q)) for key in keys]
        best = sorted(range(len(keys)), key=lambda j: (-score[j], j))
        self.chosen = sorted(best[: self.kv["attention.indexer.top_k"]])
        return self.chosen

    def mix(self, l, x, pos):
        kv = self.kv
        d, rank = kv["attention.key_length_mla"], kv["attention.kv_lora_rank"]
        n_rot = kv["rope.dimension_count"]
        low = mul(self.w(l, "attn_q_a.weight"), x)
        low = rms(low, self.w(l, "attn_q_a_norm.weight"), self.eps_latent)
        row = mul(self.w(l, "attn_kv_a_mqa.weight"), x)
        latent = rms(row[:rank], self.w(l, "attn_kv_a_norm.weight"), self.eps_latent)
        turned = self.turn(row[rank:], pos, True)
        past = self.memory[l].setdefault("rows", [])
        past.append(
            (
                [mul(list(zip(*w)), latent) + turned for w in self.w(l, "attn_k_b.weight")],
                [mul(w, latent) for w in self.w(l, "attn_v_b.weight")],
            )
        )
        factor = kv.get("rope.scaling.factor", 1)
        m = 1 + kv.get("rope.scaling.yarn_log_multiplier", 0) * math.log(factor)
        chosen, out = [past[j] for j in self.select(l, x, low, pos)], []
        for h, q in enumerate(cut(mul(self.w(l, "attn_q_b.weight"), low), d)):
            q = q[: d - n_rot] + self.turn(q[d - n_rot :], pos, True)
            p = softmax([dot(q, r[0][h]) * m * m / math.sqrt(d) for r in chosen])
            n = len(past[0][1][0])
            out += [sum(w * r[1][h][j] for w, r in zip(p, chosen)) for j in range(n)]
        return mul(self.w(l, "attn_output.weight"), out)

    def experts(self, l, x):
        kv = self.kv
        p = [sigmoid(a) for a in mul(self.w(l, "ffn_gate_inp.weight"), x)]
        by = [a + b for a, b in zip(p, self.w(l, "exp_probs_b.bias"))]
        n_group = kv.get("expert_group_count", 1)
        if n_group > 1:
            groups = cut(list(range(len(p))), len(p) // n_group)
            groups.sort(key=lambda g: -sum(sorted(by[e] for e in g)[-2:]))
            allowed = sum(groups[: kv["expert_group_used_count"]], [])
        else:
            allowed = range(len(p))
        best = sorted(allowed, key=lambda e: -by[e])[: kv["expert_used_count"]]
        total = sum(p[e] for e in best) if kv.get("expert_weights_norm") else 1
        out = self.ffn(*(self.w(l, f"ffn_{s}_shexp.weight") for s in ("gate", "up", "down")), x)
        for e in best:
            y = self.ffn(*(self.w(l, f"ffn_{s}_exps.weight")[e] for s in ("gate", "up", "down")), x)
            scale = p[e] / total * kv.get("expert_weights_scale", 1)
            out = [a + scale * b for a, b in zip(out, y)]
        return out


# ---- recipes ----

HEADS, LOW, RANK, N_INDEX, D_INDEX = 4, 24, 32, 3, 32
LATENT = {
    "attention.head_count": HEADS,
    "attention.head_count_kv": 1,
    "attention.q_lora_rank": LOW,
    "attention.kv_lora_rank": RANK,
    "attention.key_length": RANK + 8,
    "attention.value_length": RANK,
    "attention.key_length_mla": 20,
    "attention.value_length_mla": 16,
    "rope.dimension_count": 8,
    "rope.freq_base": 1e4,
    "attention.indexer.head_count": N_INDEX,
    "attention.indexer.key_length": D_INDEX,
    "attention.indexer.top_k": 11,
}
EXPERTS = {
    "expert_count": 6,
    "expert_used_count": 2,
    "expert_feed_forward_length": 24,
    "expert_gating_func": 2,
    "expert_shared_count": 1,
    "expert_weights_scale": 2.5,
    "expert_weights_norm": True,
    "leading_dense_block_count": 1,
}
MLA = {
    "attn_q_a": [H, LOW],
    "attn_q_a_norm": [LOW],
    "attn_q_b": [LOW, HEADS * 20],
    "attn_kv_a_mqa": [H, RANK + 8],
    "attn_kv_a_norm": [RANK],
    "attn_k_b": [12, RANK, HEADS],
    "attn_v_b": [RANK, 16, HEADS],
    "attn_output": [HEADS * 16, H],
}
INDEX = {
    "indexer.attn_q_b": [LOW, N_INDEX * D_INDEX],
    "indexer.attn_k": [H, D_INDEX],
    "indexer.k_norm": [D_INDEX],
    "indexer.k_norm.bias": [D_INDEX],
    "indexer.proj": [H, N_INDEX],
}
MOE = (
    {"ffn_gate_inp": [H, 6], "exp_probs_b.bias": [6]}
    | {f"ffn_{s}_exps": [H, 24, 6] for s in ("gate", "up")}
    | {f"ffn_{s}_shexp": [H, 24] for s in ("gate", "up")}
    | {"ffn_down_exps": [24, H, 6], "ffn_down_shexp": [24, H]}
)
BLOCK = N1 | N2 | MLA
NEXTN = {"nextn.eh_proj": [2 * H, H], "nextn.enorm": [H], "nextn.hnorm": [H]}
YARN = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 16,
    "rope.scaling.yarn_log_multiplier": 0.1,
}


def kept(l):
    return [True, False, True, False][l]


MODELS = {
    "deepseek32": (
        "deepseek32",
        BASE
        | LATENT
        | EXPERTS
        | {"attention.layer_norm_rms_epsilon": 1e-6}
        | {"expert_group_count": 3, "expert_group_used_count": 2, "nextn_predict_layers": 1},
        [BLOCK | INDEX | DENSE, BLOCK | INDEX | MOE, BLOCK | INDEX | MOE | NEXTN],
        0,
    ),
    "deepseek32yarn": (
        "deepseek32",
        BASE | LATENT | EXPERTS | {"attention.layer_norm_rms_epsilon": 1e-6} | YARN,
        [BLOCK | INDEX | DENSE, BLOCK | INDEX | MOE],
        0,
    ),
    "glm-dsa": (
        "glm-dsa",
        BASE
        | LATENT
        | EXPERTS
        | {
            "attention.layer_norm_rms_epsilon": 1e-5,
            "attention.indexer.types": [kept(l) for l in range(4)],
        },
        [BLOCK | (INDEX if kept(l) else {}) | (MOE if l else DENSE) for l in range(4)],
        0,
    ),
}

if __name__ == "__main__":
    mm.Model, mm.MODELS = Model, MODELS
    if sys.argv[1] == "--check":
        mm.check(*sys.argv[2:4])
    else:
        for name in sys.argv[2:] or MODELS:
            mm.write(sys.argv[1], name)
