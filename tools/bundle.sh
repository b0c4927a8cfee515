#!/usr/bin/env bash
# tools/bundle.sh - the program and the libraries it needs, as a folder for a machine that has neither
# them nor a way to install them; what `make bundle` does.
#
#   [BUILD=build] tools/bundle.sh [FOLDER]        FOLDER is bundle/ unless said otherwise
#
# What belongs to the machine stays out: the C library and the loader, the driver's libraries, and
# NVIDIA's, which that machine has in the version of its driver. Run FOLDER/yoke.
set -euo pipefail
cd "$(dirname "$0")/.."

program=${BUILD:-build}/yoke
folder=${1:-bundle}
stays='^(ld-linux.*|linux-vdso|lib(c|m|dl|rt|pthread|resolv|util|anl|nss_.*)|lib(cuda|nvidia.*|cu.*|nccl|nv.*))\.so'

[ -x "$program" ] || { echo "yoke: bundle: $program is not there; run make first" >&2; exit 2; }
missing=$(ldd "$program" | sed -n 's/^[[:space:]]*\(.*\) => not found$/\1/p' | tr '\n' ' ')
[ -z "$missing" ] || { echo "yoke: bundle: $program: not found: $missing; run tools/setup" >&2; exit 1; }

rm -rf "$folder"
mkdir -p "$folder/bin" "$folder/lib"
cp "$program" "$folder/bin/yoke"
ldd "$program" | sed -n 's/^[[:space:]]*\([^ ]*\) => \(\/[^ ]*\).*/\1 \2/p' |
    while read -r name path; do
        if ! grep -qE "$stays" <<<"$name"; then cp -L "$path" "$folder/lib/$name"; fi
    done

cat >"$folder/yoke" <<'EOF'
#!/bin/sh
# The program beside this file, with the libraries beside this file.
here=$(cd "$(dirname "$0")" && pwd)
LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} exec "$here/bin/yoke" "$@"
EOF
chmod +x "$folder/yoke"
echo "yoke: $folder/ holds the program and $(ls "$folder/lib" | wc -l) libraries, $(du -sh "$folder" | cut -f 1)"
