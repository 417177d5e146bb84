"""Model files with other metadata than they should have: what converters forget, and what people edit."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter

U32, I32, U64, F32, TEXT, BOOL = (
    GGUFValueType.UINT32,
    GGUFValueType.INT32,
    GGUFValueType.UINT64,
    GGUFValueType.FLOAT32,
    GGUFValueType.STRING,
    GGUFValueType.BOOL,
)
Change = tuple[GGUFValueType, Any] | None
"""A value and its type, of a list that of its elements; None takes the key away."""


def rewritten(model: Path, out: Path, changes: Mapping[str, Change], without: str = "") -> Path:
    """The same model with other values below these keys, and without the tensor of this name."""
    reader = GGUFReader(model)
    arch = reader.fields["general.architecture"].contents()
    with closing(GGUFWriter(out, (changes.get("general.architecture") or (TEXT, arch))[1])) as writer:
        for field in reader.fields.values():
            if field.name.startswith("GGUF.") or field.name == "general.architecture" or field.name in changes:
                continue
            of_list = field.types[1] if len(field.types) > 1 else None
            writer.add_key_value(field.name, field.contents(), field.types[0], of_list)
        for key, change in changes.items():
            if change is None or key == "general.architecture":
                continue
            kind, value = change
            is_list = isinstance(value, list)
            writer.add_key_value(key, value, GGUFValueType.ARRAY if is_list else kind, kind if is_list else None)
        for tensor in reader.tensors:
            if tensor.name != without:
                writer.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    return out
