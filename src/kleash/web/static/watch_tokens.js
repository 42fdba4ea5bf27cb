// A completion whose tokens are coloured by their KL: the scale of every Kleash page, fixed and logarithmic, in nats.

import { el } from "/static/watch_dom.js";
import { number } from "/static/watch_words.js";

const EDGES = [0.01, 0.03, 0.1, 0.3, 1, 3];
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
  return [
    el(
      "p",
      { class: "heat" },
      tokens.map((token, at) => span(token, values[at])),
    ),
    el("p", { class: "spoken" }, said),
  ];
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
