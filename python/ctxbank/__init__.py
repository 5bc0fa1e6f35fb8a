# SPDX-License-Identifier: MIT
"""ctxbank - long contexts of language models on ordinary servers.

    import ctxbank
    with ctxbank.Model("model.gguf") as model, \\
            ctxbank.Session(model, n_ctx=8192, policy="sieve:budget=1024") as session:
        session.prefill(model.apply_chat_template([{"role": "user", "content": "Hello"}]))
        for text in session.generate(64, temp=0):
            print(text, end="", flush=True)
"""
from typing import Any, Callable, Dict, List

from ._errors import (ArgumentError, Canceled, ContextFull, Error, FileError, FormatError,
                      OutOfMemory, Unsupported, text as _text)
from ._library import ffi as _ffi, lib as _lib
from ._model import Model
from ._params import as_dict as _as_dict
from ._sampler import Grammar, Sampler
from ._session import Session, decode_batch

__all__ = ["ArgumentError", "Canceled", "ContextFull", "Error", "FileError", "FormatError",
           "Grammar", "Model", "OutOfMemory", "Sampler", "Session", "Unsupported", "decode_batch",
           "devices", "families", "kv_types", "policies", "prefills"]
__version__ = _text(_lib.cb_version())


def _table(function: Callable, struct: str) -> List[Dict[str, Any]]:
    out: List[Dict[str, Any]] = []
    row = _ffi.new(struct + " *")
    while function(len(out), row) == _lib.CB_OK:
        out.append(_as_dict(row[0]))
    return out


def _methods(function: Callable, option: Callable) -> List[Dict[str, Any]]:
    found = _table(function, "struct cb_method_info")
    for i, method in enumerate(found):
        method["options"] = _table(lambda j, row, i=i: option(i, j, row), "struct cb_option_info")
    return found


def policies() -> List[Dict[str, Any]]:
    """The policies: name, text, paper, and options with their defaults"""
    return _methods(_lib.cb_policy_at, _lib.cb_policy_option_at)


def prefills() -> List[Dict[str, Any]]:
    """The forms of prefill, as policies()"""
    return _methods(_lib.cb_prefill_at, _lib.cb_prefill_option_at)


def families() -> List[Dict[str, Any]]:
    """The model families that can be opened"""
    return _table(_lib.cb_family_at, "struct cb_family_info")


def kv_types() -> List[Dict[str, Any]]:
    """Types in which keys and values are stored"""
    return _table(_lib.cb_kv_type_at, "struct cb_kv_type_info")


def devices() -> List[Dict[str, Any]]:
    """Devices that are built in, and whether this machine has them"""
    return _table(_lib.cb_device_at, "struct cb_device_info")
