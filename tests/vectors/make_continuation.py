#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_continuation.py - per-token losses of a continuation, by PyTorch.

Dequantises a GGUF model to float32, loads it into the transformers model of
its family, and computes for a context and the target text right after it what
`ctxbank eval continuation` prints: the negative log-likelihood of every target
token and the token that the model would have put there. Weights, activations
and cache are float32 throughout, so the only differences from an exact engine
are those of summation order (and of activations that the engine quantises).

    make_continuation.py MODEL.gguf BOOK.txt -o continuation-NAME.json

BOOK.txt is Project Gutenberg's book 1342 (Pride and Prejudice); its line ends
are made "\\n" first, since copies differ there. Context and target are two byte
ranges of that text, tokenized apart: no special tokens parsed, no BOS unless
the model asks for one. The ids of both are in the output, so that a test needs
neither the book nor a tokenizer.

Needs: torch, transformers, tokenizers, gguf, numpy. `--greedy N` prints N
greedy tokens after the context to stderr, to see that the model is whole.
"""

import argparse
import hashlib
import json
import os
import sys

import gguf
import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# name in the file -> name in transformers, after "blk.N." and "model.layers.N."
LAYER_NAMES = {
    "attn_norm.weight": "input_layernorm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_q.bias": "self_attn.q_proj.bias",
    "attn_k.bias": "self_attn.k_proj.bias",
    "attn_v.bias": "self_attn.v_proj.bias",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}
TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def sha256_file(path):
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def make_tokenizer(meta):
    """Byte-level BPE from the file's vocabulary; knows no special tokens."""
    vocab = {t: i for i, t in enumerate(meta("tokenizer.ggml.tokens"))}
    merges = [tuple(m.split(" ")) for m in meta("tokenizer.ggml.merges")]
    tok = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    kind = meta("tokenizer.ggml.pre")
    if kind == "smollm":
        tok.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ])
    elif kind == "qwen2":
        tok.normalizer = normalizers.NFC()
        tok.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(QWEN2_SPLIT), "isolated"), byte_level])
    else:
        sys.exit(f"make_continuation.py: unknown pre-tokenizer {kind}")
    tok.decoder = decoders.ByteLevel()
    return tok


