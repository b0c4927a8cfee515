#!/usr/bin/env python3
"""The PyTorch peer of `make bench` on CPUs: trains one model for some steps, prints one JSON line.

  /usr/bin/python3 bench/torch_cpu.py --family gpt2 --layers 8 --width 512 --heads 8 --vocab 8192 \\
      --seq-len 256 --batch 8 --steps 12 --threads 2

It is meant to be the fastest fp32 training step that Debian's PyTorch 1.13 (python3-torch) gives,
not the shortest program. Kept, each after timing it on one core at the demo's and the 30M shape:

  attention   four causal blocks of queries in one autograd function: 1.3 to 1.4 times the plain
              masked form; two or eight blocks, or blocks left to autograd, are slower
  rotary      by complex products of neighbouring pairs: 4 times the rotate-half form
  AdamW       one tensor at a time: 1.4 to 1.5 times foreach=True, 1.2 to 1.5 times one flat
              tensor of all parameters; fused=True came after 1.13
  products    F.linear on OpenBLAS, with q, k, v and gate, up fused; oneDNN, reached as a 1x1
              convolution, is no faster
  RMSNorm     as one autograd function

Not there to be tried: Debian's build has no LLVM, so TorchScript fuses nothing on CPUs, and no
torch._dynamo, so there is no inductor.
"""
import argparse
import json
import math
import os
import resource
import statistics
import time

import torch
import torch.nn.functional as F

BLOCKS = 4  # query blocks of causal attention


class Attention(torch.autograd.Function):
    """Causal attention over blocks of queries, each seeing only the keys up to its end."""

    @staticmethod
    def forward(ctx, q, k, v, hidden):
        T, D = q.shape[1:]
        y, weights = torch.empty_like(q), []
        for begin, end in spans(T):
            scores = torch.baddbmm(
                hidden[begin:end, :end], q[:, begin:end], k[:, :end].transpose(1, 2), alpha=D**-0.5
            )
            weights.append(scores.softmax(-1))
            y[:, begin:end] = torch.bmm(weights[-1], v[:, :end])
        ctx.save_for_backward(q, k, v, y, *weights)
        return y

    @staticmethod
    def backward(ctx, dy):
        q, k, v, y, *weights = ctx.saved_tensors
        dy = dy.contiguous()
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        total = (dy * y).sum(-1, keepdim=True)
        for (begin, end), p in zip(spans(q.shape[1]), weights):
            g = dy[:, begin:end]
            dv[:, :end].baddbmm_(p.transpose(1, 2), g)
            start = total[:, begin:end].expand(-1, -1, end)
            ds = torch.baddbmm(start, g, v[:, :end].transpose(1, 2), beta=-1).mul_(p)
            dq[:, begin:end] = torch.bmm(ds, k[:, :end])
            dk[:, :end].baddbmm_(ds.transpose(1, 2), q[:, begin:end])
        scale = q.shape[2] ** -0.5
        return dq.mul_(scale), dk.mul_(scale), dv, None


def spans(T):
    edges = [T * i // BLOCKS for i in range(BLOCKS + 1)]
    return [(a, b) for a, b in zip(edges, edges[1:]) if a < b]


class RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True).add_(1e-6))
        ctx.save_for_backward(x, weight, scale)
        return (x * scale).mul_(weight)

    @staticmethod
    def backward(ctx, dy):
        x, weight, scale = ctx.saved_tensors
        normed = x * scale
        dweight = (dy * normed).sum((0, 1))
        dx = dy * weight
        return normed.mul_((dx * normed).mean(-1, keepdim=True)).neg_().add_(dx).mul_(scale), dweight


def rotate(x, turns):
    """Rotary positions by complex products. x (B,T,n,D); pairs are neighbours: the same cost."""
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(-2)


