# SPDX-License-Identifier: MIT
"""_model - an opened model: text, tokens, conversations."""
import json
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Union

from ._errors import Error, check, text
from ._library import ffi, lib, presets
from ._params import as_dict, filled

Message = Dict[str, str]


def _bytes(value: Union[str, bytes]) -> bytes:
    return value.encode() if isinstance(value, str) else value


class Model:
    """A GGUF file, opened once and shared by sessions. Use it as a context manager, or close().

    path: the file. Other arguments are those of struct cb_model_params (man 3 ctxbank), such as
    n_threads, device, isa, preset_dir (the installed presets, unless given), vocab_only.
    log(level, message) gets notes. Raises Error.
    """

    def __init__(self, path: str, *, log: Optional[Callable[[int, str], None]] = None,
                 **params: Any):
        self._keep: list = []
        self._sessions = 0
        p = filled("struct cb_model_params", lib.cb_model_defaults(),
                   {"preset_dir": presets, **params}, self._keep)
        if log:
            callback = ffi.callback("void(void *, enum cb_log_level, const char *)",
                                    lambda _, level, message: log(level, text(message)))
            self._keep.append(callback)
            p.log = callback
        out = ffi.new("cb_model **")
        check(lib.cb_model_open(_bytes(path), p, out))
        self._model = out[0]

    def close(self) -> None:
        """Frees the model. Its sessions must be closed before. A second call does nothing."""
        if self._model and self._sessions:
            raise Error(lib.CB_EARG, f"model: {self._sessions} sessions are still open")
        model, self._model = self._model, None
        if model:
            lib.cb_model_close(model)

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def handle(self):
        """The library's cb_model *"""
        if not self._model:
            raise Error(lib.CB_EARG, "model: it is closed")
        return self._model

    @property
    def info(self) -> Dict[str, Any]:
        """struct cb_model_info: arch, name, n_layer, n_ctx_train, ..."""
        out = ffi.new("struct cb_model_info *")
        lib.cb_model_get_info(self.handle, out)
        return as_dict(out[0])

    # ---- text and tokens ----

    def tokenize(self, value: Union[str, bytes], *, bos: bool = True, eos: bool = False,
                 special: bool = False) -> List[int]:
        """Token ids of a text. bos, eos: added if the model asks for them. special: marks such as
        <|im_end|> that the text spells become special tokens."""
        data = _bytes(value)
        flags = lib.CB_TOK_BOS * bos | lib.CB_TOK_EOS * eos | lib.CB_TOK_SPECIAL * special
        ids, n = ffi.new("int32_t **"), ffi.new("int *")
        check(lib.cb_tokenize(self.handle, data, len(data), flags, ids, n))
        return self._taken(ids, n)

    def __call__(self, value: Union[str, bytes], add_special_tokens: bool = True) \
            -> Dict[str, List[int]]:
        """As the tokenizers of transformers: {"input_ids": [...], "attention_mask": [...]}"""
        ids = self.tokenize(value, bos=add_special_tokens)
        return {"input_ids": ids, "attention_mask": [1] * len(ids)}

    encode = tokenize

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """The text of token ids"""
        flags = lib.CB_TOK_WHOLE | (0 if skip_special_tokens else lib.CB_TOK_SPECIAL)
        detokenizer, out = ffi.new("cb_detokenizer **"), b""
        check(lib.cb_detokenizer_new(self.handle, flags, detokenizer))
        piece, n = ffi.new("const char **"), ffi.new("size_t *")
        try:
            for i in ids:
                check(lib.cb_detokenizer_push(detokenizer[0], i, piece, n))
                out += ffi.buffer(piece[0], n[0])[:]
            lib.cb_detokenizer_end(detokenizer[0], piece, n)
            return (out + ffi.buffer(piece[0], n[0])[:]).decode()
        finally:
            lib.cb_detokenizer_free(detokenizer[0])

    def is_end(self, token: int) -> bool:
        """Does the token end a turn?"""
        return bool(lib.cb_token_is_end(self.handle, token))

    @property
    def n_vocab(self) -> int:
        """Token ids are 0 to n_vocab - 1."""
        return lib.cb_n_vocab(self.handle)

    # ---- conversations ----

    def apply_chat_template(self, messages: Sequence[Message], *, tokenize: bool = True,
                            add_generation_prompt: bool = True, form: Optional[str] = None,
                            **variables: Any) -> Union[str, List[int]]:
        """The conversation as token ids, or as text. messages: [{"role": ..., "content": ...}].
        variables: of the template, such as enable_thinking or tools. Special tokens that a
        message spells are ordinary text."""
        keep: list = []
        how = filled("struct cb_chat", {}, {
            "form": form, "vars": json.dumps(variables) if variables else None}, keep)
        msg = ffi.new("struct cb_message[]", max(1, len(messages)))
        for i, m in enumerate(messages):
            keep += [ffi.new("char[]", _bytes(m["role"])), ffi.new("char[]", _bytes(m["content"]))]
            msg[i].role, msg[i].text = keep[-2:]
        ask, n_msg = int(add_generation_prompt), len(messages)
        if tokenize:
            ids, n = ffi.new("int32_t **"), ffi.new("int *")
            check(lib.cb_chat_tokenize(self.handle, how, msg, n_msg, ask, 0, ids, n))
            return self._taken(ids, n)
        out = ffi.new("char **")
        check(lib.cb_chat_text(self.handle, how, msg, n_msg, ask, out))
        try:
            return text(out[0])
        finally:
            lib.free(out[0])

    @staticmethod
    def _taken(ids, n) -> List[int]:
        try:
            return list(ffi.unpack(ids[0], n[0])) if n[0] else []
        finally:
            lib.free(ids[0])
