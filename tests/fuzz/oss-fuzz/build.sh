#!/bin/bash -eu
# SPDX-License-Identifier: MIT
# build.sh - builds the targets as OSS-Fuzz wants them: statically as far as its runner has no
# libraries, with $CFLAGS and $LIB_FUZZING_ENGINE of the sanitizer and engine at hand, each with its
# seeds as a zip file, in $OUT.
autoreconf -i
./configure --without-cuda --without-opencl --without-openblas --without-onednn --disable-shared \
    --disable-hardening
targets=$(ls tests/fuzz/fuzz_*.c | sed -n 's,\.c$,,p' | grep -v '_\(file\|model\|grammar\)$')
make -j"$(nproc)" LDFLAGS="$LIB_FUZZING_ENGINE -Wl,-rpath,'\$\$ORIGIN/lib'" $targets

mkdir -p "$OUT/lib"
for target in $targets; do
    name=$(basename "$target")
    cp "$target" "$OUT/$name"
    # all but the system's own, which the runner has
    ldd "$target" | awk '$3 ~ /^\// && !/lib(c|m|dl|rt|pthread|gcc_s|resolv)\.so/ {print $3}' |
        xargs -r cp -t "$OUT/lib"
    (cd "tests/fuzz/seeds/${name#fuzz_}" && zip -qr "$OUT/${name}_seed_corpus.zip" .)
done
