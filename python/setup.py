# SPDX-License-Identifier: MIT
"""setup - the wheel's version is that of ctxbank.h, and its tag names the platform if the C library
is inside: any Python 3, since nothing is compiled against Python. From the source tree, the header
and presets are put inside, and the library of the build folder CTXBANK_BUILD (default ../build)
if it is there; else an installed libctxbank serves."""
import os
import re
import shutil

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py
from setuptools.command.bdist_wheel import bdist_wheel

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.join(HERE, "..")
BUILT = os.path.join(os.environ.get("CTXBANK_BUILD", os.path.join(TREE, "build")), ".libs",
                     "libctxbank.so.0")
INSIDE = any(map(os.path.exists, (BUILT, os.path.join(HERE, "ctxbank", "libctxbank.so.0"))))


def version():
    for header in (os.path.join(HERE, "ctxbank", "ctxbank.h"),
                   os.path.join(HERE, "..", "include", "ctxbank.h")):
        if os.path.exists(header):
            with open(header, encoding="utf-8") as f:
                return re.search(r'CTXBANK_VERSION_STRING "([^"]+)"', f.read())[1]
    raise SystemExit("setup: no ctxbank.h")


class BuildFromTree(build_py):
    def run(self):
        super().run()
        out = os.path.join(self.build_lib, "ctxbank")
        header, presets = (os.path.join(TREE, *p) for p in (("include", "ctxbank.h"),
                                                            ("data", "presets")))
        if os.path.exists(header):
            shutil.copy(header, out)
            shutil.copytree(presets, os.path.join(out, "presets"), dirs_exist_ok=True)
        if os.path.exists(BUILT):
            shutil.copy(BUILT, out)


class WithLibrary(Distribution):
    def has_ext_modules(self):
        return INSIDE


class Wheel(bdist_wheel):
    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


setup(version=version(), distclass=WithLibrary,
      cmdclass={"bdist_wheel": Wheel, "build_py": BuildFromTree})
