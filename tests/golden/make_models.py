#!/usr/bin/env python3
"""Make the recorded values that the model tests compare with.

  apt-get install python3-torch               Debian 12: PyTorch 1.13, for /usr/bin/python3
  /usr/bin/python3 tests/golden/make_models.py            write tests/golden/<model>/ anew
  /usr/bin/python3 tests/golden/make_models.py --check    compare anew with what is there

A folder holds, for one tiny model with random weights:

  config.json           as transformers writes it
  model.safetensors     fp32 weights by their Hugging Face names
  batch.safetensors     tokens, targets: (B,T) int32; a target of -1 is masked
  expected.safetensors  logits (B,T,V); loss (1); grad.<name> for every weight: the gradient of
                        that loss; losses (20): the loss before each of 20 AdamW steps on this batch

Everything expected is computed in float64 from the fp32 weights and rounded to fp32 once, so that
a difference seen by a test is the tested program's own. The optimiser: lr 1e-3, betas 0.9 and 0.95,
eps 1e-8, decay 0.1 on matrices (embeddings too), gradient scaled by min(1, 1 / global norm).

Weights are far larger than fresh ones, norms are not 1 and biases not 0, so that every term of
every formula shows in the result. Before anything is written, gradients are compared with central
differences; then the same is computed in float32, to show how near a correct fp32 program comes.
"""
import argparse
import json
import math
import pathlib
import sys

import torch

import models
import tensors

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 20


def gpt2(**changes):
    config = {
        "activation_function": "gelu_new",
        "architectures": ["GPT2LMHeadModel"],
        "attn_pdrop": 0.0,
        "bos_token_id": 0,
        "embd_pdrop": 0.0,
        "eos_token_id": 0,
        "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-5,
        "model_type": "gpt2",
        "n_embd": 48,
        "n_head": 4,
        "n_inner": None,
        "n_layer": 2,
        "n_positions": 32,
        "reorder_and_upcast_attn": False,
        "resid_pdrop": 0.0,
        "scale_attn_by_inverse_layer_idx": False,
        "scale_attn_weights": True,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "use_cache": True,
        "vocab_size": 97,
    }
    return {**config, **changes}


def llama(**changes):
    config = {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "hidden_size": 48,
        "initializer_range": 0.02,
        "intermediate_size": 92,
        "max_position_embeddings": 64,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-5,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "use_cache": True,
        "vocab_size": 113,
    }
    return {**config, **changes}


def qwen2(**changes):
    config = {
        "architectures": ["Qwen2ForCausalLM"],
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "eos_token_id": 1,
        "hidden_act": "silu",
        "hidden_size": 48,
        "initializer_range": 0.02,
        "intermediate_size": 90,
        "max_position_embeddings": 64,
        "max_window_layers": 2,
        "model_type": "qwen2",
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "sliding_window": None,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": 109,
    }
    return {**config, **changes}


LLAMA3_SCALING = {
    "factor": 8.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 64,  # keeps, interpolates and stretches frequencies
    "rope_type": "llama3",
}

# name: (config, B, T)
MODELS = {
    "gpt2": (gpt2(), 3, 17),
    "gpt2-inner": (gpt2(n_embd=36, n_head=3, n_inner=100, vocab_size=101), 3, 24),
    "llama": (llama(), 3, 23),
    "llama-linear": (
        llama(head_dim=16, rope_scaling={"factor": 4.0, "type": "linear"}, intermediate_size=75),
        3,
        19,
    ),
    "llama3-tied": (
        llama(
            intermediate_size=100,
            max_position_embeddings=512,
            num_attention_heads=3,
            num_key_value_heads=1,
            rope_scaling=LLAMA3_SCALING,
            rope_theta=500000.0,
            tie_word_embeddings=True,
            vocab_size=101,
        ),
        3,
        20,
    ),
    "qwen2-tied": (qwen2(rope_theta=10000.0), 3, 22),
    "qwen2": (qwen2(intermediate_size=77, num_key_value_heads=4, tie_word_embeddings=False, vocab_size=131), 3, 18),
}


def fill(model, g):
    """Random fp32 weights, kept as float64."""
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=g)
        if p.dim() == 2:
            std = 0.3 if "embed" in name or "wte" in name or "wpe" in name else 0.2
            value = std * noise
        elif name.endswith("bias"):
            value = 0.1 * noise
        else:
            value = 1 + 0.2 * noise
        p.data = value.double()


