// A completion whose tokens are coloured by their KL: the scale of every Kleash page, fixed and logarithmic, in nats.

import { el } from "/static/watch_dom.js";
import { number, whole } from "/static/watch_words.js";

const EDGES = [0.01, 0.03, 0.1, 0.3, 1, 3];
const AT_ONCE = 20_000; // tokens; many more and the browser stands still
const VISIBLE = { " ": "·", "\n": "↵\n", "\r": "␍", "\t": "⇥\t" };

export function heat(sample) {
  const tokens = sample.tokens ?? [];
  const values = sample.token_kl ?? [];
  if (tokens.length === 0 || values.length === 0) return [el("p", { class: "heat" }, sample.completion || "(empty)")];
  const known = values.map((value, at) => ({ value, at })).filter(({ value }) => value !== null);
  const worst = known.reduce((best, one) => (best === null || one.value > best.value ? one : best), null);
  const said =
    worst === null
      ? ""
      : `${tokens.length} tokens, most KL at “${tokens[worst.at].trim()}” with ${number(worst.value)} nats.`;
  const spans = (first, last) => tokens.slice(first, last).map((token, at) => span(token, values[first + at]));
  const text = el("p", { class: "heat", tabindex: "-1" }, spans(0, AT_ONCE));
  const left = tokens.length - AT_ONCE;
  return [text, left > 0 ? rest(text, left, () => spans(AT_ONCE)) : null, el("p", { class: "spoken" }, said)];
}

/** A button that puts the tokens that are left behind a text. */
function rest(text, left, spans) {
  const button = el(
    "button",
    {
      type: "button",
      class: "small",
      click: () => {
        for (const one of spans()) text.append(one);
        text.focus({ preventScroll: true });
        button.remove();
      },
    },
    `Show the rest: ${whole(left)} tokens`,
  );
  return button;
}

export function scale() {
  const starts = ["0", ...EDGES.map(String)];
  return el(
    "p",
    { class: "scale", role: "img", "aria-label": "Colours of the KL of a token, from none to 3 nats and more" },
    el("span", { class: "what" }, "KL of a token"),
    starts.map((start, at) => el("span", { class: `k${at}` }, start)),
    el("span", { class: "what" }, "nats and more"),
  );
}

function span(token, kl) {
  const known = kl !== null && kl !== undefined;
  const shade = known ? `k${EDGES.filter((edge) => kl >= edge).length}` : "broken";
  const blank = token.trim() === "";
  const letters =
    token === ""
      ? ["∅"]
      : [...token].map((letter) =>
          letter in VISIBLE && (blank || letter !== " ") ? el("i", {}, VISIBLE[letter]) : letter,
        );
  return el(
    "span",
    { class: shade, title: `${known ? number(kl) : "not finite:"} nats · ${JSON.stringify(token)}` },
    letters,
  );
}
