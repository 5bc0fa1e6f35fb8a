#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_families.py - recipes of tiny models of every family, and their logits, by PyTorch.

    make_families.py OUTPUT_FOLDER [NAME...]

For every row of MODELS: builds the transformers model of the family with random
weights, runs it in float64 over 40 random tokens, and writes family-NAME.json:
metadata and tensors as converters of the family name and lay them out, and the
logits after some tokens. The weights themselves are not written: a generator
that numbers() and the test have in common makes those of each tensor from its
number, its mean and its deviation. The test writes the GGUF file.

Values are made for the tensors of the file, and carried over to the
parameters of the PyTorch model by running the layout's conversion on numbers
of elements instead of values.

Needs: torch, transformers, gguf, numpy.
"""

import json
import math
import os
import statistics
import sys

import gguf
import numpy as np
import torch
import transformers as tf

N_TOKENS = 40
LOGITS_AFTER = [0, 9, 23, 39]
N_VOCAB = 320

SIZES = dict(
    vocab_size=N_VOCAB,
    hidden_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    intermediate_size=80,
    max_position_embeddings=512,
    attn_implementation="eager",
    experts_implementation="eager",
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=None,
)
HD16 = dict(head_dim=16)


def rope(theta, **kw):
    return dict(rope_parameters=dict(rope_type="default", rope_theta=theta) | kw)


def numbers(seed, n):
    """Uniform numbers in [-1, 1): splitmix64 of the index."""
    with np.errstate(over="ignore"):
        x = (np.arange(1, n + 1, dtype=np.uint64) + np.uint64(seed << 32)) * np.uint64(
            0x9E3779B97F4A7C15
        )
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    return (x >> np.uint64(40)).astype(np.float64) / 2**23 - 1


# ---- layouts: HF parameter -> tensors of the file, {name: array} ----


def for_pairs(x, n_head):
    """Rows of each head: the halves interleaved, as rotation of pairs wants them."""
    return x.reshape(n_head, 2, x.shape[0] // n_head // 2, -1).swapaxes(1, 2).reshape(x.shape)


def pairs(cfg, key, x):
    if ".q_proj." in key:
        return for_pairs(x, cfg.num_attention_heads)
    if ".k_proj." in key:
        return for_pairs(x, cfg.num_key_value_heads)
    return x


def experts(cfg, key, x, layer):
    """Fused gate and up of all experts."""
    at = f"blk.{layer}.ffn_"
    if key.endswith("experts.gate_up_proj"):
        n = x.shape[1] // 2
        return {at + "gate_exps.weight": x[:, :n], at + "up_exps.weight": x[:, n:]}
    if key.endswith("experts.down_proj"):
        return {at + "down_exps.weight": x}
    return None


def gpt_oss_experts(cfg, key, x, layer):
    at = f"blk.{layer}.ffn_"
    if key.endswith("gate_up_proj"):
        x = x.swapaxes(1, 2)
        return {at + "gate_exps.weight": x[:, ::2], at + "up_exps.weight": x[:, 1::2]}
    if key.endswith("gate_up_proj_bias"):
        return {at + "gate_exps.bias": x[:, ::2], at + "up_exps.bias": x[:, 1::2]}
    if key.endswith("experts.down_proj"):
        return {at + "down_exps.weight": x.swapaxes(1, 2)}
    if key.endswith("experts.down_proj_bias"):
        return {at + "down_exps.bias": x}
    if key.endswith("sinks"):
        return {f"blk.{layer}.attn_sinks.weight": x}
    return None


def granite_experts(cfg, key, x, layer):
    at = f"blk.{layer}.ffn_"
    if key.endswith("shared_mlp.input_linear.weight"):
        n = x.shape[0] // 2
        return {at + "gate_shexp.weight": x[:n], at + "up_shexp.weight": x[n:]}
    return experts(cfg, key, x, layer)


def llama4_experts(cfg, key, x, layer):
    at = f"blk.{layer}.ffn_"
    if key.endswith("experts.gate_up_proj"):
        n = x.shape[2] // 2
        x = x.swapaxes(1, 2)
        return {at + "gate_exps.weight": x[:, :n], at + "up_exps.weight": x[:, n:]}
    if key.endswith("experts.down_proj"):
        return {at + "down_exps.weight": x.swapaxes(1, 2)}
    return None


def head_norms(cfg, key, x, layer):
    """StableLM has a norm for each head, which files stack."""
    for i, name in enumerate(["q", "k"]):
        mark = f"{name}_layernorm.norms."
        if mark in key:
            head = int(key.split(mark)[1].split(".")[0])
            return {f"blk.{layer}.attn_{name}_norm.weight": (head, x)}
    return None


def neox_qkv(cfg, key, x, layer):
    """q, k and v of each head are interleaved."""
    if "query_key_value" not in key:
        return None
    x = x.reshape(cfg.num_attention_heads, 3, -1, *x.shape[1:]).swapaxes(0, 1)
    kind = key.rsplit(".", 1)[1]
    return {f"blk.{layer}.attn_qkv.{kind}": x.reshape(-1, *x.shape[3:])}


def falcon_qkv(cfg, key, x, layer):
    """The queries of each KV head, its key and its value follow one another."""
    if "query_key_value" not in key:
        return None
    n_kv = cfg.num_kv_heads if cfg.new_decoder_architecture else 1
    n, hd = cfg.num_attention_heads // n_kv, cfg.hidden_size // cfg.num_attention_heads
    x = x.reshape(n_kv, n + 2, hd, -1)
    q, k, v = x[:, :n], x[:, n], x[:, n + 1]
    width = x.shape[-1]
    return {
        f"blk.{layer}.attn_qkv.weight": np.concatenate(
            [q.reshape(-1, width), k.reshape(-1, width), v.reshape(-1, width)]
        )
    }


def latent_experts(cfg, key, x, layer):
    if key.endswith("e_score_correction_bias"):
        return {f"blk.{layer}.exp_probs_b.bias": x}
    return experts(cfg, key, x, layer)


def latent_heads(cfg, key, x, layer):
    """Files of newer converters have kv_b by head, and its rows for keys transposed."""
    if not key.endswith("kv_b_proj.weight"):
        return None
    x = x.reshape(cfg.num_attention_heads, -1, cfg.kv_lora_rank)
    n = cfg.qk_nope_head_dim
    return {
        f"blk.{layer}.attn_k_b.weight": x[:, :n].swapaxes(1, 2),
        f"blk.{layer}.attn_v_b.weight": x[:, n:],
    }


def routed_experts(cfg, key, x, layer):
    """Experts, a bias to choose by, and shared experts under any name"""
    at = f"blk.{layer}."
    if key.endswith("e_score_correction_bias") or key.endswith("moe_statics"):
        return {at + "exp_probs_b.bias": x.reshape(-1)}
    if key.endswith((".mlp.gate.weight", ".mlp.gate.wg.weight")):
        return {at + "ffn_gate_inp.weight": x}
    for name in ["gate", "up", "down"]:
        if f".shared_mlp.{name}_proj" in key or f".shared_experts.{name}_proj" in key:
            return {at + f"ffn_{name}_shexp.weight": x}
    return experts(cfg, key, x, layer)


def late_norms(cfg, key, x, layer):
    for name in ["query", "key"]:
        if key.endswith(f"{name}_layernorm.weight"):
            return {f"blk.{layer}.attn_{name[0]}_norm.weight": x}
    return routed_experts(cfg, key, x, layer)


def afmoe(cfg, key, x, layer):
    at = f"blk.{layer}."
    if key.endswith("expert_bias"):
        return {at + "exp_probs_b.bias": x}
    if key.endswith("router.gate.weight"):
        return {at + "ffn_gate_inp.weight": x}
    return routed_experts(cfg, key, x, layer)


def fused_qkv(cfg, key, x, layer):
    """q, k and v, whose rows follow one another"""
    for i, name in enumerate(["q", "k", "v"]):
        if key.endswith(f"{name}_proj.weight"):
            return {f"blk.{layer}.attn_qkv.weight": (i, x)}
    return routed_experts(cfg, key, x, layer)


def gemma4(cfg, key, x, layer):
    """Fused gate and up of experts, and scales that are no matrices"""
    at = f"blk.{layer}."
    scales = {
        "layer_scalar": "layer_output_scale.weight",
        "router.scale": "ffn_gate_inp.scale",
        "router.per_expert_scale": "ffn_down_exps.scale",
        "router.proj.weight": "ffn_gate_inp.weight",
        "experts.gate_up_proj": "ffn_gate_up_exps.weight",
        "experts.down_proj": "ffn_down_exps.weight",
    }
    for end, name in scales.items():
        if key.endswith(end):
            return {at + name: x}
    return None


def gemma3n(cfg, key, x, layer):
    """Matrices of all streams but the first are stacked, and a vector has a suffix."""
    for name in ["altup_projections", "altup_unembed_projections"]:
        if f".{name}." in key:
            name = {"altup_projections": "altup_proj"}.get(name, "altup_unembd_proj")
            return {f"{name}.weight": (int(key.split(".")[-2]), x[None])}
    if key.endswith("altup.correct_output_scale"):
        return {f"blk.{layer}.altup_correct_scale.weight": x}
    if key.endswith("altup.modality_router.weight"):
        return {f"blk.{layer}.altup_router.weight": x}
    return None


# ---- metadata ----


def basics(w, cfg):
    w.add_block_count(cfg.num_hidden_layers)
    w.add_context_length(cfg.max_position_embeddings)
    w.add_embedding_length(cfg.hidden_size)
    w.add_head_count(cfg.num_attention_heads)
    n_kv = getattr(cfg, "num_key_value_heads", None) or getattr(cfg, "num_kv_heads", None)
    w.add_head_count_kv(n_kv or cfg.num_attention_heads)
    n_ff = [getattr(cfg, n, None) for n in ("ffn_hidden_size", "intermediate_size_mlp")]
    w.add_feed_forward_length(n_ff[0] or n_ff[1] or cfg.intermediate_size)
    if hasattr(cfg, "rms_norm_eps"):
        w.add_layer_norm_rms_eps(cfg.rms_norm_eps)
    else:
        for name in ["layer_norm_eps", "norm_epsilon", "layer_norm_epsilon"]:
            if hasattr(cfg, name):
                w.add_layer_norm_eps(getattr(cfg, name))
    r = cfg.rope_parameters
    r = r.get("full_attention", r)
    w.add_rope_freq_base(r["rope_theta"])
    hd = getattr(cfg, "head_dim", None)
    if hd:
        w.add_key_length(hd)
        w.add_value_length(hd)
    else:
        hd = cfg.hidden_size // cfg.num_attention_heads
    part = r.get("partial_rotary_factor", 1.0)
    part = 1.0 if r["rope_type"] == "proportional" else part
    w.add_rope_dimension_count(int(part * hd))
    kind = r["rope_type"]
    if kind in ("linear", "yarn"):
        w.add_rope_scaling_type(gguf.RopeScalingType(kind))
        w.add_rope_scaling_factor(r["factor"])
    if kind == "yarn":
        w.add_rope_scaling_orig_ctx_len(r["original_max_position_embeddings"])
    n = getattr(cfg, "num_local_experts", None) or getattr(cfg, "num_experts", None)
    if n:
        w.add_expert_count(n)
        used = getattr(cfg, "num_experts_per_tok", None) or getattr(cfg, "moe_topk", None)
        if used:
            w.add_expert_used_count(used)


def window(w, cfg):
    w.add_sliding_window(cfg.sliding_window)


def pattern(w, cfg):
    w.add_sliding_window(cfg.sliding_window)
    w.add_sliding_window_pattern([t == "sliding_attention" for t in cfg.layer_types])


def gemma2(w, cfg):
    window(w, cfg)
    w.add_attn_logit_softcapping(cfg.attn_logit_softcapping)
    w.add_final_logit_softcapping(cfg.final_logit_softcapping)


def granite(w, cfg):
    w.add_attention_scale(cfg.attention_multiplier)
    w.add_embedding_scale(cfg.embedding_multiplier)
    w.add_residual_scale(cfg.residual_multiplier)
    w.add_logit_scale(cfg.logits_scaling)


def cohere(w, cfg):
    w.add_logit_scale(cfg.logit_scale)
    if getattr(cfg, "sliding_window", None):
        window(w, cfg)


def qwen_moe(w, cfg):
    w.add_expert_feed_forward_length(cfg.moe_intermediate_size)
    if hasattr(cfg, "shared_expert_intermediate_size"):
        w.add_expert_shared_feed_forward_length(cfg.shared_expert_intermediate_size)


def llama4(w, cfg):
    w.add_expert_feed_forward_length(cfg.intermediate_size)
    if cfg.attention_chunk_size < 8192:
        w.add_sliding_window(cfg.attention_chunk_size)


def ministral3(w, cfg):
    w.add_rope_scaling_yarn_log_mul(cfg.rope_parameters["mscale_all_dim"])
    w.add_attn_temperature_scale(cfg.rope_parameters["llama_4_scaling_beta"])


def latent(w, cfg):
    """deepseek2 as old converters write it: a head's own sizes"""
    for name in ["key_length", "value_length"]:
        w.kv_data[0].pop(f"deepseek2.attention.{name}")
    w.kv_data[0].pop("deepseek2.rope.dimension_count")
    w.add_rope_dimension_count(cfg.qk_rope_head_dim)
    w.add_key_length(cfg.qk_nope_head_dim + cfg.qk_rope_head_dim)
    w.add_value_length(cfg.v_head_dim)
    if cfg.q_lora_rank:
        w.add_q_lora_rank(cfg.q_lora_rank)
    w.add_kv_lora_rank(cfg.kv_lora_rank)
    for key in ["expert_count", "expert_used_count"]:
        w.kv_data[0].pop(f"deepseek2.{key}", None)
    w.add_leading_dense_block_count(cfg.first_k_dense_replace)
    w.add_expert_count(cfg.n_routed_experts)
    w.add_expert_used_count(cfg.num_experts_per_tok)
    w.add_expert_shared_count(cfg.n_shared_experts)
    w.add_expert_feed_forward_length(cfg.moe_intermediate_size)
    w.add_expert_weights_scale(cfg.routed_scaling_factor)
    if cfg.norm_topk_prob:
        w.add_expert_weights_norm(True)
    if cfg.n_group:
        w.add_expert_group_count(cfg.n_group)
        w.add_expert_group_used_count(cfg.topk_group)
    r = cfg.rope_parameters
    if "mscale_all_dim" in r:
        w.add_rope_scaling_yarn_log_mul(0.1 * r["mscale_all_dim"])


