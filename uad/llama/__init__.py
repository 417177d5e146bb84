"""The only room that imports llama_cpp: thin owners of native handles. Knows no drafting, no requests and no text."""

from uad.backend.symbols import VERSIONS
from uad.errors import ConfigError

try:
    import llama_cpp.llama_cpp  # noqa: F401
# missing, built for another machine, or a library beside it is: whatever it is, it ends in one line
except Exception as error:
    raise ConfigError(
        f"llama-cpp-python cannot be loaded ({error}): pip install 'llama-cpp-python{VERSIONS}'"
    ) from error
