#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_mixers.py - recipes of tiny models with layers without keys, or with selectors, and their
logits.

    make_mixers.py OUTPUT_FOLDER [NAME...]
    make_mixers.py --check MODEL.gguf RECORDED.json

Writes family-NAME.json for every row of MODELS: metadata, tensors' names and shapes as converters
write them, and logits after some tokens. As in make_families.py, a generator that the tests have
in common makes the weights. The logits are computed here, token by token in double precision, by
the formulas of the papers and of transformers' modeling files. --check compares them with
likelihoods that transformers computed for a model in a file (F32), which proves the formulas.

Needs nothing but Python.
"""

import json
import math
import struct
import sys

N_TOKENS, LOGITS_AFTER, N_VOCAB = 40, [0, 9, 23, 39], 320
MASK = (1 << 64) - 1


def draw(seed, i):
    x = ((i + 1 + (seed << 32)) * 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    x ^= x >> 31
    return (x >> 40) / 2**23 - 1


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


# ---- small functions; a matrix is a list of rows ----


def mul(w, x):
    return [sum(map(lambda a, b: a * b, row, x)) for row in w]


def rms(x, w, eps):
    r = 1 / math.sqrt(sum(a * a for a in x) / len(x) + eps)
    return [a * r * b for a, b in zip(x, w)]


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x > 0 else math.exp(x) / (1 + math.exp(x))


def silu(x):
    return x * sigmoid(x)


def softplus(x):
    return max(x, 0) + math.log1p(math.exp(-abs(x)))


def softmax(x):
    top = max(x)
    e = [math.exp(a - top) for a in x]
    return [a / sum(e) for a in e]


def unit(x):
    r = 1 / math.sqrt(sum(a * a for a in x) + 1e-6)
    return [a * r for a in x]


def cut(x, n):
    return [x[i : i + n] for i in range(0, len(x), n)]


def rotate(x, pos, n_rot, base, pairs):
    y = list(x)
    for i in range(n_rot // 2):
        a, b = (2 * i, 2 * i + 1) if pairs else (i, i + n_rot // 2)
        t = pos * base ** (-2 * i / n_rot)
        y[a] = x[a] * math.cos(t) - x[b] * math.sin(t)
        y[b] = x[a] * math.sin(t) + x[b] * math.cos(t)
    return y


class Model:
    """Metadata without the family's prefix, tensors by name as nested lists in C order"""

    def __init__(self, arch, kv, tensors):
        self.arch, self.kv, self.t = arch, kv, tensors
        self.n_layer = kv["block_count"] - kv.get("nextn_predict_layers", 0)
        self.eps = kv.get(
            "attention.layer_norm_rms_epsilon", kv.get("attention.layer_norm_epsilon")
        )
        self.n_head = kv.get("attention.head_count", 0)
        self.memory = [{} for _ in range(self.n_layer)]
        self.tokens = []

    def of(self, l, key, default=None):
        v = self.kv.get(key, default)
        return v[l] if isinstance(v, list) else v

    def w(self, l, name):
        return self.t.get(f"blk.{l}.{name}")

    def is_mixed(self, l):
        if self.arch in ("falcon-h1", "mamba2"):
            return True
        if self.arch.startswith("qwen"):
            listed = self.kv.get("attention.recurrent_layers")
            return listed[l] if listed else (l + 1) % self.kv.get("full_attention_interval", 4) != 0
        if self.arch.startswith("nemotron"):
            return not self.of(l, "attention.head_count_kv") and not self.of(
                l, "feed_forward_length"
            )
        return not self.of(l, "attention.head_count_kv", 1)

    # ---- layers without keys ----

    def conv(self, l, what, x, taps, bias=None):
        """Depthwise causal convolution of the rows so far; the newest takes the last tap."""
        past = self.memory[l].setdefault(what, [])
        past.append(x)
        n = len(taps[0])
        rows = past[-n:]
        y = list(bias) if bias else [0.0] * len(x)
        for j, row in enumerate(reversed(rows)):
            for c, v in enumerate(row):
                y[c] += v * taps[c][n - 1 - j]
        return y

    def state(self, l, h, dk, dv):
        return self.memory[l].setdefault(("state", h), [[0.0] * dv for _ in range(dk)])

    def delta(self, l, x):
        kv = self.kv
        dk, nk, nv = kv["ssm.state_size"], kv["ssm.group_count"], kv["ssm.time_step_rank"]
        dv, per = kv["ssm.inner_size"] // nv, nv // nk
        qkv, z = mul(self.w(l, "attn_qkv.weight"), x), mul(self.w(l, "attn_gate.weight"), x)
        if self.arch == "qwen3next":
            ba = cut(mul(self.w(l, "ssm_ba.weight"), x), 2 * per)
            b, a = sum((g[:per] for g in ba), []), sum((g[per:] for g in ba), [])
        else:
            b, a = mul(self.w(l, "ssm_beta.weight"), x), mul(self.w(l, "ssm_alpha.weight"), x)
        u = [silu(c) for c in self.conv(l, "qkv", qkv, self.w(l, "ssm_conv1d.weight"))]
        q, k, v = (
            cut(u[: nk * dk], dk),
            cut(u[nk * dk : 2 * nk * dk], dk),
            cut(u[2 * nk * dk :], dv),
        )
        out = []
        for h in range(nv):
            g = h // per if self.arch == "qwen3next" else h % nk
            fade = [
                math.exp(self.w(l, "ssm_a")[h] * softplus(a[h] + self.w(l, "ssm_dt.bias")[h]))
            ] * dk
            o = self.erase(l, h, unit(q[g]), unit(k[g]), v[h], sigmoid(b[h]), fade)
            o = rms(o, self.w(l, "ssm_norm.weight"), self.eps)
            gate = sigmoid if self.arch == "qwen4exp" else silu
            out += [y * gate(c) for y, c in zip(o, z[h * dv :])]
        return mul(self.w(l, "ssm_out.weight"), out)

    def erase(self, l, h, q, k, v, beta, fade):
        s = self.state(l, h, len(k), len(v))
        for i, f in enumerate(fade):
            s[i] = [f * c for c in s[i]]
        read = [sum(k[i] * s[i][j] for i in range(len(k))) for j in range(len(v))]
        for i in range(len(k)):
            s[i] = [c + k[i] * beta * (v[j] - read[j]) for j, c in enumerate(s[i])]
        r = 1 / math.sqrt(len(k))
        return [r * sum(q[i] * s[i][j] for i in range(len(k))) for j in range(len(v))]

    def kda(self, l, x):
        d, n = self.kv["kda.head_dim"], self.n_head
        q, k, v = (
            cut(
                [
                    silu(c)
                    for c in self.conv(
                        l,
                        s,
                        mul(self.w(l, f"attn_{s}.weight"), x),
                        [
                            r[0] if isinstance(r[0], list) else r
                            for r in self.w(l, f"ssm_conv1d_{s}.weight")
                        ],
                    )
                ],
                d,
            )
            for s in "qkv"
        )
        f = mul(self.w(l, "ssm_f_b.weight"), mul(self.w(l, "ssm_f_a.weight"), x))
        z = mul(self.w(l, "ssm_g_b.weight"), mul(self.w(l, "ssm_g_a.weight"), x))
        b, dt, out = mul(self.w(l, "ssm_beta.weight"), x), self.w(l, "ssm_dt.bias"), []
        rate = flat(self.w(l, "ssm_a"))
        for h in range(n):
            fade = [math.exp(rate[h] * softplus(f[h * d + i] + dt[h * d + i])) for i in range(d)]
            o = self.erase(l, h, unit(q[h]), unit(k[h]), v[h], sigmoid(b[h]), fade)
            o = rms(o, self.w(l, "ssm_norm.weight"), self.eps)
            out += [y * sigmoid(c) for y, c in zip(o, z[h * d :])]
        return mul(self.w(l, "attn_output.weight"), out)

    def mamba2(self, l, x):
        kv = self.kv
        N, G, D, n = (
            kv["ssm.state_size"],
            kv["ssm.group_count"],
            kv["ssm.inner_size"],
            kv["ssm.time_step_rank"],
        )
        P, rows = D // n, mul(self.w(l, "ssm_in.weight"), x)
        z, xbc, dt = rows[:D], rows[D : 2 * D + 2 * G * N], rows[2 * D + 2 * G * N :]
        u = [
            silu(c)
            for c in self.conv(
                l, "xbc", xbc, self.w(l, "ssm_conv1d.weight"), self.w(l, "ssm_conv1d.bias")
            )
        ]
        v, B, C = cut(u[:D], P), cut(u[D : D + G * N], N), cut(u[D + G * N :], N)
        a, skip, out = flat(self.w(l, "ssm_a")), flat(self.w(l, "ssm_d")), []
        for h in range(n):
            step = softplus(dt[h] + self.w(l, "ssm_dt.bias")[h])
            fade, g, s = math.exp(step * a[h]), h // (n // G), self.state(l, h, N, P)
            for i in range(N):
                s[i] = [fade * c + step * B[g][i] * v[h][j] for j, c in enumerate(s[i])]
            out += [sum(C[g][i] * s[i][j] for i in range(N)) + skip[h] * v[h][j] for j in range(P)]
        out = [y * silu(c) for y, c in zip(out, z)]
        norm = self.w(l, "ssm_norm.weight")
        if norm:
            norm = norm if isinstance(norm[0], list) else [norm]
            out = sum((rms(r, w, self.eps) for r, w in zip(cut(out, D // G), norm)), [])
        return mul(self.w(l, "ssm_out.weight"), out)

    def short_conv(self, l, x):
        rows = mul(self.w(l, "shortconv.in_proj.weight"), x)
        n = len(rows) // 3
        u = [b * v for b, v in zip(rows[:n], rows[2 * n :])]
        y = self.conv(l, "u", u, self.w(l, "shortconv.conv.weight"))
        return mul(
            self.w(l, "shortconv.out_proj.weight"), [c * v for c, v in zip(rows[n : 2 * n], y)]
        )

    # ---- attention ----

    def rotated(self, x, pos):
        if self.arch.startswith("nemotron") or self.kv.get("rope.scaling.finetuned") is False:
            return x
        n_rot = self.kv.get("rope.dimension_count", len(x))
        return rotate(
            x, pos, n_rot, self.kv.get("rope.freq_base", 1e4), self.arch == "granitehybrid"
        )

    def attend(self, l, q, k, v, scale, chosen=None):
        """q: heads; k, v: KV heads of this token, which join those before. chosen: the positions
        that the heads of each KV head read"""
        rows = self.memory[l].setdefault("rows", [])
        rows.append((k, v))
        out = []
        for h, one in enumerate(q):
            g = h * len(k) // len(q)
            past = [rows[i] for i in chosen[g]] if chosen else rows
            p = softmax([scale * sum(map(lambda a, b: a * b, one, r[0][g])) for r in past])
            out.append([sum(w * r[1][g][j] for w, r in zip(p, past)) for j in range(len(v[0]))])
        return out

    # ---- selectors: the positions that a token reads ----

    def index_queries(self, l, x, pos):
        d = self.kv["attention.indexer.key_length"]
        w = self.w(l, "indexer.q_norm.weight")
        q = cut(mul(self.w(l, "indexer.q_proj.weight"), x), d)
        return [self.rotated(rms(one, w, self.eps), pos) for one in q]

    def chosen_blocks(self, l, x, pos):
        """MSA: for each KV head, the blocks with the largest q . k, and the newest ones"""
        kv = self.kv
        size, k = kv["attention.indexer.block_size"], kv["attention.indexer.top_k"]
        key = mul(self.w(l, "indexer.k_proj.weight"), x)
        key = self.rotated(rms(key, self.w(l, "indexer.k_norm.weight"), self.eps), pos)
        keys = self.memory[l].setdefault("index", [])
        keys.append(key)
        chosen = []
        for q in self.index_queries(l, x, pos):
            dots = [sum(map(lambda a, b: a * b, q, one)) for one in keys]
            score = [max(block) for block in cut(dots, size)]
            for b in range(max(0, len(score) - kv["attention.indexer.local_blocks"]), len(score)):
                score[b] = math.inf
            best = sorted(range(len(score)), key=lambda b: (-score[b], b))[:k]
            chosen.append([i for i in range(pos + 1) if i // size in best])
        return chosen

    def chosen_means(self, l, x, pos):
        """QSA: the complete blocks whose mean keys score highest, and the tail"""
        size = self.of(l, "attention.compress_ratios")
        k = self.kv["attention.indexer.top_k"] // size
        keys = self.memory[l].setdefault("index", [])
        keys.append(mul(self.w(l, "indexer.k_proj.weight"), x))
        score, q = [], self.index_queries(l, x, pos)
        for b in range(len(keys) // size):
            mean = [sum(c) / size for c in zip(*keys[b * size : (b + 1) * size])]
            mean = rms(mean, self.w(l, "indexer.k_norm.weight"), self.eps)
            mean = self.rotated(mean, b * size)
            score.append(sum(max(0, sum(map(lambda a, b: a * b, one, mean))) for one in q))
        best = sorted(range(len(score)), key=lambda b: (-score[b], b))[:k]
        read = [i for i in range(pos + 1) if i // size in best or i // size >= len(score)]
        return [read] * self.kv["attention.head_count_kv"]

    def chosen(self, l, x, pos):
        if not self.w(l, "indexer.q_proj.weight"):
            return None
        choose = self.chosen_means if self.arch == "qwen4exp" else self.chosen_blocks
        return choose(l, x, pos)

    def attention(self, l, x, pos):
        d = self.kv.get("attention.key_length", len(x) // self.n_head)
        q, k, v = (cut(mul(self.w(l, f"attn_{s}.weight"), x), d) for s in "qkv")
        gate = None
        if self.arch.startswith("qwen"):
            q, gate = q[::2], sum(q[1::2], [])
        for s, rows in (("q", q), ("k", k)):
            w = self.w(l, f"attn_{s}_norm.weight")
            for i in range(len(rows)):
                rows[i] = self.rotated(rms(rows[i], w, self.eps) if w else rows[i], pos)
        scale = self.kv.get("attention.scale", 1 / math.sqrt(d))
        y = sum(self.attend(l, q, k, v, scale, self.chosen(l, x, pos)), [])
        if gate:
            y = [a * sigmoid(b) for a, b in zip(y, gate)]
        return mul(self.w(l, "attn_output.weight"), y)

    def latents(self, l, x):
        d, rank = self.kv["attention.key_length_mla"], self.kv["attention.kv_lora_rank"]
        q, row = cut(mul(self.w(l, "attn_q.weight"), x), d), mul(
            self.w(l, "attn_kv_a_mqa.weight"), x
        )
        latent = rms(row[:rank], self.w(l, "attn_kv_a_norm.weight"), self.eps)
        k = [mul(list(zip(*w)), latent) + row[rank:] for w in self.w(l, "attn_k_b.weight")]
        v = [mul(w, latent) for w in self.w(l, "attn_v_b.weight")]
        return mul(
            self.w(l, "attn_output.weight"), sum(self.attend(l, q, k, v, 1 / math.sqrt(d)), [])
        )

    # ---- feed-forward ----

    def ffn(self, gate, up, down, x):
        h = mul(up, x)
        if self.arch == "minimax-m3":
            g = [min(a, 7) for a in mul(gate, x)]
            return mul(
                down, [a * sigmoid(1.702 * a) * (max(-7, min(b, 7)) + 1) for a, b in zip(g, h)]
            )
        h = [silu(a) * b for a, b in zip(mul(gate, x), h)] if gate else [max(a, 0) ** 2 for a in h]
        return mul(down, h)

    def experts(self, l, x):
        logit, n = mul(self.w(l, "ffn_gate_inp.weight"), x), self.kv["expert_used_count"]
        soft = self.arch.startswith("qwen") or self.arch == "granitehybrid"
        p = softmax(logit) if soft else [sigmoid(a) for a in logit]
        by = [a + b for a, b in zip(p, self.w(l, "exp_probs_b.bias") or [0] * len(p))]
        best = sorted(range(len(p)), key=lambda e: -by[e])[:n]
        total, scale = sum(p[e] for e in best), self.kv.get("expert_weights_scale", 1)
        gate, latent = self.w(l, "ffn_gate_exps.weight"), self.w(l, "ffn_latent_down.weight")
        low = mul(latent, x) if latent else x
        out = [0.0] * len(low)
        for e in best:
            y = self.ffn(
                gate and gate[e],
                self.w(l, "ffn_up_exps.weight")[e],
                self.w(l, "ffn_down_exps.weight")[e],
                low,
            )
            out = [a + p[e] / total * scale * b for a, b in zip(out, y)]
        out = mul(self.w(l, "ffn_latent_up.weight"), out) if latent else out
        if self.w(l, "ffn_up_shexp.weight"):
            y = self.ffn(*(self.w(l, f"ffn_{s}_shexp.weight") for s in ("gate", "up", "down")), x)
            w = self.w(l, "ffn_gate_inp_shexp.weight")
            w = sigmoid(sum(map(lambda a, b: a * b, flat(w), x))) if w else 1
            out = [a + w * b for a, b in zip(out, y)]
        return out

    # ---- several residual streams ----

    def norm_streams(self, x, w):
        return sum((rms(a, b, self.eps) for a, b in zip(x, cut(w, len(x[0])))), [])

    def read_streams(self, name, x):
        """What a block reads, and how much of its result each stream gets"""
        n = len(x)
        y = self.norm_streams(x, self.t[f"{name}_norm.weight"])
        low = [silu(a / n) for a in mul(self.t[f"{name}_down.weight"], y)]
        gate = [sigmoid(a) for a in mul(self.t[f"{name}_up.weight"], low)]
        y, m = cut([a * b for a, b in zip(gate, y)], len(x[0])), y
        inject = self.t.get(f"{name}_inject.weight")
        w = [2 * sigmoid(a / n) for a in mul(inject, m)] if inject else None
        return [sum(c) / n for c in zip(*y)], w

    def ngram_rows(self):
        kv, eos = self.kv, self.kv["ple.eos_token_id"]
        last, ended = [], False
        for j in range(kv["ple.ngram_size"]):
            token = self.tokens[-1 - j] if j < len(self.tokens) and not ended else eos
            ended = ended or (j > 0 and token == eos)
            last.append(token)
        mixed, rows = last[0] * kv["ple.layer_multipliers"][0], []
        for n in range(1, len(last)):
            mixed ^= last[n] * kv["ple.layer_multipliers"][n]
            hashed = (mixed + (1 << 63)) % (1 << 64) - (1 << 63)  # 64 bits with a sign
            for _ in range(kv["ple.heads_per_ngram"]):
                h = len(rows)
                rows.append(hashed % kv["ple.head_vocab_sizes"][h] + kv["ple.head_offsets"][h])
        return rows

    def ngrams(self, l, x):
        """What the streams get of the embeddings of the last tokens"""
        H, table = len(x[0]), self.t["per_layer_token_embd.weight"]
        e = sum((list(table[r]) for r in self.ngram_rows()), [])
        key = cut(mul(self.w(l, "ple_key.weight"), e), H)
        key = cut(self.norm_streams(key, self.w(l, "ple_norm_key.weight")), H)
        query = cut(self.norm_streams(x, self.w(l, "ple_norm_query.weight")), H)
        value, v = mul(self.w(l, "ple_value.weight"), e), []
        for a, b in zip(key, query):
            s = sum(map(lambda c, d: c * d, a, b)) / math.sqrt(H)
            s = math.copysign(math.sqrt(max(abs(s), 1e-6)), s) if s else 0
            v.append([sigmoid(s) * c for c in value])
        past = self.memory[l].setdefault("ngrams", [])
        past.append(self.norm_streams(v, self.w(l, "ple_norm_conv.weight")))
        taps, apart = self.w(l, "ple_conv1d.weight"), self.kv["ple.ngram_size"]
        y = [0.0] * len(past[-1])
        for j in range(len(taps[0])):
            i = len(past) - 1 - j * apart
            if i >= 0:
                y = [a + w[-1 - j] * b for a, w, b in zip(y, taps, past[i])]
        return [[a + silu(b) for a, b in zip(*rows)] for rows in zip(v, cut(y, H))]

    def feed_streams(self, token, pos):
        n = self.kv["hyper_connection.count"]
        x = [list(self.t["token_embd.weight"][token]) for _ in range(n)]
        self.tokens.append(token)

        def add(w, y):
            for stream, a in zip(x, w):
                stream[:] = [c + a * b for c, b in zip(stream, y)]

        for l in range(self.n_layer):
            if l in self.kv.get("ple.layers", []):
                x = [[a + b for a, b in zip(*rows)] for rows in zip(x, self.ngrams(l, x))]
            y, w = self.read_streams(f"blk.{l}.hc_attn", x)
            add(w, self.mix(l, y, pos))
            y, w = self.read_streams(f"blk.{l}.hc_ffn", x)
            add(w, self.experts(l, y))
        return mul(self.t["output.weight"], self.read_streams("output_hc", x)[0])

    # ---- a token ----

    def mix(self, l, x, pos):
        if self.arch.startswith("qwen"):
            return self.delta(l, x) if self.is_mixed(l) else self.attention(l, x, pos)
        if self.arch == "kimi-linear":
            return self.kda(l, x) if self.is_mixed(l) else self.latents(l, x)
        if self.arch.startswith("lfm2"):
            return self.short_conv(l, x) if self.is_mixed(l) else self.attention(l, x, pos)
        y = self.mamba2(l, x) if self.is_mixed(l) else self.attention(l, x, pos)
        if self.arch == "falcon-h1":
            y = [a + b for a, b in zip(y, self.attention(l, x, pos))]
        return y

    def feed(self, token, pos):
        kv = self.kv
        if self.arch == "qwen4exp":
            return self.feed_streams(token, pos)
        x = [a * kv.get("embedding_scale", 1) for a in self.t["token_embd.weight"][token]]
        single, scale = self.arch.startswith("nemotron") or self.arch == "mamba2", kv.get(
            "residual_scale", 1
        )
        for l in range(self.n_layer):
            y = rms(x, self.w(l, "attn_norm.weight"), self.eps)
            network = not single
            if single and self.of(l, "feed_forward_length", 0):
                network = True
            else:
                x = [a + scale * b for a, b in zip(x, self.mix(l, y, pos))]
            if not network:
                continue
            if not single:
                norm = (
                    self.w(l, "ffn_norm.weight")
                    or self.w(l, "post_attention_norm.weight")
                    or self.w(l, "ffn_norm")
                )
                y = rms(x, norm, self.eps)
            if self.w(l, "ffn_gate_inp.weight"):
                y = self.experts(l, y)
            else:
                y = self.ffn(*(self.w(l, f"ffn_{s}.weight") for s in ("gate", "up", "down")), y)
            x = [a + scale * b for a, b in zip(x, y)]
        last = "token_embd_norm.weight" if self.arch.startswith("lfm2") else "output_norm.weight"
        x = rms(x, self.t[last], self.eps)
        return [
            a / kv.get("logit_scale", 1)
            for a in mul(self.t.get("output.weight", self.t["token_embd.weight"]), x)
        ]


def flat(x):
    return sum((flat(a) if isinstance(a, list) else [a] for a in x), [])


# ---- recipes ----

H, HEADS, KV, D, FF = 48, 4, 2, 16, 80
BASE = {"context_length": 512, "embedding_length": H, "feed_forward_length": FF}
ATT = {
    "attention.head_count": HEADS,
    "attention.key_length": D,
    "attention.value_length": D,
    "rope.freq_base": 1e4,
}
RMS = {"attention.layer_norm_rms_epsilon": 1e-6}
MOE = {"expert_count": 5, "expert_used_count": 2, "expert_feed_forward_length": 24}
DELTA = {
    "ssm.conv_kernel": 4,
    "ssm.state_size": 12,
    "ssm.group_count": 2,
    "ssm.time_step_rank": 4,
    "ssm.inner_size": 80,
}
MAMBA = {
    "ssm.conv_kernel": 4,
    "ssm.state_size": 12,
    "ssm.group_count": 2,
    "ssm.time_step_rank": 4,
    "ssm.inner_size": 96,
}


def attention(gated=1, norms=1):
    t = {
        "attn_q": [H, gated * HEADS * D],
        "attn_k": [H, KV * D],
        "attn_v": [H, KV * D],
        "attn_output": [HEADS * D, H],
    }
    if norms:
        t |= {"attn_q_norm": [D], "attn_k_norm": [D]}
    return t


def delta(grouped=0):
    t = {
        "attn_qkv": [H, 128],
        "attn_gate": [H, 80],
        "ssm_conv1d": [4, 128],
        "ssm_a": [4],
        "ssm_dt.bias": [4],
        "ssm_norm": [20],
        "ssm_out": [80, H],
    }
    return t | ({"ssm_ba": [H, 8]} if grouped else {"ssm_beta": [H, 4], "ssm_alpha": [H, 4]})


def mamba(kv, norm=1):
    N, G, Dx, n = (
        kv["ssm." + k] for k in ("state_size", "group_count", "inner_size", "time_step_rank")
    )
    L, c = kv["ssm.conv_kernel"], Dx + 2 * G * N
    t = {
        "ssm_in": [H, Dx + c + n],
        "ssm_conv1d": [L, c],
        "ssm_conv1d.bias": [c],
        "ssm_a": [1, n],
        "ssm_d": [1, n],
        "ssm_dt.bias": [n],
        "ssm_out": [Dx, H],
    }
    return t | ({"ssm_norm": [Dx // G, G]} if norm else {})


def kda():
    n = HEADS * D
    t = {f"attn_{s}": [H, n] for s in "qkv"} | {f"ssm_conv1d_{s}": [4, 1, n] for s in "qkv"}
    return t | {
        "ssm_a": [1, HEADS],
        "ssm_beta": [H, HEADS],
        "ssm_dt.bias": [n],
        "ssm_f_a": [H, D],
        "ssm_f_b": [D, n],
        "ssm_g_a": [H, D],
        "ssm_g_b": [D, n],
        "ssm_norm": [D],
        "attn_output": [n, H],
    }


MLA = {
    "attn_q": [H, HEADS * 24],
    "attn_kv_a_mqa": [H, 40],
    "attn_kv_a_norm": [32],
    "attn_k_b": [16, 32, HEADS],
    "attn_v_b": [32, 16, HEADS],
    "attn_output": [HEADS * 16, H],
}
CONV = {"shortconv.in_proj": [H, 3 * H], "shortconv.conv": [3, H], "shortconv.out_proj": [H, H]}
DENSE = {"ffn_gate": [H, FF], "ffn_up": [H, FF], "ffn_down": [FF, H]}


def experts(gate=1, shared=0, bias=0, latent=0):
    n = latent or H
    t = {"ffn_gate_inp": [H, 5]} | {
        f"ffn_{s}_exps": [n, 24, 5] for s in (["gate"] if gate else []) + ["up"]
    }
    if latent:
        t |= {"ffn_latent_down": [H, n], "ffn_latent_up": [n, H]}
    t |= {"ffn_down_exps": [24, n, 5]} | ({"exp_probs_b.bias": [5]} if bias else {})
    if shared:
        t |= {f"ffn_{s}_shexp": [H, 40] for s in (["gate"] if gate else []) + ["up"]} | {
            "ffn_down_shexp": [40, H]
        }
    return t


QWEN = ATT | RMS | DELTA | {"attention.head_count_kv": KV, "rope.dimension_count": 8}
STREAMS, RANK = 3, 10


def streams(name, inject=1):
    n = STREAMS * H
    t = {f"{name}_norm": [n], f"{name}_down": [n, RANK], f"{name}_up": [RANK, n]}
    return t | ({f"{name}_inject": [n, STREAMS]} if inject else {})


def index(heads, d):
    return {
        "indexer.q_proj": [H, heads * d],
        "indexer.k_proj": [H, d],
        "indexer.q_norm": [d],
        "indexer.k_norm": [d],
    }


PLE = {
    "ple_key": [32, STREAMS * H],
    "ple_value": [32, H],
    "ple_norm_key": [STREAMS * H],
    "ple_norm_query": [STREAMS * H],
    "ple_norm_conv": [STREAMS * H],
    "ple_conv1d": [3, STREAMS * H],
}
MIXES = streams("hc_attn") | streams("hc_ffn")
PLAIN_QWEN = {k: v for k, v in (BASE | QWEN | MOE).items() if k != "feed_forward_length"}


def msa(heads, d, top_k, block, local):
    return {
        "attention.indexer.head_count": heads,
        "attention.indexer.key_length": d,
        "attention.indexer.top_k": top_k,
        "attention.indexer.block_size": block,
        "attention.indexer.local_blocks": local,
    }


M3 = (
    BASE
    | ATT
    | RMS
    | MOE
    | {
        "attention.head_count_kv": KV,
        "rope.dimension_count": 8,
        "expert_gating_func": 2,
        "expert_weights_norm": True,
        "expert_weights_scale": 2.0,
        "leading_dense_block_count": 1,
    }
)
N1, N2, NP = {"attn_norm": [H]}, {"ffn_norm": [H]}, {"post_attention_norm": [H]}
GATE = {"ffn_gate_inp_shexp": [H, 1]}
NEXTN = (
    attention(2)
    | N1
    | NP
    | DENSE
    | {"nextn.eh_proj": [2 * H, H], "nextn.enorm": [H], "nextn.hnorm": [H]}
)

# name -> (architecture, metadata, tensors of each block, tied output)
MODELS = {
    "qwen35": (
        "qwen35",
        BASE
        | QWEN
        | {
            "rope.dimension_sections": [2, 1, 1, 0],
            "nextn_predict_layers": 1,
            "attention.recurrent_layers": [True, False, True, False],
        },
        [N1 | NP | DENSE | m for m in (delta(), attention(2), delta())] + [NEXTN],
        1,
    ),
    "qwen35moe": (
        "qwen35moe",
        {k: v for k, v in (BASE | QWEN | MOE).items() if k != "feed_forward_length"}
        | {"full_attention_interval": 2},
        [N1 | NP | experts(1, 1) | GATE | m for m in (delta(), attention(2))],
        0,
    ),
    "qwen3next": (
        "qwen3next",
        BASE | QWEN | MOE | {"attention.recurrent_layers": [True, True, False]},
        [N1 | NP | experts(1, 1) | GATE | m for m in (delta(1), delta(1), attention(2))],
        0,
    ),
    "lfm2": (
        "lfm2",
        BASE | ATT | RMS | {"attention.head_count_kv": [0, KV, 0], "shortconv.l_cache": 3},
        [N1 | N2 | DENSE | m for m in (CONV, attention(), CONV)],
        1,
    ),
    "lfm2moe": (
        "lfm2moe",
        BASE
        | ATT
        | RMS
        | MOE
        | {
            "attention.head_count_kv": [0, KV],
            "shortconv.l_cache": 3,
            "expert_gating_func": 2,
            "leading_dense_block_count": 1,
        },
        [N1 | N2 | DENSE | CONV, N1 | N2 | experts(1, 0, 1) | attention()],
        1,
    ),
    "granitehybrid": (
        "granitehybrid",
        BASE
        | ATT
        | RMS
        | MAMBA
        | MOE
        | {
            "attention.head_count_kv": [0, KV, 0],
            "rope.scaling.finetuned": False,
            "attention.scale": 0.3,
            "embedding_scale": 2.0,
            "residual_scale": 0.5,
            "logit_scale": 1.5,
        },
        [N1 | N2 | experts(1, 1) | m for m in (mamba(MAMBA), attention(1, 0), mamba(MAMBA))],
        1,
    ),
    "granitedense": (
        "granitehybrid",
        BASE
        | ATT
        | RMS
        | MAMBA
        | {
            "attention.head_count_kv": [0, KV],
            "ssm.group_count": 1,
            "ssm.conv_kernel": 3,
            "residual_scale": 0.5,
        },
        [
            N1 | N2 | DENSE | m
            for m in (mamba(MAMBA | {"ssm.group_count": 1, "ssm.conv_kernel": 3}), attention(1, 0))
        ],
        1,
    ),
    "nemotron_h": (
        "nemotron_h",
        BASE
        | ATT
        | MAMBA
        | {
            "attention.layer_norm_epsilon": 1e-5,
            "attention.head_count_kv": [0, 0, KV, 0],
            "feed_forward_length": [0, FF, 0, 0],
        },
        [
            N1 | m
            for m in (
                mamba(MAMBA),
                {"ffn_up": [H, FF], "ffn_down": [FF, H]},
                attention(1, 0),
                mamba(MAMBA),
            )
        ],
        0,
    ),
    "nemotron_h_moe": (
        "nemotron_h_moe",
        BASE
        | ATT
        | MAMBA
        | MOE
        | {
            "attention.layer_norm_epsilon": 1e-5,
            "attention.head_count_kv": [0, KV, 0],
            "feed_forward_length": [0, 0, 24],
            "expert_weights_norm": True,
            "expert_weights_scale": 2.5,
        },
        [N1 | m for m in (mamba(MAMBA), attention(1, 0), experts(0, 1, 1))],
        0,
    ),
    "falcon-h1": (
        "falcon-h1",
        BASE | ATT | RMS | MAMBA | {"attention.head_count_kv": KV},
        [N1 | DENSE | {"ffn_norm!": [H]} | attention(1, 0) | mamba(MAMBA, 0) for _ in range(2)],
        0,
    ),
    "mamba2": (
        "mamba2",
        {
            "context_length": 512,
            "embedding_length": H,
            "feed_forward_length": 0,
            "attention.head_count": 0,
        }
        | RMS
        | MAMBA,
        [N1 | mamba(MAMBA) for _ in range(2)],
        1,
    ),
    "qwen4exp": (
        "qwen4exp",
        PLAIN_QWEN
        | {
            "attention.recurrent_layers": [True, False, True, False],
            "hyper_connection.count": STREAMS,
            "hyper_connection.low_rank": RANK,
            "attention.indexer.head_count": 3,
            "attention.indexer.key_length": 12,
            "attention.indexer.top_k": 10,
            "attention.compress_ratios": [0, 3, 0, 5],
            "ple.layers": [2],
            "ple.ngram_size": 3,
            "ple.heads_per_ngram": 2,
            "ple.conv_kernel": 3,
            "ple.eos_token_id": 7,
            "embedding_length_per_layer_input": 8,
            "ple.layer_multipliers": [25912437101140037, -21043097849633001, 26491075874708125],
            "ple.head_offsets": [0, 23, 52, 83],
            "ple.head_vocab_sizes": [23, 29, 31, 37],
        },
        [
            MIXES | experts(1, 1) | GATE | m
            for m in (
                delta(),
                attention(2) | index(3, 12),
                delta() | PLE,
                attention(2) | index(3, 12),
            )
        ],
        0,
    ),
    "minimax-m3": (
        "minimax-m3",
        M3 | msa(KV, 12, 3, 4, 1),
        [N1 | N2 | attention() | DENSE]
        + [N1 | N2 | attention() | index(KV, 12) | experts(1, 1, 1) for _ in range(2)],
        0,
    ),
    "minimax-m3local": (
        "minimax-m3",
        M3 | msa(KV, 8, 4, 3, 2) | {"nextn_predict_layers": 1},
        [N1 | N2 | attention() | DENSE]
        + [N1 | N2 | attention() | index(KV, 8) | experts(1, 1, 1) for _ in range(3)],
        0,
    ),
    "kimi-linear": (
        "kimi-linear",
        BASE
        | RMS
        | MOE
        | {
            "attention.head_count": HEADS,
            "attention.head_count_kv": [0, 1, 0],
            "ssm.conv_kernel": 4,
            "kda.head_dim": D,
            "attention.kv_lora_rank": 32,
            "rope.dimension_count": 8,
            "attention.key_length": 40,
            "attention.value_length": 8,
            "attention.key_length_mla": 24,
            "attention.value_length_mla": 16,
            "expert_gating_func": 2,
            "leading_dense_block_count": 1,
            "expert_weights_scale": 2.4,
        },
        [
            N1 | N2 | DENSE | kda(),
            N1 | N2 | experts(1, 1, 1) | MLA,
            N1 | N2 | experts(1, 1, 1) | kda(),
        ],
        0,
    ),
    "nemotron_h_latent": (
        "nemotron_h_moe",
        BASE
        | ATT
        | MAMBA
        | MOE
        | {
            "attention.layer_norm_epsilon": 1e-5,
            "attention.head_count_kv": [0, KV, 0],
            "feed_forward_length": [0, 0, 24],
            "expert_weights_norm": True,
            "expert_weights_scale": 2.5,
            "moe_latent_size": 20,
        },
        [N1 | m for m in (mamba(MAMBA), attention(1, 0), experts(0, 1, 1, 20))],
        0,
    ),
}


def deviation(name, shape, tied):
    if name.endswith("ssm_a"):
        return -1.0, 0.8
    if name.endswith("ssm_d") or "norm" in name:
        return 1.0, 0.3
    if name.endswith(".bias"):
        return 0.0, 0.5
    if "conv" in name and "proj" not in name:
        return 0.0, 0.8
    if name.startswith("token_embd"):
        return 0.0, 2 / math.sqrt(shape[0]) if tied else 1.0
    gain = 2 if any(s in name for s in ("attn_q.", "attn_k.", "output.w")) else 1
    gain = 4 if "gate_inp" in name else gain
    return 0.0, gain * math.sqrt(3 / shape[0])


# Queries of 0, for which all blocks score the same
TIES = {"qwen4exp": "blk.3.indexer.q_proj", "minimax-m3local": "blk.1.indexer.q_proj"}


def tensors(model, arch, blocks, tied):
    last = "token_embd_norm" if arch.startswith("lfm2") else "output_norm"
    rows = {"token_embd.weight": [H, N_VOCAB], last + ".weight": [H]}
    if arch == "qwen4exp":
        rows = {f"{n}.weight": s for n, s in streams("output_hc", 0).items()}
        rows |= {"token_embd.weight": [H, N_VOCAB], "per_layer_token_embd.weight": [8, 120]}
    if not tied:
        rows["output.weight"] = [H, N_VOCAB]
    for l, block in enumerate(blocks):
        for name, shape in block.items():
            plain = name.endswith(".bias") or name in ("ssm_a", "ssm_d") or name.endswith("!")
            rows[f"blk.{l}.{name.rstrip('!')}" + ("" if plain else ".weight")] = shape
    rows = [[n, s, *deviation(n, s, tied)] for n, s in rows.items()]
    for row in rows:
        if row[0] == TIES.get(model, "") + ".weight":
            row[3] = 0.0
    return rows


def nest(x, shape):
    for n in shape[:-1]:
        x = cut(x, n)
    return x


def kinds(arch, kv):
    for key, v in kv.items():
        one = v[0] if isinstance(v, list) else v
        kind = {bool: "bool", int: "uint32", float: "float32", str: "string"}[type(one)]
        kind = "int64" if key.startswith("ple.") and isinstance(v, list) else kind
        yield [f"{arch}.{key}", kind + ("s" if isinstance(v, list) else ""), v]


def write(folder, name):
    arch, kv, blocks, tied = MODELS[name]
    kv = {"block_count": len(blocks)} | kv
    rows = tensors(name, arch, blocks, tied)
    t = {}
    for number, (tensor, shape, mean, width) in enumerate(rows):
        n = math.prod(shape)
        t[tensor] = nest([f32(mean + width * draw(number + 1, i)) for i in range(n)], shape)
    ids = [3 + int((draw(9999, i) + 1) / 2 * (N_VOCAB - 4)) for i in range(N_TOKENS)]
    model = Model(arch, {k: f32(v) if isinstance(v, float) else v for k, v in kv.items()}, t)
    logits = [model.feed(id, i) for i, id in enumerate(ids)]
    head = dict(
        arch=arch, n_ctx=64, ask={}, kv=list(kinds(arch, kv)), given={}, ids=ids, after=LOGITS_AFTER
    )
    with open(f"{folder}/family-{name}.json", "w") as f:
        f.write(
            json.dumps(head)[:-1]
            + ',\n"tensors": [\n'
            + ",\n".join(map(json.dumps, rows))
            + '],\n"logits": [\n'
        )
        f.write(
            ",\n".join("[" + ", ".join(f"{x:.6f}" for x in logits[i]) + "]" for i in LOGITS_AFTER)
            + "]}\n"
        )
    print(name, max(abs(x) for i in LOGITS_AFTER for x in logits[i]))


# ---- a file ----


def read_gguf(path):
    b = open(path, "rb").read()
    at = 24
    sizes = {
        0: "B",
        1: "b",
        2: "H",
        3: "h",
        4: "I",
        5: "i",
        6: "f",
        7: "?",
        10: "Q",
        11: "q",
        12: "d",
    }

    def take(fmt):
        nonlocal at
        v = struct.unpack_from("<" + fmt, b, at)[0]
        at += struct.calcsize("<" + fmt)
        return v

    def text():
        nonlocal at
        n = take("Q")
        at += n
        return b[at - n : at].decode("utf-8", "replace")

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            kind, n = take("I"), take("Q")
            return [value(kind) for _ in range(n)]
        return take(sizes[kind])

    n_tensor, n_kv = struct.unpack_from("<QQ", b, 8)
    kv = {}
    for _ in range(n_kv):
        key = text()
        kv[key] = value(take("I"))
    infos = []
    for _ in range(n_tensor):
        name = text()
        shape = [take("Q") for _ in range(take("I"))]
        infos.append((name, shape, take("I"), take("Q")))
    at = (at + 31) // 32 * 32
    t = {}
    for name, shape, kind, offset in infos:
        assert kind in (0, 26), name
        while len(shape) > 1 and shape[-1] == 1:
            shape.pop()
        form = f"<{math.prod(shape)}{'i' if kind else 'f'}"
        t[name] = nest(list(struct.unpack_from(form, b, at + offset)), shape)
    arch = kv["general.architecture"]
    return arch, {k[len(arch) + 1 :]: v for k, v in kv.items() if k.startswith(arch + ".")}, t


def check(path, recorded, kind=Model):
    e = json.load(open(recorded))
    model = kind(*read_gguf(path))
    worst = 0
    for i, id in enumerate(e["ids"][:-1]):
        p = model.feed(id, i)
        top = max(p)
        nll = top + math.log(sum(math.exp(a - top) for a in p)) - p[e["ids"][i + 1]]
        worst = max(worst, abs(nll - e["nll"][i]))
    print(path, worst)


if __name__ == "__main__":
    if sys.argv[1] == "--check":
        check(*sys.argv[2:4])
    else:
        for name in sys.argv[2:] or MODELS:
            write(sys.argv[1], name)