def latent_by_head(w, cfg):
    """The same as new converters write it: the sizes of stored rows, and of a head beside them"""
    latent(w, cfg)
    for name in ["head_count_kv", "key_length", "value_length"]:
        w.kv_data[0].pop(f"deepseek2.attention.{name}")
    w.add_head_count_kv(1)
    w.add_key_length(cfg.kv_lora_rank + cfg.qk_rope_head_dim)
    w.add_value_length(cfg.kv_lora_rank)
    w.add_key_length_mla(cfg.qk_nope_head_dim + cfg.qk_rope_head_dim)
    w.add_value_length_mla(cfg.v_head_dim)
    if cfg.model_type == "deepseek_v3":
        w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def replace(w, name, add, value):
    w.kv_data[0].pop(f"{w.arch}.{name}", None)
    add(value)


def routed(w, cfg):
    """Experts as converters of the families after DeepSeek V3 describe them"""
    n = getattr(cfg, "n_routed_experts", None) or getattr(cfg, "moe_num_experts", None)
    if n:
        replace(w, "expert_count", w.add_expert_count, n)
        replace(w, "expert_used_count", w.add_expert_used_count, cfg.num_experts_per_tok)
    if hasattr(cfg, "first_k_dense_replace"):
        w.add_leading_dense_block_count(cfg.first_k_dense_replace)
    if getattr(cfg, "n_group", None):
        w.add_expert_group_count(cfg.n_group)
        w.add_expert_group_used_count(cfg.topk_group)
    w.add_expert_feed_forward_length(
        getattr(cfg, "moe_intermediate_size", None) or cfg.intermediate_size
    )
    if hasattr(cfg, "norm_topk_prob"):
        w.add_expert_weights_norm(cfg.norm_topk_prob)
    if hasattr(cfg, "routed_scaling_factor"):
        w.add_expert_weights_scale(cfg.routed_scaling_factor)


