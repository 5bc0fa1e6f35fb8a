#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_published.py - MiniCache and InfiniGen from their papers, on a real model.

A forward pass of llama and qwen2 models in NumPy, apart from every other program,
with weights dequantised to float32. It reads the first tokens of a context, then
the tokens that follow under each case, and writes their losses, the tokens that
MiniCache keeps unmerged, and those that InfiniGen's last layer reads.
tests/methods/check_kvpress.c holds ctxbank to them.

    make_published.py MODEL.gguf continuation-NAME.json -o published-NAME.json

The ids are those of continuation-NAME.json, whose losses (of transformers) the
full case must have: --check compares them. Masks are hexadecimal, position 0 the lowest
bit. Needs: numpy, gguf.

MiniCache (Liu et al. 2024, section 4): adjacent layers of the upper half share the
direction on the great circle between theirs, each at its own length; the tokens
with the largest angles keep both rows. InfiniGen (Lee et al. 2024, section 4): the
input of the layer before guesses the queries; the columns of the right singular
vectors of the prompt's queries give logits; each query head reads as many of its
largest as heads have, on average, within alpha of their largest, at most a share.
With lists of KV heads (group=max) query heads share one, which the paper lacks.
"""

import argparse
import hashlib
import json
import math
import os

import gguf
import numpy as np

TAIL, EVERY = 64, 16  # tokens that are merged at a time; between tokens whose slots are written


class Model:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        meta = lambda key: reader.fields[key].contents()
        arch = self.arch = meta("general.architecture")
        self.n_layer = meta(f"{arch}.block_count")
        self.n_head, self.n_kv = (meta(f"{arch}.attention.head_count{x}") for x in ("", "_kv"))
        self.group = self.n_head // self.n_kv
        self.hd = meta(f"{arch}.embedding_length") // self.n_head
        self.eps = meta(f"{arch}.attention.layer_norm_rms_epsilon")
        self.turn = meta(f"{arch}.rope.freq_base") ** (-2 * np.arange(self.hd // 2) / self.hd)
        self.w = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in reader.tensors}

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.w[name]

    def rotate(self, x, pos):
        """x[n][heads][hd]; llama files turn adjacent pairs, qwen2 files halves"""
        angle = (pos[:, None] * self.turn)[:, None].astype(np.float32)
        one, other = ((slice(0, None, 2), slice(1, None, 2)) if self.arch == "llama" else
                      (slice(0, self.hd // 2), slice(self.hd // 2, None)))
        y = np.empty_like(x)
        y[..., one] = x[..., one] * np.cos(angle) - x[..., other] * np.sin(angle)
        y[..., other] = x[..., one] * np.sin(angle) + x[..., other] * np.cos(angle)
        return y

    def project(self, l, name, x, pos=None):
        y = x @ self.w[f"blk.{l}.attn_{name}.weight"].T + self.w.get(f"blk.{l}.attn_{name}.bias", 0)
        y = y.reshape(len(x), -1, self.hd)
        return y if pos is None else self.rotate(y, pos)

    def mlp(self, l, x):
        gate, up = (x @ self.w[f"blk.{l}.ffn_{name}.weight"].T for name in ("gate", "up"))
        return (gate / (1 + np.exp(-gate)) * up) @ self.w[f"blk.{l}.ffn_down.weight"].T

    def logits(self, x):
        head = self.w.get("output.weight", self.w["token_embd.weight"])
        return self.norm(x, "output_norm.weight") @ head.T


class Full:
    def prompt_end(self, run):
        pass

    def reads(self, run, l, before, pos):
        """-> [n][n_head][n_slots] 1: is read; None: everything"""
        return None

    def fed(self, run):
        pass

    def row(self):
        return {}


class MiniCache(Full):
    def __init__(self, retain, t=0.6, start=0.5):
        self.retain, self.t, self.start = retain, t, start

    def prompt_end(self, run):
        self.merged, self.kept, self.angle = 0, {}, {}
        self.merge(run)
        self.of_prompt = {key: list(x) for key, x in self.kept.items()}

    def fed(self, run):
        if run.n - self.merged >= TAIL:
            self.merge(run)

    def merge(self, run):
        total = math.ceil(self.retain * run.n) if self.retain < 1 else self.retain
        for l in range(int(self.start * run.model.n_layer), run.model.n_layer - 1, 2):
            for h in range(run.model.n_kv):
                for side, rows in enumerate((run.k, run.v)):
                    self.share(rows[l:l + 2, self.merged:run.n, h], total, (l, h, side))
        self.merged = run.n

    def share(self, pair, total, key):
        """pair[2][n][hd] of the tokens that are not merged yet"""
        x, y = pair.astype(np.float64)
        nx, ny = (np.linalg.norm(z, axis=-1, keepdims=True) for z in (x, y))
        angle = np.arccos(np.clip((x / nx * (y / ny)).sum(-1, keepdims=True), -1, 1))
        kept = self.kept.setdefault(key, [])
        new = np.argsort(-angle[:, 0], kind="stable")[:max(0, total - len(kept))]
        kept += [int(i) + self.merged for i in new]
        self.angle.setdefault(key, angle.mean())
        e = np.sin((1 - self.t) * angle) * x / nx + np.sin(self.t * angle) * y / ny
        e /= np.sin(angle)
        merges = np.ones(len(x), bool)
        merges[new] = False
        pair[0, merges], pair[1, merges] = (nx * e)[merges], (ny * e)[merges]

    def row(self):
        layers = sorted({l for l, _, _ in self.kept})
        masks = {l: [[mask(self.of_prompt[l, h, side]) for side in range(2)]
                     for h in sorted({h for _, h, _ in self.kept})] for l in layers}
        return {"retained": masks,
                "degrees": {side: [round(float(np.degrees(np.mean(
                    [a for (m, _, s), a in self.angle.items() if (m, s) == (l, i)]))), 1)
                    for l in layers] for i, side in enumerate(("keys", "values"))}}


class InfiniGen(Full):
    def __init__(self, ratio=0.3, alpha=5, most=0.2, dense=2, group="max", own=False):
        self.ratio, self.alpha, self.most, self.dense = ratio, alpha, most, dense
        self.group, self.own = group, own  # own: the layer's own input instead of a guess

    def prompt_end(self, run):
        m, self.skew, self.chosen, self.share = run.model, {}, {}, []
        per = 1 if self.group == "each" else m.group
        for l in range(self.dense, m.n_layer):
            for h in range(m.n_head):
                kv = h // m.group  # keys are shared, so a KV head's query heads have one skew
                q = run.q[l][:, kv * m.group:(kv + 1) * m.group].reshape(-1, m.hd)
                _, s, v = np.linalg.svd(q.astype(np.float64), full_matrices=False)
                along = s * np.linalg.norm(run.k[l, :run.n, kv] @ v.T, axis=0)
                self.skew[l, h] = v[np.argsort(-along)[:int(self.ratio * m.hd)]].T
        self.n_list, self.per = m.n_head // per, per

    def reads(self, run, l, before, pos):
        if l < self.dense:
            return None
        m, n = run.model, pos[-1] + 1
        guess = m.project(l, "q", run.input if self.own else before, pos)
        logit = np.stack([guess[:, h] @ self.skew[l, h] @
                          (run.k[l, :n, h // m.group] @ self.skew[l, h]).T
                          for h in range(m.n_head)], 1) / math.sqrt(m.hd)
        out = np.zeros(logit.shape, bool)
        for i, p in enumerate(pos):
            below = logit[i, :, :p] - logit[i, :, :p].max(-1, keepdims=True)
            most = int(self.most * p) if self.most < 1 else self.most
            count = min(max(1, int((below >= -self.alpha).sum(-1).mean())), max(1, most), p)
            rank = below.reshape(self.n_list, self.per, p).max(1)
            best = np.argsort(-rank, kind="stable")[:, :count]
            for j, slots in enumerate(best):
                for h in range(j * self.per, (j + 1) * self.per):
                    out[i, h, slots] = True
            out[i, :, p] = True  # itself
            union = out[i, :, :p].reshape(m.n_kv, m.group, p).any(1).sum() / m.n_kv
            self.share.append((count / p, union / p))
            if l == m.n_layer - 1 and (p - run.n_prompt) % EVERY == 0:
                self.chosen[int(p - run.n_prompt)] = [mask([*slots, p]) for slots in best]
        return out

    def row(self):
        return {"chosen": self.chosen,
                "read_percent": [round(float(100 * x), 2) for x in np.mean(self.share, 0)]}


class Run:
    def __init__(self, model, n_most):
        self.model, self.n, self.q = model, 0, {}
        self.k = np.zeros((model.n_layer, n_most, model.n_kv, model.hd), np.float32)
        self.v = np.zeros_like(self.k)

    def copy(self):
        other = Run.__new__(Run)
        other.__dict__.update(self.__dict__)
        other.k, other.v, other.n_prompt = self.k.copy(), self.v.copy(), self.n
        return other

    def feed(self, ids, policy=None):
        """-> logits of all tokens; without a policy, that is a prompt, of the last one"""
        m, pos = self.model, np.arange(self.n, self.n + len(ids))
        x, before = m.w["token_embd.weight"][ids], None
        for l in range(m.n_layer):
            self.input = m.norm(x, f"blk.{l}.attn_norm.weight")
            q = m.project(l, "q", self.input, pos)
            self.k[l, pos], self.v[l, pos] = (m.project(l, "k", self.input, pos),
                                              m.project(l, "v", self.input))
            if not policy:
                self.q[l] = np.concatenate([self.q[l], q]) if l in self.q else q
            reads = policy.reads(self, l, before, pos) if policy else None
            x = x + self.attend(l, q, pos, reads) @ m.w[f"blk.{l}.attn_output.weight"].T
            x = x + m.mlp(l, m.norm(x, f"blk.{l}.ffn_norm.weight"))
            before = self.input
        self.n += len(ids)
        return m.logits(x if policy else x[-1:])

    def attend(self, l, q, pos, reads):
        m, n = self.model, pos[-1] + 1
        out = np.empty_like(q)
        for h in range(m.n_head):
            z = q[:, h] @ self.k[l, :n, h // m.group].T / np.float32(math.sqrt(m.hd))
            z[np.arange(n) > pos[:, None]] = -np.inf
            if reads is not None:
                z[~reads[:, h]] = -np.inf
            z = np.exp(z - z.max(-1, keepdims=True))
            out[:, h] = z / z.sum(-1, keepdims=True) @ self.v[l, :n, h // m.group]
        return out.reshape(len(q), -1)


CASES = {
    "full": Full(),
    "minicache:retain=0.05": MiniCache(0.05),
    "minicache:retain=300,t=0.3,start=0.7": MiniCache(300, 0.3, 0.7),
    "infinigen:group=each": InfiniGen(group="each"),
    "infinigen": InfiniGen(),
    "infinigen:group=each,alpha=1000": InfiniGen(alpha=1000, group="each"),
    "infinigen:group=each,ratio=0.5,alpha=8,most=150,dense=1": InfiniGen(0.5, 8, 150, 1, "each"),
}
# what ctxbank does not have: how much of the loss the guess causes
BESIDE = {"infinigen:group=each, its own queries": InfiniGen(group="each", own=True)}


def mask(slots):
    return f"{sum(1 << int(i) for i in slots):x}"


def log_softmax(z):
    z = z.astype(np.float64) - z.max(-1, keepdims=True)
    return z - np.log(np.exp(z).sum(-1, keepdims=True))


def follow(prompt, last, target, policy):
    """-> log probabilities of the tokens after the prompt, [len(target)][vocabulary]"""
    run, out = prompt.copy(), [last]
    policy.prompt_end(run)
    for i in range(0, len(target) - 1, TAIL):
        out.append(run.feed(target[i:min(i + TAIL, len(target) - 1)], policy))
        policy.fed(run)
    return log_softmax(np.concatenate(out))


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("model")
    ap.add_argument("ids", help="continuation-NAME.json")
    ap.add_argument("-o", "--output", required=True)
    ap.add_argument("--context", type=int, default=1024)
    ap.add_argument("--target", type=int, default=96)
    ap.add_argument("--check", action="store_true",
                    help="compare the losses after all of the context with transformers'")
    args = ap.parse_args()

    with open(args.ids, encoding="utf-8") as f:
        given = json.load(f)
    ids, n = given["context_ids"], args.context
    target = ids[n:n + args.target]
    if args.check:
        n, target = len(ids), given["target_ids"]
    prompt = Run(Model(args.model), n + len(target))
    for i in range(0, n, 512):
        last = prompt.feed(ids[i:min(i + 512, n)])
    at, full, rows = np.arange(len(target)), None, []
    for name, policy in {**CASES, **BESIDE}.items():
        logp = follow(prompt, last, target, policy)
        full = logp if full is None else full
        nll, kl = -logp[at, target], (np.exp(full) * (full - logp)).sum(-1)
        print(f"{name}: nll {nll.mean():.5f}, KL {kl.mean():.4f}", flush=True)
        if args.check:
            print("furthest from transformers:", abs(nll - given["token_nll"]).max())
            return
        rows.append({"policy": name, "kept": None, **policy.row(), "kld": round(kl.mean(), 4),
                     "token_nll": [round(x, 6) for x in nll.tolist()]})
    with open(args.model, "rb") as f:
        sha = hashlib.file_digest(f, "sha256").hexdigest()
    with open(args.output, "w", encoding="utf-8") as f:
        json.dump({"made_by": "tests/vectors/make_published.py",
                   "model": os.path.basename(args.model),
                   "model_sha256": sha, "ids": os.path.basename(args.ids), "n_context": n,
                   "n_target": len(target), "cases": rows[:len(CASES)],
                   "beside": rows[len(CASES):]}, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
