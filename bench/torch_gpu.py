#!/usr/bin/env python3
"""PyTorch training-speed peer: GPT-2 and Llama-style models, random weights, no network.

  python3 bench/torch_gpu.py --model gpt2-124m --micro-batch 64 --seq 1024 --steps 30 --compile full
  torchrun --nproc-per-node=2 bench/torch_gpu.py --model gpt2-1.5b --micro-batch 16 --ddp --compile block
  torchrun --nproc-per-node=2 bench/torch_gpu.py --model llama-7b --seq 2048 --micro-batch 4 --fsdp 3 --ckpt

Prints one JSON line. Precision modes:
  master  bf16 weights and gradients, fp32 master copy and fp32 moments, fused AdamW (what llm.c does); 16 B/parameter
  amp     fp32 weights, bf16 autocast, fp32 gradients, fused AdamW (what nanoGPT does); 16 B/parameter
  bf16    everything bf16, fused AdamW (fastest and smallest, least accurate); 8 B/parameter
FLOPs are counted as nanoGPT/PaLM do: (6*N + 12*L*H*Q*T) a token; N leaves out position embeddings and an untied
input embedding; causal attention is counted whole; recomputation is not counted.
"""
import argparse
import contextlib
import json
import math
import os
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint

#        kind    L   C     H  KV  F      vocab   tied  qkv_bias rope_theta
MODELS = {
    "tiny":      ("gpt2", 2, 64, 2, 2, 256, 512, True, True, 0.0),
    "tiny-llama": ("llama", 2, 64, 4, 2, 192, 512, False, True, 1e4),
    "gpt2-124m": ("gpt2", 12, 768, 12, 12, 3072, 50304, True, True, 0.0),
    "gpt2-350m": ("gpt2", 24, 1024, 16, 16, 4096, 50304, True, True, 0.0),
    "gpt2-774m": ("gpt2", 36, 1280, 20, 20, 5120, 50304, True, True, 0.0),
    "gpt2-1.5b": ("gpt2", 48, 1600, 25, 25, 6400, 50304, True, True, 0.0),
    "qwen-0.5b": ("llama", 24, 896, 14, 2, 4864, 151936, True, True, 1e6),   # Qwen2.5-0.5B
    "qwen-1.5b": ("llama", 28, 1536, 12, 2, 8960, 151936, True, True, 1e6),  # Qwen2.5-1.5B
    "llama-7b":  ("llama", 32, 4096, 32, 32, 11008, 32000, False, False, 1e4),  # Llama-2-7B
}


class RMSNorm(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(c))

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return (y * self.weight.float()).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, c, h, kv, bias, out_bias, gqa_native):
        super().__init__()
        self.h, self.kv, self.d = h, kv, c // h
        self.gqa_native = gqa_native
        self.qkv = nn.Linear(c, (h + 2 * kv) * self.d, bias=bias)
        self.o = nn.Linear(c, c, bias=out_bias)

    def forward(self, x, cos, sin):
        b, t, c = x.shape
        h, kv, d = self.h, self.kv, self.d
        q, k, v = self.qkv(x).split((h * d, kv * d, kv * d), dim=2)
        q, k, v = q.view(b, t, h, d), k.view(b, t, kv, d), v.view(b, t, kv, d)
        if cos is not None:
            q, k = rope(q, cos, sin), rope(k, cos, sin)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        if kv == h:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        elif self.gqa_native:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        else:
            r = h // kv
            k = k[:, :, None].expand(b, kv, r, t, d).reshape(b, h, t, d)
            v = v[:, :, None].expand(b, kv, r, t, d).reshape(b, h, t, d)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(b, t, c))


def rope(x, cos, sin):  # x (b, t, h, d); cos, sin (t, d/2)
    y = x.float()
    a, b = y.chunk(2, dim=-1)
    c, s = cos[None, :, None, :], sin[None, :, None, :]
    return torch.cat((a * c - b * s, b * c + a * s), dim=-1).to(x.dtype)


