// Before and after: what the policy wrote to one prompt at two steps, side by side.

import { ask } from "/static/watch_api.js";
import { el, refill } from "/static/watch_dom.js";
import { heat, scale } from "/static/watch_tokens.js";
import { number, whole } from "/static/watch_words.js";

const TOGETHER = ["before", "after"]; // two splits with the same prompts

/** Open the dialog for the prompt of a sample. */
export async function showPrompt(runId, sample, page) {
  await page.guarded(async () => {
    const splits = TOGETHER.includes(sample.split) ? TOGETHER : [sample.split];
    const answers = await Promise.all(
      splits.map((split) =>
        ask(`/api/runs/${encodeURIComponent(runId)}/prompt`, { split, prompt_index: sample.prompt_index }),
      ),
    );
    const samples = answers
      .flatMap((answer) => answer.samples)
      .toSorted((a, b) => a.step - b.step || a.sample_index - b.sample_index);
    open(sample, samples);
  });
}

function open(sample, samples) {
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
    el("div", { class: "columns of-2" }, side("Left", samples, 0), side("Right", samples, samples.length - 1)),
  );
  document.body.append(dialog);
  dialog.showModal();
}

/** One side: a choice of the sample, and its text. */
function side(name, samples, chosen) {
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
  const draw = () => {
    const one = samples[select.selectedIndex];
    numbers.textContent = [
      known(one.kl, (kl) => `KL ${number(kl)} nats per sequence`),
      known(one.reward, (reward) => `reward ${number(reward)}`),
      known(one.gold, (gold) => `gold ${number(gold)}`),
      known(one.num_tokens, (many) => `${whole(many)} tokens`),
    ]
      .filter(Boolean)
      .join(" · ");
    refill(text, heat(one));
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