def sigmoids(w, cfg):
    routed(w, cfg)
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def with_later_block(w, cfg):
    """A block after the last one, which guesses the next token but one"""
    sigmoids(w, cfg)
    replace(w, "block_count", w.add_block_count, cfg.num_hidden_layers + 1)
    w.add_nextn_predict_layers(1)


def mistral4(w, cfg):
    arch, w.arch = w.arch, "deepseek2"
    w.kv_data[0] = {k.replace(arch, "deepseek2"): v for k, v in w.kv_data[0].items()}
    latent_by_head(w, cfg)
    w.add_rope_scaling_yarn_beta_fast(cfg.rope_parameters["beta_fast"])
    w.add_attn_temperature_scale(cfg.rope_parameters["llama_4_scaling_beta"])
    w.add_attn_temperature_length(cfg.rope_parameters["original_max_position_embeddings"])
    w.kv_data[0] = {k.replace("deepseek2", arch): v for k, v in w.kv_data[0].items()}
    w.arch = arch


def gemma4_keys(w, cfg):
    pattern(w, cfg)
    each = [cfg.per_layer_config[i] for i in range(cfg.num_hidden_layers)]
    full = next(c for c, t in zip(each, cfg.layer_types) if t == "full_attention")
    local = next(c for c, t in zip(each, cfg.layer_types) if t != "full_attention")
    replace(w, "attention.key_length", w.add_key_length, full.head_dim)
    replace(w, "attention.value_length", w.add_value_length, full.head_dim)
    w.add_key_length_swa(local.head_dim)
    w.add_value_length_swa(local.head_dim)
    replace(w, "rope.dimension_count", w.add_rope_dimension_count, full.head_dim)
    w.add_rope_dimension_count_swa(local.head_dim)
    w.add_rope_freq_base_swa(cfg.rope_parameters["sliding_attention"]["rope_theta"])
    if full.num_key_value_heads != local.num_key_value_heads:
        heads = [c.num_key_value_heads for c in each]
        replace(w, "attention.head_count_kv", w.add_head_count_kv, heads)
    if cfg.use_double_wide_mlp:
        n = cfg.num_hidden_layers - cfg.num_kv_shared_layers
        widths = [cfg.intermediate_size * (1 + (i >= n)) for i in range(cfg.num_hidden_layers)]
        replace(w, "feed_forward_length", w.add_feed_forward_length, widths)
    w.add_shared_kv_layers(cfg.num_kv_shared_layers)
    w.add_embedding_length_per_layer_input(cfg.hidden_size_per_layer_input)
    w.add_final_logit_softcapping(cfg.final_logit_softcapping)
    if cfg.enable_moe_block:
        replace(w, "expert_used_count", w.add_expert_used_count, cfg.top_k_experts)
        w.add_expert_feed_forward_length(cfg.moe_intermediate_size)


