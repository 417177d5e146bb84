"""The bundled prompts, and the checks of the loader."""

import pytest

from uad.base.errors import ConfigError
from uad.tools.bench.workloads import bundled, category_names, load, load_all, read


def test_bundled_workloads():
    assert bundled() == ("chat", "code", "copy-edit", "edit", "long", "story")
    sizes = {name: len(load(name).prompts) for name in bundled()}
    assert sizes["chat"] >= 21
    assert min(sizes.values()) >= 4


def test_every_prompt_is_distinct_over_all_workloads():
    texts = [prompt.text for name in bundled() for prompt in load(name).prompts]
    assert len(set(texts)) == len(texts)


def test_kinds():
    assert all(not prompt.chat for prompt in load("code").prompts)
    assert all(prompt.chat for name in ("chat", "copy-edit", "story") for prompt in load(name).prompts)
    assert all(prompt.n_bytes > 2500 for prompt in load("long").prompts)
    assert max(prompt.n_bytes for prompt in load("chat").prompts) < 1000


def test_copy_edit_answers_are_in_the_prompt():
    for prompt in load("copy-edit").prompts:
        request, code = prompt.text.split("\n", 1)
        old = request.split()[3]
        assert code.count(old) >= 1
        assert code.startswith("```python\n")
        assert code.endswith("```")


def test_edit_ends_with_a_source_of_1200_lines():
    *short, long = load("edit").prompts
    assert all(prompt.n_bytes < 1500 for prompt in short)
    request, source = long.text.split("\n", 1)
    source = source.removeprefix("```python\n").removesuffix("\n```")
    assert source.count("\n") >= 1199
    assert source.count(request.split()[3]) > 60
    compile(source, "source", "exec")


def test_code_prompts_are_python_up_to_their_end():
    for prompt in load("code").prompts:
        assert prompt.text.endswith("\n")
        head = prompt.text.rstrip("\n").split("\n")
        assert any(line.startswith(("class ", "def ")) for line in head)


def test_head_keeps_order():
    chat = load("chat")
    assert chat.head(3).prompts == chat.prompts[:3]
    assert chat.head(1000) == chat


def test_users_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('about = "mine"\n[[prompt]]\nname = "one"\nraw = "été"\n')
    workload = load(str(path))
    assert (workload.name, workload.prompts[0].text, workload.prompts[0].chat, workload.prompts[0].n_bytes) == (
        "mine",
        "été",
        False,
        5,
    )


HEAD = 'about = "x"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("about = ", "not valid TOML"),
        (HEAD, r"no \[\[prompt\]\]"),
        (HEAD + "prompt = []", r"no \[\[prompt\]\]"),
        (HEAD + "prompt = [1]", r"expected a \[\[prompt\]\] table"),
        ('abuot = "x"\n', "did you mean 'about'"),
        ('[[prompt]]\nname = "a"\nraw = "x"', "`about`"),
        (HEAD + '[[prompt]]\nname = "a"\nrow = "x"', "did you mean 'raw'"),
        (HEAD + '[[prompt]]\nname = "a"', "either `chat` or `raw`"),
        (HEAD + '[[prompt]]\nname = "a"\nraw = "x"\nchat = "x"', "either `chat` or `raw`"),
        (HEAD + '[[prompt]]\nname = "a"\nraw = "  "', "`raw` must be text"),
        (HEAD + '[[prompt]]\nname = "a"\nraw = 3', "`raw` must be text"),
        (HEAD + '[[prompt]]\nraw = "x"', "`name` must be text"),
        (HEAD + '[[prompt]]\nname = "A b"\nraw = "x"', "lower-case"),
        (HEAD + '[[prompt]]\nname = "a"\nraw = "x"\n[[prompt]]\nname = "a"\nraw = "y"', "two prompts are named 'a'"),
        (
            HEAD + '[[prompt]]\nname = "a"\nraw = "x"\n[[prompt]]\nname = "b"\nraw = "x"',
            "'a' and 'b' are the same text",
        ),
    ],
)
def test_bad_files(tmp_path, text, words):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words) as caught:
        read(path)
    assert "bad.toml" in str(caught.value)


def test_unknown_workload_names_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'story'"):
        load("storry")
    for near in ("all", "categories"):
        with pytest.raises(ConfigError, match=rf"did you mean '{near}'.* all \(these\), .* categories \(these\), or"):
            load(f"{near}s")


def test_lists_of_workloads_and_groups():
    assert [one.name for one in load_all(["story, chat", "coding"])] == ["story", "chat", "coding"]
    assert tuple(one.name for one in load_all(["all"])) == bundled()
    assert tuple(one.name for one in load_all(["categories"])) == category_names()
    with pytest.raises(ConfigError, match="--workload: name each of"):
        load_all(["all,chat"])


def test_missing_and_undecodable_file(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load(str(tmp_path / "none.toml"))
    path = tmp_path / "latin.toml"
    path.write_bytes(b'about = "\xe9"')
    with pytest.raises(ConfigError, match="not UTF-8 text"):
        load(str(path))