def unpermute(w, n_head):
    """GGUF's llama family turns adjacent pairs of a head (0,1), (2,3), ...;
    transformers turns (0, d/2), (1, d/2+1), ...: put the rows of q and k back."""
    rows, cols = w.shape
    return w.reshape(n_head, rows // n_head // 2, 2, cols).transpose(1, 2).reshape(rows, cols)


def load_model(reader, meta):
    arch = meta("general.architecture")
    n_head, n_kv = meta(f"{arch}.attention.head_count"), meta(f"{arch}.attention.head_count_kv")
    tensors = {t.name: t for t in reader.tensors}
    vocab_size = int(tensors["token_embd.weight"].shape[1])
    family, config = {"llama": (LlamaForCausalLM, LlamaConfig),
                      "qwen2": (Qwen2ForCausalLM, Qwen2Config)}[arch]
    config = config(
        vocab_size=vocab_size,
        hidden_size=meta(f"{arch}.embedding_length"),
        intermediate_size=meta(f"{arch}.feed_forward_length"),
        num_hidden_layers=meta(f"{arch}.block_count"),
        num_attention_heads=n_head,
        num_key_value_heads=n_kv,
        max_position_embeddings=meta(f"{arch}.context_length"),
        rms_norm_eps=meta(f"{arch}.attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": meta(f"{arch}.rope.freq_base")},
        tie_word_embeddings="output.weight" not in tensors,
        attn_implementation="sdpa",
    )
    state = {}
    for name, t in tensors.items():
        w = torch.tensor(gguf.quants.dequantize(t.data, t.tensor_type), dtype=torch.float32)
        if name.startswith("blk."):
            _, layer, rest = name.split(".", 2)
            if arch == "llama" and rest in ("attn_q.weight", "attn_k.weight"):
                w = unpermute(w, n_head if rest == "attn_q.weight" else n_kv)
            state[f"model.layers.{layer}.{LAYER_NAMES[rest]}"] = w
        else:
            state[TOP_NAMES[name]] = w
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model = family(config).float().eval()
    model.load_state_dict(state, strict=True)
    return model


def cut(tok, text, start, n_tok):
    """The end of the first piece of text, from start, that is n_tok tokens or a
    little longer and ends at the end of a word, so that what comes after is
    tokenized as it would be in one piece with it."""
    enc = tok.encode(text[start:start + 12 * n_tok], add_special_tokens=False)
    for _, end in enc.offsets[n_tok - 1:]:
        if not text[start + end].isalnum() and not text[start + end - 1].isspace():
            return start + end
    sys.exit("make_continuation.py: the text is too short")


@torch.inference_mode()
def losses(model, context_ids, target_ids, chunk):
    """token_nll[], top1[] and by how much the first choice beat the second, in logits."""
    ids = torch.tensor([context_ids + target_ids])
    n_ctx, n_all = len(context_ids), ids.shape[1]
    cache, logits = None, []
    for a in range(0, n_all - 1, chunk):
        b = min(a + chunk, n_all - 1)  # the last target token is predicted, never fed
        keep = max(0, b - max(a, n_ctx - 1))  # rows that predict a target token
        out = model(input_ids=ids[:, a:b], past_key_values=cache, use_cache=True,
                    logits_to_keep=max(keep, 1))
        cache = out.past_key_values
        if keep:
            logits.append(out.logits[0])
        print(f"{b} of {n_all - 1} tokens", file=sys.stderr)
    logits = torch.cat(logits)
    nll = torch.nn.functional.cross_entropy(logits, ids[0, n_ctx:], reduction="none")
    best = logits.topk(2)
    return nll, best.indices[:, 0], best.values[:, 0] - best.values[:, 1]


def write_json(path, record):
    """One key a line, so that two versions can be compared line by line."""
    with open(path, "w", encoding="utf-8", newline="\n") as f:
        lines = (f"{json.dumps(k)}: {json.dumps(v)}" for k, v in record.items())
        f.write("{\n" + ",\n".join(lines) + "\n}\n")


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("model", help="llama or qwen2 family, .gguf")
    ap.add_argument("book", help="Project Gutenberg 1342, plain text")
    ap.add_argument("-o", "--output", required=True)
    ap.add_argument("--start", default="It is a truth universally acknowledged",
                    help="where in the text the context starts")
    ap.add_argument("--context", type=int, default=6000, help="tokens, at least")
    ap.add_argument("--target", type=int, default=256, help="tokens, at least")
    ap.add_argument("--chunk", type=int, default=512, help="tokens a forward pass")
    ap.add_argument("--greedy", type=int, default=0)
    args = ap.parse_args()

    reader = gguf.GGUFReader(args.model)

    def meta(key):
        return reader.fields[key].contents()

    with open(args.book, "rb") as f:
        book = f.read().replace(b"\r\n", b"\n")
    text = book.decode("ascii")  # so that offsets in characters are offsets in bytes
    tok = make_tokenizer(meta)
    begin = text.index(args.start)
    middle = cut(tok, text, begin, args.context)
    end = cut(tok, text, middle, args.target)
    context_ids = tok.encode(text[begin:middle], add_special_tokens=False).ids
    target_ids = tok.encode(text[middle:end], add_special_tokens=False).ids
    bos = reader.fields.get("tokenizer.ggml.add_bos_token")
    if bos is not None and bos.contents():
        context_ids.insert(0, meta("tokenizer.ggml.bos_token_id"))

    model = load_model(reader, meta)
    if args.greedy:
        out = model.generate(torch.tensor([context_ids]), max_new_tokens=args.greedy,
                             do_sample=False, pad_token_id=0)
        print(tok.decode(out[0, len(context_ids):].tolist()), file=sys.stderr)
    nll, top1, margin = losses(model, context_ids, target_ids, args.chunk)

    mean = nll.double().mean().item()
    write_json(args.output, {
        "made_by": "tests/vectors/make_continuation.py",
        "model": os.path.basename(args.model),
        "model_sha256": sha256_file(args.model),
        "text": "Project Gutenberg 1342 with every CR LF made LF; offsets and lengths in bytes",
        "text_sha256": sha256(book),
        "context_offset": begin,
        "context_bytes": middle - begin,
        "context_sha256": sha256(book[begin:middle]),
        "target_offset": middle,
        "target_bytes": end - middle,
        "target_sha256": sha256(book[middle:end]),
        "context_tokens": len(context_ids),
        "target_tokens": len(target_ids),
        "nll": round(mean, 6),
        "ppl": round(torch.exp(torch.tensor(mean)).item(), 4),
        "target_ids": target_ids,
        "token_nll": [round(x, 5) for x in nll.tolist()],
        "top1": top1.tolist(),
        "top1_margin": [round(x, 4) for x in margin.tolist()],
        "context_ids": context_ids,
    })
    print(f"nll {mean:.4f}, {len(context_ids)} + {len(target_ids)} tokens", file=sys.stderr)


if __name__ == "__main__":
    main()