def gemma3n_keys(w, cfg):
    pattern(w, cfg)
    w.add_rope_freq_base_swa(cfg.rope_parameters["sliding_attention"]["rope_theta"])
    w.add_final_logit_softcapping(cfg.final_logit_softcapping)
    w.add_altup_active_idx(cfg.altup_active_idx)
    w.add_altup_num_inputs(cfg.altup_num_inputs)
    w.add_embedding_length_per_layer_input(cfg.hidden_size_per_layer_input)
    w.add_shared_kv_layers(cfg.num_kv_shared_layers)
    normal = statistics.NormalDist()
    scales = [normal.inv_cdf(p) if p else -math.inf for p in cfg.activation_sparsity_pattern]
    w.add_activation_sparsity_scale(scales)


def afmoe_keys(w, cfg):
    pattern(w, cfg)
    w.add_expert_feed_forward_length(cfg.moe_intermediate_size)
    w.add_expert_shared_count(cfg.num_shared_experts)
    w.add_leading_dense_block_count(cfg.num_dense_layers)
    w.add_expert_weights_norm(True)
    w.add_expert_weights_scale(cfg.route_scale)


def xielu_shapes(n):
    """Parameters of each layer's activation: for x > 0, and for x < 0"""
    return [0.3 - 0.4 * i for i in range(n)], [-0.5 + 0.75 * i for i in range(n)]


def xielu(w, cfg):
    positive, negative = xielu_shapes(cfg.num_hidden_layers)
    w.add_xielu_alpha_p(positive)
    w.add_xielu_alpha_n(negative)
    w.add_xielu_beta([0.5] * cfg.num_hidden_layers)
    w.add_xielu_eps([-1e-6] * cfg.num_hidden_layers)


def set_xielu(net):
    shapes = xielu_shapes(len(net.model.layers))
    for layer, positive, negative in zip(net.model.layers, *shapes):
        act = layer.mlp.act_fn
        act.alpha_p.data.fill_(positive)
        act.alpha_n.data.fill_(negative)
        act.beta.fill_(0.5)
        act.eps.fill_(-1e-6)


def two_later_blocks(w, cfg):
    sigmoids(w, cfg)
    w.add_expert_shared_count(cfg.n_shared_experts)
    replace(w, "block_count", w.add_block_count, cfg.num_hidden_layers + 1)
    w.add_nextn_predict_layers(1)


def sections(w, cfg):
    """Rotation by three positions, which are the same in text"""
    w.add_rope_dimension_sections([3, 3, 2, 0])


def sections_moe(w, cfg):
    sections(w, cfg)
    qwen_moe(w, cfg)
    w.add_num_deepstack_layers(1)


def gpt_oss(w, cfg):
    window(w, cfg)
    w.add_expert_feed_forward_length(cfg.intermediate_size)


def neox(w, cfg):
    w.add_parallel_residual(cfg.use_parallel_residual)


def phi3_long(w, cfg):
    r = cfg.rope_parameters
    more = cfg.max_position_embeddings / cfg.original_max_position_embeddings
    w.add_rope_scaling_orig_ctx_len(cfg.original_max_position_embeddings)
    w.add_rope_scaling_attn_factors(
        math.sqrt(1 + math.log(more) / math.log(cfg.original_max_position_embeddings))
    )


# ---- the table ----

LONG = dict(
    rope_type="longrope",
    short_factor=[1.0, 1.1, 1.2, 1.3, 1.5, 1.7],
    long_factor=[1.0, 1.5, 2.5, 4.0, 6.0, 9.0],
    original_max_position_embeddings=32,
)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
MOE = dict(num_hidden_layers=2, intermediate_size=32)
LATENT = dict(
    num_hidden_layers=3,
    num_key_value_heads=4,
    kv_lora_rank=24,
    qk_nope_head_dim=16,
    qk_rope_head_dim=8,
    v_head_dim=12,
    first_k_dense_replace=1,
    n_routed_experts=8,
    n_shared_experts=2,
    num_experts_per_tok=3,
    moe_intermediate_size=32,
)


ROUTED = dict(
    num_hidden_layers=3,
    first_k_dense_replace=1,
    n_routed_experts=8,
    n_shared_experts=2,
    num_experts_per_tok=3,
    moe_intermediate_size=24,
    norm_topk_prob=True,
    routed_scaling_factor=1.5,
    n_group=2,
    topk_group=1,
)
GEMMA4 = dict(
    config="Gemma4Text",
    layout=gemma4,
    keys=gemma4_keys,
    head_dim=16,
    global_head_dim=24,
    sliding_window=8,
    final_logit_softcapping=6.0,
    vocab_size_per_layer_input=N_VOCAB,
    tie_word_embeddings=True,
)


def layer_kinds(every, n):
    """Of `every` layers the last one sees everything; and the last of all does."""
    return [
        "full_attention" if (i + 1) % every == 0 or i + 1 == n else "sliding_attention"
        for i in range(n)
    ]


GEMMA3N = dict(
    config="Gemma3nText",
    layout=gemma3n,
    keys=gemma3n_keys,
    head_dim=16,
    num_hidden_layers=7,
    layer_types=layer_kinds(3, 7),
    num_kv_shared_layers=3,
    sliding_window=8,
    final_logit_softcapping=6.0,
    vocab_size_per_layer_input=N_VOCAB,
    hidden_size_per_layer_input=12,
    laurel_rank=5,
    activation_sparsity_pattern=[0.9, 0.6] + [0.0] * 5,
    tie_word_embeddings=True,
)


