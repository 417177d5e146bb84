"""LangChain's ChatOllama."""

from __future__ import annotations

from checks import MAX_TOKENS, MODEL, PERSON, ROOT_URL, TOOL_PERSON, check, run
from langchain_model import check_model, whole
from langchain_ollama import ChatOllama

model = ChatOllama(model=MODEL, base_url=ROOT_URL, temperature=0, num_predict=MAX_TOKENS)
check_model(
    model,
    call_prompt=f"{TOOL_PERSON} Write a <tool_call>.",  # Ollama's API cannot say that a tool must be called
    json_prompt=f"{PERSON} Keys: name, age, city.",
)


@check("stream, with the numbers of tokens")
def streamed() -> None:
    answer = whole(model.stream("Say hello."))
    assert answer.content, "no text"
    assert answer.usage_metadata["output_tokens"] > 0, "no tokens"


@check("reasoning is asked for")
def reasoning() -> None:
    assert model.invoke("Say hello.", reasoning=True).content, "no text"


run("langchain-ollama")
