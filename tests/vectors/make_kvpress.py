#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_kvpress.py - which tokens NVIDIA's kvpress keeps of a prompt, and the losses after it.

Dequantises a GGUF model to float32 (make_continuation.py does that), feeds it
the first tokens of a context under each of kvpress's presses, and writes which
positions every layer and KV head keeps, and the loss of each of the tokens that
follow, which are appended one by one. tests/methods/check_kvpress.c holds ctxbank
to it. Where ctxbank's rule is another one than kvpress's, a class below changes the
press by just that, and says what it is.

    make_kvpress.py MODEL.gguf continuation-NAME.json -o kvpress-NAME.json [--only POLICY]

The ids are those of continuation-NAME.json. Masks are hexadecimal, position 0 the
lowest bit. Needs: kvpress, torch, transformers, tokenizers, gguf.
"""

import argparse
import contextlib
import json
import os
from collections import defaultdict
from dataclasses import dataclass, field

import gguf
import torch
from kvpress import (AdaKVPress, DecodingPress, DuoAttentionPress, ExpectedAttentionPress,
                     KeyDiffPress, KeyRerotationPress, KVzipPress, ObservedAttentionPress,
                     PyramidKVPress, SimLayerKVPress, SnapKVPress, StreamingLLMPress, TOVAPress)
from kvpress.presses import kvzip_press
from kvpress.presses.base_press import BasePress
from kvpress.presses.snapkv_press import SnapKVPress as Window
from transformers import DynamicCache

from make_continuation import load_model, make_tokenizer, sha256_file, write_json

SINK, TURN = 4, "<|im_end|>\n<|im_start|>assistant\n"


@dataclass
class SumPress(ObservedAttentionPress):
    """ObservedAttentionPress divides the attention that a token got by the number of queries that
    saw it, so it keeps other tokens than H2O. H2O sums, and keeps the last tokens besides."""

    recent: int = 256

    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        n = keys.shape[2]
        scores = super().score(module, hidden_states, keys, values, attentions, kwargs)
        scores = scores * torch.arange(n, 0, -1)
        scores[..., n - self.recent:] = torch.inf
        return scores


class EachStep:
    """A press that acts after each generated token, too. kvpress's act on the prompt alone."""

    def forward_hook(self, module, _, kwargs, output):
        layer = kwargs["past_key_values"].layers[module.layer_idx]
        layer.keys, layer.values = self.compress(module, kwargs["hidden_states"], layer.keys,
                                                 layer.values, output[1], kwargs)
        return output


@dataclass
class H2OPress(EachStep, BasePress):
    """H2O as ctxbank has it: sums of each query head, whose largest counts, go on while tokens are
    generated, and each of these evicts one."""

    budget: int
    recent: int
    sums: dict = field(default_factory=dict)  # of each layer [n_kv][group][slots]

    def compress(self, module, hidden_states, keys, values, attentions, kwargs):
        n_kv, n, dim = keys.shape[1:]
        sums = attentions[0].sum(1).view(n_kv, -1, n)
        if module.layer_idx in self.sums:
            sums += torch.nn.functional.pad(self.sums[module.layer_idx], (0, 1))
        scores = sums.amax(1)
        scores[:, n - self.recent:] = torch.inf
        kept = scores.topk(self.budget).indices.sort().values
        self.sums[module.layer_idx] = sums.gather(2, kept[:, None].expand(-1, sums.shape[1], -1))
        kept = kept[None, :, :, None].expand(-1, -1, -1, dim)
        return keys.gather(2, kept), values.gather(2, kept)


@dataclass
class HeadsPress(EachStep, DuoAttentionPress):
    """DuoAttention with given retrieval heads. Streaming heads drop a token at each step, as in the
    paper; kvpress's keep all that is generated."""

    retrieval: tuple = ()

    def post_init_from_model(self, model):
        shape = model.config.num_hidden_layers, model.config.num_key_value_heads
        self.sink_size, self.recent_size = 128, 256
        self.streaming_mask = torch.ones(shape, dtype=torch.bool)
        self.streaming_mask.view(-1)[list(self.retrieval)] = False


@dataclass
class RolledPress(KeyRerotationPress):
    """KeyRerotationPress that says which tokens it kept, since it turns their keys."""

    kept: dict = field(default_factory=dict)  # of each layer [1][n_kv][slots]

    def rerotate_keys(self, module, indices, keys):
        self.kept[module.layer_idx] = indices
        return KeyRerotationPress.rerotate_keys(module, indices, keys)


@dataclass
class Case:
    policy: str  # ctxbank's
    press: object = None  # while the prompt is read
    then: object = None  # while tokens follow
    piece: int = 0  # tokens of the prompt that are fed at a time; 0: all
    eager: bool = False  # the press wants attention weights


