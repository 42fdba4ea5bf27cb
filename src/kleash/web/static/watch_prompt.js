// Before and after: what the policy wrote to one prompt at two steps, side by side.

import { ask } from "/static/watch_api.js";
import { el, refill } from "/static/watch_dom.js";
import { heat, scale } from "/static/watch_tokens.js";
import { number, whole } from "/static/watch_words.js";

/** Open the dialog for the prompt of a sample. */
export async function showPrompt(runId, sample, page) {
  const path = `/api/runs/${encodeURIComponent(runId)}`;
  await page.guarded(async () => {
    const { split, prompt_index } = sample;
    const { samples } = await ask(`${path}/prompt`, { split, prompt_index });
    const read = ({ split, step, prompt_index, sample_index }, signal) =>
      ask(`${path}/sample`, { split, step, prompt_index, sample_index }, signal);
    open(sample, samples, (one, signal, shown) => page.guarded(async () => shown(await read(one, signal))));
  });
}

/** `read(sample, signal, shown)` calls `shown` with the whole of a sample. */
function open(sample, samples, read) {
  const dialog = el(
    "dialog",
    { class: "prompt-dialog", "aria-labelledby": "prompt-title", close: () => dialog.remove() },
    el(
      "form",
      { method: "dialog", class: "dialog-head" },
      el("h2", { id: "prompt-title" }, "One prompt across the steps"),
      el("button", { class: "plain" }, "Close ", el("kbd", {}, "Esc")),
    ),
    el("p", { class: "prompt" }, sample.prompt),
    scale(),
    el(
      "div",
      { class: "columns of-2" },
      side("Left", samples, 0, read),
      side("Right", samples, samples.length - 1, read),
    ),
  );
  document.body.append(dialog);
  dialog.showModal();
}

/** One side: a choice of the sample, and its text. */
function side(name, samples, chosen, read) {
  const several = new Set(samples.map((one) => `${one.split} ${one.step}`)).size < samples.length;
  const options = samples.map((one, at) =>
    el(
      "option",
      { value: at },
      `${one.split} · step ${whole(one.step)}${several ? ` · reply ${one.sample_index + 1}` : ""}`,
    ),
  );
  const select = el("select", { "aria-label": `${name}: which sample`, change: () => draw() }, options);
  select.selectedIndex = chosen;
  const turn = (by) => {
    select.selectedIndex = Math.max(0, Math.min(samples.length - 1, select.selectedIndex + by));
    draw();
  };
  const numbers = el("p", { class: "hint", "aria-live": "polite" });
  const text = el("div");
  let reading = null;
  const draw = () => {
    reading?.abort();
    reading = new AbortController();
    const one = samples[select.selectedIndex];
    numbers.textContent = [
      known(one.kl, (kl) => `KL ${number(kl)} nats per sequence`),
      known(one.reward, (reward) => `reward ${number(reward)}`),
      known(one.gold, (gold) => `gold ${number(gold)}`),
      known(one.num_tokens, (many) => `${whole(many)} tokens`),
    ]
      .filter(Boolean)
      .join(" · ");
    refill(text, el("p", { class: "hint" }, "Reading the tokens …"));
    read(one, reading.signal, (found) => refill(text, heat(found)));
  };
  draw();
  return el(
    "section",
    { class: "side", "aria-label": name },
    el(
      "div",
      { class: "chooser" },
      el("button", { type: "button", class: "small", "aria-label": `${name}: earlier`, click: () => turn(-1) }, "←"),
      select,
      el("button", { type: "button", class: "small", "aria-label": `${name}: later`, click: () => turn(1) }, "→"),
    ),
    numbers,
    text,
  );
}

function known(value, words) {
  return value === null || value === undefined ? "" : words(value);
}