def model(
    arch,
    cls,
    *,
    config=None,
    layout=None,
    norm_plus_one=False,
    keys=None,
    n_ctx=None,
    ask=None,
    later=None,
    fill=None,
    **cfg,
):
    """arch: general.architecture. keys: metadata beside basics(). n_ctx: context of the sessions;
    ask: what the test asks for when it opens the model. later: shapes of tensors that are no part
    of the PyTorch model. fill: sets parameters that files have as metadata."""
    return dict(
        arch=arch,
        cls=cls,
        config=config or cls,
        cfg=cfg,
        layout=layout,
        plus=norm_plus_one,
        keys=keys,
        n_ctx=n_ctx,
        ask=ask,
        later=later or {},
        fill=fill,
    )


LLAMA4 = dict(
    config="Llama4Text",
    layout=llama4_experts,
    keys=llama4,
    num_local_experts=4,
    num_experts_per_tok=1,
    interleave_moe_layer_step=2,
    intermediate_size=32,
    intermediate_size_mlp=80,
    use_qk_norm=True,
    **HD16 | dict(num_hidden_layers=4),
    **rope(5e5),
)

MODELS = {
    "yarn": model("llama", "Llama", layout=pairs, **rope(10000.0, **YARN)),
    "dynamic": model(
        "qwen2",
        "Qwen2",
        n_ctx=40,
        ask=dict(scaling="dynamic", scale=2.0),
        max_position_embeddings=24,
        **rope(10000.0, rope_type="dynamic", factor=2.0, original_max_position_embeddings=24),
    ),
    "mixtral": model(
        "llama",
        "Mixtral",
        layout=[pairs, experts],
        num_local_experts=5,
        num_experts_per_tok=2,
        **MOE,
        **rope(1e6),
    ),
    "qwen2moe": model(
        "qwen2moe",
        "Qwen2Moe",
        layout=experts,
        keys=qwen_moe,
        num_experts=6,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=48,
        decoder_sparse_step=1,
        norm_topk_prob=False,
        **MOE,
        **rope(1e6),
    ),
    "qwen3": model("qwen3", "Qwen3", tie_word_embeddings=True, **HD16, **rope(1e6)),
    "qwen3moe": model(
        "qwen3moe",
        "Qwen3Moe",
        layout=experts,
        keys=qwen_moe,
        num_experts=6,
        num_experts_per_tok=3,
        moe_intermediate_size=32,
        decoder_sparse_step=1,
        norm_topk_prob=True,
        **MOE,
        **HD16,
        **rope(1e6),
    ),
    "gemma": model(
        "gemma", "Gemma", norm_plus_one=True, num_key_value_heads=1, **HD16, **rope(10000.0)
    ),
    "gemma2": model(
        "gemma2",
        "Gemma2",
        norm_plus_one=True,
        keys=gemma2,
        sliding_window=8,
        query_pre_attn_scalar=16,
        attn_logit_softcapping=5.0,
        final_logit_softcapping=6.0,
        **HD16 | dict(num_hidden_layers=4),
        **rope(10000.0),
    ),
    "gemma3": model(
        "gemma3",
        "Gemma3",
        config="Gemma3Text",
        norm_plus_one=True,
        keys=window,
        sliding_window=8,
        query_pre_attn_scalar=16,
        **HD16 | dict(num_hidden_layers=7),
        rope_parameters=dict(
            full_attention=dict(rope_type="linear", rope_theta=1e6, factor=8.0),
            sliding_attention=dict(rope_type="default", rope_theta=10000.0),
        ),
    ),
    "phi3": model("phi3", "Phi3", sliding_window=16, keys=window, **rope(10000.0)),
    "phi3short": model(
        "phi3",
        "Phi3",
        keys=phi3_long,
        n_ctx=32,
        original_max_position_embeddings=32,
        **rope(10000.0, **LONG),
    ),
    "phi3long": model(
        "phi3",
        "Phi3",
        keys=phi3_long,
        n_ctx=64,
        original_max_position_embeddings=32,
        **rope(10000.0, **LONG),
    ),
    "phi4": model(
        "phi3", "Phi3", hidden_size=64, **rope(10000.0, partial_rotary_factor=0.75)
    ),
    "smollm3": model(
        "smollm3", "SmolLM3", layout=pairs, **dict(num_hidden_layers=5), **rope(2e6)
    ),
    "olmo2": model("olmo2", "Olmo2", **rope(5e5)),
    "olmo3": model(
        "olmo2",
        "Olmo3",
        keys=pattern,
        sliding_window=8,
        **dict(num_hidden_layers=4),
        **rope(5e5),
    ),
    "granite": model(
        "granite",
        "Granite",
        layout=pairs,
        keys=granite,
        attention_multiplier=0.2,
        embedding_multiplier=3.0,
        residual_multiplier=0.4,
        logits_scaling=2.0,
        **rope(10000.0),
    ),
    "granitemoe": model(
        "granitemoe",
        "GraniteMoeShared",
        layout=[pairs, granite_experts],
        keys=granite,
        attention_multiplier=0.2,
        embedding_multiplier=3.0,
        residual_multiplier=0.4,
        logits_scaling=2.0,
        num_local_experts=5,
        num_experts_per_tok=2,
        shared_intermediate_size=48,
        **MOE,
        **rope(10000.0),
    ),
    # InternLM 2 is Llama with other names; files have the same tensors
    "internlm2": model("internlm2", "Llama", layout=pairs, **rope(1e6)),
    # EXAONE 3 is Llama with other names, and rows of q and k in the order of the training
    "exaone": model("exaone", "Llama", **rope(1e6)),
    "exaone4": model(
        "exaone4",
        "Exaone4",
        keys=pattern,
        sliding_window=8,
        sliding_window_pattern=4,
        **HD16 | dict(num_hidden_layers=4),
        **rope(1e6),
    ),
    "command-r": model(
        "command-r",
        "Cohere",
        keys=cohere,
        logit_scale=0.5,
        use_qk_norm=True,
        **rope(10000.0),
    ),
    "cohere2": model(
        "cohere2",
        "Cohere2",
        keys=cohere,
        logit_scale=0.5,
        sliding_window=8,
        sliding_window_pattern=4,
        **dict(num_hidden_layers=4),
        **rope(50000.0),
    ),
    "stablelm": model(
        "stablelm",
        "StableLm",
        layout=head_norms,
        use_qkv_bias=True,
        hidden_size=64,
        **rope(10000.0, partial_rotary_factor=0.25),
    ),
    "stablelm12b": model(
        "stablelm",
        "StableLm",
        layout=head_norms,
        use_parallel_residual=True,
        qk_layernorm=True,
        hidden_size=64,
        **rope(10000.0, partial_rotary_factor=0.25),
    ),
    "starcoder2": model("starcoder2", "Starcoder2", sliding_window=8, keys=window, **rope(1e5)),
    "phi2": model(
        "phi2", "Phi", hidden_size=64, **rope(10000.0, partial_rotary_factor=0.5)
    ),
    "gptneox": model(
        "gptneox",
        "GPTNeoX",
        layout=neox_qkv,
        keys=neox,
        hidden_size=64,
        num_key_value_heads=4,
        use_parallel_residual=True,
        **rope(10000.0, partial_rotary_factor=0.25),
    ),
    "gptneoxserial": model(
        "gptneox",
        "GPTNeoX",
        layout=neox_qkv,
        keys=neox,
        hidden_size=64,
        num_key_value_heads=4,
        use_parallel_residual=False,
        **rope(10000.0, partial_rotary_factor=0.25),
    ),
    "falcon": model(
        "falcon",
        "Falcon",
        layout=falcon_qkv,
        ffn_hidden_size=96,
        multi_query=True,
        new_decoder_architecture=False,
        num_kv_heads=1,
        num_key_value_heads=1,
        **rope(10000.0),
    ),
    "falcon40b": model(
        "falcon",
        "Falcon",
        layout=falcon_qkv,
        ffn_hidden_size=96,
        num_kv_heads=2,
        new_decoder_architecture=True,
        **rope(10000.0),
    ),
    "ernie4_5": model("ernie4_5", "Ernie4_5", **HD16, **rope(5e5)),
    "seed_oss": model("seed_oss", "SeedOss", attention_bias=True, **HD16, **rope(1e6)),
    "glm4": model(
        "glm4",
        "Glm4",
        attention_bias=True,
        **HD16,
        **rope(10000.0, partial_rotary_factor=0.5),
    ),
    "olmoe": model(
        "olmoe",
        "Olmoe",
        layout=experts,
        num_experts=5,
        num_experts_per_tok=2,
        norm_topk_prob=False,
        **MOE,
        **rope(10000.0),
    ),
    "llama4": model("llama4", "Llama4", **LLAMA4),
    "mistral3": model(
        "mistral3",
        "Ministral3",
        layout=pairs,
        keys=ministral3,
        **HD16,
        **rope(
            1e6,
            **YARN | dict(original_max_position_embeddings=16),
            beta_fast=32.0,
            beta_slow=1.0,
            mscale=1.0,
            mscale_all_dim=1.0,
            llama_4_scaling_beta=0.5,
        ),
    ),
    "gpt-oss": model(
        "gpt-oss",
        "GptOss",
        layout=gpt_oss_experts,
        keys=gpt_oss,
        sliding_window=8,
        num_local_experts=5,
        num_experts_per_tok=2,
        intermediate_size=32,
        **HD16 | dict(num_hidden_layers=4),
        **rope(150000.0, **YARN, beta_fast=32.0, beta_slow=1.0, truncate=False),
    ),
    # V2-Lite: queries from one matrix, no groups
    "deepseek2": model(
        "deepseek2",
        "DeepseekV2",
        layout=latent_experts,
        keys=latent,
        q_lora_rank=None,
        routed_scaling_factor=1.0,
        topk_method="greedy",
        **LATENT,
        **rope(10000.0, **YARN, mscale=0.707, mscale_all_dim=0.707),
    ),
    "deepseek2groups": model(
        "deepseek2",
        "DeepseekV2",
        layout=[latent_heads, latent_experts],
        keys=latent_by_head,
        q_lora_rank=20,
        routed_scaling_factor=4.0,
        topk_method="group_limited_greedy",
        n_group=4,
        topk_group=2,
        **LATENT,
        **rope(10000.0),
    ),
    "deepseek3": model(
        "deepseek2",
        "DeepseekV3",
        layout=[latent_heads, latent_experts],
        keys=latent_by_head,
        q_lora_rank=20,
        routed_scaling_factor=2.5,
        norm_topk_prob=True,
        n_group=4,
        topk_group=2,
        **LATENT,
        **rope(10000.0, **YARN, mscale=1.0, mscale_all_dim=1.0, beta_fast=32.0, beta_slow=1.0),
    ),
    "llama4chunks": model("llama4", "Llama4", **LLAMA4, attention_chunk_size=12),
    "glm4moe": model(
        "glm4moe",
        "Glm4Moe",
        layout=routed_experts,
        keys=with_later_block,
        later={
            "blk.3.nextn.eh_proj.weight": (96, 48),
            "blk.3.nextn.enorm.weight": (48,),
            "blk.3.attn_q.weight": (48, 64),
            "v.patch_embd.weight": (7, 5),
        },
        attention_bias=True,
        use_qk_norm=True,
        **ROUTED,
        **HD16,
        **rope(10000.0, partial_rotary_factor=0.5),
    ),
    "minimax-m2": model(
        "minimax-m2",
        "MiniMaxM2",
        layout=routed_experts,
        keys=sigmoids,
        num_local_experts=6,
        num_experts_per_tok=2,
        intermediate_size=32,
        **HD16,
        **rope(5e6, partial_rotary_factor=0.5),
    ),
    "dots1": model(
        "dots1",
        "Dots1",
        layout=routed_experts,
        keys=sigmoids,
        **ROUTED,
        **HD16,
        **rope(10000.0),
    ),
    "hunyuan-dense": model(
        "hunyuan-dense", "HunYuanDenseV1", layout=late_norms, **HD16, **rope(10000.0)
    ),
    "hunyuan-moe": model(
        "hunyuan-moe",
        "HunYuanMoEV1",
        layout=late_norms,
        keys=routed,
        num_experts=6,
        moe_topk=2,
        intermediate_size=32,
        **HD16,
        **rope(10000.0),
    ),
    "ernie4_5-moe": model(
        "ernie4_5-moe",
        "Ernie4_5_Moe",
        layout=routed_experts,
        keys=routed,
        moe_num_experts=6,
        moe_k=2,
        moe_num_shared_experts=2,
        moe_intermediate_size=24,
        moe_layer_start_index=1,
        moe_layer_end_index=2,
        moe_layer_interval=1,
        use_bias=False,
        **dict(num_hidden_layers=3),
        **rope(5e5),
    ),
    "qwen3vl": model(
        "qwen3vl",
        "Qwen3",
        **HD16,
        **rope(5e6),
    ),
    "mistral4": model(
        "mistral4",
        "Mistral4",
        layout=[latent_heads, latent_experts],
        keys=mistral4,
        q_lora_rank=20,
        routed_scaling_factor=1.5,
        norm_topk_prob=True,
        n_group=1,
        topk_group=1,
        **LATENT,
        **rope(
            10000.0,
            **YARN | dict(original_max_position_embeddings=16),
            beta_fast=32.0,
            beta_slow=1.0,
            mscale=1.0,
            mscale_all_dim=1.0,
            llama_4_scaling_beta=0.5,
        ),
    ),
    # E2B and E4B: layers that share keys and values, and are told of each token
    "gemma4": model(
        "gemma4",
        "Gemma4",
        hidden_size_per_layer_input=12,
        num_kv_shared_layers=3,
        use_double_wide_mlp=True,
        **GEMMA4 | dict(num_hidden_layers=7),
        layer_types=layer_kinds(3, 7),
    ),
    "gemma4dense": model(
        "gemma4",
        "Gemma4",
        attention_k_eq_v=True,
        num_global_key_value_heads=1,
        hidden_size_per_layer_input=0,
        **GEMMA4 | dict(num_hidden_layers=4),
        layer_types=layer_kinds(2, 4),
    ),
    "gemma4moe": model(
        "gemma4",
        "Gemma4",
        attention_k_eq_v=True,
        num_global_key_value_heads=1,
        hidden_size_per_layer_input=0,
        enable_moe_block=True,
        num_experts=5,
        top_k_experts=2,
        moe_intermediate_size=24,
        **GEMMA4 | dict(num_hidden_layers=4),
        layer_types=layer_kinds(2, 4),
    ),
    "afmoe": model(
        "afmoe",
        "Afmoe",
        layout=afmoe,
        keys=afmoe_keys,
        num_dense_layers=1,
        num_experts=6,
        num_experts_per_tok=2,
        num_shared_experts=1,
        moe_intermediate_size=24,
        route_scale=1.7,
        sliding_window=8,
        global_attn_every_n_layers=2,
        mup_enabled=True,
        **HD16 | dict(num_hidden_layers=4),
        **rope(10000.0),
    ),
    "apertus": model(
        "apertus",
        "Apertus",
        keys=xielu,
        fill=set_xielu,
        **HD16,
        **rope(
            1e6,
            rope_type="llama3",
            factor=8.0,
            original_max_position_embeddings=64,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
        ),
    ),
    # Ling and Ring compute what GLM 4.5 with norms of q and k does, from one matrix for q, k and v
    "bailingmoe2": model(
        "bailingmoe2",
        "Glm4Moe",
        layout=fused_qkv,
        keys=two_later_blocks,
        later={
            "blk.3.nextn.eh_proj.weight": (96, 48),
            "blk.3.nextn.enorm.weight": (48,),
            "blk.3.nextn.hnorm.weight": (48,),
            "blk.3.layer_output_norm.weight": (48,),
        },
        use_qk_norm=True,
        **ROUTED,
        **HD16,
        **rope(10000.0, partial_rotary_factor=0.5),
    ),
    # models of images: their text parts, and what else their files may have
    "qwen2vl": model(
        "qwen2vl",
        "Qwen2",
        keys=sections,
        later={"v.blk.0.attn_qkv.weight": (8, 8)},
        hidden_size=64,
        **rope(1e6),
    ),
    "qwen3vlmoe": model(
        "qwen3vlmoe",
        "Qwen3Moe",
        layout=experts,
        keys=sections_moe,
        num_experts=6,
        num_experts_per_tok=3,
        moe_intermediate_size=32,
        decoder_sparse_step=1,
        norm_topk_prob=True,
        **MOE,
        **HD16,
        **rope(5e6),
    ),
    # streams of which one goes through a layer, gates of which few are kept, shared keys and values
    "gemma3n": model("gemma3n", "Gemma3n", **GEMMA3N),
    # three streams, of which the second one goes through the layers
    "gemma3nsecond": model(
        "gemma3n",
        "Gemma3n",
        **GEMMA3N
        | dict(
            altup_num_inputs=3,
            altup_active_idx=1,
            num_kv_shared_layers=2,
            activation_sparsity_pattern=[0.0, 0.5, 0.0, 0.9, 0.0, 0.0, 0.7],
        ),
    ),
}


