#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_assistants.py - recipes of tiny assistants of Gemma 4, and their logits, by PyTorch.

    make_assistants.py OUTPUT_FOLDER

For each target, a model of make_families.py: builds the assistant with random
weights, runs the target in float64 over some of its tokens, and writes
assistant-NAME.json, a recipe like those of families, with "target", its recipe,
and "guesses": [after, decoded, n], n guesses after `after` tokens, of which the
last `decoded` ones are no prompt. "logits" are those of all guesses. A guess
after the first one begins with the likeliest token of the one before it.

The query stands at the position of the last token, whose own key is not there.
A layer with a window of 8 has the 7 keys before the query after a prompt, as in
llama.cpp, and 8 once tokens are decoded one by one. transformers counts the
window from the last key, so `sliding_window` is one less than these while it runs.

Needs: torch, transformers, gguf (with GEMMA4_ASSISTANT), numpy.
"""

import json
import os
import sys

import numpy as np
import torch
import transformers as tf

import make_families as mf

PLACES = [(5, 0), (30, 0), (30, 14)]  # tokens in all, and those of them that are decoded
STEPS = 3
WINDOW = 8
LEAD = 0.7  # a guess after the first one is made where it is so far before the next one
END = 2


def assistant_config(target):
    """Heads are as the target's, but for the number of queries."""
    each = [target.per_layer_config[i] for i in range(target.num_hidden_layers)]
    full = next(c for c, t in zip(each, target.layer_types) if t == "full_attention")
    text = tf.Gemma4TextConfig(
        vocab_size=target.vocab_size,
        hidden_size=40,
        num_hidden_layers=3,
        num_attention_heads=8,
        num_key_value_heads=target.num_key_value_heads,
        intermediate_size=64,
        max_position_embeddings=512,
        head_dim=16,
        global_head_dim=24,
        sliding_window=WINDOW,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        hidden_size_per_layer_input=0,
        vocab_size_per_layer_input=0,
        num_kv_shared_layers=3,
        attention_k_eq_v=full.num_key_value_heads != target.num_key_value_heads,
        num_global_key_value_heads=full.num_key_value_heads,
        attn_implementation="eager",
        bos_token_id=1,
        eos_token_id=END,
        pad_token_id=None,
    )
    text.allow_global_per_layer_attribute_access = True
    cfg = tf.Gemma4AssistantConfig(text_config=text, backbone_hidden_size=target.hidden_size)
    cfg._attn_implementation = "eager"
    return cfg


def layout(cfg, key, x, layer):
    for name in ["pre_projection", "post_projection"]:
        if key == f"{name}.weight":
            return {f"nextn.{name}.weight": x}
    return mf.gemma4(cfg, key, x, layer)


def guess(net, asst, ids, after, decoded):
    """[logits] of STEPS guesses, or of fewer, where one is not sure"""
    with torch.no_grad():
        out = net(torch.from_numpy(ids[:after])[None], use_cache=False, output_hidden_states=True,
                  return_shared_kv_states=True)
        state = out.hidden_states[-1][:, -1:]
        last, rows = int(ids[after]), []
        asst.model.config.sliding_window = WINDOW - 1 - (not decoded)
        for _ in range(STEPS):
            embd = net.get_input_embeddings()(torch.tensor([[last]]))
            got = asst(
                inputs_embeds=torch.cat([embd, state], dim=-1),
                position_ids=torch.tensor([[after]]),
                shared_kv_states=dict(out.shared_kv_states),
            )
            row, state = got.logits[0, -1], got.last_hidden_state
            best = torch.topk(row, 2)
            last = int(best.indices[0])
            lead = float(best.values[0] - best.values[1])
            unsure = (rows and lead < LEAD) or last == END
            rows.append(row.tolist())
            if unsure:
                break
    return rows


def write(name, folder):
    m = mf.MODELS[name]
    seed = list(mf.MODELS).index(name)
    cfg = tf.Gemma4TextConfig(**mf.SIZES | m["cfg"])
    cfg.allow_global_per_layer_attribute_access = True
    net = tf.Gemma4ForCausalLM(cfg).eval().double()
    mf.carry_over(m, net)
    ids = np.random.default_rng(seed).integers(0, mf.N_VOCAB, mf.N_TOKENS)
    own = assistant_config(cfg)
    asst = tf.Gemma4AssistantForCausalLM(own).eval().double()
    text = asst.model.config
    text.allow_global_per_layer_attribute_access = True
    mine = m | dict(arch="gemma4-assistant", layout=layout)
    asst.config.num_hidden_layers = text.num_hidden_layers
    tensors = mf.carry_over(mine, asst)
    kv = [row for row in mf.metadata(mine, text) if row[2] is not None]
    kv.append(["gemma4-assistant.embedding_length_out", "uint32", cfg.hidden_size])
    kv.append(["gemma4-assistant.nextn_predict_layers", "uint32", text.num_hidden_layers])
    rows = [guess(net, asst, ids, a, d) for a, d in PLACES]
    guesses = [[a, d, len(r)] for (a, d), r in zip(PLACES, rows)]
    rows = [[float(f"{v:.6g}") for v in row] for some in rows for row in some]
    doc = dict(arch=mine["arch"], target=f"family-{name}.json", n_ctx=64, ask={}, kv=kv,
               given=mf.divisors(text), ids=ids.tolist(), after=[], guesses=guesses)
    path = os.path.join(folder, f"assistant-{name}.json")
    with open(path, "w") as f:
        f.write(json.dumps(doc)[:-1] + ',\n"tensors": [\n')
        f.write(",\n".join(json.dumps(t) for t in tensors) + '],\n"logits": [\n')
        f.write(",\n".join(json.dumps(r, separators=(",", ":")) for r in rows) + "]}\n")
    print(f"{name}: {os.path.getsize(path)} bytes, {guesses}")


def main():
    torch.set_num_threads(1)
    for name in ["gemma4", "gemma4dense"]:
        write(name, sys.argv[1])


if __name__ == "__main__":
    main()
