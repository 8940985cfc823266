"""A client that nobody here wrote, the package openai from pip, speaks to `tutti serve`: openai_client.py TUTTI MODEL [ENCODER]

MODEL is the GGUF file of SmolLM2-135M-Instruct, ENCODER the folder of all-MiniLM-L6-v2 (scripts/fetch_models.sh). By hand: chat, streaming, stop, n, log-probabilities, seeds, errors, embeddings. Prints what agreed; exits with 1 where something did not.
"""
import base64
import contextlib
import json
import struct
import subprocess
import sys

import openai

tutti, model = sys.argv[1:3]
problems = []


def agree(what, is_so, seen=""):
    print(f"{'ok' if is_so else 'NOT SO'}: {what} {seen if not is_so else ''}")
    if not is_so:
        problems.append(what)


@contextlib.contextmanager
def client_of(served):
    server = subprocess.Popen([tutti, "serve", served, "--port", "0"], stdout=subprocess.PIPE, text=True)
    try:
        url = server.stdout.readline().split(" at ")[-1].strip()
        yield openai.OpenAI(base_url=f"{url}/v1", api_key="none")
    finally:
        server.terminate()
        agree("the server ends well", server.wait(60) == 0)


def refused(what, call, kind):
    try:
        call()
        agree(what, False, "was answered")
    except kind as error:
        agree(what, True)
        print(f"   {error.message}")


with client_of(model) as client:
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
    refused("an unknown model", lambda: client.completions.create(model="other", prompt="a"), openai.NotFoundError)
    refused("a wrong setting", lambda: client.completions.create(model=name, prompt="a", temperature=-1), openai.BadRequestError)
    refused("a prompt beyond the context", lambda: client.completions.create(model=name, prompt="word " * 9000), openai.BadRequestError)
    refused("embeddings of a model that writes", lambda: client.embeddings.create(model=name, input="a"), openai.BadRequestError)
if len(sys.argv) > 3:
    texts = ["The old river turns under the stone bridge.", "Ünïcödé 語 🙂", "word " * 600]
    told = subprocess.run([tutti, "embed", sys.argv[3], *texts], capture_output=True, text=True, check=True).stdout
    expected = [json.loads(line)["embedding"] for line in told.splitlines()]

    def bits(vectors):
        return [struct.pack(f"<{len(vector)}f", *vector) for vector in vectors]

    with client_of(sys.argv[3]) as client:
        name = client.models.list().data[0].id
        for form in ("float", "base64", None):
            answer = client.embeddings.create(model=name, input=texts, **({"encoding_format": form} if form else {}))
            vectors = [row.embedding for row in answer.data]
            if form == "base64":
                raw = [base64.b64decode(vector) for vector in vectors]
            else:
                raw = bits(vectors)
            agree(f"embeddings as {form or 'the package asks by itself'} have the bits of tutti embed", raw == bits(expected))
        agree("what was read is counted", answer.usage.prompt_tokens == answer.usage.total_tokens > 256, answer.usage)
        one = client.embeddings.create(model=name, input=texts[0]).data
        agree("one text alone is the same", len(one) == 1 and bits([one[0].embedding]) == bits(expected[:1]))
        refused("a chat with an encoder", lambda: client.chat.completions.create(model=name, messages=[{"role": "user", "content": "Hi"}]), openai.BadRequestError)
sys.exit(1 if problems else 0)