class Block(nn.Module):
    def __init__(self, kind, c, h, kv, f, bias, gqa_native):
        super().__init__()
        self.gpt2 = kind == "gpt2"
        norm = nn.LayerNorm if self.gpt2 else RMSNorm
        self.n1, self.n2 = norm(c), norm(c)
        self.attn = Attention(c, h, kv, bias, self.gpt2, gqa_native)
        if self.gpt2:
            self.up, self.down = nn.Linear(c, f), nn.Linear(f, c)
        else:
            self.up, self.down = nn.Linear(c, 2 * f, bias=False), nn.Linear(f, c, bias=False)

    def forward(self, x, cos, sin):
        x = x + self.attn(self.n1(x), cos, sin)
        y = self.up(self.n2(x))
        if self.gpt2:
            y = F.gelu(y, approximate="tanh")
        else:
            g, u = y.chunk(2, dim=-1)
            y = F.silu(g) * u
        return x + self.down(y)


class Recomputed(nn.Module):
    """A block whose activations are recomputed in the backward pass. The checkpoint sits inside what is compiled,
    which is the order torch.compile supports fully."""

    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x, cos, sin):
        return torch.utils.checkpoint.checkpoint(self.block, x, cos, sin, use_reentrant=False, preserve_rng_state=False)


class Head(nn.Module):  # last norm, output matrix, loss
    def __init__(self, kind, c, vocab):
        super().__init__()
        self.norm = nn.LayerNorm(c) if kind == "gpt2" else RMSNorm(c)
        self.out = nn.Linear(c, vocab, bias=False)

    def forward(self, x, targets):
        logits = self.out(self.norm(x))
        return F.cross_entropy(logits.float().view(-1, logits.size(-1)), targets.reshape(-1))


class Model(nn.Module):
    def __init__(self, spec, seq, ckpt, gqa_native):
        super().__init__()
        kind, l, c, h, kv, f, vocab, tied, bias, theta = spec
        self.theta, self.d, self.seq = theta, c // h, seq
        self.wte = nn.Embedding(vocab, c)
        self.wpe = nn.Embedding(seq, c) if kind == "gpt2" else None
        blocks = [Block(kind, c, h, kv, f, bias, gqa_native) for _ in range(l)]
        self.blocks = nn.ModuleList([Recomputed(b) if ckpt and i % ckpt == 0 else b for i, b in enumerate(blocks)])
        self.head = Head(kind, c, vocab)
        if tied:
            self.head.out.weight = self.wte.weight
        self.cos = self.sin = None
        self.register_buffer("pos", torch.arange(seq), persistent=False)
        self.init(l)

    @torch.no_grad()
    def init(self, l):
        for n, p in self.named_parameters():
            if p.dim() > 1:
                p.normal_(0.0, 0.02 / math.sqrt(2 * l) if n.endswith(("attn.o.weight", "down.weight")) else 0.02)
            elif n.endswith("bias"):
                p.zero_()

    def set_rope(self, device):
        if self.wpe is None:
            inv = self.theta ** (-torch.arange(0, self.d, 2, dtype=torch.float32, device=device) / self.d)
            a = torch.outer(torch.arange(self.seq, dtype=torch.float32, device=device), inv)
            self.cos, self.sin = a.cos(), a.sin()

    def forward(self, idx, targets):
        x = self.wte(idx)
        if self.wpe is not None:
            x = x + self.wpe(self.pos[: idx.size(1)])
        for b in self.blocks:
            x = b(x, self.cos, self.sin)
        return self.head(x, targets)


class MasterAdamW:
    """Fused AdamW on fp32 masters of bf16 parameters. Works through the parameters in chunks, so that the fp32
    copy of the gradients needs one chunk's memory only."""

    def __init__(self, params, lr, wd, chunk=256 * 2**20):
        self.parts = []
        cur, n, biggest = [], 0, 0
        for p in params:
            if cur and n + p.numel() > chunk:
                self.parts.append(cur)
                cur, n = [], 0
            cur.append(p)
            n += p.numel()
            biggest = max(biggest, n)
        self.parts.append(cur)
        self.scratch = torch.empty(biggest, dtype=torch.float32, device=cur[0].device)
        self.work = []
        for part in self.parts:
            master = [p.detach().float().clone() for p in part]
            off = 0
            for m in master:
                m.grad = self.scratch[off: off + m.numel()].view_as(m)
                off += m.numel()
            groups = [{"params": [m for m in master if m.dim() > 1], "weight_decay": wd},
                      {"params": [m for m in master if m.dim() <= 1], "weight_decay": 0.0}]
            opt = torch.optim.AdamW([g for g in groups if g["params"]], lr=lr, betas=(0.9, 0.95), eps=1e-8,
                                    fused=master[0].is_cuda)
            self.work.append((part, master, [m.grad for m in master], opt))

    @torch.no_grad()
    def step(self):
        for part, master, grads, opt in self.work:
            torch._foreach_copy_(grads, [p.grad for p in part])
            opt.step()
            torch._foreach_copy_(part, master)


