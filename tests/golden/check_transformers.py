#!/usr/bin/env python3
"""Compare the recorded values with the transformers library.

  python3 tests/golden/check_transformers.py      needs torch and transformers (4.45 or newer)

make_models.py writes the formulas out; this program says that they are those of transformers: it
opens each folder with AutoModelForCausalLM and compares logits, loss and gradients.
"""
import pathlib
import sys

import torch
import transformers

import models
import tensors

HERE = pathlib.Path(__file__).resolve().parent
BOUND = 1e-5  # relative to a greatest entry; transformers keeps norms and rotary angles in fp32


def difference(got, want):
    if got.shape != want.shape:
        sys.exit(f"shape {tuple(got.shape)} where {tuple(want.shape)} is recorded")
    return (got.double() - want.double()).abs().max().item() / want.abs().max().item()


def check(folder):
    """The greatest difference of a folder's recorded values, and where it is."""
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, torch_dtype=torch.float64, output_loading_info=True, attn_implementation="eager"
    )
    for problem, names in report.items():
        if names:
            sys.exit(f"{folder.name}: {problem}: {names}")
    batch = tensors.load(folder / "batch.safetensors")
    expected = tensors.load(folder / "expected.safetensors")
    model.eval()
    logits = model(input_ids=batch["tokens"].long()).logits
    loss = models.loss_of(logits, batch["targets"])
    loss.backward()
    found = {"logits": logits, "loss": loss.reshape(1)}
    found.update({"grad." + name: p.grad for name, p in model.named_parameters()})
    names = expected.keys() - {"losses"}
    if found.keys() != names:
        sys.exit(f"{folder.name}: names differ: {sorted(found.keys() ^ names)}")
    return max((difference(found[name].detach(), expected[name]), name) for name in names)


def main():
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    failed = False
    for folder in sorted(path.parent for path in HERE.glob("*/config.json")):
        worst, where = check(folder)
        failed = failed or worst > BOUND
        print(f"{folder.name:13} greatest difference {worst:.1e} ({where})")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
