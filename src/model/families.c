/* SPDX-License-Identifier: MIT */
/* families.c - the model families. Adding one that differs only in these points is one row. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "hparams.h"

/* ---- what a row cannot say ---- */

static int adapt_gemma(struct cb_model *m)
{
    m->hp.embd_scale = sqrtf((float)m->hp.n_embd);
    return CB_OK;
}

/* The file's value of *key, FAMILY.NAME, or NULL */
static const struct gguf_kv *find(const struct cb_model *m, const char *name, char (*key)[128])
{
    snprintf(*key, sizeof *key, "%s.%s", m->arch->name, name);
    return cb_gguf_find(m->gguf, *key);
}

static int said(const struct cb_model *m, const char *name)
{
    char key[128];

    return find(m, name, &key) != NULL;
}

/* The files lack the scale of the attention. It is that of the head, but for the models of 27B. The
 * first files lack soft-caps and window too. */
static int adapt_gemma2(struct cb_model *m)
{
    struct hparams *hp = &m->hp;

    if (hp->n_layer == 46)
        hp->attn_scale = 1 / sqrtf((float)hp->n_embd / (float)hp->n_head);
    hp->attn_cap = said(m, "attn_logit_softcapping") ? hp->attn_cap : 50;
    hp->logit_cap = said(m, "final_logit_softcapping") ? hp->logit_cap : 30;
    hp->window = said(m, "attention.sliding_window") ? hp->window : 4096;
    return adapt_gemma(m);
}

static int adapt_gemma3(struct cb_model *m)
{
    if (m->hp.n_layer == 62)
        m->hp.attn_scale = 1 / sqrtf((float)m->hp.n_embd / (float)m->hp.n_head);
    return adapt_gemma(m);
}

/* The weights of the chosen experts sum to 1 where the file does not say whether they do. */
static int adapt_normalises(struct cb_model *m)
{
    m->hp.moe.normalises |= !said(m, "expert_weights_norm");
    return CB_OK;
}

static int adapt_gemma4(struct cb_model *m)
{
    struct hparams *hp = &m->hp;

    hp->attn_scale = 1;
    hp->norms_values = 1;
    hp->logit_cap = said(m, "final_logit_softcapping") ? hp->logit_cap : 30;
    TRY(adapt_normalises(m));
    return adapt_gemma(m);
}

/* All layers read another model's keys and values. */
static int adapt_gemma4_assistant(struct cb_model *m)
{
    m->hp.attn_scale = 1;
    m->hp.n_shared_kv = m->hp.n_layer;
    return CB_OK;
}

/* The last layers share keys and values: all but 20 where the file does not say how many. */
static int adapt_gemma3n(struct cb_model *m)
{
    struct hparams *hp = &m->hp;

    hp->attn_scale = 1;
    hp->norms_values = 1;
    hp->logit_cap = said(m, "final_logit_softcapping") ? hp->logit_cap : 30;
    if (!said(m, "attention.shared_kv_layers"))
        hp->n_shared_kv = hp->n_layer > 20 ? hp->n_layer - 20 : 0;
    return adapt_gemma(m);
}

/* Experts weigh by sigmoids where the file does not say how. */
static int adapt_sigmoid(struct cb_model *m)
{
    m->hp.moe.sigmoid |= !said(m, "expert_gating_func");
    return CB_OK;
}

static int adapt_normal_sigmoid(struct cb_model *m)
{
    TRY(adapt_normalises(m));
    return adapt_sigmoid(m);
}

/* Logits are divided by the scale. Attention does not rotate where the file says that it was not
 * trained so. */
static int adapt_granite(struct cb_model *m)
{
    char key[128];
    int rotates = 1;

    if (find(m, "rope.scaling.finetuned", &key) && cb_gguf_bool(m->gguf, key, &rotates) < 0)
        return CB_EFORMAT;
    m->hp.nope = rotates ? NOPE_NONE : NOPE_ALL;
    m->hp.logit_scale = 1 / m->hp.logit_scale;
    return adapt_normalises(m);
}

/* Embeddings grow by the root of their length, which files do not say. */
static int adapt_afmoe(struct cb_model *m)
{
    m->hp.embd_scale = sqrtf((float)m->hp.n_embd);
    return adapt_normal_sigmoid(m);
}

