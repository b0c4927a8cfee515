"""Compare Yoke with PyTorch on this machine's processors.

  make bench, or: bench/cpu.sh [--pairs 3] [--threads N] [--model demo] ...

The two programs train the same model shape with the same batch, threads, optimiser, precision and
OPENBLAS_CORETYPE. They run in turns (Yoke, PyTorch, Yoke, PyTorch, ...), so that whatever else the
machine does falls on both; a run's figure is its median step, a program's the median of its runs.
Prints a table and writes bench/out/cpu.json.

Yoke says what shape it trained in the config.json that it saves, and PyTorch is given that.
"""
import argparse
import array
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "bench" / "out"
WARMUP = 3  # steps of a run that are not timed

# name: (configuration, its vocabulary, timed steps of a run)
MODELS = {"demo": ("configs/demo.yaml", 256, 40), "30m": ("configs/bench-30m.yaml", 8192, 8)}

# Kernels of OpenBLAS that use AVX2 or more.
FAST_KERNELS = {"Haswell", "Zen", "SkylakeX", "Cooperlake", "SapphireRapids"}
PICKED = """
import ctypes
library = ctypes.CDLL("libopenblas.so.0")
library.openblas_get_corename.restype = ctypes.c_char_p
print(library.openblas_get_corename().decode())
"""


def run(command, environment):
    """Run to the end; return what it printed and the most memory it held, in bytes."""
    with tempfile.TemporaryFile("w+") as said:
        child = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=said, stderr=subprocess.STDOUT
        )
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read()
    if child.returncode != 0:
        sys.exit(f"{text}yoke: bench: {' '.join(command)}: exit status {child.returncode}")
    return text, usage.ru_maxrss * 1024


def cpu_info():
    """The processor's name and its features."""
    info = {}
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        info.setdefault(key.strip(), value.strip())
    return info.get("model name", "unknown"), set(info.get("flags", "").split())


def choose_kernels(features):
    """The OPENBLAS_CORETYPE that both programs get, and the kernels that it makes OpenBLAS use.

    OpenBLAS falls back to kernels of 2004 on a processor that is newer than itself, at a fifth of
    the rate. Timing PyTorch like that would flatter us, so the choice is then made for it.
    """

    def kernels(environment):
        done = subprocess.run([sys.executable, "-c", PICKED], capture_output=True, env=environment)
        return done.stdout.decode().strip() or "unknown"

    environment = dict(os.environ)
    picked = kernels(environment)
    if "OPENBLAS_CORETYPE" in environment or picked in FAST_KERNELS | {"unknown"}:
        return environment.get("OPENBLAS_CORETYPE", ""), picked
    wanted = "SkylakeX" if "avx512bw" in features else "Haswell" if "avx2" in features else ""
    if not wanted:
        return "", picked
    print(f"OpenBLAS picks {picked} kernels here; OPENBLAS_CORETYPE={wanted} for both programs")
    return wanted, kernels({**environment, "OPENBLAS_CORETYPE": wanted})


def make_data(vocab):
    """A file of random token ids below vocab, each a uint16."""
    path = OUT / f"random-{vocab}.bin"
    if not path.exists():
        generator = random.Random(1)
        ids = array.array("H", (generator.randrange(vocab) for _ in range(1 << 19)))
        if sys.byteorder == "big":
            ids.byteswap()
        path.write_bytes(ids.tobytes())
    return path


def value_in(config_yaml, section, key):
    """The value of section.key in a configuration that Yoke has written."""
    inside = False
    for line in config_yaml.splitlines():
        if line and not line[0].isspace():
            inside = line.startswith(section + ":")
        elif inside and line.split(":")[0].strip() == key:
            return line.split(":", 1)[1].strip()
    sys.exit(f"yoke: bench: {section}.{key} is not in the run's config.yaml")


def run_yoke(arguments, name, steps, environment):
    """Train; return tokens/s of the median step, the peak, and the run's shape."""
    folder = OUT / "run"
    shutil.rmtree(folder, ignore_errors=True)
    config, vocab, _ = MODELS[name]
    settings = {
        "run.dir": folder,
        "data.train": make_data(vocab),
        "data.format": "raw",
        "data.dtype": "uint16",
        "data.tokenizer": '""',
        "train.steps": steps + WARMUP,
        "schedule.kind": "constant",
        "schedule.warmup": 0,
        "eval.every": 0,
        "eval.batches": 1,
        "sample.every": 0,
        "checkpoint.every": 0,
        "precision.compute": "fp32",
        "cpu.threads": arguments.threads,
        "device": "cpu",
    }
    command = [arguments.yoke, "train", config]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    _, peak = run(command, environment)
    text = (folder / "config.yaml").read_text()
    shape = {
        "hf": json.loads((folder / "model" / "config.json").read_text()),
        "batch": int(value_in(text, "train", "batch")),
        "seq_len": int(value_in(text, "train", "seq_len")),
        "lr": float(value_in(text, "optim", "lr")),
    }
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    step_ms = [row["step_ms"] for row in rows if row.get("step_ms")][WARMUP:]
    shutil.rmtree(folder)
    return 1e3 * shape["batch"] * shape["seq_len"] / statistics.median(step_ms), peak, shape