def matmul_peak(n=8192):
    a = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)
    c = torch.empty(n, n, device="cuda", dtype=torch.bfloat16)
    for _ in range(20):
        torch.mm(a, b, out=c)
    s, e = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    s.record()
    for _ in range(40):
        torch.mm(a, b, out=c)
    e.record()
    torch.cuda.synchronize()
    return 2 * n**3 * 40 / (s.elapsed_time(e) * 1e-3) / 1e12


def set_attention(which):
    if which == "auto":
        return
    m = torch.backends.cuda
    m.enable_math_sdp(which == "math")
    m.enable_mem_efficient_sdp(which == "efficient")
    m.enable_flash_sdp(which == "flash")
    m.enable_cudnn_sdp(which == "cudnn")


def gqa_works(h, kv, d):
    try:
        q = torch.randn(1, h, 256, d, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        k = torch.randn(1, kv, 256, d, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        v = torch.randn(1, kv, 256, d, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        y.sum().backward()
        torch.cuda.synchronize()
        return tuple(k.grad.shape) == (1, kv, 256, d)
    except Exception:
        return False


def load_tokens(path, vocab, device, n=4_000_000):
    if path and os.path.exists(path):
        import numpy as np
        x = np.fromfile(path, dtype=np.uint16, offset=1024)
        t = torch.from_numpy(x.astype(np.int32)).to(device)
        return t % vocab if vocab < 50257 else t
    g = torch.Generator(device="cpu").manual_seed(1)  # words by their frequency, one bigram step deep
    r = (torch.rand(n, generator=g) * math.log(vocab + 1.0)).exp().long() - 1
    x = torch.randperm(vocab, generator=g)[r.clamp(0, vocab - 1)]
    nxt = torch.randperm(vocab, generator=g)
    i = torch.nonzero(torch.rand(n - 1, generator=g) < 0.5).flatten() + 1
    y = x.clone()
    y[i] = nxt[x[i - 1]]
    return y.int().to(device)


def main():
    a = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    a.add_argument("--model", choices=list(MODELS), required=True)
    a.add_argument("--micro-batch", type=int, default=8)
    a.add_argument("--seq", type=int, default=1024)
    a.add_argument("--grad-accum", type=int, default=1)
    a.add_argument("--steps", type=int, default=30, help="timed steps")
    a.add_argument("--warmup", type=int, default=5, help="steps before timing (the first compiles)")
    a.add_argument("--compile", default="none", nargs="?", const="full", choices=["none", "full", "block"])
    a.add_argument("--compile-mode", default="default", help="default | max-autotune-no-cudagraphs | ...")
    a.add_argument("--precision", default="master", choices=["master", "amp", "bf16"])
    a.add_argument("--attn", default="cudnn", choices=["cudnn", "flash", "efficient", "math", "auto"])
    a.add_argument("--ckpt", type=int, nargs="?", const=1, default=0, help="recompute every CKPT-th block (1: all)")
    a.add_argument("--ddp", action="store_true")
    a.add_argument("--hook", default="none", choices=["none", "bf16", "fp16"], help="DDP gradient compression")
    a.add_argument("--bucket-mb", type=int, default=50)
    a.add_argument("--fsdp", type=int, default=0, nargs="?", const=3, choices=[0, 2, 3], help="ZeRO stage (fully_shard)")
    a.add_argument("--fsdp-reduce", default="bf16", choices=["bf16", "fp32"])
    a.add_argument("--clip", type=float, default=1.0, help="gradient norm limit; 0: off")
    a.add_argument("--lr", type=float, default=3e-4)
    a.add_argument("--data", default="", help="llm.c token shard; without it tokens are made here")
    a.add_argument("--json", default="", help="also append the JSON line to this file")
    a.add_argument("--label", default="")
    a.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="cpu: smoke test only")
    a = a.parse_args()

    cuda = a.device == "cuda"
    rank, world, local = (int(os.environ.get(k, d)) for k, d in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0)))
    if a.ddp and a.fsdp:
        sys.exit("--ddp and --fsdp exclude each other")
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    torch.manual_seed(1337)
    torch.set_float32_matmul_precision("high")  # TF32
    dist_on = a.ddp or a.fsdp
    if dist_on:
        import torch.distributed as dist
        dist.init_process_group("nccl" if cuda else "gloo", **({"device_id": device} if cuda else {}))
    if cuda:
        set_attention(a.attn)
    rec = {"label": a.label, "model": a.model, "world": world}
    try:
        run(a, rec, cuda, rank, world, device, dist_on)
    except torch.cuda.OutOfMemoryError as e:
        rec.update(error="OOM", detail=str(e)[:200])
    if rank == 0:
        line = json.dumps(rec)
        print(line, flush=True)
        if a.json:
            with open(a.json, "a") as f:
                f.write(line + "\n")
    if "error" in rec:
        sys.stdout.flush()
        os._exit(3)  # the other ranks may hang in a collective: do not wait for them
    if dist_on:
        import torch.distributed as dist
        dist.barrier()
        dist.destroy_process_group()


