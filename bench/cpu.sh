#!/usr/bin/env bash
# bench/cpu.sh - tokens per second beside PyTorch on this machine's processors; what `make bench` does.
#
#   [BUILD=build] bench/cpu.sh [OPTION...]     options are those of bench/cpu.py
#
# Installs python3-torch where that is possible; without it, Yoke is timed alone.
set -euo pipefail
cd "$(dirname "$0")/.."

case " $* " in
*" --help "* | *" -h "*) ;; # which needs nothing
*) tools/setup --optional bench || true ;;
esac

# The system's Python: python3-torch is built for it, and another may come first in PATH.
for python in /usr/bin/python3 "$(command -v python3 || true)"; do
    [ -x "$python" ] && exec "$python" bench/cpu.py --yoke "${BUILD:-build}/yoke" "$@"
done
echo "yoke: bench: there is no python3; run: apt-get install python3" >&2
exit 2
