// What a chart shows, for those who do not see it: a sentence, and a table.

import { extremes } from "/static/watch_data.js";
import { el } from "/static/watch_dom.js";
import { number, whole, withError } from "/static/watch_words.js";

const MOST_ROWS = 1000;

/** First, last, lowest and highest number of each line of a chart, with their steps. */
export function sentence({ title, unit, lines }, { steps, values }) {
  const say = (one) => `${number(one.value)} at step ${steps[one.row]}`;
  const parts = lines.map((line, at) => {
    const found = extremes(values[at]);
    if (found === null) return `${line.label}: no numbers`;
    const [first, last, low, high] = [found.first, found.last, found.low, found.high].map(say);
    return `${line.label}: first ${first}, last ${last}, lowest ${low}, highest ${high}`;
  });
  return `${named({ title, unit })}. ${parts.join("; ")}.`;
}

/** The numbers of the steps that are shown, a row a step; the last ones where there are too many. */
export function table({ title, unit, lines }, { steps, values, stderr }, [first, last]) {
  const rows = steps.map((_, row) => row).filter((row) => steps[row] >= first && steps[row] <= last);
  const shown = rows.slice(-MOST_ROWS);
  const left = rows.length > shown.length ? ` The last ${MOST_ROWS} of ${rows.length} rows; zoom in for others.` : "";
  const cell = (at, row) => {
    const value = values[at][row];
    return value === undefined ? "" : value === null ? "not finite" : withError(value, stderr[at][row]);
  };
  const head = ["step", ...lines.map((line) => line.label)];
  const body = shown.map((row) =>
    el(
      "tr",
      {},
      el("th", { scope: "row", class: "number" }, whole(steps[row])),
      lines.map((_, at) => el("td", { class: "number" }, cell(at, row))),
    ),
  );
  return el(
    "table",
    {},
    el("caption", {}, `${named({ title, unit })}.${left}`),
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        head.map((name) => el("th", { scope: "col", class: "number" }, name)),
      ),
    ),
    el("tbody", {}, body),
  );
}

function named({ title, unit }) {
  return unit ? `${title}, ${unit}` : title;
}
