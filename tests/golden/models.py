"""GPT-2, Llama and Qwen2 in plain PyTorch, as transformers computes them.

The one idea: a module tree whose state dict has exactly the names and layouts of Hugging Face's
files, and formulas short enough to be checked by reading. Nothing here is fast.

B batch, T positions, C width, V vocabulary, H heads, G key-value heads, D head size, F inner width.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn


def attend(q, k, v):
    """Causal attention. q (B,H,T,D), k and v (B,G,T,D); returns (B,T,H*D)."""
    B, H, T, D = q.shape
    k = k.repeat_interleave(H // k.shape[1], dim=1)
    v = v.repeat_interleave(H // v.shape[1], dim=1)
    scores = q @ k.transpose(2, 3) / math.sqrt(D)
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
    return (weights @ v).transpose(1, 2).reshape(B, T, H * D)


def heads_of(x, n, D):
    """(B,T,n*D) -> (B,n,T,D)"""
    return x.view(x.shape[0], x.shape[1], n, D).transpose(1, 2)


class Conv1D(nn.Module):
    """GPT-2's linear layer: the weight is (in,out)."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_in, n_out))
        self.bias = nn.Parameter(torch.empty(n_out))

    def forward(self, x):
        return x @ self.weight + self.bias


class Gpt2Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.size = c["n_head"], c["n_embd"] // c["n_head"]
        self.c_attn = Conv1D(c["n_embd"], 3 * c["n_embd"])
        self.c_proj = Conv1D(c["n_embd"], c["n_embd"])

    def forward(self, x):
        q, k, v = (heads_of(z, self.heads, self.size) for z in self.c_attn(x).chunk(3, -1))
        return self.c_proj(attend(q, k, v))


class Gpt2Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        inner = c["n_inner"] or 4 * c["n_embd"]
        self.c_fc = Conv1D(c["n_embd"], inner)
        self.c_proj = Conv1D(inner, c["n_embd"])

    def forward(self, x):
        z = self.c_fc(x)
        gelu = 0.5 * z * (1 + torch.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
        return self.c_proj(gelu)


class Gpt2Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.ln_1 = nn.LayerNorm(c["n_embd"], eps=c["layer_norm_epsilon"])
        self.attn = Gpt2Attention(c)
        self.ln_2 = nn.LayerNorm(c["n_embd"], eps=c["layer_norm_epsilon"])
        self.mlp = Gpt2Mlp(c)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt2(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.transformer = nn.Module()
        self.transformer.wte = nn.Embedding(c["vocab_size"], c["n_embd"])
        self.transformer.wpe = nn.Embedding(c["n_positions"], c["n_embd"])
        self.transformer.h = nn.ModuleList(Gpt2Block(c) for _ in range(c["n_layer"]))
        self.transformer.ln_f = nn.LayerNorm(c["n_embd"], eps=c["layer_norm_epsilon"])

    def forward(self, tokens):
        """tokens (B,T) -> logits (B,T,V)"""
        t = self.transformer
        x = t.wte(tokens) + t.wpe(torch.arange(tokens.shape[1]))
        for block in t.h:
            x = block(x)
        return t.ln_f(x) @ t.wte.weight.T


class RmsNorm(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(c["hidden_size"]))
        self.eps = c["rms_norm_eps"]

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rope_frequencies(c, D):
    """The D/2 angles per position, after config.json's rope_scaling."""
    inv = 1 / c["rope_theta"] ** (torch.arange(0, D, 2, dtype=torch.float64) / D)
    scaling = c.get("rope_scaling")
    if scaling is None:
        return inv
    kind = scaling.get("rope_type") or scaling["type"]
    if kind == "linear":
        return inv / scaling["factor"]
    assert kind == "llama3"
    # Llama 3.1: long wavelengths are stretched, short ones kept, those between interpolated.
    turns = scaling["original_max_position_embeddings"] * inv / (2 * math.pi)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    keep = ((turns - low) / (high - low)).clamp(0, 1)
    return inv * (keep + (1 - keep) / scaling["factor"])


def rotate(x, inv):
    """Rotary positions of x (B,n,T,D): element i is paired with i + D/2."""
    angles = torch.outer(torch.arange(x.shape[2], dtype=torch.float64), inv)
    cos, sin = (torch.cat((f(angles),) * 2, -1).to(x.dtype) for f in (torch.cos, torch.sin))
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class LlamaAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        C, self.heads, self.kv_heads = (
            c[k] for k in ("hidden_size", "num_attention_heads", "num_key_value_heads")
        )
        self.size = c.get("head_dim") or C // self.heads
        bias = c["model_type"] == "qwen2"
        self.q_proj = nn.Linear(C, self.heads * self.size, bias=bias)
        self.k_proj = nn.Linear(C, self.kv_heads * self.size, bias=bias)
        self.v_proj = nn.Linear(C, self.kv_heads * self.size, bias=bias)
        self.o_proj = nn.Linear(self.heads * self.size, C, bias=False)
        self.inv = rope_frequencies(c, self.size)

    def forward(self, x):
        q = rotate(heads_of(self.q_proj(x), self.heads, self.size), self.inv)
        k = rotate(heads_of(self.k_proj(x), self.kv_heads, self.size), self.inv)
        v = heads_of(self.v_proj(x), self.kv_heads, self.size)
        return self.o_proj(attend(q, k, v))


class LlamaMlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
        self.up_proj = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
        self.down_proj = nn.Linear(c["intermediate_size"], c["hidden_size"], bias=False)

    def forward(self, x):
        gate = self.gate_proj(x)
        return self.down_proj(gate * torch.sigmoid(gate) * self.up_proj(x))


class LlamaBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm = RmsNorm(c)
        self.self_attn = LlamaAttention(c)
        self.post_attention_layernorm = RmsNorm(c)
        self.mlp = LlamaMlp(c)

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """Llama and Qwen2; they differ in the biases of q, k and v."""

    def __init__(self, c):
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.model.layers = nn.ModuleList(LlamaBlock(c) for _ in range(c["num_hidden_layers"]))
        self.model.norm = RmsNorm(c)
        if not c["tie_word_embeddings"]:
            self.lm_head = nn.Linear(c["hidden_size"], c["vocab_size"], bias=False)

    def forward(self, tokens):
        """tokens (B,T) -> logits (B,T,V)"""
        x = self.model.embed_tokens(tokens)
        for layer in self.model.layers:
            x = layer(x)
        head = getattr(self, "lm_head", self.model.embed_tokens)
        return self.model.norm(x) @ head.weight.T


def build(config):
    return (Gpt2 if config["model_type"] == "gpt2" else Llama)(config)


def loss_of(logits, targets):
    """Mean cross-entropy over the targets that are not masked with -1."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten().long(), ignore_index=-1)
