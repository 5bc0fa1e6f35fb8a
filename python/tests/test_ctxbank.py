# SPDX-License-Identifier: MIT
"""test_ctxbank - the Python package on a tiny random model, CTXBANK_TEST_MODEL. Runs with pytest,
or by tests/cli/check-python."""
import contextlib
import os
import tempfile

import ctxbank

MODEL = os.environ["CTXBANK_TEST_MODEL"]
TEXT = "The quick brown fox jumps over the lazy dog. " * 6


@contextlib.contextmanager
def opened(**params):
    with ctxbank.Model(MODEL, n_threads=1) as model:
        with ctxbank.Session(model, n_ctx=512, **params) as session:
            yield model, session


@contextlib.contextmanager
def raises(kind, part):
    try:
        yield
    except kind as e:
        assert part in str(e), str(e)
    else:
        raise AssertionError(f"no {kind.__name__}")


def same(a, b):
    return [float(x) for x in a] == [float(x) for x in b]


def test_tokens_and_text():
    with ctxbank.Model(MODEL, vocab_only=1) as model:
        ids = model.tokenize(TEXT)
        assert ids and model.decode(ids).strip() == TEXT.strip()
        assert model(TEXT)["input_ids"] == ids
        assert all(0 <= i < model.n_vocab for i in ids)
        assert model.tokenize("") in ([], [model.info["bos"]])


def test_prefill_is_decode_by_decode():
    with opened(type_k="f32", type_v="f32") as (model, a):
        ids = model.tokenize(TEXT)
        a.prefill(ids)
        assert len(a) == len(ids) and a.tokens == ids
        assert len(a.logits) == model.n_vocab
        with ctxbank.Session(model, n_ctx=512, type_k="f32", type_v="f32") as b:
            b.prefill(ids[:5])
            for i in ids[5:]:
                b.decode(i)
            assert max(abs(float(x) - float(y)) for x, y in zip(a.logits, b.logits)) < 0.05


def test_fork_cut_and_batch():
    with opened() as (model, a):
        ids = model.tokenize(TEXT)
        a.prefill(ids)
        with a.fork() as b:
            assert same(a.logits, b.logits)
            a.decode(ids[1])
            with raises(ctxbank.ArgumentError, ""):
                b.cut(len(b) + 1)
            ctxbank.decode_batch([b], [ids[1]])
            assert same(a.logits, b.logits)
            b.cut(10)
            assert b.tokens == ids[:10]
            with raises(ctxbank.Error, "no logits"):
                _ = b.logits


def test_saved_bank():
    with opened(policy="sieve:budget=64") as (model, a), tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "a.bank")
        a.prefill(model.tokenize(TEXT))
        a.save(path)
        with ctxbank.Session.open(model, path) as b:
            assert same(a.logits, b.logits) and a.tokens == b.tokens
        with open(path, "r+b") as f:
            f.truncate(1000)
        with raises(ctxbank.FormatError, "a.bank"):
            ctxbank.Session.open(model, path)


def test_policies_hold_less():
    with opened(policy="streamingllm:budget=32") as (model, s):
        ids = model.tokenize(TEXT)
        s.prefill(ids)
        memory = s.memory
        assert memory["kept_max"] < len(ids) and memory["kv_bytes"] < memory["kv_full_bytes"]
        assert s.plan(len(ids), 4)["kv_bytes"] > 0


def test_generating():
    with opened() as (model, s):
        s.prefill(model.tokenize(TEXT))
        whole = "".join(s.generate(24, temp=0))
        s.cut(len(model.tokenize(TEXT)) - 1)
        s.decode(model.tokenize(TEXT)[-1])
        again = list(s.generate(24, temp=0))
        assert "".join(again) == whole
        s.cut(len(model.tokenize(TEXT)) - 1)
        s.decode(model.tokenize(TEXT)[-1])
        stop = whole[len(whole) // 2:][:2]
        if stop:
            assert "".join(s.generate(24, temp=0, stop=[stop])) == whole[:whole.find(stop)]


def test_grammar():
    with opened() as (model, s):
        s.prefill(model.tokenize(TEXT))
        out = "".join(s.generate(24, temp=0, grammar=ctxbank.Grammar(regex="[0-9]{3}")))
        assert len(out) == 3 and out.isdigit(), out
    with raises(ctxbank.ArgumentError, ""):
        ctxbank.Grammar(gbnf="root ::= (")
    with raises(TypeError, "one of"):
        ctxbank.Grammar()


def test_progress_and_cancel():
    seen = []
    with opened() as (model, s):
        s.prefill(model.tokenize(TEXT), progress=lambda done, total: seen.append((done, total)))
        assert seen and seen[-1][0] == seen[-1][1]
        s.clear()
        with raises(ctxbank.Canceled, "stopped"):
            s.prefill(model.tokenize(TEXT), progress=lambda *_: True)
        assert len(s) == 0


def test_errors_name_what_is_wrong():
    with raises(ctxbank.FileError, "nosuch.gguf"):
        ctxbank.Model("nosuch.gguf")
    with raises(TypeError, "no parameter 'n_thread'"):
        ctxbank.Model(MODEL, n_thread=1)
    with opened() as (model, s):
        with raises(ctxbank.ArgumentError, "nosuch"):
            ctxbank.Session(model, policy="nosuch")
        with raises(ctxbank.ContextFull, ""):
            s.prefill([1] * 600)
        with raises(ctxbank.Error, "sessions are still open"):
            model.close()
    with raises(ctxbank.Error, "closed"):
        s.prefill([1])


def test_tables():
    names = [p["name"] for p in ctxbank.policies()]
    assert "full" in names and "sieve" in names
    sieve = ctxbank.policies()[names.index("sieve")]
    assert "budget" in [o["name"] for o in sieve["options"]]
    assert "dense" in [p["name"] for p in ctxbank.prefills()]
    assert "llama" in [f["name"] for f in ctxbank.families()]
    assert "f16" in [t["name"] for t in ctxbank.kv_types()]
    assert ctxbank.devices()[0]["name"]


def test_what_is_kept():
    with opened(policy="snapkv:budget=32,window=8") as (model, s):
        ids = model.tokenize(TEXT)
        assert all(len(k) == 0 for k in s.kept(0))
        s.prefill(ids)
        layers = range(model.info["n_layer"])
        held = [[int(i) for i in k] for layer in layers for k in s.kept(layer)]
        assert max(map(len, held)) == s.memory["kept_max"] <= 32 < len(ids)
        for k in held:
            assert k == sorted(set(k)) and k[-1] == len(ids) - 1
        for layer in (-1, model.info["n_layer"]):
            with raises(ctxbank.ArgumentError, "layer"):
                s.kept(layer)


def test_deprecated_functions_are_read():
    from ctxbank._library import declarations  # pylint: disable=import-outside-toplevel
    header = '__attribute__((deprecated("use cb_b()"))) CB_API int cb_a(int x);\n'
    assert declarations(header).split("\n")[0].strip() == "int cb_a(int x);"
