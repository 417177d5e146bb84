"""Raw prompts are tokenized as llama.cpp does, BOS and names of specials included."""

from __future__ import annotations

from functools import partial

import pytest
from kit.vocab_kit import BUNDLED, encoder, path_of, vocab
from llama_cpp import Llama

from uad.text.mapping.patterns import encode_text
from uad.text.prompts import encode_in_pieces

TEXTS = (
    *("", " ", "hello world", " hello", "  two  ", "\n\nx", "naïve 東京 😀"),
    *("{bos}", "{bos}hello", "{bos} hello", "{bos}{bos}x", "a{bos}b", "{eos}hello", "hello{eos}", " {eos} \n y"),
)


@pytest.mark.parametrize("name", [*BUNDLED, "llama-spm"])
def test_a_raw_prompt_has_llama_cpps_ids(name: str) -> None:
    table = vocab(name)
    encode = partial(encode_in_pieces, encoder(name))
    theirs = Llama(str(path_of(name)), vocab_only=True, verbose=False)
    names = table.special_names
    bos, eos = (names.get(-1 if id_ is None else id_, "") for id_ in (table.bos, table.eos))
    assert eos
    for text in (one.format(bos=bos, eos=eos) for one in TEXTS):
        for add in (True, False):
            for parse in (True, False):
                ids = encode_text(text, table, encode, add_special=add, parse_special=parse)
                assert ids == theirs.tokenize(text.encode(), add_bos=add, special=parse), (text, add, parse)
