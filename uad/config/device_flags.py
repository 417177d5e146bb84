"""Flags that say on which devices models are: workers on other machines, and who uses which."""

from __future__ import annotations

from typing import Final

from uad.config import kinds
from uad.config.flag import Flag
from uad.config.flags import CONTEXT, DRAFT, ENV

DEVICE_FLAGS: Final = (
    Flag(
        "--rpc",
        "rpc",
        kinds.ENDPOINTS,
        CONTEXT,
        "use the devices of workers on other machines (uad rpc-worker), by addresses with commas between them; "
        "unencrypted",
        "HOST:PORT",
        ENV + "RPC",
    ),
    Flag(
        "-dev --device",
        "target.devices",
        kinds.DEVICES,
        CONTEXT,
        "devices that layers are put on, by name, with commas between them; none is the CPU alone",
        "NAMES",
        ENV + "DEVICE",
        default="all",
    ),
    Flag(
        "-ts --tensor-split",
        "target.tensor_split",
        kinds.SHARES,
        CONTEXT,
        "shares of the devices, such as 3,1",
        "N,N",
        ENV + "TENSOR_SPLIT",
        default="by free memory",
    ),
    Flag(
        "-devd --device-draft --spec-draft-device",
        "draft.devices",
        kinds.DEVICES,
        DRAFT,
        "the draft's devices",
        "NAMES",
        default="as --device if given, else this machine's",
    ),
)
