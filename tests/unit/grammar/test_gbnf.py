"""llama.cpp's grammar notation: what it means, and where its errors are."""

from __future__ import annotations

import pytest
from kit.grammar_kit import fits, grammar

from uad.base.errors import InvalidRequestError
from uad.text.grammar.gbnf import to_lark

JSON = r"""
# any JSON object
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""


@pytest.mark.parametrize(
    ("text", "answers", "others"),
    [
        (JSON, ['{"a": [1, 2.5e3 ,{"b":"x\\né"}] , "c":null}', "{}", '{ "a":true}'], ["[]", '{"a"}', "{'a':1}"]),
        ('root ::= [a-z]+ "abc"', ["xyzabc", "abcabc"], ["abc1", "xyz"]),
        ('root ::= "a"{2} "b"{1,} "c"{0,2} "d"?', ["aab", "aabbccd"], ["ab", "aabccc"]),
        ('root ::= "a"{,2}', ["", "aa"], ["aaa"]),
        ('root ::= (("a"{3}){3}){3}', ["a" * 27], ["a" * 26, "a" * 28]),
        ('root ::= "yes" | "no" |', ["yes", "no", ""], ["maybe"]),
        (r'root ::= "\u0041\x42\U00000043" [\u00e0-\u00ff]', ["ABCé"], ["ABCe", "é"]),
        (r'root ::= [^a-c\]\-] . "\\" "\t"', ["x\n\\\t"], ["]x\\\t"]),
        ("root ::= [a-] [-a]", ["-a", "a-"], ["bb"]),
        ('root ::= root "a" | "b"', ["b", "baa"], ["ab"]),
        ('root ::= "(" root ")" | x-y\nx-y ::= [0-9]+', ["((12))", "3"], ["(12"]),
        ('root ::= a\na ::= "x" a |', ["", "xx"], ["y"]),
        ('root ::= "a/b" [/]', ["a/b/"], ["ab"]),
        ('root ::= [b-é] | ([ab] | "é" | [b-é])', ["a", "b", "é", "c"], ["ê", "aa", ""]),
        ('root ::= "(" root ")" | ([b-é] | ([ab] | "é" | [b-é]))+', ["aé", "(ba)"], ["(ê)"]),
        ('root ::= ([b-é] | (x | "é" | "éa" | [b-é]))*\nx ::= [^b] | ([^é] | "b")', ["éa日", "b", ""], []),
    ],
)
def test_meaning(text: str, answers: list[str], others: list[str]) -> None:
    for answer in answers:
        assert fits(grammar(text), answer), answer
    for other in others:
        assert not fits(grammar(text), other), other


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no rule named root"),
        ('x ::= "a"', "no rule named root"),
        ('root := "a"', "expected '::=' at line 1, column 6"),
        ('root ::= "a', "does not end at line 1, column 12"),
        ('root ::= "a\n"', "does not end at line 1, column 12"),
        ('root ::= "\\q"', "unknown escape at line 1, column 11"),
        ('root ::= "\\ud800"', "no character has this number"),
        ("root ::= [a", "does not end"),
        ("root ::= []", "an empty class of characters"),
        ("root ::= [z-a]", "ends before it begins"),
        ('root ::= "a"{3,1}', "ends before it begins"),
        ('root ::= "a"{}', "expected a repetition"),
        ('root ::= "a"{99999999}', "more than 65536 repetitions"),
        ('root ::= "a" )', "expected the end of the rule at line 1, column 14, found ')'"),
        ('root ::= ("a"', "expected ')'"),
        ('root ::= "b"\n\nx ::= y', "no rule is named 'y' at line 3, column 7"),
        ("root ::= <think>", "single tokens are not supported"),
        ("root ::= " + "(" * 100, "more than 64 brackets"),
        ("#" * 300_000, "more than 262144 characters"),
    ],
)
def test_errors_name_the_place(text: str, words: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        to_lark(text)
    assert words in str(caught.value)
    assert str(caught.value).startswith("failed to parse grammar: ")
