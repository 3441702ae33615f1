"""Compile the Triton kernels ahead of time, for a card that is not here.

``python -m tests.support.compiled_kernels 80 90`` prints a line of JSON for each architecture,
kernel and shape.
"""

import json
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

os.environ.pop("TRITON_INTERPRET", None)  # what is interpreted is not compiled
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

SHAPES = [
    (4, 128, 128, "bf16", "bf16"),
    (1, 128, 128, "fp32", "fp32"),
    (4, 128, 128, "bf16", "i8"),
    (16, 576, 576, "bf16", "bf16"),
]
"""(group, key width, value width, format of queries, format of what is stored)."""


def decode_kernels() -> Iterator[tuple[Any, Mapping[str, str], Mapping[str, Any]]]:
    """Return each kernel of decode attention with the types of its pointers and its constants."""
    from servetwin.engine.kernels.decode_attention import tiles
    from servetwin.engine.kernels.programs.decode import attend_share, merge_shares

    for group, key, value, dtype, stored in SHAPES:
        pointers = {
            "queries": f"*{dtype}", "keys": f"*{stored}", "values": f"*{stored}",
            "key_scales": "*fp32", "value_scales": "*fp32", "tables": "*i64", "contexts": "*i64",
            "outputs": "*fp32", "logs": "*fp32", "merged": f"*{dtype}", "scale": "fp32",
        }  # fmt: skip
        scaled = stored == "i8"
        constants: dict[str, Any] = {"SCALED": scaled, **tiles(group, key, value)}
        if not scaled:
            constants |= {"key_scales": None, "value_scales": None}
        yield attend_share, pointers, constants
        yield merge_shares, pointers, {**constants, "TILE_SHARES": 32}


def operator_kernels() -> Iterator[tuple[Any, Mapping[str, str], Mapping[str, Any]]]:
    """Return the small operators for heads of 128 and a hidden state of 4,096."""
    from servetwin.engine.kernels.programs.operators import gate_rows, norm_rows, rotate_heads

    pointers = ("x", "delta", "weight", "total", "normed", "heads", "cos", "sin", "rotated")
    types = dict.fromkeys((*pointers, "gate_up", "gated"), "*bf16") | {"eps": "fp32"}
    for added in (False, True):
        row = {"ADDED": added, "WIDTH": 4096, "TILE": 4096} | ({} if added else {"delta": None})
        yield norm_rows, types | {"heads": "i32"}, row
    yield rotate_heads, types, {"HALF": 64, "TILE_HALF": 64, "TILE_HEADS": 8}
    yield gate_rows, types, {"TILE": 1024}


def product_kernels() -> Iterator[tuple[Any, Mapping[str, str], Mapping[str, Any]]]:
    """Return the product with weights in few bits, for few rows and for many."""
    from servetwin.engine.kernels.programs.products import multiply_codes

    types = {"x": "*bf16", "y": "*bf16"}
    int8 = types | {"codes": "*i8", "scales": "*fp32"}
    int4 = types | {"codes": "*u8", "scales": "*bf16", "middles": "*bf16"}
    for rows in (16, 64):
        tiles = {"TILE_ROWS": rows, "TILE": 64}
        yield multiply_codes, int8, {"INT4": False, "middles": None, **tiles}
        yield multiply_codes, int4, {"INT4": True, **tiles}


def compile_one(
    kernel: Any, types: Mapping[str, str], constants: Mapping[str, Any], architecture: int
) -> dict[str, Any]:
    """Compile one kernel; an argument without a type is an integer."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    known = {name: value for name, value in constants.items() if name in kernel.arg_names}
    signature = {
        name: "constexpr" if name in known else types.get(name, "i32") for name in kernel.arg_names
    }
    source = ASTSource(fn=kernel, signature=signature, constexprs=known)
    compiled = triton.compile(source, target=GPUTarget("cuda", architecture, 32))
    return {
        "architecture": architecture,
        "kernel": kernel.__name__,
        "constants": known,
        "shared_bytes": compiled.metadata.shared,
        "machine_code_bytes": len(compiled.asm["cubin"]),
    }


def main() -> None:
    """Compile everything for the architectures that are given."""
    warnings.simplefilter("ignore")
    for architecture in map(int, sys.argv[1:]):
        kernels = chain(decode_kernels(), operator_kernels(), product_kernels())
        for kernel, types, constants in kernels:
            compiled = compile_one(kernel, types, constants, architecture)
            sys.stdout.write(json.dumps(compiled) + "\n")


if __name__ == "__main__":
    main()
