#!/usr/bin/env python3
"""Make small tokenizers of every kind that yoke reads, and what Hugging Face's `tokenizers` makes of
some texts with them. The results lie beside this file; run it again only to change them:
  python3 -m venv v && v/bin/pip install tokenizers && v/bin/python make_tokenizers.py
"""
import json
import os
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

CORPUS = """The yoke is a wooden beam sometimes used between a pair of oxen to enable them to pull together
on a load when working in pairs, as oxen usually do. It's been known since the Neolithic; they'll say
we've had it for 6000 years. In 1900 the farmers' oxen pulled 12345 pounds, and 67 more the year after.
Das Joch ist ein Teil des Geschirrs, über den die Kraft übertragen wird. Größere Höfe hatten mehrere.
Le joug est une pièce de bois servant à l'attelage des bœufs; déjà connu, très répandu, plutôt lourd.
轭是套在牛颈上的曲木。牛拉车的时候用它。 Ярмо надевают на шею волов. 牛の首にかける横木。
    if (x == 0) { return x + 1; }  // a comment
\tfor i in range(10):\n\t\tprint("hello", i)\n\n\n""" * 4

TEXTS = [
    "", " ", "a", "Hello, world!", "The oxen pulled the yoke together.", "  two  spaces   three\n",
    "It's they'll we've I'M you'D 're '", "12345 67 8 1900.5", "tabs\tand\nnewlines\r\n\r\n  end  ",
    "über Größe déjà bœufs", "u\u0308ber Gro\u0308\u00dfe de\u0301ja\u0300", "\ufb01ne \u212b \u1e9b\u0323",
    "轭是套在牛颈上的曲木。牛", "Ярмо надевают", "emoji \U0001f600\U0001f468\u200d\U0001f469 \u2764\ufe0f ok",
    "nbsp\u00a0and\u3000wide\u2028line\u0085next", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "<|end|>", "one<|end|>two", "<|end|><|end|> x", "  <mask>  after", "a <wide>\n b", "<|en <|endd|>", "new_word or new_words",
    "if (x == 0) { return x + 1; }  // a comment", "\u2581already\u2581marked", "unknown: \u0e01\u0e02 \u1200 end",
    "x" * 70 + " " * 70 + "\n" * 5,
]


def trained(tok, vocab, alphabet):
    tok.train_from_iterator(
        CORPUS.splitlines(keepends=True),
        trainers.BpeTrainer(vocab_size=vocab, show_progress=False, initial_alphabet=alphabet,
                            special_tokens=[]))
    return tok


def add(tok):
    tok.add_special_tokens([AddedToken("<|end|>", special=True, normalized=False),
                            AddedToken("<mask>", special=True, lstrip=True, normalized=False),
                            AddedToken("<wide>", special=True, rstrip=True, normalized=False)])
    tok.add_tokens([AddedToken("new_word", normalized=True), AddedToken("new_words", normalized=True)])


def byte_level(pre, normalizer=None, ignore_merges=False):
    tok = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tok.pre_tokenizer = pre
    if normalizer:
        tok.normalizer = normalizer
    tok.decoder = decoders.ByteLevel()
    trained(tok, 480, pre_tokenizers.ByteLevel.alphabet())
    add(tok)
    return tok


def split(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def by_character(legacy):
    """Llama 2's: characters, byte fallback; spaces are marks, made by a normalizer or by Metaspace."""
    tok = Tokenizer(models.BPE(unk_token="<unk>"))
    tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    trained(tok, 300, [])
    model = json.loads(tok.to_str())["model"]
    pieces = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + sorted(model["vocab"], key=model["vocab"].get)
    pieces = [p for i, p in enumerate(pieces) if p not in pieces[:i]]
    vocab = {p: i for i, p in enumerate(pieces)}
    tok = Tokenizer(models.BPE(vocab, [tuple(m) for m in model["merges"]], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    strip = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    if legacy:
        tok.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    else:
        tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
    tok.decoder = decoders.Sequence(strip)
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in ("<unk>", "<s>", "</s>")])
    add(tok)
    tok.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return tok


def pairs_or_strings(text, strings):
    root = json.loads(text)
    if strings:
        root["model"]["merges"] = [" ".join(m) for m in root["model"]["merges"]]
    return json.dumps(root, ensure_ascii=False, separators=(",", ":"))


def main():
    kinds = {
        "gpt2": (byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False)), True),
        "prefix-space": (byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True)), False),
        "llama3": (byte_level(split(LLAMA3), ignore_merges=True), False),
        "qwen2": (byte_level(split(QWEN2), normalizers.NFC()), True),
        "llama2": (by_character(True), True),
        "metaspace": (by_character(False), False),
    }
    kinds["llama3"][0].post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|end|> $A", pair="<|end|> $A <|end|> $B",
                                      special_tokens=[("<|end|>", kinds["llama3"][0].token_to_id("<|end|>"))])])
    cases = {}
    for name, (tok, strings) in kinds.items():
        with open(os.path.join(HERE, name + ".json"), "w", encoding="utf-8") as f:
            f.write(pairs_or_strings(tok.to_str(), strings) + "\n")
        cases[name] = []
        for text in TEXTS:
            ids = tok.encode(text, add_special_tokens=False).ids
            cases[name].append({"text": text, "ids": ids, "decoded": tok.decode(ids, skip_special_tokens=True),
                                "with_prefix": tok.encode(text).ids})
    with open(os.path.join(HERE, "cases.json"), "w", encoding="utf-8") as f:
        json.dump(cases, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


main()
