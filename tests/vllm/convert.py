"""The default target as a folder that vLLM serves: safetensors in bfloat16, with its tokenizer.

usage: convert.py MODEL.gguf FOLDER
"""

import os
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

folder, name = os.path.split(sys.argv[1])
AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(sys.argv[2])
AutoModelForCausalLM.from_pretrained(
    folder, gguf_file=name, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
).save_pretrained(sys.argv[2])
