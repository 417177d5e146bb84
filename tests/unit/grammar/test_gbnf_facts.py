"""Texts that llama.cpp's sampler takes or refuses, by grammars as people write them for it: facts, tried on ours."""

from __future__ import annotations

import pytest
from kit.grammar_kit import END, allowed, fed, fits, grammar

SUMS = r"""
root ::= (sum "=" gap value "\n")+
sum ::= value ([-+*/] value)*
value ::= name | number | "(" gap sum ")" gap
name ::= [a-z] [a-z0-9_]* gap
number ::= [0-9]+ gap
gap ::= [ \t\n]*
"""
MOVES = r"""
root ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")+
move ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])? [+#]? | [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8] [+#]? | "O-O" "-O"?
"""
PROGRAM = r"""
root ::= function*
function ::= type word "(" (type word)? ")" "{" line* "}"
type ::= "int" gap | "char" gap
word ::= [a-zA-Z_] [a-zA-Z_0-9]*
line ::= type word gap "=" gap sum ";" | word gap "=" gap sum ";" | "return" gap sum ";" | test | "//" [^\n]* "\n"
test ::= "if" "(" sum ")" "{" line* "}"
sum ::= item (("+" | "-") item)*
item ::= word | [0-9]+ | "-" item | word "(" sum? ")" | "(" gap sum gap ")"
gap ::= [ \t\n]+
"""
LIST = 'root ::= item+\nitem ::= "- " [^\\r\\n\\x0b\\u0085\\u2028]+ "\\n"'
TERMS = r"""
root ::= sum
sum ::= part gap (("+"|"-") gap part)*
part ::= one gap (("*"|"/") gap one)*
one ::= [0-9]+ | word | "(" sum ")" | word gap "(" (sum ("," gap sum)*)? ")"
word ::= [a-zA-Z_] [a-zA-Z0-9_]*
gap ::= [ \t\n\r]?
"""
CALLS = r"""
root ::= "[" list "]"
list ::= (pair ("," gap pair)*)?
pair ::= quoted gap ":" gap any
any ::= quoted | [0-9]+ | "[" gap list gap "]"
quoted ::= "\"" ([^"\\] | "\\" ["\\n])* "\""
gap ::= | " " | "\n" [ \t]{0,20}
"""


@pytest.mark.parametrize(
    ("text", "answers", "others"),
    [
        (SUMS, ["1+2=3\n", "a1 *(b -2)= \n c\n", "1=1\n2=2\n", "1=1\n\n\n"], ["1+2=3", "=1\n", "1+=2\n", "1 2=3\n"]),
        (MOVES, ["1. e4 e5\n2. Nf3 Nc6\n", "1. O-O-O O-O\n10. exd5 Qh4+\n"], ["1. e4 e5\n", "2. e4 e5\n3. a1 a1\n"]),
        (
            PROGRAM,
            ["", "int f(){int a = 1;return a;}", "int f(char c){int int = 2;intx = 3;}", "char g(){// a\nif(-1){}}"],
            ["int f(", "intf(){}", "int f(){int a=1;}"],
        ),
        (LIST, ["- a\n", "- a b\n- c\n", "- - \n"], ["- a", "a\n", "-a\n", "- \n"]),
        (
            TERMS,
            ["42", "f(g(x),h(y,z))", "(a + b) * (c - d)", "x1 + y2"],
            ["+", "x + + y", "func(,)", "(a + b", "42 +"],
        ),
        (CALLS, ['["a": 1]', '["a":["b": "c\\"]"],\n  "d":\n2]', "[]"], ['["a"]', '["a": 1,]', "[1]"]),
        ('root ::= ... "abc" ...', ["abcabcabc", "aaaabcccc", "🔵🟠✅abc❌🟠🔵"], ["aaabcccc", "🔵🟠abc🟠🔵"]),
        (
            "root ::= con+ vow* con? (vow con)*\nvow ::= [aeiouy]\ncon ::= [bcdfghjklmnpqrstvwxyz]",
            ["yes", "no", "noyes", "crwth", "four", "bryyyy"],
            ["yess", "yesno", "forty", "catyyy"],
        ),
        ('root ::= ("0x" [A-F0-9]{2} " "?){3,5}', ["0xFF 0x12 0xAB", "0xFF0x120xAB"], ["", "0xFF 0x12", "0xF 0xA 0xB"]),
        ("root ::= ( [x]* )*", ["", "x", "xx"], ["y", "xy"]),
        (
            'root ::= name root "end" | "."\nname ::= [a-z]+',
            [".", "a.end", "end.end", "endend.end"],
            ["end", "a.", "aend"],
        ),
        ('root ::= x "b"\nx ::= "a" x | "ab" x | "b"?', ["b", "bb", "ab", "aab", "abab", "abbb"], ["", "ba", "aabba"]),
        ('root ::= "é" root | "è" "é" | "ê"*', ["", "ê", "éêê", "éèé", "éé"], ["è", "êé"]),
    ],
)
def test_a_grammar_takes_what_llama_cpp_takes(text: str, answers: list[str], others: list[str]) -> None:
    assert [answer for answer in answers if not fits(grammar(text), answer)] == []
    assert [other for other in others if fits(grammar(text), other)] == []


def test_an_answer_may_end_where_the_grammar_may() -> None:
    """White space that may follow takes the line's end in llama.cpp too, and the line ends nevertheless."""
    assert END in allowed(fed(grammar(SUMS), "1+2=3\n"))
    assert END not in allowed(fed(grammar(SUMS), "1+2=3"))
    assert END in allowed(fed(grammar(SUMS), "1+2=3\n4=4\n\n"))
