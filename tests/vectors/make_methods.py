#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Expected results of the KV methods on small made-up attention, from their formulas, in doubles.

    python3 tests/vectors/make_methods.py > tests/vectors/methods.h

Queries, keys and values are uniform numbers of a linear congruential generator, so that the test
can make the same ones: x <- (1103515245 x + 12345) mod 2^31, value 2 x / 2^31 - 1. """
from math import exp, e, sqrt, floor

L, HQ, HKV, N, D = 3, 4, 2, 12, 4
G = HQ // HKV


class Lcg:
    def __init__(self, seed):
        self.x = seed

    def array(self, *shape):
        if shape:
            return [self.array(*shape[1:]) for _ in range(shape[0])]
        self.x = (1103515245 * self.x + 12345) % 2**31
        return 2 * self.x / 2**31 - 1


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def softmax(x):
    w = [exp(v - max(x)) for v in x]
    return [v / sum(w) for v in w]


def mix(weights, rows):
    return [dot(weights, column) for column in zip(*rows)]


def attention(q, keys):
    return softmax([dot(q, k) / sqrt(len(q)) for k in keys])


g = Lcg(7)
Q, K, V = g.array(L, HQ, N, D), g.array(L, HKV, N, D), g.array(L, HKV, N, D)


def p(l, h, i):
    """attention of query i, head h, layer l over tokens 0..i"""
    return attention(Q[l][h][i], K[l][h // G][: i + 1])


def c(x):
    if isinstance(x, (list, tuple)):
        return "{ " + ", ".join(c(v) for v in x) + " }"
    return str(x) if isinstance(x, int) else f"{x:.9g}"


def put(kind, name, x):
    dims, y = "", x
    while isinstance(y, (list, tuple)):
        dims, y = dims + f"[{len(y)}]", y[0]
    print(f"static const {kind} {name}{dims} = {c(x)};")


print("/* SPDX-License-Identifier: MIT */")
print("/* methods.h - made by make_methods.py. */")
print("/* clang-format off */")

# ---- SimLayerKV: mass of the first 2 and the last 4 tokens, mean over heads and queries ----


def ends(l, queries):
    rows = [(i, p(l, h, i)) for i in queries for h in range(HQ)]
    return sum(x for i, r in rows for j, x in enumerate(r) if j < 2 or j > i - 4) / len(rows)


put("double", "vec_lazy_decode", [ends(l, [11]) for l in range(L)])
put("double", "vec_lazy_prefill", [ends(l, [9, 10, 11]) for l in range(L)])

# ---- PyramidKV: votes of the last 2 queries, max-pooled over 3, the 4 best and the window ----


def vote(rows, kernel, kind, k):
    """rows: attention of the window's queries to the tokens before it -> kept tokens of them"""
    s = [sum(col) for col in zip(*rows)]
    n, r = len(s), kernel // 2
    around = [s[max(0, j - r) : j + r + 1] for j in range(n)]
    pooled = [max(a) if kind == "max" else sum(a) / kernel for a in around]
    return sorted(sorted(range(n), key=lambda j: (-pooled[j], -s[j], j))[:k])


put("int", "vec_pyramid",
    [vote([p(0, h, i)[:10] for h in range(kv * G, kv * G + G) for i in (10, 11)], 3, "max", 4)
     + [10, 11] for kv in range(HKV)])

# ---- SnapKV: window 2, budget 5 of 10 ----

SNAP_LOGITS = [[2, .1, .3, -.5, 1.5, 0, .2, .9, 1], [1.8, 0, .4, -.2, .3, 1.9, .1, .6, .8, 1.2]]
rows = [softmax(x)[:8] for x in SNAP_LOGITS]
put("double", "vec_snap_logits", [x + [0] * (10 - len(x)) for x in SNAP_LOGITS])
put("int", "vec_snap", [vote(rows, w, kind, 3) + [8, 9]
                        for w, kind in ((1, "mean"), (3, "mean"), (3, "max"), (5, "mean"),
                                        (5, "max"))])

# ---- H2O: 2 heavy, 2 recent; a prompt of 6, one token more ----

H2O_LOGITS = [[0], [1, 0], [1, .2, .1], [.8, -.3, 1.2, 0], [1.1, 0, .9, -.5, .2],
              [.9, .1, .4, -.2, 0, .3]]
H2O_STEP = [.7, .9, .1, .2, .4]
acc = [sum(softmax(r)[j] for r in H2O_LOGITS[j:]) for j in range(6)]
heavy = sorted(range(4), key=lambda j: (-acc[j], j))[:2]
kept = sorted(heavy) + [4, 5]
put("double", "vec_h2o_logits", [r + [0] * (6 - len(r)) for r in H2O_LOGITS])
put("double", "vec_h2o_step", H2O_STEP)
put("int", "vec_h2o_prompt", kept)
acc = [acc[j] + x for j, x in zip(kept, softmax(H2O_STEP))] + [softmax(H2O_STEP)[4]]
victim = min(range(3), key=lambda s: (acc[s], -s))
put("int", "vec_h2o_kept", [t for s, t in enumerate(kept + [6]) if s != victim])

