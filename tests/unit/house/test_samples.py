"""The bundled models are what samples/README.md says, and the training scripts make the text they were made of."""

import itertools
import random
import subprocess
import sys
from pathlib import Path

import gguf
import jinja2
import pytest

SAMPLES = Path(__file__).parents[3] / "samples"
TRAIN = SAMPLES / "train"
NAMES = ("target-chatml", "draft-zephyr", "draft-gemma")


@pytest.fixture
def scripts(monkeypatch):
    """The modules of samples/train that need no torch, forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(TRAIN)
    import corpus
    import recipes
    import tasks

    yield {"corpus": corpus, "recipes": recipes, "tasks": tasks}
    for name in set(sys.modules) - before:
        if name in ("corpus", "recipes", "tasks"):
            del sys.modules[name]


@pytest.fixture(scope="module")
def readers():
    return {name: gguf.GGUFReader(SAMPLES / f"{name}.gguf") for name in NAMES}


def _value(reader, key):
    return reader.fields[key].contents()


@pytest.mark.parametrize("name", NAMES)
def test_the_readme_tells_the_truth(readers, name):
    reader = readers[name]
    row = next(line for line in (SAMPLES / "README.md").read_text().splitlines() if line.startswith(f"| `{name}.gguf`"))
    params = sum(int(tensor.n_elements) for tensor in reader.tensors)
    sizes = [_value(reader, f"llama.{key}") for key in ("embedding_length", "block_count", "feed_forward_length")]
    heads = [_value(reader, f"llama.attention.{key}") for key in ("head_count", "head_count_kv")]
    assert f"| {params:,} |" in row
    assert f"| {(SAMPLES / f'{name}.gguf').stat().st_size / 1e6:.1f} MB |" in row
    assert "| {} × {}, {}, {} ({}) |".format(*sizes, *heads) in row
    assert f"{len(_value(reader, 'tokenizer.ggml.tokens')):,} tokens" in row
    eos = _value(reader, "tokenizer.ggml.tokens")[_value(reader, "tokenizer.ggml.eos_token_id")]
    assert row.endswith(f"`{eos}` |".replace("<|", "<\\|").replace("|>", "\\|>"))
    assert _value(reader, "llama.context_length") == 32768


@pytest.mark.parametrize("path", sorted((SAMPLES / "heads").iterdir()), ids=lambda path: path.stem)
def test_heads_are_those_of_the_target(readers, path):
    reader, target = gguf.GGUFReader(path), readers["target-chatml"]
    params, layers = sum(int(tensor.n_elements) for tensor in reader.tensors), ", ".join(map(str, _layers(reader)))
    rows = [
        line for line in (SAMPLES / "README.md").read_text().splitlines() if line.startswith(f"| `heads/{path.name}`")
    ]
    assert len(rows) == 1
    assert f"| {path.stat().st_size / 1e6:.1f} MB | {params:,} |" in rows[0]
    assert rows[0].endswith(f"| {layers} |")
    assert path.stat().st_size < 2e6
    for key in ("tokens", "merges", "pre", "eos_token_id"):
        assert _value(reader, f"tokenizer.ggml.{key}") == _value(target, f"tokenizer.ggml.{key}")
    assert _value(reader, "tokenizer.chat_template") == _value(target, "tokenizer.chat_template")


def _layers(reader):
    return _value(reader, f"{_value(reader, 'general.architecture')}.target_layers")


@pytest.mark.parametrize("name", NAMES)
def test_recipes_are_those_of_the_files(readers, scripts, name):
    reader = readers[name]
    recipe = next(recipe for recipe in scripts["recipes"].RECIPES if recipe.name == name)
    tokens = _value(reader, "tokenizer.ggml.tokens")
    assert _value(reader, "tokenizer.chat_template") == recipe.template
    assert _value(reader, "tokenizer.ggml.pre") == (recipe.pre or "default")
    assert len(tokens) == recipe.n_vocab
    assert set(recipe.specials) < set(tokens)
    assert tokens[_value(reader, "tokenizer.ggml.eos_token_id")] == recipe.eos
    assert _value(reader, "tokenizer.ggml.add_bos_token") is (recipe.bos is not None)
    geometry = (recipe.width, recipe.layers, recipe.ff, recipe.heads, recipe.heads_kv)
    keys = ("embedding_length", "block_count", "feed_forward_length", "attention.head_count", "attention.head_count_kv")
    assert geometry == tuple(_value(reader, f"llama.{key}") for key in keys)


def test_tasks_answer_exactly(scripts):
    tasks = scripts["tasks"]
    rng = random.Random(0)
    assert tasks.repeat(rng).answer in tasks.repeat(random.Random(0)).question
    for _ in range(50):
        for task in (tasks.python_class, tasks.python_function, tasks.rename_field, tasks.rename_function):
            code = task(rng).answer
            assert code.startswith("```python\n")
            assert code.endswith("\n```")
            compile(code.removeprefix("```python\n").removesuffix("```"), "answer", "exec")
        row = [int(number) for number in tasks.counting(rng).answer.split(", ")]
        assert len({b - a for a, b in itertools.pairwise(row)}) == 1
        addition = tasks.addition(rng).answer
        left, right = addition.split(" = ")
        assert sum(map(int, left.split(" + "))) == int(right)
        turn = tasks.color(rng)
        assert turn.answer in turn.question
        words = tasks.alphabet(rng).answer.split(", ")
        assert words == sorted(words)


def test_conversations_are_reproducible_and_varied(scripts):
    conversation = scripts["tasks"].conversation
    first, second = ([conversation(rng) for _ in range(300)] for rng in (random.Random(1), random.Random(1)))
    assert first == second
    assert {len(turns) for turns in first} == {1, 2, 3}
    assert len({turns[0].question for turns in first}) > 250


def test_every_task_can_be_drawn(scripts):
    rng = random.Random(2)
    for task, weight in scripts["tasks"].TASKS:
        turn = task(rng)
        assert weight > 0
        assert turn.question.strip()
        assert turn.answer.strip()


@pytest.mark.parametrize("name", NAMES)
def test_chats_are_what_the_template_renders(scripts, name):
    recipe = next(recipe for recipe in scripts["recipes"].RECIPES if recipe.name == name)
    texts = list(scripts["corpus"].chats(recipe.template, 20_000, random.Random(3)))
    assert 20_000 <= sum(map(len, texts)) < 30_000
    for text in texts:
        assert text.rstrip("\n").endswith(recipe.eos)
    turn = scripts["tasks"].Turn("Q", "A")
    messages = scripts["corpus"].messages([turn], "S")
    text = (
        jinja2.Environment(keep_trailing_newline=True)
        .from_string(recipe.template)
        .render(messages=messages, bos_token="")
    )
    assert (
        text
        == {
            "target-chatml": "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n"
            "<|im_start|>assistant\nA<|im_end|>\n",
            "draft-zephyr": "<|system|>\nS<|endoftext|>\n<|user|>\nQ<|endoftext|>\n<|assistant|>\nA<|endoftext|>\n",
            "draft-gemma": "<start_of_turn>user\nS\n\nQ<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n",
        }[name]
    )


def test_sources_are_cut_and_chosen(scripts, tmp_path):
    for path, text in {
        "a.py": "x = 1\n" * 2000,
        "small.py": "x = 1\n",
        "tests/b.py": "y = 1\n" * 2000,
        "unicode_data/c.py": "z = 1\n" * 2000,
        "note.txt": "n" * 5000,
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "latin.py").write_bytes(b"# \xe9\n" * 500)
    assert scripts["corpus"].source_pieces(tmp_path) == [("x = 1\n" * 2000)[:6000], ("x = 1\n" * 2000)[6000:]]


def test_a_useless_corpus_is_named(scripts, tmp_path):
    corpus = scripts["corpus"]
    for root, text in ((tmp_path / "none", "does not exist"), (tmp_path, "holds no usable Python sources")):
        with pytest.raises(corpus.CorpusError, match=text) as caught:
            corpus.documents("{{ messages }}", [root], 10)
        assert str(root) in str(caught.value)


def _train(*args, hide=()):
    """Runs train.py with some packages made unfindable."""
    code = (
        "import sys, importlib.util, runpy; find = importlib.util.find_spec; hidden = sys.argv.pop(1).split(',');"
        "importlib.util.find_spec = lambda name, *rest: None if name in hidden else find(name, *rest);"
        "sys.argv = sys.argv[1:]; sys.path.insert(0, sys.argv[0].rsplit('/', 1)[0]); runpy.run_path(sys.argv[0], "
        "run_name='__main__')"
    )
    call = [sys.executable, "-B", "-c", code, ",".join(hide), str(TRAIN / "train.py"), *map(str, args)]
    return subprocess.run(call, capture_output=True, text=True, timeout=240, check=False)


def test_missing_packages_are_one_line(tmp_path):
    run = _train("draft-zephyr", tmp_path / "out.gguf", hide=("torch", "sentencepiece"))
    assert run.returncode == 1
    assert run.stderr == "train.py: training needs sentencepiece, torch: pip install '.[train]'\n"


def test_a_bad_call_is_refused(tmp_path):
    assert "cannot write" in _train("draft-zephyr", tmp_path / "no" / "out.gguf").stderr
    assert "--minutes must be positive" in _train("draft-zephyr", tmp_path / "out.gguf", "--minutes", "0").stderr
    assert "invalid choice" in _train("draft-nothing", tmp_path / "out.gguf").stderr


@pytest.mark.slow
def test_a_trained_model_loads_and_tokenizes_the_same(tmp_path, scripts):
    """One step of training, then llama.cpp on the result against the vocabulary that was learnt."""
    pytest.importorskip("torch")
    pytest.importorskip("sentencepiece")
    import llama_cpp

    run = subprocess.run(
        [
            sys.executable,
            "-B",
            TRAIN / "train.py",
            "draft-gemma",
            tmp_path / "out.gguf",
            "--minutes",
            "0.05",
            "--chat-mb",
            "1",
            "--batch",
            "2",
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    model = llama_cpp.Llama(str(tmp_path / "out.gguf"), vocab_only=True, verbose=False)
    text = "Hello <start_of_turn>\tcafé 東京 😀\n\n    return 1234\n".encode()
    ids = model.tokenize(text, add_bos=True, special=True)
    assert ids[0] == model.token_bos()
    assert model.detokenize(ids, special=True) == b"<s>" + text
