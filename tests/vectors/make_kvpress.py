#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_kvpress.py - which tokens NVIDIA's kvpress keeps of a prompt, and the losses after it.

Dequantises a GGUF model to float32 (make_continuation.py does that), feeds it
the first tokens of a context under each of kvpress's presses, and writes which
positions every layer and KV head keeps, and the loss of each of the tokens that
follow, which are appended one by one at their true positions. tests/check_kvpress.c
holds ctxbank to it.

    make_kvpress.py MODEL.gguf continuation-NAME.json -o kvpress-NAME.json

The ids are those of continuation-NAME.json. Masks are hexadecimal, position 0 the
lowest bit. Needs: kvpress, torch, transformers, tokenizers, gguf.
"""

import argparse
import json
import os

import gguf
import torch
from kvpress import KVzipPress, PyramidKVPress, SimLayerKVPress, SnapKVPress, StreamingLLMPress
from kvpress.presses import kvzip_press
from kvpress.presses.snapkv_press import SnapKVPress as Window
from transformers import DynamicCache

from make_continuation import load_model, make_tokenizer, sha256_file, write_json

# ctxbank's policy, and the press with the same options
CASES = [
    ("full", None),
    ("streamingllm:budget=512,positions=kept,decode=grow",
     StreamingLLMPress(compression_ratio=0.75, n_sink=4)),
    ("snapkv:budget=512,window=64,kernel=5,pool=mean,group=mean",
     SnapKVPress(compression_ratio=0.75, window_size=64, kernel_size=5)),
    ("pyramidkv:budget=0.25,window=64,kernel=5,pool=mean,group=mean,beta=4,budgets=kvpress",
     PyramidKVPress(compression_ratio=0.75, window_size=64, kernel_size=5, beta=4)),
    # kvpress keeps one recent token less than it is given
    ("simlayerkv:sink=4,recent=255,mode=prefill,window=1,threshold={threshold},decode=grow",
     SimLayerKVPress(lazy_threshold=0.5, n_last=1, n_recent=256, n_initial=4)),
    # the last one: it leaves marks in the model
    ("kvzip:budget=512,sink=4,chunk=512", KVzipPress(compression_ratio=0.75, chunk_size=512)),
]
SINK, TURN = 4, "<|im_end|>\n<|im_start|>assistant\n"


def mark(keys, stored):
    """For each KV head, the positions whose key is stored -> masks; one where all are alike."""
    masks = []
    for all_keys, kept in zip(keys[0], stored[0]):
        rows = {k.numpy().tobytes(): i for i, k in enumerate(all_keys)}
        assert len(rows) == len(all_keys), "two keys are the same"
        masks.append(sum(1 << rows[k.numpy().tobytes()] for k in kept))
    return masks[:1] if len(set(masks)) == 1 else masks


class Words:
    """The tokenizer that KVzipPress opens, of a form whose text before the user's has SINK tokens:
    those that ctxbank neither repeats nor scores. Marks of turns are tokens of their own."""

    chat_template = "given"

    def __init__(self, tok, meta):
        self.tok = tok
        tok.add_special_tokens([t for t, kind in zip(meta("tokenizer.ggml.tokens"),
                                                     meta("tokenizer.ggml.token_type"))
                                if kind == gguf.TokenType.CONTROL])

    def apply_chat_template(self, messages, **_):
        return "before" + messages[0]["content"] + TURN

    def encode(self, text, **_):
        if text == "before":
            return torch.zeros(1, SINK, dtype=torch.long)
        return torch.tensor([self.tok.encode(text, add_special_tokens=False).ids])


def unmasked(model, n):
    """What KVzipPress has left of n tokens: it hides the others -> masks of layers and KV heads"""
    kept = []
    for layer in model.model.layers:
        masks = [(1 << n) - 1] * model.config.num_key_value_heads
        for head, i in zip(*(x.tolist() for x in layer.self_attn.masked_key_indices[1:])):
            masks[head] &= ~(1 << i)
        kept.append(masks)
    return kept


class Lazy:
    """Writes down the mass that decides about each layer."""

    def __init__(self, n_initial, n_recent):
        self.ends, self.mass = (n_initial, n_recent), []
        self.plain = Window.compute_window_attention

    def __call__(self, *args):
        w = self.plain(*args)
        m = w.mean((0, 1, 2))
        self.mass.append(float(m[:self.ends[0]].sum() + m[-self.ends[1]:].sum()))
        return w


@torch.inference_mode()
def prefill(model, ids, press):
    cache, where = DynamicCache(), torch.arange(len(ids))
    args = {"past_key_values": cache, "cache_position": where, "position_ids": where[None],
            "logits_to_keep": 1}
    if press is None:
        out = model(input_ids=torch.tensor([ids]), **args)
    else:
        with press(model):
            out = model(input_ids=torch.tensor([ids]), **args)
    return cache, out.logits[0, -1]


@torch.inference_mode()
def losses(model, cache, logits, n, target):
    nll = []
    for i, t in enumerate(target):
        nll.append(torch.nn.functional.cross_entropy(logits[None], torch.tensor([t])).item())
        where = torch.tensor([n + i])
        logits = model(input_ids=torch.tensor([[t]]), past_key_values=cache, cache_position=where,
                       position_ids=where[None]).logits[0, -1]
    return nll


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("model")
    ap.add_argument("ids", help="continuation-NAME.json")
    ap.add_argument("-o", "--output", required=True)
    ap.add_argument("--context", type=int, default=2048)
    ap.add_argument("--target", type=int, default=128)
    ap.add_argument("--threshold", type=float, default=0.5, help="SimLayerKV's")
    args = ap.parse_args()

    with open(args.ids, encoding="utf-8") as f:
        ids = json.load(f)["context_ids"]
    context, target = ids[:args.context], ids[args.context:args.context + args.target]
    reader = gguf.GGUFReader(args.model)
    meta = lambda key: reader.fields[key].contents()
    model = load_model(reader, meta)
    words = Words(make_tokenizer(meta), meta)
    kvzip_press.AutoTokenizer.from_pretrained = lambda _: words

    whole, rows = None, []
    for policy, press in CASES:
        lazy = None
        if isinstance(press, SimLayerKVPress):
            press.lazy_threshold = args.threshold
            lazy = SnapKVPress.compute_window_attention = Lazy(press.n_initial, press.n_recent)
        cache, logits = prefill(model, context, press)
        keys = [layer.keys.clone() for layer in cache.layers]
        whole = whole or keys
        row = {"policy": policy.format(threshold=args.threshold),
               "kept": [[f"{m:x}" for m in masks] for masks in
                        (unmasked(model, len(context)) if isinstance(press, KVzipPress) else
                         [mark(a, b) for a, b in zip(whole, keys)])],
               "token_nll": [round(x, 6) for x in losses(model, cache, logits, len(context),
                                                         target)]}
        if lazy:
            row["mass"] = [round(x, 6) for x in lazy.mass]
            SnapKVPress.compute_window_attention = lazy.plain
        whole_kept = all(k.shape[2] == len(context) for k in keys)
        if press is None or whole_kept and not isinstance(press, KVzipPress):
            row["kept"] = None
        print(row["policy"], "nll", sum(row["token_nll"]) / len(target),
              [k.shape[2] for k in keys], [round(x, 3) for x in row.get("mass", [])], flush=True)
        rows.append(row)
    write_json(args.output, {
        "made_by": "tests/vectors/make_kvpress.py",
        "model": os.path.basename(args.model),
        "model_sha256": sha256_file(args.model),
        "ids": os.path.basename(args.ids),
        "n_context": len(context),
        "n_target": len(target),
        "cases": rows,
    })


if __name__ == "__main__":
    main()
