"""llama.cpp as it is installed: its binding, checked and started, and the devices it computes on. Knows no text."""

import importlib.util
import sys

from uad.base.errors import ConfigError
from uad.llama.backend.symbols import VERSIONS
from uad.llama.backend.waiting import spinning_briefly


def _without_its_own_api() -> None:
    """Register the binding's package without running it: its high-level API, which uad does not use, takes longer to
    import than all of uad. It runs when somebody asks the package for a name.
    """
    spec = None if "llama_cpp" in sys.modules else importlib.util.find_spec("llama_cpp")
    if spec is None or spec.loader is None:
        return
    package, loader = importlib.util.module_from_spec(spec), spec.loader

    def late(name: str) -> object:
        if name.startswith("__") and name != "__version__":  # asked by Python's own machinery
            raise AttributeError(name)
        del package.__getattr__
        loader.exec_module(package)
        if (native := sys.modules.get("uad.llama.backend.native")) is not None:
            native.take_log_back()
        return getattr(package, name)

    package.__getattr__ = late  # type: ignore[method-assign]
    sys.modules[spec.name] = package


try:
    with spinning_briefly():
        _without_its_own_api()
        import llama_cpp.llama_cpp  # noqa: F401
# missing, built for another machine, or a library beside it is: whatever it is, it ends in one line
except Exception as error:
    raise ConfigError(
        f"llama-cpp-python cannot be loaded ({error}): pip install 'llama-cpp-python{VERSIONS}'"
    ) from error