HEADS = tuple(range(0, 90, 4))
CASES = [
    Case("full"),
    Case("window:budget=512,prefill=dense,decode=grow",
         StreamingLLMPress(compression_ratio=0.75, n_sink=0)),
    Case("streamingllm:budget=512,positions=kept,decode=grow",
         StreamingLLMPress(compression_ratio=0.75, n_sink=4)),
    Case("streamingllm:budget=512,positions=rolled,decode=grow",
         RolledPress(StreamingLLMPress(compression_ratio=0.75, n_sink=4))),
    Case("snapkv:budget=512,window=64,kernel=5,pool=mean,group=mean",
         SnapKVPress(compression_ratio=0.75, window_size=64, kernel_size=5)),
    # A fifth of 512 tokens is a head's own, the window of 64 among them, as kvpress counts.
    # ctxbank counts the others: 38 of 448.
    Case("snapkv:budget=512,window=64,kernel=5,pool=mean,group=mean,floor=0.085",
         AdaKVPress(SnapKVPress(compression_ratio=0.75, window_size=64, kernel_size=5),
                    alpha_safeguard=0.2)),
    Case("pyramidkv:budget=0.25,window=64,kernel=5,pool=mean,group=mean,beta=4,budgets=kvpress",
         PyramidKVPress(compression_ratio=0.75, window_size=64, kernel_size=5, beta=4)),
    # kvpress keeps one recent token less than it is given
    Case("simlayerkv:sink=4,recent=255,mode=prefill,window=1,threshold={threshold},decode=grow",
         SimLayerKVPress(lazy_threshold=0.5, n_last=1, n_recent=256, n_initial=4)),
    Case("tova:budget=512", TOVAPress(compression_ratio=0.75),
         DecodingPress(TOVAPress(), compression_interval=1, target_size=512)),
    Case("h2o:budget=512,recent=0.5,group=mean,positions=rolled,decode=grow",
         RolledPress(SumPress(compression_ratio=0.75)), eager=True),
    Case("h2o:budget=512,recent=0.5,group=max", h2o := H2OPress(512, 256), h2o, eager=True),
    Case("keydiff:budget=512,decode=bounded,chunk=32", KeyDiffPress(compression_ratio=0.75),
         DecodingPress(KeyDiffPress(), compression_interval=32, target_size=512)),
    # BlockPress drops block by block after a dense prefill. In the paper, and here, later blocks
    # see what is left. DecodingPress does that to a prompt that is fed in blocks.
    Case("keydiff:budget=512,drop=chunk,chunk=128",
         DecodingPress(KeyDiffPress(), compression_interval=1, target_size=512), piece=128),
    Case("expected:budget=512,sink=4,future=512,eps=0.01,floor=1",
         ExpectedAttentionPress(compression_ratio=0.75, epsilon=0.01)),
    # A fifth of 512 tokens, 4 first ones among them, are 98 of 508.
    Case("expected:budget=512,sink=4,future=512,eps=0.01,floor=0.193",
         AdaKVPress(ExpectedAttentionPress(compression_ratio=0.75, epsilon=0.01),
                    alpha_safeguard=0.2)),
    Case("duo:sink=128,recent=256,heads=" + "+".join(map(str, HEADS)),
         duo := HeadsPress(retrieval=HEADS), duo),
    Case("kvzip:budget=512,sink=4,chunk=512", KVzipPress(compression_ratio=0.75, chunk_size=512)),
    Case("kvzip:budget=512,sink=4,chunk=512,among=layer",
         KVzipPress(compression_ratio=0.75, chunk_size=512, layerwise=True)),
]


class Remembering(DynamicCache):
    """Has the keys of all tokens that ever came, also of those that a press dropped."""

    def __init__(self):
        super().__init__()
        self.came = defaultdict(list)

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        self.came[layer_idx].append(key_states)
        return super().update(key_states, value_states, layer_idx, *args, **kwargs)


def alike(masks):
    """One mask where those of all KV heads are alike"""
    return masks[:1] if len(set(masks)) == 1 else masks


def mark(keys, stored):
    """For each KV head, the positions whose key is stored -> masks"""
    masks = []
    for all_keys, kept in zip(keys[0], stored[0]):
        rows = {k.numpy().tobytes(): i for i, k in enumerate(all_keys)}
        assert len(rows) == len(all_keys), "two keys are the same"
        masks.append(sum(1 << rows[k.numpy().tobytes()] for k in kept))
    return alike(masks)


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
    """What is left of n tokens where a press hides the others -> masks of layers and KV heads"""
    kept = []
    for layer in model.model.layers:
        masks = [(1 << n) - 1] * model.config.num_key_value_heads
        for head, i in zip(*(x.tolist() for x in layer.self_attn.masked_key_indices[1:])):
            masks[head] &= ~(1 << i)
        kept.append(masks)
    return kept


