"""Files that users name: how a path is written, how text is read from one, whether there is room for one, and how one
is replaced as a whole. The only place for that.
"""

from __future__ import annotations

import codecs
import errno
import os
import shutil
import tempfile
from pathlib import Path

from uad.base.common.names import nearest
from uad.base.errors import ConfigError, UadError

SMALL_BYTES = 1 << 20
"""Most bytes of a file that a person wrote."""

_MOST_PREFIX_CHARS = 40  # characters: names may have 255 bytes in all
_ALIKE = 0.8  # similarity of a file that may be meant

_OTHERS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)


def path_of(text: str) -> Path:
    """The path that a user wrote, `~` and `~name` at its start replaced by that home. Raises ConfigError where there is
    no such home.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise ConfigError(
            f"{text}: no home directory is known for {text.partition('/')[0]}; write the path out"
        ) from error


def path_text(path: Path | str) -> str:
    """A path as text for clients: bytes of it that are not UTF-8 are U+FFFD."""
    return os.fsencode(path).decode(errors="replace")


def is_there(path: Path) -> bool:
    """Whether there is anything at this path; False where this process may not look, which `Path.exists` raises."""
    return os.path.exists(path)


def is_file(path: Path) -> bool:
    """Whether there is a file at this path, or a link to one; False where this process may not look."""
    return os.path.isfile(path)


def is_folder(path: Path) -> bool:
    """Whether there is a folder at this path, or a link to one; False where this process may not look."""
    return os.path.isdir(path)


def why_hidden(path: Path) -> str:
    """Why this process may not look whether there is anything at this path, such as "Permission denied"; "" where it
    may.
    """
    try:
        path.stat()
    except OSError as error:
        return "" if error.errno in (errno.ENOENT, errno.ENOTDIR) else error.strerror or str(error)
    except ValueError as error:  # a zero byte in the name
        return str(error)
    return ""


def no_such_file(path: Path) -> str:
    """The end of a complaint about a file that is not there: one of its folder that may be meant, or the folder; or why
    that is hidden, or where a link leads.
    """
    if why := why_hidden(path):
        return f"it cannot be looked at ({why})"
    if is_there(path):
        return "a folder, a pipe or a device; a file is wanted"
    if os.path.islink(path):
        return f"it is a link to {os.readlink(path)}, which is not there"
    folder = path.parent
    if not is_folder(folder):
        return f"no such file; there is no folder {folder}"
    try:
        names = [file.name for file in folder.iterdir() if file.suffix == path.suffix and is_there(file)]
    except OSError:  # a folder that may not be listed
        names = []
    near = nearest(path.name, names, _ALIKE)
    return f"no such file; did you mean {folder / near}?" if near else f"no such file in {folder.resolve()}"


def check_room(out: Path, n_bytes: int) -> None:
    """Raises ConfigError where the folder of `out` has no room for a file of `n_bytes` bytes."""
    free = shutil.disk_usage(out.resolve().parent).free
    if n_bytes > free:
        raise ConfigError(f"cannot write {out}: it needs {n_bytes / 1e9:.1f} GB, {free / 1e9:.1f} GB are free there")


def read_text(path: Path, limit: int = SMALL_BYTES, error: type[UadError] = ConfigError) -> str:
    """The text of a UTF-8 file of at most `limit` bytes, line ends as \\n, without a byte order mark.

    Raises `error`, which names the file, when it is missing, too long or not such text.
    """
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except (OSError, ValueError) as failure:  # ValueError: a zero byte in the name
        raise error(f"{path}: cannot be read: {getattr(failure, 'strerror', None) or failure}") from failure
    if len(data) > limit:
        raise error(f"{path}: more than {limit} bytes; that can't be right")
    return decode_text(data, str(path), error)


def decode_text(data: bytes, name: str, error: type[UadError] = ConfigError) -> str:
    """UTF-8 bytes as text, as in `read_text`; `name` says in errors where they come from."""
    for mark, encoding in _OTHERS:
        if data.startswith(mark):
            raise error(f"{name}: not UTF-8 text but {encoding}, by its byte order mark; save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        at = failure.start + len(data) - len(failure.object)  # the codec counts from the end of the mark
        raise error(f"{name}: not UTF-8 text (byte {at}); save it as UTF-8") from failure
    return text.replace("\r\n", "\n").replace("\r", "\n")


def check_text(text: str, name: str) -> None:
    """Raise ConfigError for a text of the command line or the environment that holds bytes which are no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as failure:
        raise ConfigError(f"{name}: not UTF-8 text (character {failure.start})") from failure


def size_text(n: float) -> str:
    """A number of bytes for people, such as 1.5 GiB."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if n >= 1 << power:
            return f"{n / (1 << power):.3g} {unit}" if n < 999.5 * (1 << power) else f"{n / (1 << power):.0f} {unit}"
    return f"{n:.0f} bytes"


def why_not_writable(path: Path) -> str:
    """Why no file can be written at this path; "" where it can. Makes a file without a name beside it."""
    if is_folder(path):
        return "it is a folder"
    if why := why_hidden(path):
        return why
    try:
        with tempfile.TemporaryFile(dir=path.absolute().parent):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def write_atomically(path: Path, *parts: bytes | memoryview) -> None:
    """Write a file of these parts so that readers find the old or the new content, whole. Raises OSError."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:_MOST_PREFIX_CHARS]}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
