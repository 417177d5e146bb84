"""Short ASCII text to ids by the tokenizers library, for vocabularies whose pre-tokenizer llama.cpp compiles again in
every call.

Such a call costs 20 to 900 µs, however short the text (std::regex); here it is 3 to 6 µs. The answer of llama.cpp stays
the measure: ASCII only, where its character classes are beyond doubt, and only for vocabularies for which both agree on
a test text. Knows no file.
"""

from __future__ import annotations

import random
import string
from collections.abc import Sequence

from tokenizers import AddedToken, Regex, Tokenizer, models
from tokenizers.pre_tokenizers import ByteLevel, Split
from tokenizers.pre_tokenizers import Sequence as Steps

from uad.text.vocab.table import Tokenize, VocabTable

_LONGEST_BYTES = 512  # bytes; long texts are cheap by the byte there, too
_N_PROBES = 160
_NAMES_AT_ONCE = 4
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+"
_CONTRACTED = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_CASED = (
    r"[^\r\nA-Za-z0-9]?[A-Z]*[a-z]+{0}|[^\r\nA-Za-z0-9]?[A-Z]+[a-z]*{0}|{1}| "
    r"?[^\sA-Za-z0-9]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DEEPSEEK_3 = (
    r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n!-/:-@\[-`{-~A-Za-z]?[A-Za-z]+| ?[!-/:-@\[-`{-~]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_STEPS: dict[str, tuple[str, ...]] = {
    "default": (r"[!-/:-@\[-_{-~]+", _GPT2, r"[0-9]+", r"[0-9][0-9][0-9]"),
    "falcon": (r"[!-/:-@\[-`{-~]+", _GPT2, r"[0-9][0-9][0-9]"),
    "starcoder": (r"[0-9]", _GPT2),
    "deepseek-llm": (r"[\r\n]", r"\s?[A-Za-z]+", r"\s?[!-/:-~]+", r"\s+\z", r"[0-9]+"),
    "deepseek-coder": (r"[\r\n]", r"\s?[A-Za-z]+", r"\s?[!-#%-*,-/:;?@\[-\]_{}]+", r"[0-9]"),
    "deepseek-v3": (r"[0-9]{1,3}", _DEEPSEEK_3),
    "tekken": (_CASED.format("", "[0-9]"),),
    "gpt-4o": (_CASED.format(_CONTRACTED + "?", "[0-9]{1,3}"),),
}
"""By llama.cpp's name of a pre-tokenizer: expressions that cut in turn, as far as they concern ASCII."""
_SAME = {
    **dict.fromkeys(("refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"), "starcoder"),
    **dict.fromkeys(("hunyuan-dense", "joyai-llm", "hy_v4"), "deepseek-v3"),
    **dict.fromkeys(("llama4", "kanana2", "talkie", "minimax-m2"), "gpt-4o"),
}
_IGNORES_MERGES = ("tekken",)
_LETTERS = [chr(byte) if 32 < byte < 127 else chr(256 + min(byte, 33)) for byte in range(128)]
"""GPT-2's letters for the bytes of ASCII."""
KNOWN = (*_STEPS, *_SAME)
_SPACES = (" ", "  ", "   ", "\n", "\r\n", "\t", "\n\n    ", "\n\t")
_WORDS = "a x the Word ABCdef getValue 1 23 4567 89012 's 'LL n't ); ){ -> :: ... == /*".split()  # noqa: SIM905


def quick_tokenize(
    vocab: VocabTable, pre: str, tokens: Sequence[str], merges: Sequence[str], defined: Sequence[str]
) -> Tokenize | None:
    """vocab.tokenize, made quick for short ASCII text. None where llama.cpp's pre-tokenizer `pre` is not known here, or
    the two disagree.

    tokens and merges: byte-level BPE as in a GGUF file, in the order of ids and ranks. defined: tokens that text is
    searched for first.
    """
    if (steps := _STEPS.get(_SAME.get(pre, pre))) is None or not merges:
        return None
    searched = [token for token in defined if token.isascii()]
    built = None if _overlap(searched) else _build(steps, tokens, merges, pre in _IGNORES_MERGES)
    if built is None:
        return None
    built.add_tokens([AddedToken(token, normalized=False) for token in searched])
    exact = vocab.tokenize
    ours = bytes(byte for byte, letter in enumerate(_LETTERS) if built.token_to_id(letter) is not None)

    def tokenize(data: bytes) -> list[int]:
        if len(data) > _LONGEST_BYTES or data.translate(None, ours):
            return exact(data)
        ids: list[int] = built.encode(data.decode(), add_special_tokens=False).ids
        return ids

    # The answer of llama.cpp is the measure: one text on which the two differ, and the quick one is not used at all.
    return tokenize if all(tokenize(text) == exact(text) for text in _probes(vocab, searched)) else None


def _overlap(defined: Sequence[str]) -> bool:
    """Whether one can end within another: llama.cpp then takes the longest of a text first, the library the leftmost.
    Runs of one letter come out the same.
    """
    # "ab" and "bcd" overlap in "b". Of "abcd" the library takes "ab", the leftmost; llama.cpp looks for the longest
    # first, finds "bcd", and leaves "a".
    runs = {token[0] for token in defined if len(set(token)) == 1}
    others = [token for token in defined if len(set(token)) > 1]
    begun = {token[:n] for token in others for n in range(1, len(token))}
    ended = {token[n:] for token in others for n in range(1, len(token))}
    return not begun.isdisjoint(ended) or any(part[0] in runs and len(set(part)) == 1 for part in begun | ended)


def _build(steps: Sequence[str], tokens: Sequence[str], merges: Sequence[str], ignore_merges: bool) -> Tokenizer | None:
    """None where a merge makes no token: llama.cpp spells such text out in bytes."""
    ids: dict[str, int] = {}
    for id_, token in enumerate(tokens):
        ids.setdefault(token, id_)
    # A merge is two tokens with a blank between. That is looked for from the second character on, as llama.cpp does:
    # the first token has at least one.
    pairs = []
    for merge in merges:
        at = merge.find(" ", 1)
        pair = merge[:at], merge[at + 1 :]
        if at < 0 or pair[0] not in ids or pair[1] not in ids or pair[0] + pair[1] not in ids:
            return None
        pairs.append(pair)
    tokenizer = Tokenizer(models.BPE(ids, pairs, ignore_merges=ignore_merges))
    cuts = [Split(Regex(step), "isolated") for step in steps]
    tokenizer.pre_tokenizer = Steps([*cuts, ByteLevel(add_prefix_space=False, use_regex=False)])
    return tokenizer


def _probes(vocab: VocabTable, defined: Sequence[str]) -> list[bytes]:
    """Texts in which pieces meet what they may be cut from, and the vocabulary's own tokens each other. Every special
    and user-defined token meets a letter on each side.
    """
    parts = [*_SPACES, *_WORDS, *string.punctuation, *defined[:24]]
    draw = random.Random(0)
    own = [piece for piece in vocab.pieces if len(piece) > 1 and piece.isascii()]
    names = [f"a{name}a " for name in (*vocab.specials, *defined) if name.isascii()]
    texts = [part.encode() for part in parts]
    texts += ["".join(draw.choices(parts, k=8)).encode() for _ in range(_N_PROBES)]
    texts += draw.sample(own, min(len(own), _N_PROBES))
    texts += ["".join(names[i : i + _NAMES_AT_ONCE]).encode() for i in range(0, len(names), _NAMES_AT_ONCE)]
    return texts + [b"".join(draw.choices(own, k=4)) for _ in range(_N_PROBES if own else 0)]