static int adapt_gptneox(struct cb_model *m)
{
    char key[] = "gptneox.use_parallel_residual";
    const int got = cb_gguf_bool(m->gguf, key, &m->hp.parallel);

    return got < 0 ? got : CB_OK;
}

static int adapt_gpt_oss(struct cb_model *m)
{
    m->hp.rope[0].whole_ramp = 0;
    return adapt_normalises(m);
}

/* Layers that rotate attend within chunks of 8192 tokens, and queries of the others grow from there
 * on. The models of 128 experts do not norm q and k. Metadata is silent on all of this, but a
 * window of 0 says that all layers rotate and see everything. */
static int adapt_llama4(struct cb_model *m)
{
    struct hparams *hp = &m->hp;

    if (cb_gguf_find(m->gguf, "llama4.attention.sliding_window") && !hp->window) {
        hp->nope = NOPE_NONE;
    } else {
        hp->window = hp->window ? hp->window : 8192;
        hp->chunked = 1;
        hp->temperature = (struct temperature){ 0.1f, 8192, 1, 1 };
    }
    hp->moe.sigmoid = hp->moe.of_input = 1;
    hp->norms_rotated = hp->moe.n_expert != 128;
    return CB_OK;
}

/* Queries grow as YaRN has it by the scale of the attention, not by cos and sin, which rotate a
 * part of a head alone; by these where the file has no multiplier of the logarithm (transformers'
 * modeling_rope_utils.py). That is a tenth of the model's own, unlike those of others. */
static int adapt_deepseek2(struct cb_model *m)
{
    struct hparams *hp = &m->hp;
    struct rope_params *r = &hp->rope[0];

    if (r->scaling == ROPE_YARN && r->factor > 1) {
        const float growth = 1 + r->log_mul * logf(r->factor);
        hp->attn_scale *= growth * growth;
        if (!(r->log_mul > 0))
            r->attn_factor *= 1 + 0.1f * logf(r->factor);
    }
    r->log_mul = 1;
    return CB_OK;
}

/* Norms of latents have an eps of their own, which files do not say. */
static int adapt_glm_dsa(struct cb_model *m)
{
    m->hp.latent.eps = 1e-6f;
    TRY(adapt_sigmoid(m));
    return adapt_deepseek2(m);
}

/* Files of models that see have rows for rotation by halves. */
static int adapt_glm4(struct cb_model *m)
{
    char key[128];
    const struct gguf_kv *kv = find(m, "rope.dimension_sections", &key);

    if (!kv)
        return CB_OK;
    if (kv->type != GGUF_ARRAY || kv->elem == GGUF_STRING || kv->elem == GGUF_ARRAY || kv->n < 2)
        return cb_fail(CB_EFORMAT, "%s: key %s: is no array of numbers", cb_gguf_path(m->gguf),
                       key);
    if (cb_gguf_array_num(kv, 0) > 0 && cb_gguf_array_num(kv, 1) > 0)
        m->hp.rope_kind = ROPE_HALF;
    return CB_OK;
}

/* ---- the table ---- */

/* ROPE_PAIR: files have the rows of q and k ordered for RoPE on adjacent pairs, or the model was
 * trained so. */
