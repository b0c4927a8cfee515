#!/usr/bin/env python3
"""Write mixed.safetensors with Hugging Face's own library, to be equalled byte by byte:
  python3 -m venv v && v/bin/pip install numpy safetensors && v/bin/python make_safetensors.py
"""
import os

import numpy as np
from safetensors.numpy import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
save_file(
    {
        "z.half": np.arange(6, dtype=np.float16).reshape(2, 3) / 2,
        "a.single": np.arange(5, dtype=np.float32) - 2,
        "b.byte": np.arange(3, dtype=np.uint8),
        "m.scalar": np.array(7, dtype=np.int64),
        "name with \"quotes\" and é": np.zeros((0, 4), dtype=np.int32),
        "c.single": np.full((1, 1, 2), 0.5, dtype=np.float32),
    },
    os.path.join(HERE, "mixed.safetensors"),
    metadata={"format": "pt"},
)
