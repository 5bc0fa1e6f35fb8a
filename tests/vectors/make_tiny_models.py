#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_tiny_models.py - tiny random models and their logits, by PyTorch.

    make_tiny_models.py OUTPUT_FOLDER

For every row of MODELS: builds the transformers model of the family with random
weights, runs it in float64 over 40 random tokens, and writes

    tiny-NAME.gguf   the weights in f32 (values that bfloat16 holds, so that the
                     files compress), metadata and tensors named and laid out as
                     converters do it for the family: rows of q and k of the
                     "llama" architecture are reordered for rotation of pairs
    tiny-NAME.json   the token ids, and the logits after some of them

Needs: torch, transformers, gguf, numpy.
"""

import json
import math
import os
import sys

import gguf
import numpy as np
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

N_TOKENS = 40
LOGITS_AFTER = [0, 1, 7, 8, 9, 22, 38, 39]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
N_VOCAB = 256 + 1 + len(SPECIAL)  # bytes, "th", special ones

SIZES = dict(
    vocab_size=N_VOCAB,
    hidden_size=48,
    num_hidden_layers=2,
    num_attention_heads=3,
    num_key_value_heads=1,
    intermediate_size=80,
    max_position_embeddings=512,
    rms_norm_eps=1e-5,
    attn_implementation="eager",
    bos_token_id=257,
    eos_token_id=259,
    pad_token_id=None,
)


def rope(theta, **kw):
    return dict(rope_parameters=dict(rope_type="default", rope_theta=theta) | kw)


MODELS = {
    "llama": (LlamaForCausalLM, LlamaConfig(**SIZES, **rope(10000.0), tie_word_embeddings=False)),
    # an original context of 64 spreads the eight frequencies over all three ranges of the scaling
    "llama3.1": (
        LlamaForCausalLM,
        LlamaConfig(
            **SIZES | dict(num_attention_heads=4, num_key_value_heads=2, hidden_size=64),
            **rope(
                10000.0,
                rope_type="llama3",
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=64,
            ),
            tie_word_embeddings=True,
        ),
    ),
    "linear": (
        LlamaForCausalLM,
        LlamaConfig(
            **SIZES, **rope(10000.0, rope_type="linear", factor=4.0), tie_word_embeddings=True
        ),
    ),
    # heads that are not hidden_size / heads wide, and a window that 40 tokens outgrow
    "mistral": (
        MistralForCausalLM,
        MistralConfig(
            **SIZES | dict(num_attention_heads=4, num_key_value_heads=2),
            **rope(10000.0),
            head_dim=16,
            sliding_window=8,
            tie_word_embeddings=False,
        ),
    ),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**SIZES, **rope(1e6), tie_word_embeddings=False)),
    "qwen2tied": (
        Qwen2ForCausalLM,
        Qwen2Config(
            **SIZES | dict(num_attention_heads=6, num_key_value_heads=2, num_hidden_layers=3),
            **rope(1e6),
            tie_word_embeddings=True,
        ),
    ),
}

LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
TOP_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def gguf_name(name):
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    _, _, layer, rest = name.split(".", 3)
    module, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{LAYER_NAMES[module]}.{kind}"


def randomize(model, rng):
    """Activations keep their size; q and k are larger, so that attention is far from uniform."""
    tied = model.config.tie_word_embeddings
    for name, p in model.named_parameters():
        if name.endswith("bias"):
            mean, dev = 0, 0.5
        elif "norm" in name:
            mean, dev = 1, 0.1
        elif "embed" in name:
            mean, dev = 0, 2 / math.sqrt(p.shape[1]) if tied else 1
        else:
            gain = 2 if "q_proj" in name or "k_proj" in name or "lm_head" in name else 1
            mean, dev = 0, gain / math.sqrt(p.shape[1])
        x = torch.from_numpy(rng.normal(mean, dev, tuple(p.shape))).bfloat16()
        p.data = x.double()


def for_pairs(x, n_head):
    """Rows of each head: the halves (0.., n/2..) interleaved, as rotation of pairs wants them."""
    return x.reshape(n_head, 2, x.shape[0] // n_head // 2, -1).swapaxes(1, 2).reshape(x.shape)


def llama3_factors(cfg, hd):
    """Divisors of the frequencies (Llama 3.1)."""
    r = cfg.rope_parameters
    old = r["original_max_position_embeddings"]
    lo, hi = r["low_freq_factor"], r["high_freq_factor"]
    out = []
    for i in range(hd // 2):
        wave = 2 * math.pi * r["rope_theta"] ** (2 * i / hd)
        smooth = min(max((old / wave - lo) / (hi - lo), 0), 1)
        out.append(1 / ((1 - smooth) / r["factor"] + smooth))
    return np.array(out, np.float32)


def byte_letters():
    """The characters that stand for the bytes 0 to 255 in byte-level BPE."""
    prints = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(b if b in prints else next(others)) for b in range(256)]


def write_vocab(w, pre):
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(pre)
    w.add_token_list(byte_letters() + ["th"] + SPECIAL)
    w.add_token_types([1] * 257 + [3] * len(SPECIAL))
    w.add_token_merges(["t h"])
    w.add_bos_token_id(257)
    w.add_eos_token_id(259)
    w.add_add_bos_token(False)


def write_gguf(name, model, path):
    cfg = model.config
    arch = "qwen2" if name.startswith("qwen2") else "llama"
    hd = getattr(cfg, "head_dim", None) or cfg.hidden_size // cfg.num_attention_heads
    w = gguf.GGUFWriter(path, arch)
    w.add_name(f"tiny {name}")
    w.add_block_count(cfg.num_hidden_layers)
    w.add_context_length(cfg.max_position_embeddings)
    w.add_embedding_length(cfg.hidden_size)
    w.add_feed_forward_length(cfg.intermediate_size)
    w.add_head_count(cfg.num_attention_heads)
    w.add_head_count_kv(cfg.num_key_value_heads)
    w.add_layer_norm_rms_eps(cfg.rms_norm_eps)
    w.add_rope_freq_base(cfg.rope_parameters["rope_theta"])
    w.add_vocab_size(cfg.vocab_size)
    if arch == "llama":
        w.add_rope_dimension_count(hd)
    if hd * cfg.num_attention_heads != cfg.hidden_size:
        w.add_key_length(hd)
        w.add_value_length(hd)
    if name == "mistral":
        w.add_sliding_window(cfg.sliding_window)
    if cfg.rope_parameters["rope_type"] == "linear":
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(cfg.rope_parameters["factor"])
    write_vocab(w, "qwen2" if arch == "qwen2" else "llama-bpe")
    if cfg.rope_parameters["rope_type"] == "llama3":
        w.add_tensor("rope_freqs.weight", llama3_factors(cfg, hd))
    for key, p in model.named_parameters():
        x = p.detach().float().numpy()
        if arch == "llama" and "q_proj" in key:
            x = for_pairs(x, cfg.num_attention_heads)
        if arch == "llama" and "k_proj" in key:
            x = for_pairs(x, cfg.num_key_value_heads)
        w.add_tensor(gguf_name(key), np.ascontiguousarray(x))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    folder = sys.argv[1]
    torch.set_num_threads(1)
    for seed, (name, (cls, cfg)) in enumerate(MODELS.items()):
        rng = np.random.default_rng(seed)
        model = cls(cfg).eval().double()
        randomize(model, rng)
        ids = rng.integers(0, N_VOCAB, N_TOKENS)
        with torch.no_grad():
            logits = model(torch.from_numpy(ids)[None]).logits[0]
        path = os.path.join(folder, f"tiny-{name}")
        write_gguf(name, model, path + ".gguf")
        rows = [[float(f"{v:.6g}") for v in logits[i].tolist()] for i in LOGITS_AFTER]
        with open(path + ".json", "w") as f:
            f.write('{"ids": %s,\n"after": %s,\n"logits": [\n' % (ids.tolist(), LOGITS_AFTER))
            f.write(",\n".join(json.dumps(r, separators=(",", ":")) for r in rows))
            f.write("]}\n")
        size = os.path.getsize(path + ".gguf")
        print(f"{name}: {size} bytes, logits {logits.min():.2f} to {logits.max():.2f}")


if __name__ == "__main__":
    main()