# ---- D2O, layer 0: 1 sink, 3 heavy, 2 recent, beta 0.7; then a token of generator 11 ----

g = Lcg(11)
q1, k1, v1 = g.array(HQ, D), g.array(HKV, D), g.array(HKV, D)
T, NH, M, BETA = 1, 3, 2, .7


def cosine(a, b):
    return dot(a, b) / sqrt(dot(a, a) * dot(b, b))


def merge(kk, vv, to, sources):
    """sources: (similarity, key, value); weights e and exp(similarity)"""
    w = [e] + [exp(u) for u, _, _ in sources]
    w = [x / sum(w) for x in w]
    kk[to], vv[to] = (mix(w, [old] + [s[i] for s in sources])
                      for i, old in ((1, kk[to]), (2, vv[to])))


kept, keys, values, kept2, keys2, values2, outs = [], [], [], [], [], [], []
for kv in range(HKV):
    heads = range(kv * G, kv * G + G)
    acc = [sum(p(0, h, i)[j] for h in heads for i in range(j, N)) for j in range(N)]
    heavy = sorted(range(T, N - M), key=lambda j: (-acc[j], j))[:NH]
    keep = sorted([*range(T), *heavy, *range(N - M, N)])
    near = []
    for x in (j for j in range(N) if j not in keep):
        u = [cosine(K[0][kv][x], K[0][kv][j]) for j in keep]
        near.append((max(u), u.index(max(u)), x))
    tau = sum(u for u, _, _ in near) / len(near)
    kk, vv = [K[0][kv][j] for j in keep], [V[0][kv][j] for j in keep]
    for to in range(len(keep)):
        merge(kk, vv, to, [(u, K[0][kv][x], V[0][kv][x]) for u, at,
                           x in near if at == to and u >= tau])
    kept.append(keep), keys.append(list(kk)), values.append(list(vv))
    kk, vv, keep = kk + [k1[kv]], vv + [v1[kv]], keep + [N]
    acc = [acc[j] for j in keep[:-1]] + [0]
    for h in heads:
        w = attention(q1[h], kk)
        outs.append(mix(w, vv))
        acc = [a + x for a, x in zip(acc, w)]
    victim = min(range(T, len(keep) - M), key=lambda s: (acc[s], -s))
    k, v = kk.pop(victim), vv.pop(victim)
    keep.pop(victim)
    u = [cosine(k, x) for x in kk]
    if max(u) >= BETA * max(u) + (1 - BETA) * tau:
        merge(kk, vv, u.index(max(u)), [(max(u), k, v)])
    kept2.append(keep), keys2.append(kk), values2.append(vv)
for name, x in (("kept", kept), ("kept2", kept2)):
    put("int", "vec_d2o_" + name, x)
for name, x in (("keys", keys), ("values", values), ("outs", outs), ("keys2", keys2),
                ("values2", values2)):
    put("double", "vec_d2o_" + name, x)

# ---- PyramidKV: budgets of all layers; beside them layers, budget, window, beta, prompt ----


def exact(layers, cap, window, beta, n):
    mean = cap - window
    top = mean / beta
    low = 2 * mean - top
    if low > n - window:
        low, top = n - window, 2 * mean - (n - window)
    real = [low - (low - top) * l / (layers - 1) for l in range(layers)]
    k = [floor(x) for x in real]
    order = sorted(range(layers), key=lambda l: (k[l] - real[l], l))
    for l in order[: mean * layers - sum(k)]:
        k[l] += 1
    return k


def compat(layers, cap, window, beta, n):
    mean = cap - window
    low = mean // beta
    high = 2 * mean - low
    if high >= n - window:
        high, low = n - window, 2 * mean - (n - window)
    step = (high - low) // (layers - 1)
    return [mean if n < 2 * mean else high - l * step for l in range(layers)]


CASES = [(32, 64, 8, 20, 8192), (32, 128, 8, 20, 8192), (32, 2048, 8, 20, 8192),
         (80, 128, 8, 20, 8192),
         (4, 12, 2, 5, 100), (5, 14, 2, 4, 100), (4, 12, 2, 5, 18), (4, 12, 2, 1, 100),
         (24, 1024, 8, 20, 16384)]
put("int", "vec_budget_case", [list(x) for x in CASES])
for name, f in (("exact", exact), ("compat", compat)):
    put("int", "vec_budget_" + name, [(lambda k: [k[0], k[1], k[-1], sum(k)])(f(*x))
                                      for x in CASES])
print("/* clang-format on */")