def run(a, rec, cuda, rank, world, device, dist_on):
    spec = MODELS[a.model]
    kind, L, C, H, KV, Fd, vocab, tied, bias, theta = spec
    d = C // H
    peak = matmul_peak() if cuda else float("nan")
    gqa_native = cuda and KV != H and gqa_works(H, KV, d)
    t_start = time.time()
    with device if hasattr(device, "__enter__") else contextlib.nullcontext():
        model = Model(spec, a.seq, a.ckpt, gqa_native)
    model.set_rope(device)
    model.train()
    params_n = sum(p.numel() for p in model.parameters())
    flops_n = params_n - (model.wpe.weight.numel() if kind == "gpt2" else 0) - (0 if tied else model.wte.weight.numel())
    precision = a.precision
    if a.fsdp:
        precision = "fsdp"  # fp32 shards, bf16 compute (mixed-precision policy): fp32 master by construction
    if precision in ("master", "bf16"):
        model.to(torch.bfloat16)
        model.set_rope(device)
    raw = model

    if a.compile == "block" or (a.compile == "full" and a.fsdp):
        from torch import _dynamo
        for k in ("recompile_limit", "cache_size_limit"):
            with contextlib.suppress(Exception):
                setattr(_dynamo.config, k, 64)
        kw = {} if a.compile_mode == "default" else {"mode": a.compile_mode}
        for i, b in enumerate(model.blocks):  # one graph is compiled and used for every block
            model.blocks[i] = torch.compile(b, **kw)
        model.head = torch.compile(model.head, **kw)

    net = model
    if a.fsdp:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        pol = MixedPrecisionPolicy(param_dtype=torch.bfloat16, cast_forward_inputs=False,
                                   reduce_dtype=torch.bfloat16 if a.fsdp_reduce == "bf16" else torch.float32)
        for b in model.blocks:
            fully_shard(b, mp_policy=pol, reshard_after_forward=a.fsdp == 3)
        fully_shard(model, mp_policy=pol)  # the root's own (embedding, head) stay gathered until backward
    elif a.ddp:
        from torch.nn.parallel import DistributedDataParallel as DDP
        net = DDP(model, device_ids=[device.index] if cuda else None, gradient_as_bucket_view=True,
                  bucket_cap_mb=a.bucket_mb, broadcast_buffers=False)
        if a.hook != "none":
            from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
            net.register_comm_hook(None, default_hooks.bf16_compress_hook if a.hook == "bf16" else default_hooks.fp16_compress_hook)
    if a.compile == "full" and not a.fsdp:
        kw = {} if a.compile_mode == "default" else {"mode": a.compile_mode}
        fwd = torch.compile(net, **kw)
    else:
        fwd = net

    params = [p for p in raw.parameters() if p.requires_grad]
    if precision == "master":
        opt = MasterAdamW(params, a.lr, 0.1)
    else:
        groups = [{"params": [p for p in params if p.dim() > 1], "weight_decay": 0.1},
                  {"params": [p for p in params if p.dim() <= 1], "weight_decay": 0.0}]
        opt = torch.optim.AdamW(groups, lr=a.lr, betas=(0.9, 0.95), eps=1e-8, fused=cuda)

    tokens = load_tokens(a.data, vocab, device)
    B, T = a.micro_batch, a.seq
    per = B * T
    nwin = (tokens.numel() - 1) // per
    state = {"i": rank}

    def batch():
        o = (state["i"] % nwin) * per
        state["i"] += world
        w = tokens[o: o + per + 1].long()
        return w[:-1].view(B, T), w[1:].view(B, T)

    def cast():
        return torch.autocast(device.type, dtype=torch.bfloat16) if precision == "amp" else contextlib.nullcontext()

    def step():
        total = None
        for m in range(a.grad_accum):
            last = m == a.grad_accum - 1
            if a.ddp:
                net.require_backward_grad_sync = last
            elif a.fsdp and a.grad_accum > 1:
                net.set_requires_gradient_sync(last)
            x, y = batch()
            with cast():
                loss = fwd(x, y)
            if a.grad_accum > 1:
                loss = loss / a.grad_accum
            loss.backward()
            total = loss.detach() if total is None else total + loss.detach()
        if a.clip > 0:
            torch.nn.utils.clip_grad_norm_(params, a.clip, **({"foreach": True} if cuda else {}))
        opt.step()
        for p in params:
            p.grad = None
        return total

    losses, times = [], []
    t0 = time.time()
    compile_s = None
    for i in range(a.warmup):
        losses.append(step())
        if i == 0:
            if cuda:
                torch.cuda.synchronize()
            compile_s = time.time() - t0
            if rank == 0:
                print(f"# first step (compilation) {compile_s:.1f} s, loss {losses[0].item():.4f}", file=sys.stderr, flush=True)
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        if dist_on:
            import torch.distributed as dist
            dist.barrier()
        ev = [torch.cuda.Event(enable_timing=True) for _ in range(a.steps + 1)]
        torch.cuda.synchronize()
        w0 = time.time()
        ev[0].record()
        for i in range(a.steps):
            losses.append(step())
            ev[i + 1].record()
        torch.cuda.synchronize()
        wall = time.time() - w0
        times = [ev[i].elapsed_time(ev[i + 1]) for i in range(a.steps)]
        mem, memr = torch.cuda.max_memory_allocated() / 2**20, torch.cuda.max_memory_reserved() / 2**20
    else:
        w0 = time.time()
        for _ in range(a.steps):
            s = time.time()
            losses.append(step())
            times.append((time.time() - s) * 1e3)
        wall, mem, memr = time.time() - w0, 0, 0
    med = statistics.median(times)
    toks = per * a.grad_accum * world
    tps = toks / (med * 1e-3)
    fpt = 6 * flops_n + 12 * L * H * d * T
    tf = fpt * tps / world / 1e12
    rec.update(
        params=params_n, params_flops=flops_n, micro_batch=B, seq=T, grad_accum=a.grad_accum,
        tokens_per_s=round(tps), tokens_per_s_gpu=round(tps / world), ms_median=round(med, 3),
        ms_min=round(min(times), 3), ms_max=round(max(times), 3), tokens_per_s_wall=round(toks * a.steps / wall),
        tflops_gpu=round(tf, 1), mfu_989=round(tf / 989, 4), mfu_measured=round(tf / peak, 4) if cuda else None,
        matmul_peak_tflops=round(peak, 1) if cuda else None, peak_mem_mib=round(mem), peak_reserved_mib=round(memr),
        loss_first=round(losses[0].item(), 4), loss_last=round(losses[-1].item(), 4), steps=a.steps, warmup=a.warmup,
        compile=a.compile, compile_mode=a.compile_mode, compile_s=round(compile_s or 0, 1), precision=precision,
        attn=a.attn, gqa_native=bool(gqa_native), ckpt=a.ckpt, ddp=a.ddp, hook=a.hook, fsdp=a.fsdp,
        p2p_disable=os.environ.get("NCCL_P2P_DISABLE", "0"), torch=torch.__version__,
        gpu=torch.cuda.get_device_name() if cuda else "cpu", total_s=round(time.time() - t_start, 1))


if __name__ == "__main__":
    main()