def deviation(name, shape, tied):
    """Mean and deviation: activations keep their size; q and k are larger, so that attention is
    far from uniform."""
    if name.endswith(".bias"):
        return 0.0, 0.3
    if "norm" in name:
        return 1.0, 0.1
    if name.endswith(".scale") or "output_scale" in name or "correct_scale" in name:
        return 1.0, 0.2
    if "sinks" in name:
        return 1.0, 1.0
    n_in = shape[-1]
    if name.startswith("token_embd"):
        return 0.0, 2 / math.sqrt(n_in) if tied else 1.0
    large = ("attn_q.", "attn_k.", "attn_qkv", "attn_q_b", "attn_kv_a_mqa", "output.w")
    gain = 2 if any(s in name for s in large) else 1
    gain = 4 if "gate_inp" in name else n_in / 2 if "altup_router." in name else gain
    return 0.0, gain / math.sqrt(n_in)


def layout(m, cfg, names, key, x):
    """Parameter `key` -> {tensor of the file: elements, or (place in a stack, elements)}"""
    layer = int(key.split(".layers.")[1].split(".")[0]) if ".layers." in key else -1
    if ".h." in key:
        layer = int(key.split(".h.")[1].split(".")[0])
    rules = m["layout"] if isinstance(m["layout"], list) else [m["layout"]]
    for rule in rules:
        if rule is pairs:
            x = pairs(cfg, key, x)
        elif rule:
            out = rule(cfg, key, x, layer)
            if out:
                return out
    if ".router." in key:
        return {f"blk.{layer}.ffn_gate_inp.{key.rsplit('.', 1)[1]}": x}
    name = names.get_name(key, try_suffixes=(".weight", ".bias"))
    if name and key.endswith("shared_expert_gate.weight"):
        x = x.reshape(-1)
    if not name:
        raise KeyError(f"{m['arch']}: {key}")
    return {name: x}


