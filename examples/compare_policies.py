# SPDX-License-Identifier: MIT
"""compare_policies - what three policies keep of the full cache: divergence of the next tokens,
bytes held, bytes read for a token.

usage: python3 compare_policies.py MODEL.gguf TEXT [N_PROMPT [N_TARGET]]"""
import math
import sys

import numpy

import ctxbank

POLICIES = ["full", "sieve:budget=256", "snapkv:budget=256", "streamingllm:budget=256"]


def log_softmax(logits):
    top = logits.max()
    return logits - top - math.log(numpy.exp(logits - top, dtype=numpy.float64).sum())


def distributions(model, policy, prompt, target):
    """log p[len(target)][n_vocab] of the tokens that follow, and the session's memory"""
    with ctxbank.Session(model, n_ctx=len(prompt) + len(target), policy=policy) as session:
        session.prefill(prompt)
        out = []
        for token in target:
            out.append(log_softmax(session.logits))
            session.decode(token)
        return numpy.array(out), session.memory


def main():
    path, text = sys.argv[1:3]
    n_prompt, n_target = [int(x) for x in (sys.argv[3:] + ["1024", "32"][len(sys.argv) - 3:])]
    with ctxbank.Model(path) as model:
        with open(text, encoding="utf-8") as f:
            tokens = model.tokenize(f.read())[:n_prompt + n_target]
        prompt, target = tokens[:n_prompt], tokens[n_prompt:]
        full, _ = distributions(model, "full", prompt, target)
        print(f"{'policy':28}{'KL':>9}{'same top':>10}{'held MB':>9}{'read MB':>9}")
        for policy in POLICIES:
            mine, memory = distributions(model, policy, prompt, target)
            kl = (numpy.exp(full) * (full - mine)).sum(axis=1).mean()
            same = (full.argmax(axis=1) == mine.argmax(axis=1)).mean()
            print(f"{policy:28}{kl:9.4f}{100 * same:9.0f}%{memory['kv_bytes'] / 1e6:9.1f}"
                  f"{memory['kv_read_bytes_per_token'] / 1e6:9.1f}")


main()
