"""llama.cpp as it is installed: its binding, checked and started, and the devices it computes on. Knows no text."""

from uad.base.errors import ConfigError
from uad.llama.backend.symbols import VERSIONS
from uad.llama.backend.waiting import spinning_briefly

try:
    with spinning_briefly():
        import llama_cpp.llama_cpp  # noqa: F401
# missing, built for another machine, or a library beside it is: whatever it is, it ends in one line
except Exception as error:
    raise ConfigError(
        f"llama-cpp-python cannot be loaded ({error}): pip install 'llama-cpp-python{VERSIONS}'"
    ) from error