def make_batch(vocab, B, T, g):
    """Random tokens; each target is the next token, some are masked, with them half of the last row."""
    ids = torch.randint(vocab, (B, T + 1), generator=g, dtype=torch.int32)
    tokens, targets = ids[:, :-1].clone(), ids[:, 1:].clone()
    targets[torch.rand(B, T, generator=g) < 0.15] = -1
    targets[B - 1, T // 2 :] = -1
    return tokens, targets


def gradients(model, tokens, targets):
    model.zero_grad(set_to_none=True)
    logits = model(tokens.long())
    loss = models.loss_of(logits, targets)
    loss.backward()
    return logits.detach(), loss.item()


def check_differences(model, tokens, targets, g, eps=1e-5):
    """Compare three entries of every gradient with (loss(p + eps) - loss(p - eps)) / 2 eps."""
    gradients(model, tokens, targets)
    worst = 0.0
    with torch.no_grad():
        for name, p in model.named_parameters():
            flat, grad = p.view(-1), p.grad.view(-1)
            for i in torch.randint(flat.numel(), (3,), generator=g).tolist():
                was, sides = flat[i].item(), []
                for side in (was + eps, was - eps):
                    flat[i] = side
                    sides.append(models.loss_of(model(tokens.long()), targets).item())
                flat[i] = was
                error = abs((sides[0] - sides[1]) / (2 * eps) - grad[i].item())
                error /= grad.abs().max().item()
                worst = max(worst, error)
                if error > 1e-6:
                    sys.exit(f"{name}[{i}]: the gradient is off from central differences by {error:.1e}")
    return worst


def train(model, tokens, targets):
    """The loss before each of STEPS AdamW steps, and the least and greatest gradient norm."""
    parameters = list(model.parameters())
    optimiser = torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.dim() == 2], "weight_decay": 0.1},
            {"params": [p for p in parameters if p.dim() != 2], "weight_decay": 0.0},
        ],
        lr=1e-3,
        betas=(0.9, 0.95),
        eps=1e-8,
    )
    losses, norms = [], []
    for _ in range(STEPS):
        losses.append(gradients(model, tokens, targets)[1])
        norm = math.sqrt(sum(p.grad.double().pow(2).sum().item() for p in parameters))
        for p in parameters:
            p.grad *= min(1.0, 1.0 / norm)
        optimiser.step()
        norms.append(norm)
    return torch.tensor(losses, dtype=torch.float64), min(norms), max(norms)


def evaluate(config, weights, tokens, targets, dtype):
    """Everything expected, computed in dtype from the fp32 weights."""
    model = models.build(config).to(dtype)
    model.load_state_dict({name: w.to(dtype) for name, w in weights.items()})
    logits, loss = gradients(model, tokens, targets)
    out = {"logits": logits, "loss": torch.tensor([loss], dtype=torch.float64)}
    for name, p in model.named_parameters():
        out["grad." + name] = p.grad.clone()
    out["losses"], least, greatest = train(model, tokens, targets)
    return {name: t.float() for name, t in out.items()}, least, greatest


def difference(got, want):
    """The greatest difference of two dicts, each tensor's relative to its greatest entry."""
    return max(
        (got[n] - w).abs().max().item() / max(w.abs().max().item(), 1e-30) for n, w in want.items()
    )


def make(name, index):
    """The files of one model, as {file name: tensors or config}."""
    config, B, T = MODELS[name]
    g = torch.Generator().manual_seed(1000 + index)
    model = models.build(config).double()
    fill(model, g)
    weights = {n: p.detach().float() for n, p in model.named_parameters()}
    tokens, targets = make_batch(config["vocab_size"], B, T, g)
    central = check_differences(model, tokens, targets, g)
    expected, least, greatest = evaluate(config, weights, tokens, targets, torch.float64)
    single, _, _ = evaluate(config, weights, tokens, targets, torch.float32)
    n = sum(w.numel() for w in weights.values())
    print(
        f"{name:13} {n:6} parameters  loss {expected['losses'][0]:.4f} -> "
        f"{expected['losses'][-1]:.4f}  gradient norm {least:.2f}..{greatest:.2f}  "
        f"central differences {central:.0e}  fp32 differs by {difference(single, expected):.0e}, "
        f"its losses by {difference({'l': single['losses']}, {'l': expected['losses']}):.0e}"
    )
    return {
        "config.json": config,
        "model.safetensors": weights,
        "batch.safetensors": {"tokens": tokens, "targets": targets},
        "expected.safetensors": expected,
    }


def write(folder, files):
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        if name == "config.json":
            (folder / name).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
        else:
            tensors.save(folder / name, content)


def check(folder, files):
    """End the program unless the recorded files say the same as these."""
    for name, content in files.items():
        if name == "config.json":
            same = json.loads((folder / name).read_text()) == content
        else:
            there = tensors.load(folder / name)
            same = there.keys() == content.keys() and difference(there, content) < 1e-6
        if not same:
            sys.exit(f"{folder / name} differs from what this program makes")


def main():
    parser = argparse.ArgumentParser(description="Make the recorded values of the model tests.")
    parser.add_argument("--check", action="store_true", help="compare with the recorded files")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for index, name in enumerate(MODELS):
        files = make(name, index)
        (check if arguments.check else write)(HERE / name, files)


if __name__ == "__main__":
    main()
