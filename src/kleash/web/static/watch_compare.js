// Several runs over one axis of steps, and how their settings differ.

import { ask, listen } from "/static/watch_api.js";
import { PER_SEQUENCE, PER_TOKEN } from "/static/watch_board.js";
import { Chart } from "/static/watch_chart.js";
import { Numbers } from "/static/watch_data.js";
import { debounced, el, refill } from "/static/watch_dom.js";
import { health, progress } from "/static/watch_runs.js";
import { Timeline } from "/static/watch_timeline.js";
import { setting, span } from "/static/watch_words.js";

const STROKES = ["solid", "dashed", "dotted", "mixed"]; // beside the colour, which not everybody can tell
const TONES = 8;

/** A KL of each unit, the estimator that a run has; then what most runs have in common. */
const WANTED = [
  [PER_SEQUENCE, 200],
  [PER_TOKEN, 130],
  [["reward/proxy"], 160],
  [["reward/gold"], 130],
  [["eval/reward/proxy"], 130],
  [["control/beta"], 100],
  [["entropy/per_token"], 110],
  [["length/mean"], 110],
  [["text/distinct_2"], 110],
  [["preference/accuracy"], 110],
  [["preference/margin"], 110],
];

/** Show runs over one another in `main`; returns how to end it and to colour it anew. */
export function showCompare(main, page, ids) {
  const timeline = new Timeline();
  const numbers = ids.map((id) => new Numbers(id));
  let runs = [];
  let charts = [];
  let closed = false;
  let stop = () => {};
  let loading = false;
  let missed = false; // something may have been while the stream was shut

  const zoomed = el("span", { class: "hint" });
  const reset = el(
    "button",
    { type: "button", class: "small", hidden: true, click: () => timeline.show(null) },
    "All steps",
  );
  const legend = el("ul", { class: "runs-legend" });
  const column = el("div", { class: "column" });
  const settings = el("section", { id: "settings" });
  timeline.listeners.add((zoom) => {
    reset.hidden = zoom === null;
    zoomed.textContent = zoom === null ? "" : span(zoom[0], zoom[1]);
  });

  async function start() {
    await page.guarded(async () => {
      runs = await Promise.all(ids.map((id) => ask(`/api/runs/${encodeURIComponent(id)}`)));
      if (closed) return;
      page.drawn = true;
      document.title = `${runs.map((run) => run.name).join(", ")} · Kleash watch`;
      main.replaceChildren(
        el("div", { class: "title" }, el("h2", {}, `${runs.length} runs`), zoomed, reset),
        legend,
        column,
        settings,
      );
      drawLegend();
      charts = boards(runs).map((about) => new Chart(about, timeline));
      column.replaceChildren(...charts.map((chart) => chart.element));
      await readAll((one, keys) => one.want(keys));
      await drawSettings(settings, runs);
      stop = listen("/api/stream", debounced(refresh, 300), (on) => {
        if (!on) missed = true;
        page.connected(on);
      });
    });
  }

  async function readAll(how) {
    await Promise.all(numbers.map((one, at) => how(one, keysOf(charts, at), at)));
    if (closed) return;
    for (const chart of charts) chart.feed((key, line) => numbers[line.run].get(key));
    timeline.redraw();
  }

  async function refresh() {
    if (loading || closed) return;
    loading = true;
    await page.guarded(async () => {
      const unseen = missed;
      missed = false;
      const news = new Map((await ask("/api/runs")).runs.map((run) => [run.id, run]));
      const shorter = runs.map((run) => news.get(run.id)?.steps < run.steps);
      runs = runs.map((run) => ({ ...run, ...news.get(run.id) }));
      drawLegend();
      await readAll((one, keys, at) => {
        if (keys.length === 0) return undefined;
        return unseen || shorter[at] ? one.again() : one.follow(one.last);
      });
    });
    loading = false;
  }

  function drawLegend() {
    refill(
      legend,
      runs.map((run, at) =>
        el(
          "li",
          {},
          el("span", { class: `key ${strokeOf(at)} tone-${toneOf(at)}` }),
          el("a", { href: `#/run/${encodeURIComponent(run.id)}`, "data-focus": `open ${run.id}` }, labels(runs)[at]),
          health(run.health),
          progress(run),
        ),
      ),
    );
  }

  start();
  return {
    close() {
      closed = true;
      stop();
      charts.forEach((chart) => chart.close());
    },
    recolour: () => charts.forEach((chart) => chart.recolour()),
  };
}