static const struct arch table[] = {
    { .text = "Llama 1 to 3.3, Mistral, Mixtral, Yi, SmolLM",
      .name = "llama",
      .rope = ROPE_PAIR,
      .adapt = adapt_normalises },
    { .text = "Ministral 3", .name = "mistral3", .rope = ROPE_PAIR, .adapt = adapt_normalises },
    { .text = "Llama 4, text",
      .name = "llama4",
      .rope = ROPE_PAIR,
      .global_every = 4,
      .nope = NOPE_FOURTH,
      .adapt = adapt_llama4 },
    { .text = "Qwen 2 and 2.5", .name = "qwen2", .rope = ROPE_HALF },
    { .text = "Qwen 2 MoE", .name = "qwen2moe", .rope = ROPE_HALF },
    { .text = "Qwen 3", .name = "qwen3", .rope = ROPE_HALF, .has = HAS_QK_NORM },
    { .text = "Qwen 3 MoE",
      .name = "qwen3moe",
      .rope = ROPE_HALF,
      .has = HAS_QK_NORM,
      .adapt = adapt_normalises },
    { .text = "Qwen 2 VL and 2.5 VL, text", .name = "qwen2vl", .rope = ROPE_HALF },
    { .text = "Qwen 3 VL, text", .name = "qwen3vl", .rope = ROPE_HALF, .has = HAS_QK_NORM },
    { .text = "Qwen 3 VL MoE, text",
      .name = "qwen3vlmoe",
      .rope = ROPE_HALF,
      .has = HAS_QK_NORM,
      .adapt = adapt_normalises },
    { .text = "Qwen 3.5 to 3.8",
      .name = "qwen35",
      .rope = ROPE_HALF,
      .has = HAS_QK_NORM | HAS_GATE,
      .mixer = MIX_DELTA,
      .mixed = MIXED_LISTED,
      .tiled = 1 },
    { .text = "Qwen 3.5 to 3.8 MoE",
      .name = "qwen35moe",
      .rope = ROPE_HALF,
      .has = HAS_QK_NORM | HAS_GATE,
      .mixer = MIX_DELTA,
      .mixed = MIXED_LISTED,
      .tiled = 1,
      .adapt = adapt_normalises },
    { .text = "Qwen3-Next",
      .name = "qwen3next",
      .rope = ROPE_HALF,
      .has = HAS_QK_NORM | HAS_GATE,
      .mixer = MIX_DELTA,
      .mixed = MIXED_LISTED,
      .adapt = adapt_normalises },
    { .text = "Qwen3.8-Flash-Next",
      .name = "qwen4exp",
      .rope = ROPE_HALF,
      .has = HAS_QK_NORM | HAS_GATE | HAS_STREAMS,
      .mixer = MIX_DELTA,
      .mixed = MIXED_LISTED,
      .tiled = 1,
      .sigmoid_gate = 1,
      .selects = SELECTS_MEANS,
      .selector_rope = ROPE_HALF,
      .adapt = adapt_normalises },
    { .text = "LFM 2 and 2.5",
      .name = "lfm2",
      .rope = ROPE_HALF,
      .has = HAS_QK_NORM,
      .mixer = MIX_CONV,
      .out_norm = "token_embd_norm" },
    { .text = "LFM 2 MoE",
      .name = "lfm2moe",
      .rope = ROPE_HALF,
      .has = HAS_QK_NORM,
      .mixer = MIX_CONV,
      .out_norm = "token_embd_norm",
      .adapt = adapt_normal_sigmoid },
    { .text = "Granite 4",
      .name = "granitehybrid",
      .rope = ROPE_PAIR,
      .mixer = MIX_MAMBA2,
      .adapt = adapt_granite },
    { .text = "Nemotron-H and Nemotron Nano 2",
      .name = "nemotron_h",
      .act = ACT_RELU2,
      .nope = NOPE_ALL,
      .mixer = MIX_MAMBA2,
      .single = 1 },
    { .text = "Nemotron 3 Nano",
      .name = "nemotron_h_moe",
      .act = ACT_RELU2,
      .nope = NOPE_ALL,
      .mixer = MIX_MAMBA2,
      .single = 1,
      .adapt = adapt_normal_sigmoid },
    { .text = "Falcon-H1",
      .name = "falcon-h1",
      .rope = ROPE_HALF,
      .mixer = MIX_MAMBA2,
      .mixed = MIXED_BESIDE },
    { .text = "Mamba 2", .name = "mamba2", .mixer = MIX_MAMBA2, .mixed = MIXED_ALL, .single = 1 },
    { .text = "Kimi Linear",
      .name = "kimi-linear",
      .nope = NOPE_ALL,
      .mixer = MIX_KDA,
      .adapt = adapt_normal_sigmoid },
    { .text = "Gemma",
      .name = "gemma",
      .rope = ROPE_HALF,
      .act = ACT_GELU_TANH,
      .adapt = adapt_gemma },
    { .text = "Gemma 2",
      .name = "gemma2",
      .rope = ROPE_HALF,
      .act = ACT_GELU_TANH,
      .norms = NORMS_BOTH,
      .global_every = 2,
      .adapt = adapt_gemma2 },
    { .text = "Gemma 3, text",
      .name = "gemma3",
      .rope = ROPE_HALF,
      .act = ACT_GELU_TANH,
      .norms = NORMS_BOTH,
      .has = HAS_QK_NORM,
      .global_every = 6,
      .local_base = 10000,
      .adapt = adapt_gemma3 },
    { .text = "Gemma 3n, text",
      .name = "gemma3n",
      .rope = ROPE_HALF,
      .act = ACT_GELU_TANH,
      .norms = NORMS_BOTH,
      .has = HAS_QK_NORM | HAS_ALTUP,
      .global_every = 5,
      .local_base = 10000,
      .adapt = adapt_gemma3n },
    { .text = "Gemma 4, text",
      .name = "gemma4",
      .rope = ROPE_HALF,
      .act = ACT_GELU_TANH,
      .norms = NORMS_BOTH,
      .has = HAS_QK_NORM | VALUES_ARE_KEYS,
      .global_every = 6,
      .local_base = 10000,
      .adapt = adapt_gemma4 },
    { .text = "Gemma 4's assistants, which guess for it",
      .name = "gemma4-assistant",
      .rope = ROPE_HALF,
      .act = ACT_GELU_TANH,
      .norms = NORMS_BOTH,
      .has = HAS_QK_NORM | HAS_TARGET,
      .global_every = 6,
      .local_base = 10000,
      .adapt = adapt_gemma4_assistant },
    { .text = "Phi 3, 3.5 and 4", .name = "phi3", .rope = ROPE_HALF },
    { .text = "SmolLM 3", .name = "smollm3", .rope = ROPE_PAIR, .nope = NOPE_FOURTH },
    { .text = "OLMo 2",
      .name = "olmo2",
      .rope = ROPE_HALF,
      .norms = NORMS_BEHIND,
      .has = HAS_QK_NORM,
      .global_every = 4,
      .local_plain = 1 },
    { .text = "Granite 3", .name = "granite", .rope = ROPE_PAIR, .adapt = adapt_granite },
    { .text = "Granite 3 MoE", .name = "granitemoe", .rope = ROPE_PAIR, .adapt = adapt_granite },
    { .text = "InternLM 2 and 3", .name = "internlm2", .rope = ROPE_PAIR },
    { .text = "EXAONE 3", .name = "exaone", .rope = ROPE_HALF },
    { .text = "EXAONE 4",
      .name = "exaone4",
      .rope = ROPE_HALF,
      .norms = NORMS_BEHIND,
      .has = HAS_QK_NORM,
      .global_every = 4,
      .nope = NOPE_GLOBAL },
    { .text = "Command R",
      .name = "command-r",
      .rope = ROPE_PAIR,
      .norm = NORM_LAYER,
      .parallel = PARALLEL },
    { .text = "Command R7B and Command A",
      .name = "cohere2",
      .rope = ROPE_PAIR,
      .norm = NORM_LAYER,
      .parallel = PARALLEL,
      .global_every = 4,
      .nope = NOPE_GLOBAL },
    { .text = "StableLM 2",
      .name = "stablelm",
      .rope = ROPE_HALF,
      .norm = NORM_LAYER,
      .parallel = PARALLEL_IF_SHARED },
    { .text = "StarCoder 2",
      .name = "starcoder2",
      .rope = ROPE_HALF,
      .act = ACT_GELU_TANH,
      .norm = NORM_LAYER },
    { .text = "Phi 1.5 and 2",
      .name = "phi2",
      .rope = ROPE_HALF,
      .act = ACT_GELU_TANH,
      .norm = NORM_LAYER,
      .parallel = PARALLEL },
    { .text = "GPT-NeoX and Pythia",
      .name = "gptneox",
      .rope = ROPE_HALF,
      .act = ACT_GELU,
      .norm = NORM_LAYER,
      .parallel = PARALLEL,
      .adapt = adapt_gptneox },
    { .text = "Falcon 7B to 180B",
      .name = "falcon",
      .rope = ROPE_HALF,
      .act = ACT_GELU,
      .norm = NORM_LAYER,
      .parallel = PARALLEL },
    { .text = "ERNIE 4.5", .name = "ernie4_5", .rope = ROPE_PAIR },
    { .text = "ERNIE 4.5 MoE",
      .name = "ernie4_5-moe",
      .rope = ROPE_PAIR,
      .adapt = adapt_normalises },
    { .text = "Hunyuan 0.5B to 7B",
      .name = "hunyuan-dense",
      .rope = ROPE_HALF,
      .has = HAS_QK_NORM | NORMS_ROTATED },
    { .text = "Hunyuan A13B",
      .name = "hunyuan-moe",
      .rope = ROPE_HALF,
      .has = HAS_QK_NORM | NORMS_ROTATED,
      .adapt = adapt_normalises },
    { .text = "dots.llm1",
      .name = "dots1",
      .rope = ROPE_HALF,
      .has = HAS_QK_NORM,
      .adapt = adapt_sigmoid },
    { .text = "Ling and Ring 2.0, LLaDA 2",
      .name = "bailingmoe2",
      .rope = ROPE_HALF,
      .has = HAS_QK_NORM,
      .adapt = adapt_sigmoid },
    { .text = "Trinity (AFMoE)",
      .name = "afmoe",
      .rope = ROPE_HALF,
      .norms = NORMS_BOTH,
      .has = HAS_QK_NORM | HAS_GATE,
      .global_every = 4,
      .nope = NOPE_GLOBAL,
      .adapt = adapt_afmoe },
    { .text = "Apertus", .name = "apertus", .rope = ROPE_HALF, .has = HAS_QK_NORM | HAS_XIELU },
    { .text = "MiniMax M2",
      .name = "minimax-m2",
      .rope = ROPE_HALF,
      .has = HAS_QK_NORM,
      .adapt = adapt_normal_sigmoid },
    { .text = "MiniMax M3",
      .name = "minimax-m3",
      .rope = ROPE_HALF,
      .act = ACT_SWIGLU_OAI,
      .has = HAS_QK_NORM,
      .selects = SELECTS_BLOCKS,
      .selector_rope = ROPE_HALF,
      .adapt = adapt_normal_sigmoid },
    { .text = "Seed-OSS", .name = "seed_oss", .rope = ROPE_HALF },
    { .text = "GLM 4",
      .name = "glm4",
      .rope = ROPE_PAIR,
      .norms = NORMS_BOTH,
      .adapt = adapt_glm4 },
    { .text = "GLM 4.5 to 4.7, MoE", .name = "glm4moe", .rope = ROPE_HALF, .adapt = adapt_sigmoid },
    { .text = "OLMoE", .name = "olmoe", .rope = ROPE_HALF, .has = HAS_QK_NORM },
    { .text = "DeepSeek V2, V2.5, V3 and R1, and others of their form",
      .name = "deepseek2",
      .rope = ROPE_PAIR,
      .adapt = adapt_deepseek2 },
    { .text = "DeepSeek V3.2",
      .name = "deepseek32",
      .rope = ROPE_PAIR,
      .selects = SELECTS_TOKENS,
      .selector_rope = ROPE_HALF,
      .adapt = adapt_deepseek2 },
    { .text = "GLM 5",
      .name = "glm-dsa",
      .rope = ROPE_PAIR,
      .selects = SELECTS_TOKENS,
      .selector_rope = ROPE_PAIR,
      .adapt = adapt_glm_dsa },
    { .text = "DeepSeek V4",
      .name = "deepseek4",
      .rope = ROPE_PAIR,
      .has = HAS_SINKS | HAS_COMPRESSED,
      .adapt = adapt_normalises },
    { .text = "Mistral 4", .name = "mistral4", .rope = ROPE_PAIR, .adapt = adapt_deepseek2 },
    { .text = "gpt-oss",
      .name = "gpt-oss",
      .rope = ROPE_HALF,
      .act = ACT_SWIGLU_OAI,
      .has = HAS_SINKS,
      .global_every = 2,
      .adapt = adapt_gpt_oss },
};

const struct arch *cb_arch_at(int i)
{
    return i >= 0 && i < (int)(sizeof table / sizeof *table) ? &table[i] : NULL;
}

const struct arch *cb_arch_find(struct gguf_str name)
{
    const struct arch *a;
    for (int i = 0; (a = cb_arch_at(i)); i++)
        if (strlen(a->name) == name.n && !memcmp(a->name, name.s, name.n))
            return a;
    return NULL;
}
