#!/usr/bin/env python3
"""The floor of one training step: what the matrix products and the attention of a model take when run back to
back with nothing else, plus the fewest bytes that everything else must move over the memory's measured rate.

  python3 bench/floor.py [ROW ...]            rows below; all when none is named

bf16, random data, sustained for about two seconds a row so that power limits show. Prints one JSON line a row:
ms for products, attention, bytes, their sum, and the tokens/s that the sum allows. Bytes: a fused residual+norm
reads two tensors and writes two, forward, and reads three and writes one, backward, twice a block; GELU rides on
the products' epilogues, SwiGLU reads 2F and writes F forward, reads 3F and writes 2F backward; logits are written,
read and written in place; AdamW moves 28 bytes a parameter (bf16 weight and gradient, fp32 master and moments).
"""
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

#        layers  C    heads kv  D    ffn    gated vocab   B   T
ROWS = {
    "gpt2-124m":    (12, 768, 12, 12, 64, 3072, False, 50304, 64, 1024),
    "gpt2-1.5b":    (48, 1600, 25, 25, 64, 6400, False, 50304, 32, 1024),
    "qwen2.5-0.5b": (24, 896, 14, 2, 64, 4864, True, 151936, 32, 1024),
    "qwen2.5-1.5b": (28, 1536, 12, 2, 128, 8960, True, 151936, 32, 1024),
    "qwen2.5-7b":   (28, 3584, 28, 4, 128, 18944, True, 152064, 8, 1024),
}


def sustained(fn, seconds=2.0):
    """Median ms of fn over about `seconds`, after a warm-up of a quarter of that."""
    for _ in range(2):
        fn()
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    fn()
    torch.cuda.synchronize()
    one = max(time.perf_counter() - t0, 1e-4)
    n = max(3, int(seconds / one))
    for _ in range(max(1, n // 4)):
        fn()
    ev = [torch.cuda.Event(enable_timing=True) for _ in range(n + 1)]
    ev[0].record()
    for i in range(n):
        fn()
        ev[i + 1].record()
    torch.cuda.synchronize()
    t = sorted(ev[i].elapsed_time(ev[i + 1]) for i in range(n))
    return t[n // 2]


def products(m, shapes, head, chunk):
    """One block's products (forward, input gradient, weight gradient) and, apart, the head's in chunks of rows."""
    dev, dt = "cuda", torch.bfloat16
    r = lambda *s: torch.randn(*s, device=dev, dtype=dt) * 0.1
    block = []
    for k, n in shapes:
        x, w, y = r(m, k), r(n, k), r(m, n)
        dw = torch.empty(n, k, device=dev, dtype=dt)
        dx = torch.empty(m, k, device=dev, dtype=dt)
        o = torch.empty(m, n, device=dev, dtype=dt)
        block.append((x, w, y, dw, dx, o))

    def run_block():
        for x, w, y, dw, dx, o in block:
            torch.mm(x, w.t(), out=o)
            torch.mm(y, w, out=dx)
            torch.mm(y.t(), x, out=dw)

    c, v = head
    hx, hw, hy = r(chunk, c), r(v, c), r(chunk, v)
    ho, hdx, hdw = torch.empty_like(hy), torch.empty_like(hx), torch.empty_like(hw)

    def run_head():
        torch.mm(hx, hw.t(), out=ho)
        torch.mm(hy, hw, out=hdx)
        torch.mm(hy.t(), hx, out=hdw)

    return run_block, run_head


def attention(b, t, h, kv, d):
    q = torch.randn(b, h, t, d, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    k = torch.randn(b, kv, t, d, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    v = torch.randn(b, kv, t, d, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    g = torch.randn_like(q)
    gqa = {"enable_gqa": True} if kv != h else {}
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        fwd = sustained(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, **gqa), 0.5)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True, **gqa)
        bwd = sustained(lambda: torch.autograd.grad(o, (q, k, v), g, retain_graph=True), 0.5)
    return fwd, bwd


def main():
    big = torch.empty(1 << 30, device="cuda", dtype=torch.float32)
    ms = sustained(lambda: big.mul_(1.0), 0.5)
    rate = 2 * big.numel() * 4 / ms / 1e6  # GB/s, read and written
    del big
    print(json.dumps({"memory_gb_s": round(rate)}), flush=True)
    for name in sys.argv[1:] or ROWS:
        L, c, h, kv, d, f, gated, v, b, t = ROWS[name]
        m = b * t
        up = 2 * f if gated else f
        shapes = [(c, (h + 2 * kv) * d), (h * d, c), (c, up), (f, c)]
        chunk = min(m, 16384)
        blk, head = products(m, shapes, (c, v), chunk)
        t_blk = sustained(blk) * L
        t_head = sustained(head, 1.0) * (m / chunk)
        del blk, head
        torch.cuda.empty_cache()
        fwd, bwd = attention(b, t, h, kv, d)
        t_att = (fwd + bwd) * L
        n = L * sum(k * o for k, o in shapes) + v * c
        bytes_ = L * m * c * 2 * 16 + (L * m * f * 2 * 8 if gated else 0) + m * v * 2 * 3 + 28 * n
        t_mem = bytes_ / rate / 1e6
        total = t_blk + t_head + t_att + t_mem
        flops = 6 * n * m
        print(json.dumps({
            "row": name, "products_ms": round(t_blk + t_head, 2), "tflops": round(flops / (t_blk + t_head) / 1e9),
            "attention_ms": round(t_att, 2), "bytes_ms": round(t_mem, 2), "floor_ms": round(total, 2),
            "floor_tokens_per_s": round(m / total * 1e3)}), flush=True)
        torch.cuda.empty_cache()


main()