const toneOf = (at) => `r${(at % TONES) + 1}`;
const strokeOf = (at) => STROKES[Math.floor(at / 2) % STROKES.length];

/** A chart for each key that a run was asked for: two estimators of KL, or two units, never share one. */
function boards(runs) {
  const charts = [];
  for (const [candidates, height] of WANTED) {
    const chosen = runs.map((run) => keyOf(run, candidates));
    for (const key of new Set(chosen.filter(Boolean))) {
      const about = runs[chosen.indexOf(key)].keys.find((entry) => entry.key === key);
      const lines = runs
        .map((run, at) => ({ key, run: at, label: labels(runs)[at], tone: toneOf(at), stroke: strokeOf(at) }))
        .filter((line) => chosen[line.run] === key);
      const zero = !key.includes("reward/") && !key.includes("preference/");
      charts.push({
        title: about.title,
        unit: about.unit,
        meaning: about.meaning,
        lines,
        height,
        zero,
        stacked: false,
        target: null,
      });
    }
  }
  return charts;
}

/** The first candidate that a run has, in training before held out. */
function keyOf(run, candidates) {
  const has = new Set(run.keys.map((entry) => entry.key));
  return (
    candidates.find((key) => has.has(key)) ?? candidates.map((key) => `eval/${key}`).find((key) => has.has(key)) ?? null
  );
}

/** Names of the runs; those of one name are told apart by their folder. */
function labels(runs) {
  const names = runs.map((run) => run.name);
  return runs.map((run) =>
    names.filter((name) => name === run.name).length > 1 ? run.path.split("/").slice(-2).join("/") : run.name,
  );
}

function keysOf(charts, at) {
  return [
    ...new Set(charts.flatMap((chart) => chart.about.lines.filter((line) => line.run === at).map((line) => line.key))),
  ];
}

async function drawSettings(section, runs) {
  const { settings } = await ask("/api/compare", { runs: runs.map((run) => run.id).join(",") });
  const body = el("tbody");
  const all = el("input", { type: "checkbox", id: "all-settings", change: () => draw() });
  const draw = () => {
    const shown = settings.filter((one) => all.checked || one.differs);
    refill(
      body,
      shown.map((one) =>
        el(
          "tr",
          { class: one.differs ? "differs" : null },
          el("th", { scope: "row" }, el("code", {}, one.key)),
          one.values.map((value) =>
            el("td", {}, value === null || value === undefined ? el("span", { class: "hint" }, "–") : setting(value)),
          ),
        ),
      ),
    );
    if (shown.length === 0)
      refill(
        body,
        el("tr", {}, el("td", { colspan: runs.length + 1, class: "nothing" }, "Every setting is the same.")),
      );
  };
  draw();
  section.replaceChildren(
    el(
      "div",
      { class: "title" },
      el("h2", {}, "Settings that differ"),
      el("label", { class: "inline" }, all, " show those that are the same"),
    ),
    el(
      "div",
      { class: "scroll" },
      el(
        "table",
        { class: "settings" },
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            el("th", { scope: "col" }, "setting"),
            labels(runs).map((name, at) =>
              el("th", { scope: "col" }, el("span", { class: `key ${strokeOf(at)} tone-${toneOf(at)}` }), name),
            ),
          ),
        ),
        body,
      ),
    ),
  );
}
