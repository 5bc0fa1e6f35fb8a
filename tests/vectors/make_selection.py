#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes selection.h: what OmniKV chooses and what PoD computes on a small timeline of random
queries, keys and values, from the formulas of their papers in double precision. Run:
make_selection.py > selection.h"""
import math

LAYERS, HEADS, KV, TOKENS, DIM = 3, 4, 2, 12, 4
GROUP, LAST = HEADS // KV, 11


class Numbers:
    """x <- 1103515245 x + 12345 modulo 2^31, as numbers in [-1, 1)."""

    def __init__(self, seed):
        self.x = seed

    def tensor(self, shape):
        if shape:
            return [self.tensor(shape[1:]) for _ in range(shape[0])]
        self.x = (1103515245 * self.x + 12345) & 0x7FFFFFFF
        return self.x / 2**30 - 1


numbers = Numbers(7)
Q = numbers.tensor([LAYERS, HEADS, TOKENS, DIM])
K = numbers.tensor([LAYERS, KV, TOKENS, DIM])
V = numbers.tensor([LAYERS, KV, TOKENS, DIM])


def logit(lq, lk, h, i, j):
    return sum(a * b for a, b in zip(Q[lq][h][i], K[lk][h // GROUP][j])) / math.sqrt(DIM)


def normal(logits):
    top = max(logits)
    w = [math.exp(x - top) for x in logits]
    total = math.fsum(w)
    return [x / total for x in w]


def lse(logits):
    return math.log(math.fsum(math.exp(x) for x in logits)) if logits else -math.inf


def mix(weights, layer, h, slots):
    return [math.fsum(w * V[layer][h // GROUP][j][c] for w, j in zip(weights,
                                                                     slots)) for c in range(DIM)]


def attention(layer, h, i, slots):
    return mix(normal([logit(layer, layer, h, i, j) for j in slots]), layer, h, slots)


# ---- OmniKV: layer 0 chooses for token 11 out of a prompt of 11 tokens ----

def select(k, kind, window, raw):
    rows = range(LAST - window + 1, LAST + 1)
    in_window = sum(1 for i in rows if i < LAST)
    n = LAST - in_window
    score = [0.0] * n
    for back, i in enumerate(reversed(rows)):
        heads = []
        for h in range(HEADS):
            x = [logit(0, 0, h, i, j) for j in range(n)]
            heads.append(x if raw else normal(x))
        for j in range(n):
            score[j] += (0.5**back if kind == "exp" else 1.0) * max(x[j] for x in heads)
    best = sorted(range(n), key=lambda j: (-score[j], j))[: max(1, k - in_window)]
    return score, sorted(best) + list(range(n, LAST))


# ---- PoD: 2 sinks, 4 recent; KV head 0: one block of all layers, KV head 1: {0} {1, 2} ----

LEADER = [[0, 0, 0], [0, 1, 1]]
SINKS, RECENT = 2, 4


def pod(layer, h, i, skip=None):
    lead = LEADER[h // GROUP][layer]
    near = [j for j in range(i + 1) if j < SINKS or i - j < RECENT]
    far = [j for j in range(i + 1) if j not in near]
    xn = [logit(layer, layer, h, i, j) for j in near]
    xf = [logit(lead, lead, h, i, j) for j in far]
    gate = 1 / (1 + math.exp(lse(xf) - lse(xn)))
    if skip is not None and lead != layer and gate >= skip:
        return mix(normal(xn), layer, h, near), gate
    return mix(normal(xn + xf), layer, h, near + far), gate


def c_array(name, values):
    text = ", ".join("%.9g" % v for v in values)
    print("static const double %s[] = { %s };" % (name, text))


def flat(rows):
    return [x for row in rows for x in row]


print("/* SPDX-License-Identifier: MIT */\n/* selection.h - made by make_selection.py. */\n"
      "/* clang-format off */")
for name, kind, window, raw in (("last", "last", 1, False), ("raw", "last", 1, True),
                                ("uniform", "uniform", 3, False), ("exp", "exp", 3, False)):
    score, chosen = select(4, kind, window, raw)
    c_array("omnikv_%s_score" % name, score)
    print("static const int omnikv_%s[] = { %s };" % (name, ", ".join(map(str, chosen))))
chosen = select(4, "last", 1, False)[1] + [LAST]
c_array("omnikv_sparse_out", flat(attention(2, h, LAST, chosen) for h in range(HEADS)))
c_array("full_out", flat(attention(2, h, LAST, range(LAST + 1)) for h in range(HEADS)))
for layer in (1, 2):
    both = [pod(layer, h, LAST) for h in range(HEADS)]
    c_array("pod_out_%d" % layer, flat(o for o, _ in both))
    c_array("pod_gate_%d" % layer, [g for _, g in both])
c_array("pod_skip_out_2", flat(pod(2, h, LAST, 0.5)[0] for h in range(HEADS)))
c_array("pod_all_2", flat(pod(2, h, i)[0] for i in range(TOKENS) for h in range(HEADS)))