def carry_over(m, model):
    """Fills the PyTorch model; returns [[tensor, shape, mean, deviation]] in order of numbers."""
    cfg = model.config
    names = gguf.get_tensor_name_map(
        next(a for a, n in gguf.MODEL_ARCH_NAMES.items() if n == m["arch"]), cfg.num_hidden_layers
    )
    where, stacks, at = {}, {}, 0
    params = {n: p for n, p in model.named_parameters() if ".act_fn." not in n}
    buffers = ("e_score_correction_bias", "layer_scalar", "moe_statics")
    params |= {n: b for n, b in model.named_buffers() if n.endswith(buffers)}
    for key, p in params.items():
        ids = np.arange(at, at + p.numel(), dtype=np.int64).reshape(p.shape)
        at += p.numel()
        for name, x in layout(m, cfg, names, key, ids).items():
            if isinstance(x, tuple):
                stacks.setdefault(name, {})[x[0]] = x[1]
            else:
                where[name] = x
    for name, rows in stacks.items():
        parts = [rows[i] for i in range(len(rows))]
        where[name] = np.stack(parts) if parts[0].ndim == 1 else np.concatenate(parts)
    flat, tensors = np.full(at, np.nan), []
    tied = "output.weight" not in where
    for i, (name, ids) in enumerate(where.items()):
        mean, dev = deviation(name, ids.shape, tied)
        x = (mean + math.sqrt(3.0) * dev * numbers(i + 1, ids.size)).astype(np.float32)
        flat[ids.reshape(-1)] = x.astype(np.float64) - (m["plus"] and "norm" in name)
        tensors.append([name, list(ids.shape[::-1]), mean, math.sqrt(3.0) * dev])
    tensors += [[name, list(shape), 0.0, 0.1] for name, shape in m["later"].items()]
    assert not np.isnan(flat).any()
    at = 0
    for p in params.values():
        p.data = torch.from_numpy(flat[at : at + p.numel()].reshape(p.shape).copy())
        at += p.numel()
    return tensors


