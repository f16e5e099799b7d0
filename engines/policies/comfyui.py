"""ComfyUI's flags (`main.py`). Only what tunes memory and arithmetic passes. Pure data.

Spelling: Python's argparse: unique prefixes and `--flag=value` count.
"""

from engines.policies.reasons import CARDS, CODE, EXITS, NETWORK, OURS, READS, ROUTES, WRITES, group
from engines.policies.table import FlagTable

COMFYUI = FlagTable(
    refused={
        **group(
            OURS, "--listen --port --base-directory --database-url --disable-auto-launch --disable-api-nodes --cpu"
        ),
        **group(CARDS, "--cuda-device --default-device --directml --oneapi-device-selector"),
        **group(
            READS, "--extra-model-paths-config --models-directory --input-directory --front-end-root --tls-keyfile"
        ),
        **group(READS, "--tls-certfile"),
        **group(WRITES, "--output-directory --temp-directory --user-directory"),
        **group(NETWORK, "--front-end-version --comfy-api-base"),
        **group(CODE, "--whitelist-custom-nodes --disable-all-custom-nodes --enable-manager"),
        **group(ROUTES, "--enable-cors-header --multi-user --max-upload-size --auto-launch --windows-standalone-build"),
        **group(EXITS, "--help -h --quick-test-for-ci"),
    },
    allowed=frozenset(
        """--cuda-malloc --disable-cuda-malloc --force-fp32 --force-fp16 --fp32-unet --fp64-unet --bf16-unet --fp16-unet
        --fp8_e4m3fn-unet --fp8_e5m2-unet --fp8_e8m0fnu-unet --fp16-vae --fp32-vae --bf16-vae --cpu-vae
        --fp8_e4m3fn-text-enc --fp8_e5m2-text-enc --fp16-text-enc --fp32-text-enc --bf16-text-enc
        --force-channels-last --disable-ipex-optimize --supports-fp8-compute --preview-method --preview-size
        --cache-classic --cache-lru --cache-none --use-split-cross-attention --use-quad-cross-attention
        --use-pytorch-cross-attention --use-sage-attention --use-flash-attention --disable-xformers
        --force-upcast-attention --dont-upcast-attention --gpu-only --highvram --normalvram --lowvram --novram
        --reserve-vram --async-offload --disable-smart-memory --deterministic --fast --mmap-torch-files --disable-mmap
        --disable-metadata --verbose --log-stdout""".split()  # noqa: SIM905 - words read as words
    ),  # fmt: skip
    prefixes=True,
    strict=True,
)
