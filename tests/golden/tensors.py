"""Read and write safetensors files: 8 bytes of header length, a JSON header, the data.

Written out here because Debian's python3-torch comes without the safetensors package, and because
a second implementation of the format is a test of ours.
"""
import json
import struct

import torch

DTYPES = {"F32": torch.float32, "I32": torch.int32}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def save(path, tensors):
    """Write tensors, a dict of name -> fp32 or int32 tensor, sorted by name."""
    header = {"__metadata__": {"format": "pt"}}  # transformers refuses a file without it
    data = []
    begin = 0
    for name in sorted(tensors):
        t = tensors[name].detach().contiguous()
        end = begin + t.numel() * 4
        header[name] = {"dtype": NAMES[t.dtype], "shape": list(t.shape), "data_offsets": [begin, end]}
        data.append(t.numpy().astype(t.numpy().dtype.newbyteorder("<")).tobytes())
        begin = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.writelines(data)


def load(path):
    """Read every tensor of a file that save() wrote."""
    with open(path, "rb") as f:
        raw = f.read()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        flat = torch.frombuffer(bytearray(raw[begin:end]), dtype=DTYPES[entry["dtype"]])
        tensors[name] = flat.reshape(entry["shape"])
    return tensors
