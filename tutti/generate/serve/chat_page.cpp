#include "tutti/generate/serve/chat_page.h"

namespace tutti::generate::serve {

const std::string_view kChatPagePolicy =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; frame-ancestors "
    "'none'; "
    "base-uri 'none'; form-action 'none'";

// Texts are put in by textContent, never as HTML.
const std::string_view kChatPage = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Tutti</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 0 auto; padding: 1rem; color: #222; background: #fff }
#chat div { white-space: pre-wrap; margin: .6rem 0; padding: .5rem .8rem; border-radius: .5rem; overflow-wrap: anywhere }
.user { background: #e8eef7 } .assistant { background: #f4f4f2 } .error { background: #fbe6e6 }
form { display: flex; gap: .5rem } textarea { flex: 1; font: inherit; min-height: 3rem }
details label { display: block; margin: .3rem 0 } input { font: inherit }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #1b1b1b } .user { background: #26324a } .assistant { background: #2a2a2a } .error { background: #4a2626 }
  textarea, input { color: inherit; background: #111 }
}
</style></head><body>
<h1>Tutti</h1>
<details><summary>Settings</summary>
<label>System <input id="system" size="50"></label>
<label>Temperature <input id="temperature" type="number" min="0" max="5" step="0.1" value="0.7"></label>
<label>Most tokens <input id="tokens" type="number" min="1" value="512"></label>
<label>API key <input id="key" type="password" autocomplete="off"></label>
</details>
<div id="chat" aria-live="polite"></div>
<form id="form"><textarea id="text" placeholder="Write a message"></textarea>
<button id="send">Send</button><button id="stop" type="button" disabled>Stop</button><button id="clear" type="button">New</button></form>
<script>
const at = id => document.getElementById(id);
let messages = [], running = null;
function show(role, text) {
  const box = document.createElement('div');
  box.className = role;
  box.textContent = text;
  at('chat').append(box);
  box.scrollIntoView();
  return box;
}
async function say(text) {
  messages.push({role: 'user', content: text});
  show('user', text);
  const box = show('assistant', '');
  running = new AbortController();
  at('send').disabled = true;
  at('stop').disabled = false;
  const system = at('system').value;
  const headers = {'Content-Type': 'application/json'};
  if (at('key').value) headers.Authorization = 'Bearer ' + at('key').value;
  let answer = '';
  try {
    const reply = await fetch('/v1/chat/completions', {method: 'POST', headers, signal: running.signal, body: JSON.stringify({
      messages: system ? [{role: 'system', content: system}, ...messages] : messages, stream: true,
      temperature: Number(at('temperature').value), max_tokens: Number(at('tokens').value)})});
    if (!reply.ok) throw new Error((await reply.json()).error.message);
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const {value, done} = await reader.read();
      if (done) break;
      const events = (rest + value).split('\n\n');
      rest = events.pop();
      for (const event of events) {
        const data = event.replace(/^data: /, '');
        if (data === '[DONE]') continue;
        const json = JSON.parse(data);
        if (json.error) throw new Error(json.error.message);
        for (const choice of json.choices) answer += choice.delta.content || '';
        box.textContent = answer;
      }
      box.scrollIntoView({block: 'end'});
    }
  } catch (error) {
    if (error.name !== 'AbortError') show('error', error.message);
  }
  if (answer) messages.push({role: 'assistant', content: answer});
  else { box.remove(); messages.pop(); }
  at('send').disabled = false;
  at('stop').disabled = true;
}
at('form').onsubmit = event => {
  event.preventDefault();
  const text = at('text').value;
  if (!text.trim() || at('send').disabled) return;
  at('text').value = '';
  say(text);
};
at('text').onkeydown = event => {
  if (event.key === 'Enter' && !event.shiftKey) { event.preventDefault(); at('form').requestSubmit(); }
};
at('stop').onclick = () => running && running.abort();
at('clear').onclick = () => { if (running) running.abort(); messages = []; at('chat').replaceChildren(); };
</script></body></html>
)";

}  // namespace tutti::generate::serve
