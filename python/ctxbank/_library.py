# SPDX-License-Identifier: MIT
"""_library - finds libctxbank and its header, and declares the header's functions to cffi (ABI
mode: nothing is compiled)."""
import ctypes.util
import os
import re

import cffi

_HERE = os.path.dirname(os.path.abspath(__file__))
_TREE = os.path.join(_HERE, "..", "..")
# Beside this file in a wheel, in the source tree (built in its folder "build"), or where the C
# library was installed
_HEADERS = [os.path.join(_HERE, "ctxbank.h"), os.path.join(_TREE, "include", "ctxbank.h"),
            "/usr/local/include/ctxbank.h", "/usr/include/ctxbank.h"]
_PRESETS = [os.path.join(_HERE, "presets"), os.path.join(_TREE, "data", "presets"),
            "/usr/local/share/ctxbank/presets", "/usr/share/ctxbank/presets"]
_LIBRARIES = [os.path.join(_HERE, "libctxbank.so.0"),
              os.path.join(_TREE, "build", ".libs", "libctxbank.so.0"), "libctxbank.so.0",
              ctypes.util.find_library("ctxbank")]


def declarations(header):
    """The declarations of ctxbank.h without the preprocessor's lines, as cffi reads them."""
    header = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    header = header.replace("\\\n", "")
    numbers = re.findall(r"^#define (CTXBANK_VERSION_(?:MAJOR|MINOR|PATCH)) (\d+)$", header, re.M)
    header = re.sub(r"^#ifdef __cplusplus\n.*?^#endif$", "", header, flags=re.S | re.M)
    header = re.sub(r"^#.*$", "", header, flags=re.M)
    header = header.replace("CB_API ", "")
    header = re.sub(r"__attribute__\(\(deprecated\(\"[^\"]*\"\)\)\)", "", header)
    return "".join(f"#define {name} {value}\n" for name, value in numbers) + header + \
        "\nvoid free(void *);\n"


def _header():
    for path in [os.environ.get("CTXBANK_HEADER"), *_HEADERS]:
        if path and os.path.exists(path):
            return path
    raise ImportError("ctxbank.h was not found: install ctxbank, or CTXBANK_HEADER=FILE names it")


def _open(ffi):
    asked = os.environ.get("CTXBANK_LIBRARY")
    failed = []
    for path in [asked] if asked else _LIBRARIES:
        try:
            if path:
                return ffi.dlopen(path)
        except OSError as e:
            failed.append(str(e))
    raise ImportError("the library ctxbank cannot be opened (CTXBANK_LIBRARY=FILE names one): "
                      + "; ".join(failed))


def _load():
    ffi = cffi.FFI()
    path = _header()
    with open(path, encoding="utf-8") as f:
        ffi.cdef(declarations(f.read()))
    lib = _open(ffi)
    if lib.cb_version_number() // 10000 != lib.CTXBANK_VERSION_MAJOR:
        raise ImportError(f"{path} is not the header of libctxbank "
                          f"{ffi.string(lib.cb_version()).decode()}")
    return ffi, lib


ffi, lib = _load()
# The folder of installed presets; None: there is none
presets = next((path for path in _PRESETS if os.path.isdir(path)), None)
