"""Synthetic chat tasks: short questions with exact answers, drawn from a seeded generator. Knows no chat template and
no tokenizer.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass


def phrases(text: str) -> list[str]:
    """Phrases separated by bars."""
    return text.split("|")


def words(text: str) -> list[str]:
    """Words separated by white space."""
    return text.split()


SUBJECTS = phrases(
    "the cat|a small dog|the old sailor|our teacher|the quick brown fox|a tired engineer|the lazy dog|my neighbour|"
    "the young queen|a grey heron|the baker|a curious child|the night train|the river|a red kite"
)
VERBS = phrases(
    "jumped over|walked past|looked at|remembered|followed|painted|carried|repaired|waited for|sang "
    "to|forgot|crossed|built|"
    "measured|counted"
)
OBJECTS = phrases(
    "the stone bridge|a wooden boat|the lazy dog|the green door|seven apples|the market square|an empty bottle|"
    "the tall tower|a paper lantern|the long road|a bag of coins|the winter garden|the broken clock|a yellow tent|"
    "the last page"
)
ENDINGS = [
    "",
    *(
        f" {ending}"
        for ending in phrases(
            "in the morning|before dinner|without a word|on Tuesday|near the harbour|at dusk|twice|with great "
            "care|after the storm"
        )
    ),
]
NAMES = words(
    """
    alpha beta count total index value result name size width height price score level limit offset buffer parser reader
    writer node child parent head tail left right start stop step table column user item order cart token window image
    frame color shape point circle square matrix vector graph edge path file line word text page title author message
    client server request response event timer queue stack cache key record entry group member team player
    """
)
WORDS = words(
    """
    river stone lantern bridge harbour copper meadow winter signal garden island mirror thunder candle forest market
    silver window pencil ladder engine planet rocket button carpet castle bottle basket hammer orange cherry walnut
    pepper almond barley
    """
)
FOREIGN = words("café naïve über señor façade Ångström crème jalapeño smörgås piñata 東京 日本 привет мир αβγ 😀 🚀")
COLORS = words("red green blue yellow white black purple orange brown pink grey")
CITIES = words("Oslo Lima Cairo Kyoto Porto Quito Turin Dakar Perth Leeds Basel Nice Riga Sofia Hanoi")
DAYS = words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = words("January February March April May June July August September October November December")


@dataclass(frozen=True, slots=True)
class Turn:
    """One exchange of a conversation."""

    question: str
    answer: str


Task = Callable[[random.Random], Turn]


def capitalized(text: str) -> str:
    """`text` with a capital first letter and the rest as it is."""
    return text[0].upper() + text[1:]


def sentence(rng: random.Random) -> str:
    """One sentence of the kind that `story` tells."""
    return capitalized(f"{rng.choice(SUBJECTS)} {rng.choice(VERBS)} {rng.choice(OBJECTS)}{rng.choice(ENDINGS)}.")


def paragraph(rng: random.Random, fewest: int, most: int) -> str:
    """Some sentences in a row."""
    return " ".join(sentence(rng) for _ in range(rng.randint(fewest, most)))


def repeat(rng: random.Random) -> Turn:
    """Say a text again: what a draft finds easiest."""
    text = paragraph(rng, 1, 3)
    order = rng.choice(
        ["Repeat the following sentence, as is:", "Say this again, word for word:", "Copy this text exactly:"]
    )
    return Turn(f"{order}\n{text}", text)


def capitals(rng: random.Random) -> Turn:
    """Words in capital letters."""
    text = " ".join(rng.sample(WORDS, rng.randint(2, 5)))
    return Turn(f"Write these words in capital letters: {text}", text.upper())


def bullets(rng: random.Random) -> Turn:
    """A bulleted list."""
    words = rng.sample(WORDS, rng.randint(3, 7))
    return Turn(f"Make a bulleted list of: {', '.join(words)}.", "\n".join(f"- {word}" for word in words))


def numbers(rng: random.Random) -> Turn:
    """A numbered list."""
    words = rng.sample(WORDS, rng.randint(3, 7))
    return Turn(
        f"Make a numbered list of: {', '.join(words)}.", "\n".join(f"{i}. {word}" for i, word in enumerate(words, 1))
    )


def alphabet(rng: random.Random) -> Turn:
    """Words sorted."""
    words = rng.sample(WORDS, rng.randint(3, 6))
    return Turn(f"Sort these words alphabetically: {', '.join(words)}", ", ".join(sorted(words)))


def counting(rng: random.Random) -> Turn:
    """A row of numbers in steps."""
    first, n_steps, step = rng.randint(1, 40), rng.randint(4, 15), rng.choice([1, 1, 2, 5, 10])
    row = [first + i * step for i in range(n_steps + 1)]
    return Turn(f"Count from {row[0]} to {row[-1]} in steps of {step}.", ", ".join(map(str, row)))


def weekday(rng: random.Random) -> Turn:
    """The day after a day."""
    i = rng.randrange(7)
    question = rng.choice([f"What day comes after {DAYS[i]}?", f"Which day follows {DAYS[i]}?"])
    return Turn(question, f"The day after {DAYS[i]} is {DAYS[(i + 1) % 7]}.")


def months(rng: random.Random) -> Turn:
    """The months, numbered."""
    return Turn("List the months of the year.", "\n".join(f"{i}. {month}" for i, month in enumerate(MONTHS, 1)))


def addition(rng: random.Random) -> Turn:
    """A sum."""
    a, b = rng.randint(0, 50), rng.randint(0, 50)
    return Turn(f"What is {a} + {b}?", f"{a} + {b} = {a + b}")


def multiplication(rng: random.Random) -> Turn:
    """A multiplication table."""
    n = rng.randint(2, 12)
    return Turn(f"Write the multiplication table of {n}.", "\n".join(f"{n} x {i} = {n * i}" for i in range(1, 11)))


def as_json(rng: random.Random) -> Turn:
    """Facts as a JSON object."""
    facts = {
        key: rng.choice([rng.randint(0, 99), rng.choice(WORDS), True, False])
        for key in rng.sample(NAMES, rng.randint(2, 5))
    }
    told = "; ".join(
        f"{key} is {str(value).lower() if isinstance(value, bool) else value}" for key, value in facts.items()
    )
    return Turn(f"Write this as JSON: {told}.", json.dumps(facts, indent=2))


def python_class(rng: random.Random) -> Turn:
    """A small Python class."""
    name, *fields = rng.sample(NAMES, rng.randint(3, 5))
    title = capitalized(name)
    lines = [
        f"class {title}:",
        f'    """A {name} with {", ".join(fields[:-1])} and {fields[-1]}."""',
        "",
        f"    def __init__(self, {', '.join(fields)}):",
        *(f"        self.{field} = {field}" for field in fields),
        "",
        "    def __repr__(self):",
        f'        return f"{title}({", ".join(f"{{self.{field}!r}}" for field in fields)})"',
    ]
    return Turn(f"Write a Python class named {title} with the fields {', '.join(fields)}.", fenced(lines))


def python_function(rng: random.Random) -> Turn:
    """A small Python function with a docstring."""
    a, b = rng.sample(NAMES, 2)
    wish, head, doc, body = rng.choice(
        [
            (f"adds {a} and {b}", f"add_{a}_{b}({a}, {b})", f"Return the sum of {a} and {b}.", [f"return {a} + {b}"]),
            (
                f"returns the largest {a} in a list",
                f"largest_{a}({a}s)",
                f"Return the largest {a} in the list {a}s.",
                [f"best = {a}s[0]", f"for {a} in {a}s:", f"    if {a} > best:", f"        best = {a}", "return best"],
            ),
            (
                f"counts how often a {a} occurs in a list",
                f"count_{a}({a}s, {a})",
                f"Count how often {a} occurs in the list {a}s.",
                ["total = 0", f"for item in {a}s:", f"    if item == {a}:", "        total += 1", "return total"],
            ),
            (
                f"reads the {a} from a file",
                f"read_{a}(path)",
                f"Read the {a} from the file at path.",
                ["with open(path) as f:", "    return f.read()"],
            ),
            (
                f"reverses a list of {a}s",
                f"reverse_{a}s({a}s)",
                f"Return the {a}s in reverse order.",
                [f"return {a}s[::-1]"],
            ),
            (
                f"checks that a {a} is between two limits",
                f"check_{a}({a}, low, high)",
                f"Return True if {a} is between low and high.",
                [f"return low <= {a} <= high"],
            ),
        ]
    )
    return Turn(
        f"Write a Python function that {wish}.",
        fenced([f"def {head}:", *(f"    {line}" for line in (f'"""{doc}"""', *body))]),
    )


def fenced(lines: list[str]) -> str:
    """Lines of Python in a Markdown fence."""
    return "\n".join(["```python", *lines, "```"])


def rename_function(rng: random.Random) -> Turn:
    """Code again with another function name: long runs that a draft can copy."""
    code = python_function(rng).answer
    old, new = code.split("def ")[1].split("(")[0], "_".join(rng.sample(NAMES, 2))
    return Turn(f"Rename the function {old} to {new} in this code:\n{code}", code.replace(old, new))


def rename_field(rng: random.Random) -> Turn:
    """A class again with another field name."""
    code = python_class(rng).answer
    fields = code.split("__init__(self, ")[1].split(")")[0].split(", ")
    old, new = rng.choice(fields), rng.choice([name for name in NAMES if name not in fields])
    return Turn(f"Rename the field {old} to {new} in this class:\n{code}", re.sub(rf"\b{old}\b", new, code))


def story(rng: random.Random) -> Turn:
    """A short story."""
    hero, thing, day, city = rng.choice(SUBJECTS), rng.choice(OBJECTS), rng.choice(DAYS), rng.choice(CITIES)
    text = (
        f"On {day}, {hero} {rng.choice(VERBS)} {thing} in {city}. {paragraph(rng, 2, 4)} In the end, {hero} went "
        f"home to {city}."
    )
    return Turn(f"Tell a short story about {hero} in {city}.", text)


def where(rng: random.Random) -> Turn:
    """A fact to find in a text."""
    hero, city = rng.choice(SUBJECTS), rng.choice(CITIES)
    fact = f"{capitalized(hero)} lives in {city}."
    return Turn(f"{fact} {sentence(rng)} {sentence(rng)}\nWhere does {hero} live?", fact)


def color(rng: random.Random) -> Turn:
    """One of several facts to find."""
    facts = [(word, rng.choice(COLORS)) for word in rng.sample(WORDS, rng.randint(3, 5))]
    word, wanted = rng.choice(facts)
    told = " ".join(f"The {thing} is {its}." for thing, its in facts)
    return Turn(f"{told} What color is the {word}?", f"The {word} is {wanted}.")


def markdown_table(rng: random.Random) -> Turn:
    """CSV as a Markdown table."""
    head = rng.sample(NAMES, 3)
    rows = [[rng.choice(WORDS), str(rng.randint(1, 99)), rng.choice(COLORS)] for _ in range(rng.randint(2, 5))]
    csv = "\n".join(",".join(row) for row in [head, *rows])
    return Turn(
        f"Turn this CSV into a Markdown table:\n{csv}",
        "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * 3, *rows]),
    )


def hello(rng: random.Random) -> Turn:
    """Small talk."""
    return rng.choice(
        [
            Turn("Hello!", "Hello! How can I help you today?"),
            Turn(
                "Who are you?",
                "I am a very small language model. I was trained to show how speculative decoding works.",
            ),
            Turn("Thank you!", "You are welcome!"),
            Turn(
                "What can you do?",
                "I can repeat text, make lists, sort words, count, write small Python functions and classes, and "
                "turn facts into JSON.",
            ),
        ]
    )


def foreign(rng: random.Random) -> Turn:
    """Words of several scripts, so that characters of several bytes occur."""
    text = " ".join(rng.sample(FOREIGN, 4))
    return Turn(f"Repeat the following words, as is: {text}", text)


TASKS: tuple[tuple[Task, float], ...] = (
    (repeat, 5),
    (capitals, 1),
    (bullets, 2),
    (numbers, 2),
    (alphabet, 1),
    (counting, 2),
    (weekday, 1),
    (months, 0.4),
    (addition, 1),
    (multiplication, 1),
    (as_json, 3),
    (python_class, 4),
    (python_function, 5),
    (rename_function, 4),
    (rename_field, 3),
    (story, 4),
    (where, 2),
    (color, 2),
    (markdown_table, 2),
    (hello, 0.6),
    (foreign, 0.6),
)


def conversation(rng: random.Random) -> list[Turn]:
    """One to three turns, tasks drawn by weight."""
    tasks, weights = zip(*TASKS, strict=True)
    return [task(rng) for task in rng.choices(tasks, weights, k=rng.choice([1, 1, 1, 2, 3]))]