def kept_slots(model, case, cache, n):
    """-> masks of layers and KV heads, or None where all n tokens are kept"""
    if isinstance(case.press, RolledPress):
        return [alike([sum(1 << i for i in head) for head in case.press.kept[l][0].tolist()])
                for l in range(len(cache.layers))]
    if getattr(model.model.layers[0].self_attn, "masked_key_indices", None):
        return unmasked(model, n)
    if all(layer.keys.shape[2] == n for layer in cache.layers):
        return None
    return [mark(torch.cat(cache.came[l], 2), layer.keys) for l, layer in enumerate(cache.layers)]


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
def feed(model, ids, cache, pos):
    """Tokens at positions from pos on -> logits of the last one"""
    held = cache.get_seq_length()  # by which masks count
    return model(input_ids=torch.tensor([ids]), past_key_values=cache, logits_to_keep=1,
                 cache_position=torch.arange(held, held + len(ids)),
                 position_ids=torch.arange(pos, pos + len(ids))[None]).logits[0, -1]


def active(press, model):
    return press(model) if press else contextlib.nullcontext()


def prefill(model, ids, case):
    cache, piece = Remembering(), case.piece or len(ids)
    model.set_attn_implementation("eager" if case.eager else "sdpa")
    for layer in model.model.layers:
        layer.self_attn.masked_key_indices = None  # another press's
    with active(case.press, model):
        for i in range(0, len(ids), piece):
            logits = feed(model, ids[i:i + piece], cache, i)
    return cache, logits


def losses(model, case, cache, logits, n, target):
    nll = []
    with active(case.then, model):
        for i, t in enumerate(target):
            nll.append(torch.nn.functional.cross_entropy(logits[None], torch.tensor([t])).item())
            logits = feed(model, [t], cache, n + i)
    return nll


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("model")
    ap.add_argument("ids", help="continuation-NAME.json")
    ap.add_argument("-o", "--output", required=True)
    ap.add_argument("--context", type=int, default=2048)
    ap.add_argument("--target", type=int, default=128)
    ap.add_argument("--threshold", type=float, default=0.5, help="SimLayerKV's")
    ap.add_argument("--only", default="",
                    help="policies that begin so; the output keeps the others")
    args = ap.parse_args()

    with open(args.ids, encoding="utf-8") as f:
        ids = json.load(f)["context_ids"]
    context, target = ids[:args.context], ids[args.context:args.context + args.target]
    reader = gguf.GGUFReader(args.model)
    meta = lambda key: reader.fields[key].contents()
    model = load_model(reader, meta)
    words = Words(make_tokenizer(meta), meta)
    kvzip_press.AutoTokenizer.from_pretrained = lambda _: words

    rows = {}
    if args.only:
        with open(args.output, encoding="utf-8") as f:
            rows = {row["policy"]: row for row in json.load(f)["cases"]}
    for case in CASES:
        if not case.policy.startswith(args.only):
            continue
        lazy = None
        if isinstance(case.press, SimLayerKVPress):
            case.press.lazy_threshold = args.threshold
            lazy = SnapKVPress.compute_window_attention = Lazy(case.press.n_initial,
                                                               case.press.n_recent)
        cache, logits = prefill(model, context, case)
        kept = kept_slots(model, case, cache, len(context))
        # turned keys are counted from the first one that is kept
        n = cache.get_seq_length() if isinstance(case.press, RolledPress) else len(context)
        row = {"policy": case.policy.format(threshold=args.threshold),
               "kept": kept and [[f"{m:x}" for m in masks] for masks in kept],
               "token_nll": [round(x, 6)
                             for x in losses(model, case, cache, logits, n, target)]}
        if lazy:
            row["mass"] = [round(x, 6) for x in lazy.mass]
            SnapKVPress.compute_window_attention = lazy.plain
        print(row["policy"], "nll", sum(row["token_nll"]) / len(target),
              [round(x, 3) for x in row.get("mass", [])], flush=True)
        rows[row["policy"]] = row
    policies = [case.policy.format(threshold=args.threshold) for case in CASES]
    write_json(args.output, {
        "made_by": "tests/vectors/make_kvpress.py",
        "model": os.path.basename(args.model),
        "model_sha256": sha256_file(args.model),
        "ids": os.path.basename(args.ids),
        "n_context": len(context),
        "n_target": len(target),
        "cases": [rows[policy] for policy in policies if policy in rows],
    })


if __name__ == "__main__":
    main()
