# tests/launch/fakes.sh - programs that stand in for mpirun and sbatch, and a driver with GPUs; sourced
# after expect.sh.

. "$YK_SOURCE/tests/launch/waiting.sh" || exit 1
mkdir -p "$scratch/bin"
config=$scratch/demo.yaml # whose batch divides over as many ranks as tests start
sed 's/^  batch: .*/  batch: 360/' "$YK_SOURCE/configs/demo.yaml" >"$config"
yoke=$YK_BUILD/yoke

# fake NAME: standard input becomes a program of that name, first in PATH. Its words are appended to
# $scratch/NAME.words, one a line, after a line "--".
fake() {
    {
        echo '#!/bin/bash'
        echo "{ echo --; printf '%s\\n' \"\$@\"; } >>'$scratch/$1.words'"
        cat
    } >"$scratch/bin/$1"
    chmod +x "$scratch/bin/$1"
    rm -f "$scratch/$1.words"
}

# How often the fake NAME was called.
calls() {
    grep -c -x -e -- "$scratch/$1.words" 2>/dev/null || true
}

# launch WORDS...: yoke launch with the fakes in front.
launch() {
    run env PATH="$scratch/bin:$PATH" "$yoke" launch "$@"
}

# fake_gpus BUS...: a driver that shows GPUs on those buses (two hexadecimal digits). Commands find it
# when they run with LD_LIBRARY_PATH=$scratch/driver.
fake_gpus() {
    local buses=
    mkdir -p "$scratch/driver"
    for bus in "$@"; do buses+="0x$bus,"; done
    {
        echo "static const unsigned buses[] = {${buses}0};"
        cat <<'EOF'
#include <stdio.h>
#include <string.h>
typedef struct { char short_id[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci;
typedef struct { unsigned long long total, free, used; } memory;
enum { n_gpus = sizeof buses / sizeof buses[0] - 1 };
int nvmlInit_v2(void) { return FAULT; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int error) { return error == 18 ? "Driver/library version mismatch" : "?"; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = n_gpus; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device)
{
    if (i >= n_gpus) return 2;
    *device = (void *)&buses[i];
    return 0;
}
int nvmlDeviceGetPciInfo_v3(void *device, pci *info)
{
    memset(info, 0, sizeof *info);
    info->bus = *(const unsigned *)device;
    return 0;
}
int nvmlDeviceGetUUID(void *device, char *text, unsigned size)
{
    return snprintf(text, size, "GPU-%04x", *(const unsigned *)device) < 0;
}
int nvmlDeviceGetName(void *device, char *text, unsigned size)
{
    (void)device;
    return snprintf(text, size, "NVIDIA GeForce RTX 4090 D") < 0;
}
int nvmlDeviceGetMemoryInfo(void *device, memory *m)
{
    (void)device;
    m->total = 24ull << 30;
    return 0;
}
EOF
    } >"$scratch/driver/nvml.c"
    "${YK_CC:-cc}" -shared -fPIC -DFAULT="${driver_fault:-0}" "$scratch/driver/nvml.c" \
        -o "$scratch/driver/libnvidia-ml.so.1" || fail "the driver does not compile"
}