def metadata(m, cfg):
    w = gguf.GGUFWriter(None, m["arch"])
    basics(w, cfg)
    if m["keys"]:
        m["keys"](w, cfg)
    out = []
    for key, v in w.kv_data[0].items():
        kind = v.type.name.lower()
        if kind == "array":
            kind = {bool: "bools", float: "float32s"}.get(type(v.value[0]), "ints")
        value = [None if x == -math.inf else x for x in v.value] if kind == "float32s" else v.value
        if key != "general.architecture":
            out.append([key, kind, value])
    return out


def llama3_divisors(r, hd):
    """Slow frequencies are divided by `factor`, fast ones not, and between them by a blend."""
    out = []
    low, high = r["low_freq_factor"], r["high_freq_factor"]
    for i in range(0, hd, 2):
        turns = r["original_max_position_embeddings"] / (2 * math.pi * r["rope_theta"] ** (i / hd))
        blend = min(max((turns - low) / (high - low), 0.0), 1.0)
        out.append(1 / ((1 - blend) / r["factor"] + blend))
    return out


def divisors(cfg):
    r = cfg.rope_parameters
    r = r.get("full_attention", r)
    if r.get("rope_type") == "proportional":
        n = cfg.per_layer_config["full_attention"].head_dim
        turns = int(n * r["partial_rotary_factor"] / 2)
        return {"rope_freqs.weight": [1.0] * turns + [1e30] * (n // 2 - turns)}
    if r.get("rope_type") == "llama3":
        return {"rope_freqs.weight": llama3_divisors(r, cfg.head_dim)}
    if r.get("rope_type") != "longrope":
        return {}
    return {
        "rope_factors_long.weight": r["long_factor"],
        "rope_factors_short.weight": r["short_factor"],
    }


def write(name, m, folder, seed):
    cfg = getattr(tf, m["config"] + "Config")(**SIZES | m["cfg"])
    cfg.allow_global_per_layer_attribute_access = True
    cls = getattr(tf, m["cls"], None) or getattr(tf, m["cls"] + "ForCausalLM")
    net = cls(cfg).eval().double()
    tensors = carry_over(m, net)
    if m["fill"]:
        m["fill"](net)
    n = min(N_TOKENS, m["n_ctx"] or N_TOKENS)
    after = [i for i in LOGITS_AFTER if i < n - 1] + [n - 1]
    ids = np.random.default_rng(seed).integers(0, N_VOCAB, n)
    with torch.no_grad():
        logits = net(torch.from_numpy(ids)[None], use_cache=False).logits[0]
    doc = dict(
        arch=m["arch"],
        n_ctx=m["n_ctx"] or 64,
        ask=m["ask"] or {},
        kv=metadata(m, cfg),
        given=divisors(cfg),
        ids=ids.tolist(),
        after=after,
    )
    path = os.path.join(folder, f"family-{name}.json")
    with open(path, "w") as f:
        f.write(json.dumps(doc)[:-1] + ',\n"tensors": [\n')
        f.write(",\n".join(json.dumps(t) for t in tensors) + '],\n"logits": [\n')
        rows = [[float(f"{v:.6g}") for v in logits[i].tolist()] for i in after]
        f.write(",\n".join(json.dumps(r, separators=(",", ":")) for r in rows) + "]}\n")
    print(f"{name}: {os.path.getsize(path)} bytes, logits {logits.min():.2f} to {logits.max():.2f}")


def main():
    folder, only = sys.argv[1], sys.argv[2:]
    torch.set_num_threads(1)
    for seed, (name, m) in enumerate(MODELS.items()):
        if not only or name in only:
            write(name, m, folder, seed)


if __name__ == "__main__":
    main()
