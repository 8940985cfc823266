"""A client that nobody here wrote, the package openai from pip, speaks to `tutti serve`: openai_client.py TUTTI MODEL

MODEL is the GGUF file of SmolLM2-135M-Instruct (scripts/fetch_models.sh). By hand: chat, streaming, stop, n, log-probabilities, seeds, errors. Prints what agreed; exits with 1 where something did not.
"""
import subprocess
import sys

import openai

tutti, model = sys.argv[1:3]
server = subprocess.Popen([tutti, "serve", model, "--port", "0"], stdout=subprocess.PIPE, text=True)
problems = []


def agree(what, is_so, seen=""):
    print(f"{'ok' if is_so else 'NOT SO'}: {what} {seen if not is_so else ''}")
    if not is_so:
        problems.append(what)


try:
    url = server.stdout.readline().split(" at ")[-1].strip()
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none")
    name = client.models.list().data[0].id
    question = [{"role": "user", "content": "What is the capital of France?"}]
    chat = client.chat.completions.create(model=name, messages=question, temperature=0, max_tokens=20, logprobs=True, top_logprobs=3)
    agree("an answer", chat.choices[0].message.content == "The capital of France is Paris.", chat.choices[0].message.content)
    agree("it ends by itself", chat.choices[0].finish_reason == "stop", chat.choices[0].finish_reason)
    content = chat.choices[0].logprobs.content
    agree("log-probabilities of each token", len(content) == chat.usage.completion_tokens == 7, len(content))
    agree("the likeliest is first", all(t.top_logprobs[0].logprob >= t.top_logprobs[1].logprob and t.token == t.top_logprobs[0].token for t in content))
    stream = client.chat.completions.create(model=name, messages=question, temperature=0, max_tokens=20, stream=True, stream_options={"include_usage": True})
    parts, usage = [], None
    for chunk in stream:
        parts += [choice.delta.content or "" for choice in chunk.choices]
        usage = chunk.usage or usage
    agree("the stream is the same text", "".join(parts) == chat.choices[0].message.content, parts)
    agree("the stream tells usage", usage is not None and usage.completion_tokens == 7, usage)
    several = client.completions.create(model=name, prompt="Once upon a time", n=3, max_tokens=12, seed=4, temperature=0.9)
    again = client.completions.create(model=name, prompt="Once upon a time", n=3, max_tokens=12, seed=4, temperature=0.9)
    texts = [choice.text for choice in several.choices]
    agree("three texts of one seed", len(set(texts)) == 3, texts)
    agree("the same texts again", texts == [choice.text for choice in again.choices])
    stopped = client.completions.create(model=name, prompt="The capital of France is", temperature=0, max_tokens=30, stop=["answer"])
    agree("a text before its stop", stopped.choices[0].text == " Paris.\n\nThe " and stopped.choices[0].finish_reason == "stop", stopped.choices[0].text)
    for what, call, kind in (
            ("an unknown model", lambda: client.completions.create(model="other", prompt="a"), openai.NotFoundError),
            ("a wrong setting", lambda: client.completions.create(model=name, prompt="a", temperature=-1), openai.BadRequestError),
            ("a prompt beyond the context", lambda: client.completions.create(model=name, prompt="word " * 9000), openai.BadRequestError)):
        try:
            call()
            agree(what, False, "was answered")
        except kind as error:
            agree(what, True)
            print(f"   {error.message}")
finally:
    server.terminate()
    agree("the server ends well", server.wait(60) == 0)
sys.exit(1 if problems else 0)
