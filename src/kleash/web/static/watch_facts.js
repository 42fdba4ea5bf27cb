// Tables at the foot of a run's page: its checkpoints, what its numbers are, its settings.

import { el } from "/static/watch_dom.js";
import { health } from "/static/watch_runs.js";
import { setting, whole } from "/static/watch_words.js";

export function checkpoints(list) {
  if (list.length === 0) return null;
  const rows = list
    .toReversed()
    .map((one) =>
      el(
        "tr",
        {},
        el("th", { scope: "row", class: "number" }, whole(one.step)),
        el("td", {}, one.exists ? "kept" : "deleted"),
        el("td", {}, one.suspicions.length === 0 ? "none" : [health("warning"), ` ${one.suspicions.join(", ")}`]),
        el("td", {}, el("code", {}, one.path)),
      ),
    );
  return el(
    "section",
    { id: "checkpoints" },
    el("h2", {}, "Checkpoints"),
    el("p", { class: "prose" }, "A checkpoint that was saved under a warning or critical alarm is suspect."),
    el(
      "div",
      { class: "scroll" },
      el(
        "table",
        {},
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            el("th", { scope: "col", class: "number" }, "step"),
            ["folder", "alarms it lies under", "where"].map((name) => el("th", { scope: "col" }, name)),
          ),
        ),
        el("tbody", {}, rows),
      ),
    ),
  );
}

/** What the columns of another trainer's log were taken for, and what is absent. */
export function measured(run) {
  const notes = run.notes ?? [];
  const columns = run.columns ?? [];
  if (notes.length === 0 && columns.length === 0) return null;
  return el(
    "section",
    { id: "measured" },
    el("h2", {}, "What is measured"),
    notes.map((note) => el("p", { class: "note" }, note)),
    columns.length === 0
      ? null
      : el(
          "div",
          { class: "scroll" },
          el(
            "table",
            {},
            el(
              "thead",
              {},
              el(
                "tr",
                {},
                ["column", "read as", "what it is"].map((name) => el("th", { scope: "col" }, name)),
              ),
            ),
            el(
              "tbody",
              {},
              columns.map((one) =>
                el(
                  "tr",
                  {},
                  el("th", { scope: "row" }, el("code", {}, one.name)),
                  el("td", {}, one.key === null ? "left out" : el("code", {}, one.key)),
                  el("td", {}, one.says),
                ),
              ),
            ),
          ),
        ),
  );
}

export function settings(flat) {
  const entries = Object.entries(flat);
  if (entries.length === 0) return null;
  return el(
    "section",
    { id: "settings" },
    el("h2", {}, "Settings"),
    el(
      "dl",
      { class: "all-settings" },
      entries.map(([key, value]) => el("div", {}, el("dt", {}, el("code", {}, key)), el("dd", {}, setting(value)))),
    ),
  );
}
