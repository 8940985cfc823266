"""The page of `tutti serve` in headless Chromium: chat_page.py TUTTI [MODEL] [--screenshot FILE]

MODEL is by default SmolLM2-135M-Instruct where scripts/fetch_models.sh puts it.

Loads the page, types a message, watches the answer grow, compares it with the answer of the interface, ends a second answer with the button, and says what agreed. Exits with 1 where something did
not, and with 77 where there is no Chromium or no such model (Debian: apt-get install chromium). Chromium is driven through its DevTools protocol over a pipe, so that nothing else is needed.
"""
import argparse
import base64
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

QUESTION = "What is the capital of France?"
LEFT_OUT = 77


class Browser:
    """A page of a headless Chromium, as the DevTools protocol gives it."""

    def __init__(self, program, folder):
        to_read, self.to_write = os.pipe()
        self.from_read, from_write = os.pipe()

        def place():
            # Chromium reads descriptor 3 and writes 4. First both go where neither is overwritten.
            given = [os.dup(to_read), os.dup(from_write)]
            high = [os.dup2(fd, 50 + i) for i, fd in enumerate(given)]
            for fd, place in zip(high, (3, 4)):
                os.dup2(fd, place)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--force-color-profile=srgb", "--hide-scrollbars", f"--user-data-dir={folder}",
             "--remote-debugging-pipe", "--window-size=760,560", "about:blank"], close_fds=False, preexec_fn=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(from_write)
        self.pending, self.last, self.session, self.faults = b"", 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def read(self):
        while b"\0" not in self.pending:
            more = os.read(self.from_read, 1 << 20)
            if not more:
                raise RuntimeError("Chromium has ended")
            self.pending += more
        message, self.pending = self.pending.split(b"\0", 1)
        message = json.loads(message)
        if message.get("method") == "Runtime.exceptionThrown" or message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
            self.faults.append(message["params"])
        return message

    def call(self, method, **parameters):
        self.last += 1
        request = {"id": self.last, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.to_write, json.dumps(request).encode() + b"\0")
        while True:
            message = self.read()
            if message.get("id") == self.last:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]

    def open(self, url):
        self.call("Page.navigate", url=url)
        while self.value("document.readyState") != "complete" or not self.value("location.href").startswith(url):
            time.sleep(0.02)

    def value(self, expression):
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def write(self, text):
        self.value("document.getElementById('text').focus()")
        self.call("Input.insertText", text=text)
        for kind in ("rawKeyDown", "char", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="" if kind == "rawKeyDown" else "\r")

    def screenshot(self):
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def end(self):
        self.process.kill()
        self.process.wait()


def interface_answer(url, temperature, most):
    body = {"messages": [{"role": "user", "content": QUESTION}], "temperature": temperature, "max_tokens": most}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=300))["choices"][0]["message"]["content"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tutti")
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    parser.add_argument("model", nargs="?", default=cache / "tutti/models/smollm2-135m-instruct/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--screenshot")
    arguments = parser.parse_args()
    tutti, model, picture = arguments.tutti, str(arguments.model), arguments.screenshot
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        print("left out: there is no chromium; apt-get install chromium")
        return LEFT_OUT
    if not pathlib.Path(model).exists():
        print(f"left out: {model} is missing; scripts/fetch_models.sh fetches it")
        return LEFT_OUT
    server = subprocess.Popen([tutti, "serve", model, "--port", "0"], stdout=subprocess.PIPE, text=True)
    problems = []

    def agree(what, is_so, seen=""):
        print(f"{'ok' if is_so else 'NOT SO'}: {what} {seen if not is_so else ''}")
        if not is_so:
            problems.append(what)

    folder = tempfile.TemporaryDirectory()
    browser = None
    try:
        url = server.stdout.readline().split(" at ")[-1].strip()
        browser = Browser(program, folder.name)
        browser.open(url)
        agree("the page has its title", browser.value("document.title") == "Tutti")
        browser.value("document.getElementById('temperature').value = 0")
        browser.write(QUESTION)
        state = "[[...document.querySelectorAll('.assistant')].at(-1)?.textContent ?? '', document.getElementById('send').disabled]"
        grown, end = [], time.monotonic() + 120
        while time.monotonic() < end:
            text, runs = browser.value(state)
            if text and text not in grown:
                grown.append(text)
            if grown and not runs:
                break
        answer = grown[-1] if grown else ""
        agree("the message is shown", browser.value("document.querySelector('.user').textContent") == QUESTION)
        agree("the answer grows while it comes", len(grown) > 1 and all(b.startswith(a) for a, b in zip(grown, grown[1:])), grown)
        expected = interface_answer(url, 0, 512)
        agree("it is the answer of the interface", answer == expected, (answer, expected))
        print(f"   {answer}")
        if picture:
            pathlib.Path(picture).write_bytes(browser.screenshot())
        browser.write("Tell me a long story about the sea.")
        while not browser.value(state)[0] or browser.value("document.querySelectorAll('.assistant').length") < 2:
            time.sleep(0.02)
        browser.value("document.getElementById('stop').click()")
        end = time.monotonic() + 20
        running = None
        while running != "0" and time.monotonic() < end:
            metrics = urllib.request.urlopen(f"{url}/metrics").read().decode()
            running = metrics.split("\ntutti_requests_running ")[1].split("\n")[0]
        agree("the button ends the request", running == "0", running)
        agree("the form is free again", browser.value(state)[1] is False)
        agree("no error is shown", browser.value("document.querySelectorAll('.error').length") == 0)
        agree("nothing failed in the page", not browser.faults, browser.faults)
    finally:
        if browser:
            browser.end()
        server.terminate()
        agree("the server ends well", server.wait(60) == 0)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