class Model:
    """B batch, T positions, C width, H heads, G key-value heads, D head size, V vocabulary."""

    def __init__(self, a):
        self.a, self.gpt2 = a, a.family == "gpt2"
        self.D = a.head_size or a.width // a.heads
        self.p, self.matrices, self.vectors = {}, [], []
        residual = 0.02 / math.sqrt(2 * a.layers)
        Q, K = a.heads * self.D, a.kv_heads * self.D
        self.matrix("embed", a.vocab, a.width, 0.02)
        if self.gpt2:
            self.matrix("positions", a.seq_len, a.width, 0.02)
        if not a.tied:
            self.matrix("head", a.vocab, a.width, 0.02)
        for l in range(a.layers):
            self.norm_parameters(f"{l}.norm1")
            self.linear_parameters(f"{l}.qkv", Q + 2 * K, a.width, 0.02, a.family != "llama")
            self.linear_parameters(f"{l}.out", a.width, Q, residual, self.gpt2)
            self.norm_parameters(f"{l}.norm2")
            up = a.ffn if self.gpt2 else 2 * a.ffn
            self.linear_parameters(f"{l}.up", up, a.width, 0.02, self.gpt2)
            self.linear_parameters(f"{l}.down", a.width, a.ffn, residual, self.gpt2)
        self.norm_parameters("norm")
        self.hidden = torch.full((a.seq_len, a.seq_len), -math.inf).triu(1)
        angles = torch.outer(
            torch.arange(a.seq_len).float(), 10000.0 ** (-torch.arange(0, self.D, 2) / self.D)
        )
        self.turns = torch.polar(torch.ones_like(angles), angles)[:, None, :]

    def matrix(self, name, rows, cols, std):
        self.p[name] = (torch.randn(rows, cols) * std).requires_grad_()
        self.matrices.append(self.p[name])

    def vector(self, name, n, value):
        self.p[name] = torch.full((n,), value).requires_grad_()
        self.vectors.append(self.p[name])

    def linear_parameters(self, name, n_out, n_in, std, bias):
        self.matrix(name, n_out, n_in, std)
        if bias:
            self.vector(name + ".bias", n_out, 0.0)

    def norm_parameters(self, name):
        self.vector(name, self.a.width, 1.0)
        if self.gpt2:
            self.vector(name + ".bias", self.a.width, 0.0)

    def linear(self, x, name):
        return F.linear(x, self.p[name], self.p.get(name + ".bias"))

    def norm(self, x, name):
        if not self.gpt2:
            return RmsNorm.apply(x, self.p[name])
        return F.layer_norm(x, x.shape[-1:], self.p[name], self.p[name + ".bias"], 1e-5)

    def attention(self, x, l):
        B, T, _ = x.shape
        H, G, D = self.a.heads, self.a.kv_heads, self.D
        q, k, v = self.linear(x, f"{l}.qkv").view(B, T, H + 2 * G, D).split((H, G, G), 2)
        if not self.gpt2:
            q, k = rotate(q, self.turns), rotate(k, self.turns)
        if G != H:
            k, v = (z.repeat_interleave(H // G, 2) for z in (k, v))
        q, k, v = (z.transpose(1, 2).reshape(B * H, T, D) for z in (q, k, v))
        y = Attention.apply(q, k, v, self.hidden)
        return self.linear(y.view(B, H, T, D).transpose(1, 2).reshape(B, T, H * D), f"{l}.out")

    def mlp(self, x, l):
        z = self.linear(x, f"{l}.up")
        if self.gpt2:
            return self.linear(F.gelu(z, approximate="tanh"), f"{l}.down")
        gate, up = z.chunk(2, -1)
        return self.linear(F.silu(gate) * up, f"{l}.down")

    def loss(self, tokens, targets):
        x = F.embedding(tokens, self.p["embed"])
        if self.gpt2:
            x = x + self.p["positions"]
        for l in range(self.a.layers):
            x = x + self.attention(self.norm(x, f"{l}.norm1"), l)
            x = x + self.mlp(self.norm(x, f"{l}.norm2"), l)
        head = self.p["embed" if self.a.tied else "head"]
        logits = F.linear(self.norm(x, "norm"), head)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def batches(a):
    """Endless (tokens, targets), each (B,T): of the text file's bytes, or random."""
    g = torch.Generator().manual_seed(1)
    if a.text:
        with open(a.text, "rb") as f:
            ids = torch.frombuffer(bytearray(f.read()), dtype=torch.uint8)
    while True:
        if a.text:
            at = torch.randint(len(ids) - a.seq_len, (a.batch,), generator=g).tolist()
            rows = torch.stack([ids[i : i + a.seq_len + 1] for i in at]).long()
        else:
            rows = torch.randint(a.vocab, (a.batch, a.seq_len + 1), generator=g)
        yield rows[:, :-1], rows[:, 1:]


def arguments():
    parser = argparse.ArgumentParser(description="PyTorch training speed on CPUs.")
    parser.add_argument("--family", choices=("gpt2", "llama", "qwen2"), default="gpt2")
    for name in ("layers", "width", "heads", "vocab", "seq-len", "batch"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--kv-heads", type=int, default=0, help="default: as heads")
    parser.add_argument("--head-size", type=int, default=0, help="default: width / heads")
    parser.add_argument("--ffn", type=int, default=0, help="default: 4 width")
    parser.add_argument("--tied", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10, help="steps that are timed")
    parser.add_argument("--warmup", type=int, default=2, help="steps before them")
    parser.add_argument("--threads", type=int, default=0, help="default: every processor")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--text", default="", help="train on this file's bytes; default: random")
    a = parser.parse_args()
    a.kv_heads = a.kv_heads or a.heads
    a.ffn = a.ffn or 4 * a.width
    a.threads = a.threads or len(os.sched_getaffinity(0))
    return a


def main():
    a = arguments()
    torch.set_num_threads(a.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    model = Model(a)
    everything = model.matrices + model.vectors
    optimiser = torch.optim.AdamW(
        [
            {"params": model.matrices, "weight_decay": 0.1},
            {"params": model.vectors, "weight_decay": 0.0},
        ],
        lr=a.lr,
        betas=(0.9, 0.95),
        eps=1e-8,
        foreach=False,
    )
    seconds, losses = [], []
    data = batches(a)
    for _ in range(a.warmup + a.steps):
        begin = time.perf_counter()
        tokens, targets = next(data)
        loss = model.loss(tokens, targets)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(everything, 1.0)
        optimiser.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - begin)
    seconds = seconds[a.warmup :]
    print(
        json.dumps(
            {
                "tokens_per_s": round(a.batch * a.seq_len / statistics.median(seconds), 1),
                "step_ms": round(1e3 * statistics.median(seconds), 3),
                "step_ms_min": round(1e3 * min(seconds), 3),
                "step_ms_max": round(1e3 * max(seconds), 3),
                "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                "params": sum(p.numel() for p in model.p.values()),
                "threads": a.threads,
                "openblas_coretype": os.environ.get("OPENBLAS_CORETYPE", ""),
                "torch": torch.__version__,
                "loss_first": round(losses[0], 4),
                "loss_last": round(losses[-1], 4),
            }
        )
    )


if __name__ == "__main__":
    main()