def torch_shape(hf):
    """The options of bench/torch_cpu.py for a Hugging Face configuration."""
    if hf["model_type"] == "gpt2":
        return {
            "family": "gpt2",
            "layers": hf["n_layer"],
            "width": hf["n_embd"],
            "heads": hf["n_head"],
            "ffn": hf.get("n_inner") or 4 * hf["n_embd"],
            "vocab": hf["vocab_size"],
            "tied": int(hf.get("tie_word_embeddings", True)),
        }
    return {
        "family": hf["model_type"],
        "layers": hf["num_hidden_layers"],
        "width": hf["hidden_size"],
        "heads": hf["num_attention_heads"],
        "kv-heads": hf["num_key_value_heads"],
        "head-size": hf.get("head_dim") or 0,
        "ffn": hf["intermediate_size"],
        "vocab": hf["vocab_size"],
        "tied": int(hf.get("tie_word_embeddings", False)),
    }


def run_torch(shape, steps, threads, environment):
    """Train the same with PyTorch; return tokens/s of the median step, the peak, and its answer."""
    options = {
        **torch_shape(shape["hf"]),
        "seq-len": shape["seq_len"],
        "batch": shape["batch"],
        "lr": shape["lr"],
        "steps": steps,
        "warmup": WARMUP,
        "threads": threads,
    }
    command = [sys.executable, "bench/torch_cpu.py"]
    for key, value in options.items():
        command += ["--" + key, str(value)]
    stdout, peak = run(command, environment)
    answer = json.loads(stdout.splitlines()[-1])
    return answer["tokens_per_s"], peak, answer


def compare(name, arguments, environment, with_torch):
    """One model's entry of cpu.json."""
    config, _, usual_steps = MODELS[name]
    steps = arguments.steps or usual_steps
    ours, theirs, peaks, torch_peaks, answer = [], [], [], [], {}
    for pair in range(arguments.pairs):
        rate, peak, shape = run_yoke(arguments, name, steps, environment)
        ours.append(rate)
        peaks.append(peak)
        said = f"  {name} {pair + 1}/{arguments.pairs}  yoke {rate:,.0f} tokens/s"
        if with_torch:
            rate, peak, answer = run_torch(shape, steps, arguments.threads, environment)
            theirs.append(rate)
            torch_peaks.append(peak)
            said += f"  PyTorch {rate:,.0f}"
        print(said, flush=True)
    entry = {
        "config": config,
        "shape": {**torch_shape(shape["hf"]), "seq_len": shape["seq_len"], "batch": shape["batch"]},
        "steps": steps,
        "yoke_tokens_per_s": round(statistics.median(ours), 1),
        "torch_tokens_per_s": round(statistics.median(theirs), 1) if theirs else None,
        "ratio": None,
        "yoke_peak_bytes": max(peaks),
        "torch_peak_bytes": max(torch_peaks, default=None),
        "yoke_runs": [round(rate, 1) for rate in ours],
        "torch_runs": theirs,
        "torch": answer.get("torch"),
    }
    if theirs:
        # Of pairs that ran side by side, so that a slow moment of the machine counts on both sides.
        entry["ratio"] = round(statistics.median(a / b for a, b in zip(ours, theirs)), 3)
        entry["params"] = answer["params"]
    return entry


def show(models):
    print(f"\n{'model':8}{'yoke':>12}{'PyTorch':>12}{'ratio':>8}{'yoke peak':>12}{'PyTorch peak':>14}")
    print(f"{'':8}{'tokens/s':>12}{'tokens/s':>12}{'':>8}{'MiB':>12}{'MiB':>14}")
    for name, m in models.items():
        row = f"{name:8}{m['yoke_tokens_per_s']:>12,.0f}"
        if m["ratio"]:
            row += f"{m['torch_tokens_per_s']:>12,.0f}{m['ratio']:>8.2f}"
        else:
            row += f"{'-':>12}{'-':>8}"
        row += f"{m['yoke_peak_bytes'] / 2**20:>12,.0f}"
        row += f"{m['torch_peak_bytes'] / 2**20:>14,.0f}" if m["ratio"] else f"{'-':>14}"
        print(row)


def main():
    parser = argparse.ArgumentParser(description="Tokens per second beside PyTorch on CPUs.")
    parser.add_argument("--yoke", default="build/yoke", help="the program")
    parser.add_argument("--model", action="append", choices=MODELS, help="default: all")
    parser.add_argument("--pairs", type=int, default=3, help="runs of each program")
    parser.add_argument("--steps", type=int, default=0, help="timed steps of a run")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    arguments.yoke = str(pathlib.Path(arguments.yoke).resolve())
    OUT.mkdir(parents=True, exist_ok=True)
    cpu, features = cpu_info()
    coretype, kernels = choose_kernels(features)
    environment = dict(os.environ)
    if coretype:
        environment["OPENBLAS_CORETYPE"] = coretype
    tried = subprocess.run([sys.executable, "-c", "import torch"], capture_output=True)
    with_torch = tried.returncode == 0
    if not with_torch:
        print("python3-torch is not installed: Yoke is timed alone")
    print(f"{cpu}, {arguments.threads} threads, fp32, OpenBLAS kernels {kernels}")
    models = {}
    for name in arguments.model or MODELS:
        models[name] = compare(name, arguments, environment, with_torch)
    show(models)
    result = {
        "cpu": cpu,
        "threads": arguments.threads,
        "openblas_coretype": coretype,
        "openblas_kernels": kernels,
        "models": models,
    }
    (OUT / "cpu.json").write_text(json.dumps(result, indent=2) + "\n")
    print("written: bench/out/cpu.json")


if __name__ == "__main__":
    main()
